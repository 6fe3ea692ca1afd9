// What a connection has yet to send: filled from any thread, emptied by the io thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/gateway.h"
#include "ipc/buffer_budget.h"
#include "scheduler/outcome.h"

namespace troupe::ipc {

// The answer to a question, as a frame.
struct Answer {
  std::string frame;  // with its header; within max_frame_bytes
  scheduler::Outcome outcome = scheduler::Outcome::eos;
};

// Tokens and ends become frames when they are written, on the io thread: an actor only moves a value in.
struct Outgoing {
  std::uint64_t stream = 0;
  std::variant<actors::TokenRun, std::unique_ptr<actors::End>, Answer> body;
};

// Thread-safe. Outlives its connection as long as a sink or a callback holds it; closed, it swallows
// what they bring.
class Outbox {
 public:
  // What it holds counts against `share`, too. `wake` is called, under the lock, when something arrives for an io
  // thread that knows of nothing: once per burst. It must only post.
  Outbox(std::uint64_t max_bytes, std::unique_ptr<BufferShare> share, std::function<void()> wake);

  // O(1), never blocks on the socket. Over max_bytes, or where the share has no room, the queue is dropped and nothing
  // more is taken.
  void push(Outgoing item);

  // The oldest items: as many as hold `most` bytes, and at least one if there is any. They count against max_bytes
  // until written().
  std::vector<Outgoing> take(std::uint64_t most);
  void written();

  std::uint64_t max_bytes() const { return max_bytes_; }
  bool overflowed() const;
  // Which of the two it was.
  bool share_was_full() const;
  // Memory of all that is queued or being written: the items and what they hold on the heap.
  std::uint64_t bytes() const;
  // Whether that is more than half of max_bytes: time to ask for nothing more.
  bool is_half_full() const { return bytes() > max_bytes_ / 2; }
  // Drops the queue and swallows everything from now on but what `last` brings.
  void close();
  void close_with(Outgoing last);

 private:
  void drop_queue();

  struct Queued {
    Outgoing item;
    std::uint64_t bytes = 0;
  };

  mutable std::mutex mutex_;
  const std::uint64_t max_bytes_;
  const std::unique_ptr<BufferShare> share_;
  std::function<void()> wake_;
  std::deque<Queued> queue_;
  std::uint64_t queued_bytes_ = 0;
  std::uint64_t writing_bytes_ = 0;  // of what was taken since written()
  bool woken_ = false;               // the io thread knows that the queue is not empty
  bool closed_ = false;
  bool overflowed_ = false;
  bool share_was_full_ = false;
};

// One stream's end of the gateway: hands everything to the outbox. Any thread.
class OutboxSink final : public actors::StreamSink {
 public:
  OutboxSink(std::shared_ptr<Outbox> outbox, std::uint64_t stream) : outbox_(std::move(outbox)), stream_(stream) {}
  void tokens(actors::TokenRun run) override { outbox_->push({stream_, std::move(run)}); }
  void end(actors::End end) override { outbox_->push({stream_, std::make_unique<actors::End>(std::move(end))}); }

 private:
  const std::shared_ptr<Outbox> outbox_;
  const std::uint64_t stream_;
};

}  // namespace troupe::ipc
