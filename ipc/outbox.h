// What a connection has yet to send: filled from any thread, emptied by the io thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "actors/gateway.h"
#include "ipc/wire.h"

namespace troupe::ipc {

// Not yet encoded: the io thread does that, so that an actor only moves a value in.
struct Outgoing {
  std::uint64_t stream = 0;
  std::variant<actors::TokenRun, actors::End, actors::StatusSnapshot, v1::ServerFrame> body;
};

// Thread-safe. Outlives its connection as long as a sink or a callback holds it; closed, it swallows
// what they bring.
class Outbox {
 public:
  // `wake` is called, under the lock, when something arrives for an io thread that knows of nothing:
  // once per burst. It must only post.
  Outbox(std::uint64_t max_bytes, std::function<void()> wake);

  // O(1), never blocks on the socket. Over max_bytes the queue is dropped and nothing more is taken.
  void push(Outgoing item);

  // Everything queued, in order. What was taken still counts against max_bytes until written().
  std::vector<Outgoing> take();
  void written();

  std::uint64_t max_bytes() const { return max_bytes_; }
  bool overflowed() const;
  // Of all that is queued or being written, by the same estimate as max_bytes.
  std::uint64_t bytes() const;
  // Drops the queue and swallows everything from now on but what `last` brings.
  void close();
  void close_with(Outgoing last);

 private:
  mutable std::mutex mutex_;
  const std::uint64_t max_bytes_;
  std::function<void()> wake_;
  std::vector<Outgoing> queue_;
  std::uint64_t queued_bytes_ = 0;   // an estimate, never below what the frames will take
  std::uint64_t writing_bytes_ = 0;  // of what was taken last
  bool woken_ = false;
  bool closed_ = false;
  bool overflowed_ = false;
};

// One stream's end of the gateway: hands everything to the outbox. Any thread.
class OutboxSink final : public actors::StreamSink {
 public:
  OutboxSink(std::shared_ptr<Outbox> outbox, std::uint64_t stream) : outbox_(std::move(outbox)), stream_(stream) {}
  void tokens(actors::TokenRun run) override { outbox_->push({stream_, std::move(run)}); }
  void end(actors::End end) override { outbox_->push({stream_, std::move(end)}); }

 private:
  const std::shared_ptr<Outbox> outbox_;
  const std::uint64_t stream_;
};

}  // namespace troupe::ipc
