// The scalar variant, compiled without automatic vectorization.
#pragma once

#include "kernels/kernels.h"

namespace troupe::kernels {

// The scalar variant's sources, compiled once more so that they process one element at a time. On x86-64 every CPU has
// SSE2, and compilers use it for most of the scalar loops. Compared with this table, a variant shows the gain of all
// vectorization; compared with find_table("scalar"), the gain of the hand-written vectors over the compiler's.
[[nodiscard]] const KernelTable& plain_table();

}  // namespace troupe::kernels
