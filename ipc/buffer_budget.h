// A limit on the memory of all connections together: of frames being read, or of unsent answers.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "scheduler/shares/shared_limit.h"

namespace troupe::ipc {

// Thread-safe.
class BufferBudget {
 public:
  explicit BufferBudget(std::uint64_t max_bytes)
      : limit_({.name = "max_buffer_bytes", .what = "bytes of frames and answers", .limit = max_bytes}) {}

  // Takes `bytes` if they fit into the tenant's share and into the limit; returns whether they did. O(1).
  [[nodiscard]] bool try_take(const scheduler::Tenant& tenant, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    return !limit_.try_take(tenant, bytes);
  }
  void give_back(const scheduler::Tenant& tenant, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_.give_back(tenant.id, bytes);
  }
  std::uint64_t held() const {
    const std::lock_guard lock(mutex_);
    return limit_.held();
  }

 private:
  mutable std::mutex mutex_;
  scheduler::SharedLimit limit_;
};

// One buffer's part of the budget; the destructor gives it back. Not thread-safe.
class BufferShare {
 public:
  BufferShare(std::shared_ptr<BufferBudget> budget, scheduler::Tenant tenant)
      : budget_(std::move(budget)), tenant_(tenant) {}
  ~BufferShare() { shrink_to(0); }
  BufferShare(const BufferShare&) = delete;
  BufferShare& operator=(const BufferShare&) = delete;

  // False: the budget has no room, and nothing changes.
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
  // Counts for this tenant from now on; while something is held, nothing changes.
  void count_for(const scheduler::Tenant& tenant) {
    if (bytes_ == 0) tenant_ = tenant;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<BufferBudget> budget_;
  scheduler::Tenant tenant_;
  std::uint64_t bytes_ = 0;
};

}  // namespace troupe::ipc
