// How often this program has allocated with new, on any thread.
#pragma once

#include <cstddef>

namespace troupe::test {
// count_allocations.cpp replaces the global operators new and delete.
[[nodiscard]] std::size_t num_allocations();
}  // namespace troupe::test
