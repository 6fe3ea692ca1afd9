// The scalar variant without the compiler's own vectors.
#pragma once

#include "kernels/kernels.h"

namespace troupe::kernels {

// The scalar variant's sources, compiled once more so that they work on one element at a time. On x86-64 every CPU has
// SSE2, and compilers use it for most of the scalar loops: beside this table it shows what vectors make of a kernel,
// beside find_table("scalar") what the hand-written ones add.
[[nodiscard]] const KernelTable& plain_table();

}  // namespace troupe::kernels
