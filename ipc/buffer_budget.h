// The memory of all connections together: of frames that are being read, or of answers that wait unread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "scheduler/shared_limit.h"

namespace troupe::ipc {

// Thread-safe.
class BufferBudget {
 public:
  explicit BufferBudget(std::uint64_t max_bytes)
      : limit_({.name = "max_buffer_bytes", .what = "bytes of frames and answers", .limit = max_bytes}) {}

  // Whether so much more fits into the tenant's share and into what is left; then it is taken. O(1).
  [[nodiscard]] bool try_take(const scheduler::Tenant& tenant, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return !limit_.try_take(tenant, bytes);
  }
  void give_back(const scheduler::Tenant& tenant, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_.give_back(tenant.uid, bytes);
  }
  std::uint64_t held() const {
    const std::lock_guard lock(mutex_);
    return limit_.held();
  }

 private:
  mutable std::mutex mutex_;
  scheduler::SharedLimit limit_;
};

// What one buffer has of the budget; gives it back when it goes. Not thread-safe.
class BufferShare {
 public:
  BufferShare(std::shared_ptr<BufferBudget> budget, scheduler::Tenant tenant)
      : budget_(std::move(budget)), tenant_(tenant) {}
  ~BufferShare() { shrink_to(0); }
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;

  // False: there is no room; nothing changes.
  [[nodiscard]] bool grow_to(std::uint64_t bytes) {
    if (bytes > bytes_ && !budget_->try_take(tenant_, bytes - bytes_)) return false;
    bytes_ = bytes > bytes_ ? bytes : bytes_;
    return true;
  }
  void shrink_to(std::uint64_t bytes) {
    if (bytes >= bytes_) return;
    budget_->give_back(tenant_, bytes_ - bytes);
    bytes_ = bytes;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<BufferBudget> budget_;
  scheduler::Tenant tenant_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::ipc
