// How much memory there is for a model, and what its weights and its vocabulary take of it. What they leave is divided
// by cache_plan.h.
#pragma once

#include <cstdint>
#include <memory>

#include "config/result.h"
#include "engine/formats/model_file.h"
#include "engine/tokenizers/tokenizer.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// The budget where none is given, in bytes: 60 % of what is available, because others live on this machine too.
[[nodiscard]] std::uint64_t default_memory_budget();

// What the weights of `file` take once they are packed for `kernels`, in bytes: more than in the file where codes are
// widened (TQ1_0: 1.2 times). Exact for dense transformers, within some headers and small vectors where a family cuts
// its tensors or turns them round. The tables of rotations, which grow with the context, come on top (ModelOutline).
// Reads the directory of tensors only.
[[nodiscard]] std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels);

// What the vocabulary of `file` takes once its tokenizer is made, in bytes, and while it is made: an upper bound,
// within three times what it is. 0 without a vocabulary. Reads metadata only; O(tokens).
[[nodiscard]] std::uint64_t expected_vocabulary_bytes(const ModelFile& file);

// Whether both fit `budget`. Error: out_of_memory, with the numbers.
[[nodiscard]] Status check_budget(const ModelFile& file, const kernels::KernelTable& kernels, std::uint64_t budget);

// For those who want no weights: as make_tokenizer(). Error also: out_of_memory, before anything is built, where
// expected_vocabulary_bytes() are above `budget`.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_tokenizer_within(const ModelFile& file,
                                                                             std::uint64_t budget);

}  // namespace troupe::engine
