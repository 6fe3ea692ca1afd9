#include "tests/engine/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// AddressSanitizer brings its own operators, and wants none of ours: with it nothing is counted.
#if defined(__SANITIZE_ADDRESS__)
#define TROUPE_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TROUPE_ADDRESS_SANITIZER
#endif
#endif

namespace {
std::atomic<std::size_t> count{0};
}

#ifndef TROUPE_ADDRESS_SANITIZER
void* operator new(std::size_t size) {
  ++count;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

namespace troupe::test {
std::size_t num_allocations() { return count; }
}  // namespace troupe::test
