// Large zeroed memory from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace troupe::engine {

// Anonymous pages, zero until written. From 2 MiB on it begins at a 2 MiB boundary and asks for huge
// pages: a matrix of some MiB then needs a handful of TLB entries instead of thousands. Move-only.
class AlignedMemory {
 public:
  AlignedMemory() = default;
  // Null data() where the operating system has no address space left; size 0 is valid and empty.
  static AlignedMemory allocate(std::size_t bytes);
  ~AlignedMemory();
  AlignedMemory(AlignedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedMemory& operator=(AlignedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // How much of it is in memory now: pages that were written, not what was asked for. Asks the kernel; O(size).
  [[nodiscard]] std::size_t resident_bytes() const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace troupe::engine
