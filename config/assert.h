// Assertions that stay on in release builds: a broken invariant must not become a wrong answer.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace troupe {
[[noreturn]] inline void assertion_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, what);
  std::abort();
}
}  // namespace troupe

#define TROUPE_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::troupe::assertion_failed(#condition, __FILE__, __LINE__))
