#include "ipc/outbox.h"

#include <utility>

namespace troupe::ipc {
namespace {

constexpr std::uint64_t kAllocationBytes = 16;  // malloc()'s overhead per allocation

std::uint64_t heap_bytes(const std::string& text) {
  static const std::size_t inside = std::string().capacity();  // short strings are stored in the object
  return text.capacity() > inside ? text.capacity() + kAllocationBytes : 0;
}

template <class T>
std::uint64_t heap_bytes(const std::vector<T>& items) {
  return items.capacity() == 0 ? 0 : items.capacity() * sizeof(T) + kAllocationBytes;
}

std::uint64_t heap_bytes(const std::shared_ptr<const actors::Proof>& proof) {
  if (!proof) return 0;
  return sizeof(actors::Proof) + kAllocationBytes + heap_bytes(*proof->prompt) + heap_bytes(proof->ids) +
         heap_bytes(proof->text) + heap_bytes(proof->begins_with) + heap_bytes(proof->shown_ids) +
         (proof->form ? engine::constraints::bytes_of(proof->form->constraint()) : 0);
}

struct HeapBytes {
  std::uint64_t operator()(const actors::TokenRun& run) const {
    std::uint64_t bytes = heap_bytes(run.text) + heap_bytes(run.ids) + heap_bytes(run.logprobs);
    for (const engine::SampledToken& token : run.logprobs) bytes += heap_bytes(token.top);
    return bytes;
  }
  std::uint64_t operator()(const std::unique_ptr<actors::End>& end) const {
    return sizeof(actors::End) + kAllocationBytes + heap_bytes(end->proof) + heap_bytes(end->message) +
           heap_bytes(end->field) + heap_bytes(end->stop);
  }
  std::uint64_t operator()(const EncodedAnswer& answer) const { return heap_bytes(answer.frame); }
  std::uint64_t operator()(const actors::Admitted&) const { return 0; }  // its model is shared
  std::uint64_t operator()(Silence) const { return 0; }
};

}  // namespace

Outbox::Outbox(std::uint64_t max_bytes, std::unique_ptr<BufferShare> share, std::function<void()> wake)
    : max_bytes_(max_bytes), share_(std::move(share)), wake_(std::move(wake)) {}

void Outbox::push(Outgoing item) {
  const std::uint64_t bytes = sizeof(Queued) + kAllocationBytes + std::visit(HeapBytes{}, item.body);
  const std::lock_guard lock(mutex_);
  if (closed_ || overflowed_) return;
  const std::uint64_t held = queued_bytes_ + writing_bytes_ + bytes;
  share_was_full_ = held <= max_bytes_ && !share_->grow_to(held);
  if (held > max_bytes_ || share_was_full_) {
    overflowed_ = true;
    drop_queue();
  } else {
    queue_.push_back({std::move(item), bytes});
    queued_bytes_ += bytes;
  }
  // Also where a wake-up is due: the io thread may have looked at overflowed() before, and finds the queue empty.
  if (!std::exchange(woken_, true) || overflowed_) wake_();
}

std::vector<Outgoing> Outbox::take(std::uint64_t most) {
  std::vector<Outgoing> taken;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t bytes = 0; !queue_.empty() && (taken.empty() || bytes + queue_.front().bytes <= most);) {
    bytes += queue_.front().bytes;
    queued_bytes_ -= queue_.front().bytes;
    writing_bytes_ += queue_.front().bytes;
    taken.push_back(std::move(queue_.front().item));
    queue_.pop_front();
  }
  woken_ = !queue_.empty();
  return taken;
}

void Outbox::written() {
  const std::lock_guard lock(mutex_);
  writing_bytes_ = 0;
  share_->shrink_to(queued_bytes_);
}

std::uint64_t Outbox::bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ + writing_bytes_;
}

bool Outbox::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void Outbox::count_for(const scheduler::Tenant& tenant) {
  const std::lock_guard lock(mutex_);
  share_->count_for(tenant);
}

bool Outbox::share_was_full() const {
  const std::lock_guard lock(mutex_);
  return share_was_full_;
}

// Call with the lock.
void Outbox::drop_queue() {
  queue_.clear();
  queued_bytes_ = 0;
  share_->shrink_to(writing_bytes_);
}

void Outbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  drop_queue();
}

void Outbox::close_with(Outgoing last) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  drop_queue();
  queue_.push_back({std::move(last), 0});
}

}  // namespace troupe::ipc
