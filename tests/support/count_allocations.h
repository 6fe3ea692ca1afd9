// How often this program has allocated with new, on any thread.
#pragma once

#include <cstddef>

namespace troupe::test {
// count_allocations.cpp replaces the global operators new and delete.
[[nodiscard]] std::size_t num_allocations();
// Of these, those that have not been freed yet.
[[nodiscard]] std::size_t num_live_allocations();
// Whether anything is counted: not in builds with a sanitizer.
[[nodiscard]] bool counts_allocations();
}  // namespace troupe::test
