// The streams of a client's connection: of a request for tokens, and of a request that one frame answers. Internal to
// the library.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ipc/client/client.h"
#include "ipc/client/connection.h"

namespace troupe::client {

// The error of a call that waits for an answer, made on the thread that would bring it.
[[nodiscard]] Error inside_callback();

void send_cancel(Connection& connection, std::uint64_t stream);

// Ends the connection, since the server breaks the protocol like this.
Error breach(Connection& connection, const std::string& how);

// Receives the one frame that answers a request.
class Question final : public Receiver {
 public:
  bool on_frame(v1::ServerFrame& frame) override;
  void on_lost(const Error& error) override { answer_.set_value(error); }
  // Call once.
  std::future<Result<v1::ServerFrame>> answer() { return answer_.get_future(); }

 private:
  std::promise<Result<v1::ServerFrame>> answer_;
};

// Receives the one frame that answers a request, and passes it on at once with how the request ended. An answer that is
// no such one ends the connection.
class Reply final : public Receiver {
 public:
  using OnEnd = std::function<void(const Result<Ended>&, v1::ServerFrame&)>;
  // `check`: how an answer breaks the protocol; empty: it does not.
  using Check = std::function<std::string(const v1::ServerFrame&)>;
  Reply(std::shared_ptr<Connection> connection, Check check, OnEnd on_end)
      : connection_(std::move(connection)), check_(std::move(check)), on_end_(std::move(on_end)) {}
  bool on_frame(v1::ServerFrame& frame) override;
  void on_lost(const Error& error) override;

 private:
  const std::shared_ptr<Connection> connection_;
  const Check check_;
  const OnEnd on_end_;
};

// The state of one stream: updated by the reader thread; any thread may wait for its end.
struct Stream::State final : Receiver {
  State(std::shared_ptr<Connection> stream_connection, std::uint64_t number, Callbacks stream_callbacks,
        std::uint32_t num_choices, const Request& request);

  bool on_frame(v1::ServerFrame& frame) override;
  void on_lost(const Error& error) override { finish(error); }
  void grant(std::uint64_t tokens, std::uint32_t choice);
  // How the frame breaks the protocol; empty: it does not.
  std::string what_is_wrong(const v1::ServerFrame& frame);
  std::string what_is_wrong(const v1::Tokens& tokens);
  // Calls on_end before it wakes waiters, so that a thread returning from wait() sees its effects.
  void finish(const Result<Ended>& result);

  const std::shared_ptr<Connection> connection;
  const std::uint64_t id;
  // Used by the reader thread only, up to `choices`.
  Callbacks callbacks;
  const bool automatic;      // the library grants the credit
  const bool logprobs;       // were asked for
  const bool tools;          // were offered
  const std::uint64_t most;  // tokens that were asked for
  std::uint32_t open;        // choices that have not ended
  struct Choice {
    std::uint64_t next_index = 0;   // of the next token
    std::uint64_t text_bytes = 0;   // so far
    std::uint64_t since_grant = 0;  // tokens since the last grant of credit
    std::uint32_t num_calls = 0;    // so far
    bool is_within_call = false;    // the last of them has not ended
    bool ended = false;
  };
  std::vector<Choice> choices;
  std::mutex mutex;                    // protects `granted`: any thread may grant
  std::vector<std::uint64_t> granted;  // by choice: tokens that it was given credit for, from the first one on
  std::promise<Result<Ended>> end;
  const std::shared_future<Result<Ended>> ended = end.get_future().share();
};

}  // namespace troupe::client
