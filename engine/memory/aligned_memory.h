// Large zeroed memory, from a policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "engine/memory/memory_policy.h"

namespace troupe::engine {

// Pages that are zero until written: the operating system's, or a policy's (see memory_policy.h). Move-only.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Null data() if there is no memory (address space) left; size 0 is valid and empty.
  static AlignedMemory allocate(std::size_t bytes) {
    return allocate(system_memory(), MemoryKind::step_buffers, bytes);
  }
  static AlignedMemory allocate(std::shared_ptr<MemoryPolicy> policy, MemoryKind kind, std::size_t bytes);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept { *this = std::move(other); }
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(policy_, other.policy_);
    std::swap(kind_, other.kind_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // Bytes in physical memory: pages that were written, not the size. Calls the kernel; O(size).
  [[nodiscard]] std::size_t resident_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::shared_ptr<MemoryPolicy> policy_;  // allocated data_
  MemoryKind kind_ = MemoryKind::weights;
};

}  // namespace troupe::engine
