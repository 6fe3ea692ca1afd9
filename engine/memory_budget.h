// How one model's memory is divided: what its weights take, and how much KV cache fits beside them. `troupe inspect`
// asks here; the loader divides what weights leave by cache_plan.h, which comes to the same where all layers see
// everything.
#pragma once

#include <cstdint>

#include "engine/model_file.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// The budget where none is given, in bytes: 60 % of what is available, because others live on this machine too.
[[nodiscard]] std::uint64_t default_memory_budget();

// What the weights of `file` take once they are packed for `kernels`, in bytes: more than in the file where codes are
// widened (TQ1_0: 1.2 times). The tables of rotations, which grow with the context, come on top; see rope_table.h.
// Reads the directory of tensors only.
[[nodiscard]] std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels);

// KV blocks of `bytes_per_block` (above 0) that fit a budget beside `weight_bytes` of weights and tables.
[[nodiscard]] std::uint64_t blocks_that_fit(std::uint64_t budget, std::uint64_t weight_bytes,
                                            std::uint64_t bytes_per_block);

}  // namespace troupe::engine
