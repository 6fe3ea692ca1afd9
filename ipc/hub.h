// What the sessions of a server share: the io thread, the options, users, and the status that all of them ask for.
#pragma once

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ipc/buffer_budget.h"
#include "ipc/frames/request_counts.h"
#include "ipc/log_quota.h"
#include "ipc/server.h"
#include "ipc/token_bucket.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

using Clock = std::chrono::steady_clock;

class Session;

// One user of the server, on all of its connections.
struct User {
  User(std::uint32_t its_uid, const ServerOptions& options)
      : uid(its_uid), frames(options.max_frames_per_second), questions(options.max_questions_per_second) {}

  // What a guest is told of its own requests.
  void add_counts(v1::Status& status) const;

  const std::uint32_t uid;
  std::uint32_t connections = 0;
  TokenBucket frames;     // of every kind; a connection that finds none is read later
  TokenBucket questions;  // Health, Models, Status: without one they are refused
  RequestCounts counts;
  std::uint64_t prompt_tokens = 0;  // these three: of requests that have ended
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
};

// Io thread only, but for `io` itself.
struct Hub {
  using OnStatus = std::function<void(const actors::StatusSnapshot&)>;

  explicit Hub(ServerOptions server_options);

  // Asks for a look at every session's deadlines soon. Nothing ticks while nobody asks, or once stopped:
  // a write that ends just before its connection is closed would keep the io thread for another tick.
  void arm_tick();
  // Stops all timers.
  void stop_ticking();
  void remember(const std::shared_ptr<Session>& session);
  void forget(const std::shared_ptr<Session>& session);
  // The user with this uid; good as long as it has a connection. Users without one are remembered for their counts, as
  // long as there are fewer than kMaxRememberedUsers in all.
  User& user(std::uint32_t uid);
  // Takes over what `options` say of each user.
  void set_rates();
  // Asks the gateway how the server does and calls `done` with the answer on the io thread; not after the server has
  // gone. One question of the gateway answers all who asked before it was put, and one is put every 50 ms at most: its
  // cost does not grow with the number of those who ask.
  void ask_status(OnStatus done);
  // What an owner is told of connections, of all users' requests, and of the memory of outboxes.
  void add_counts(v1::Status& status);
  // Logs a line, which is made only then, unless its kind had enough of them this second.
  void warn(LogQuota& kind, const std::function<std::string()>& line);

  asio::io_context io{1};
  asio::thread_pool decoders{1};  // of large frames; its jobs post back to io, and hold what they read
  ServerOptions options;
  // Each is half of max_buffer_bytes: what a user sends leaves room for its answers.
  std::shared_ptr<BufferBudget> frames, answers;
  actors::Gateway* gateway = nullptr;
  std::weak_ptr<Hub> self;  // for answers that may come when the server has gone
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::chrono::steady_clock::time_point
      empty_since;            // when the last of `sessions` went; meaningless while there are some
  std::vector<char> scratch;  // what any session reads into: an idle connection has no buffer of its own
  RequestCounts counts;       // of all users
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t connections_broken = 0;
  std::uint64_t outbox_peak_bytes = 0;  // of all sessions together, as far as anybody asked
  LogQuota refused_lines;               // connections not accepted
  LogQuota broken_lines;                // connections ended by us
  std::function<void()> on_empty;       // set while draining: the last session has gone

 private:
  void tick();
  void arm_status();
  void put_status_question();

  asio::steady_timer tick_timer_;
  bool tick_armed_ = false;
  bool stopped_ = false;
  std::unordered_map<std::uint32_t, User> users_;  // by uid
  // Status questions.
  asio::steady_timer status_timer_;
  Clock::time_point last_question_{};
  std::vector<OnStatus> waiting_;  // for the next question of the gateway
  std::vector<OnStatus> asking_;   // for the answer that is on its way
  bool status_armed_ = false;
};

}  // namespace troupe::ipc
