// How much memory there is for a model, and what its weights take of it. What they leave is divided by cache_plan.h.
#pragma once

#include <cstdint>

#include "engine/model_file.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// The budget where none is given, in bytes: 60 % of what is available, because others live on this machine too.
[[nodiscard]] std::uint64_t default_memory_budget();

// What the weights of `file` take once they are packed for `kernels`, in bytes: more than in the file where codes are
// widened (TQ1_0: 1.2 times). Exact for dense transformers, within some headers and small vectors where a family cuts
// its tensors or turns them round. The tables of rotations, which grow with the context, come on top (ModelOutline).
// Reads the directory of tensors only.
[[nodiscard]] std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels);

}  // namespace troupe::engine
