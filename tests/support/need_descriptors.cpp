// Linked into programs whose tests run servers: a server keeps 64 descriptors for itself (ipc/server.h) and lets in as
// many connections as the others are. With fewer than tests need, the program says so and ends; ctest knows the line
// and shows it as skipped.
#include <cstdio>
#include <cstdlib>

#include "tests/support/descriptors.h"

namespace {

constexpr rlim_t kNeeded = 128;

[[maybe_unused]] const bool there_are_enough = [] {
  if (const rlim_t allowed = troupe::test::take_descriptors(); allowed < kNeeded) {
    std::printf("skipped: these tests need %d descriptors, and %d are allowed (ulimit -n)\n", static_cast<int>(kNeeded),
                static_cast<int>(allowed));
    std::exit(EXIT_FAILURE);
  }
  return true;
}();

}  // namespace
