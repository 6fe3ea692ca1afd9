#include "ipc/outbox.h"

#include <utility>

namespace troupe::ipc {
namespace {

// Upper bounds of what protobuf makes of each part: a varint of a 32-bit number takes at most 10 bytes.
constexpr std::uint64_t kFrameBytes = 96;
constexpr std::uint64_t kEndBytes = 256;
constexpr std::uint64_t kStatusBytes = 8192;  // its histograms take half of that
constexpr std::uint64_t kLiveRequestBytes = 96;
constexpr std::uint64_t kOperationBytes = 128;  // of a profile, without its layers
constexpr std::uint64_t kIdBytes = 10;
constexpr std::uint64_t kLogprobBytes = 14;

struct BytesOf {
  std::uint64_t operator()(const actors::TokenRun& run) const {
    std::uint64_t bytes = kFrameBytes + run.text.size() + kIdBytes * run.ids.size();
    for (const engine::SampledToken& token : run.logprobs) bytes += kLogprobBytes * (1 + token.top.size());
    return bytes;
  }
  std::uint64_t operator()(const actors::End& end) const {
    return kEndBytes + 3 * (end.message.size() + end.field.size() + end.stop.size());
  }
  std::uint64_t operator()(const actors::StatusSnapshot& status) const {
    std::uint64_t bytes = kStatusBytes + kLiveRequestBytes * status.requests.size();
    if (!status.profile) return bytes;
    for (const engine::PhaseTime& phase : status.profile->phases) {
      bytes += kFrameBytes;
      for (const engine::OperationTime& operation : phase.operations)
        bytes += kOperationBytes + sizeof(double) * operation.layer_seconds.size();
    }
    return bytes;
  }
  std::uint64_t operator()(const v1::ServerFrame& frame) const { return kFrameBytes + frame.ByteSizeLong(); }
};

}  // namespace

Outbox::Outbox(std::uint64_t max_bytes, std::function<void()> wake) : max_bytes_(max_bytes), wake_(std::move(wake)) {}

void Outbox::push(Outgoing item) {
  const std::uint64_t bytes = std::visit(BytesOf{}, item.body);
  const std::lock_guard lock(mutex_);
  if (closed_ || overflowed_) return;
  if (queued_bytes_ + writing_bytes_ + bytes > max_bytes_) {
    overflowed_ = true;
    queue_.clear();
  } else {
    queue_.push_back(std::move(item));
    queued_bytes_ += bytes;
  }
  if (!std::exchange(woken_, true)) wake_();
}

std::vector<Outgoing> Outbox::take() {
  const std::lock_guard lock(mutex_);
  woken_ = false;
  writing_bytes_ += std::exchange(queued_bytes_, 0);
  return std::exchange(queue_, {});
}

void Outbox::written() {
  const std::lock_guard lock(mutex_);
  writing_bytes_ = 0;
}

std::uint64_t Outbox::bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_ + writing_bytes_;
}

bool Outbox::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

void Outbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  queue_.clear();
}

void Outbox::close_with(Outgoing last) {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  queue_.clear();
  queue_.push_back(std::move(last));
}

}  // namespace troupe::ipc
