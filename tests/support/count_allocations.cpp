#include "tests/support/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// Sanitizers bring their own operators, and want none of ours: with them nothing is counted.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TROUPE_OWN_OPERATORS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TROUPE_OWN_OPERATORS
#endif
#endif

namespace {
std::atomic<std::size_t> count{0}, freed{0};
}

#ifndef TROUPE_OWN_OPERATORS
void* operator new(std::size_t size) {
  ++count;
  if (void* const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept {
  if (memory != nullptr) ++freed;
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
#endif

namespace troupe::test {
std::size_t num_allocations() { return count; }
std::size_t num_live_allocations() { return count - freed; }
bool counts_allocations() {
#ifdef TROUPE_OWN_OPERATORS
  return false;
#else
  return true;
#endif
}
}  // namespace troupe::test
