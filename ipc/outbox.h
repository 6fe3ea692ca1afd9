// The unsent answers of a connection: filled from any thread, emptied by the io thread.
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

// The answer to a request that one frame or one response over HTTP answers.
struct EncodedAnswer {
  std::string frame;  // with its header, within max_frame_bytes; over HTTP the bytes of the response
  scheduler::Outcome outcome = scheduler::Outcome::eos;
};

// Nothing of an answer was sent for a while.
struct Silence {};

// Tokens and ends are encoded as frames when they are written, on the io thread: an actor only moves a value in.
struct Outgoing {
  std::uint64_t stream = 0;
  std::variant<actors::TokenRun, std::unique_ptr<actors::End>, EncodedAnswer, actors::Admitted, Silence> body;
};

// Thread-safe. Sinks and callbacks may keep it alive after its connection has closed; a closed outbox drops what they
// push.
class Outbox {
 public:
  // The held bytes also count against `share`. `wake` is called, with the lock held, when an item is pushed and the io
  // thread has not been woken since it last emptied the queue, once per burst, and when the queue overflows. It must
  // only post.
  Outbox(std::uint64_t max_bytes, std::unique_ptr<BufferShare> share, std::function<void()> wake);

  // O(1), never blocks on the socket. Above max_bytes, or if the share has no room, the queue and all later items are
  // dropped.
  void push(Outgoing item);

  // The oldest items: as many as hold `most` bytes, and at least one if there is any. They count against max_bytes
  // until written().
  std::vector<Outgoing> take(std::uint64_t most);
  void written();

  std::uint64_t max_bytes() const { return max_bytes_; }
  bool overflowed() const;
  // It overflowed because the share had no room, not because of max_bytes.
  bool share_was_full() const;
  // Memory of all items queued or being written, with their heap memory.
  std::uint64_t bytes() const;
  // As BufferShare::count_for().
  void count_for(const scheduler::Tenant& tenant);
  // More than half of max_bytes is used: the connection stops handling frames.
  bool is_half_full() const { return bytes() > max_bytes_ / 2; }
  // Drops the queue and all later items; close_with() sends `last` as the only remaining item.
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
  std::uint64_t writing_bytes_ = 0;  // of the items taken since the last written()
  bool woken_ = false;               // `wake` was called and take() has not emptied the queue since
  bool closed_ = false;
  bool overflowed_ = false;
  bool share_was_full_ = false;
};

// The sink of one stream: pushes everything to the outbox. Any thread.
class OutboxSink final : public actors::StreamSink {
 public:
  // first_choice: of the request, among the choices of the stream.
  OutboxSink(std::shared_ptr<Outbox> outbox, std::uint64_t stream, std::uint32_t first_choice = 0,
             bool notes_admission = false)
      : outbox_(std::move(outbox)), stream_(stream), first_choice_(first_choice), notes_admission_(notes_admission) {}
  void admitted(const actors::Admitted& choice) override {
    if (!notes_admission_) return;
    actors::Admitted noted = choice;
    noted.choice += first_choice_;
    outbox_->push({stream_, std::move(noted)});
  }
  void tokens(actors::TokenRun run) override {
    run.choice += first_choice_;
    outbox_->push({stream_, std::move(run)});
  }
  void end(actors::End end) override {
    end.choice += first_choice_;
    outbox_->push({stream_, std::make_unique<actors::End>(std::move(end))});
  }

 private:
  const std::shared_ptr<Outbox> outbox_;
  const std::uint64_t stream_;
  const std::uint32_t first_choice_;
  const bool notes_admission_;
};

}  // namespace troupe::ipc
