// Shared by the connections of a server: the io thread, options, users, counters, and status queries.
#pragma once

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "config/printable.h"
#include "ipc/activity.h"
#include "ipc/buffer_budget.h"
#include "ipc/frames/status_frame.h"
#include "ipc/rate_limits.h"
#include "ipc/request_kinds.h"
#include "ipc/server.h"
#include "ipc/troupe.pb.h"
#include "scheduler/shares/request_line.h"

namespace troupe::ipc {

using Clock = std::chrono::steady_clock;

class Connection;

// What a tenant's requests came to, on all of its connections.
struct Tally {
  Tally(TenantId whose, const ServerOptions& options)
      : tenant(whose), refusals(options.limits.max_refusals_per_second) {}

  // Fills in the counters, for a Status to a guest.
  void add_counts(v1::Status& status) const;

  const TenantId tenant;
  RequestCounts counts;
  actors::TokenMetrics tokens;      // of requests that have ended
  std::uint64_t num_submitted = 0;  // each choice counts: the number of the last one
  RefusalPace refusals;
  scheduler::RequestLine line;  // of requests in the gateway, and of those that wait for it over HTTP
};

// A request as it came, for ServerOptions::on_ended.
struct Arrival {
  scheduler::Tenant tenant{};
  actors::Protocol protocol = actors::Protocol::frames;
  std::string client_id{};  // as Request::client_id
  std::string model{};      // as Request::model; cut off where no served model's name is longer
  Clock::time_point at = Clock::now();

  void set_model(const std::string& name) { model = name.substr(0, kMaxModelNameBytes + 1); }
};

// All clients over TCP together are one user here, whose number no uid is ((uid_t)-1).
inline constexpr std::uint32_t kTcpUser = 0xffffffffu;

// One user of the server, on all of its connections.
struct User {
  User(std::uint32_t its_uid, const ServerOptions& options)
      : uid(its_uid),
        frames(options.limits.max_frames_per_second),
        questions(options.limits.max_questions_per_second) {}

  const std::uint32_t uid;
  std::uint32_t connections = 0;
  TokenBucket frames;     // of every kind; while it is empty, frames are handled later
  TokenBucket questions;  // all that is answered beside requests (open_control(), Route::is_question): while it is
                          // empty, these are refused
};

// Used by the io thread only, except for `io`.
struct Hub {
  using OnStatus = std::function<void(const actors::StatusSnapshot&)>;

  explicit Hub(ServerOptions server_options);

  // Starts the timer that checks every connection's timeouts, unless it is running. It stops when none has a timeout
  // left. Does nothing after stop_ticking(): a write that ends just before its connection is closed would keep the io
  // thread running for another tick.
  void arm_tick();
  // Stops all timers.
  void stop_ticking();
  void remember(const std::shared_ptr<Connection>& connection);
  void forget(const std::shared_ptr<Connection>& connection);
  // Closes the stranger that is to make room for a connection of this address (empty: for one that is no stranger);
  // false: none can.
  bool close_stranger_for(const std::string& address);
  // Closes as many as there are too many for one more, of this address; false: none of them can go for it.
  bool make_room_for_stranger(const std::string& address);
  // Counts a connection for all strangers together, or for all clients over TCP.
  void make_stranger(Connection& connection, bool is_stranger);
  // A copy of `connections`, for loops in which connections may close.
  std::vector<std::shared_ptr<Connection>> all_connections() const { return {connections.begin(), connections.end()}; }
  // The user with this uid; the reference is valid while the user has a connection. Users without one are kept for
  // their rates, while there are fewer than kMaxRememberedUsers in all.
  User& user(std::uint32_t uid);
  // The tenant's; kept like users, and at least while there is another reference.
  std::shared_ptr<Tally> tally(TenantId tenant);
  // Applies the rates in `options` to all users and tenants.
  void set_rates();
  // Queries the gateway's status and calls `done` with it on the io thread; not after the server has been destroyed.
  // One query of the gateway answers all callers that waited when it was sent, and at most one is sent every 50 ms, so
  // the cost does not grow with the number of callers.
  void ask_status(OnStatus done);
  // The tenant's live requests, on all connections; `asking` is the one that asks.
  OwnRequests requests_of(TenantId tenant, const Connection& asking) const;
  // Cancels a request by the number in this tenant's Status, asked for by the user `uid`: any for an owner, else one of
  // its own. Returns whether there is one.
  bool cancel_request(std::uint64_t number, const scheduler::Tenant& tenant, std::uint32_t uid);
  // Adds what owners alone see: connections, requests of all users, memory of outboxes.
  void add_counts(v1::Status& status);
  // Counts requests of a tenant as they arrive and as they end; refused ones delay its next requests.
  void count_received(Tally& tally, RequestKind kind, std::uint64_t count = 1);
  void count_ended(Tally& tally, RequestKind kind, scheduler::Outcome outcome, std::uint64_t count = 1);
  // Tells ServerOptions::on_ended of a request that ended without a stream of the gateway's.
  void tell_ended(const Arrival& arrival, RequestKind kind, scheduler::Outcome outcome) const;
  // Logs a line unless `kind` has used up its quota for this second; `line` is only called if it is logged.
  void warn(LogQuota& kind, const std::function<std::string()>& line);

  asio::io_context io{1};
  asio::thread_pool decoders{1};  // decodes large frames; its jobs keep their connection alive and post back to io
  ServerOptions options;
  Activity activity;  // of the io thread
  // Each is half of max_buffer_bytes, so frames being read cannot take the memory for answers.
  std::shared_ptr<BufferBudget> frames, answers;
  actors::Gateway* gateway = nullptr;
  std::weak_ptr<Hub> self;  // for answers that may arrive after the server was destroyed
  std::unordered_set<std::shared_ptr<Connection>> connections;
  std::chrono::steady_clock::time_point empty_since;  // when `connections` became empty; only valid while it is
  std::vector<char> scratch;  // the read buffer of all connections: an idle connection has no buffer of its own
  RequestCounts counts;       // of all users
  bool draining = false;      // questions that take work are refused, as the gateway refuses requests
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t connections_broken = 0;
  std::uint64_t outbox_peak_bytes = 0;  // of all connections together, the maximum over all calls of add_counts()
  LogQuota refused_lines;               // connections not accepted
  LogQuota broken_lines;                // connections ended by us
  // Why a connection that has shown a right key gets no place among those that have; nullopt: it has one now.
  std::function<std::optional<scheduler::Refusal>(Connection&)> let_in;
  User strangers;                  // connections over TCP that have shown no right key (keys/strangers.h)
  std::function<void()> on_empty;  // called when the last connection has closed; set while draining

 private:
  void tick();
  // What close_stranger_for() and tick() choose from.
  std::vector<std::shared_ptr<Connection>> all_strangers() const;
  void arm_status();
  void put_status_question();

  asio::steady_timer tick_timer_;
  bool tick_armed_ = false;
  bool stopped_ = false;
  std::unordered_map<std::uint32_t, User> users_;  // by uid
  std::unordered_map<TenantId, std::shared_ptr<Tally>> tallies_;
  // Status queries.
  asio::steady_timer status_timer_;
  Clock::time_point last_question_{};
  std::vector<OnStatus> waiting_;  // callers for the next query of the gateway
  std::vector<OnStatus> asking_;   // callers of the query that is unanswered
  bool status_armed_ = false;
};

}  // namespace troupe::ipc
