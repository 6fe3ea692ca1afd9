// An amount of memory, as an option: written "4GiB", "512M", "1.5GB" (powers of 1000) or a plain number of bytes.
#pragma once

#include <cstdint>

namespace troupe::config {

struct Bytes {
  constexpr Bytes(std::uint64_t bytes = 0) : count(bytes) {}
  constexpr operator std::uint64_t() const { return count; }

  std::uint64_t count;
};

}  // namespace troupe::config
