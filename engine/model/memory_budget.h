// The memory budget of a model: the part that its weights and vocabulary take, and how the rest is divided into KV
// blocks, snapshots and live states.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/result.h"
#include "engine/engine.h"
#include "engine/formats/model_file.h"
#include "engine/tokenizers/tokenizer.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// The default budget, in bytes: 60 % of the available memory, because other processes use this machine too.
[[nodiscard]] std::uint64_t default_memory_budget();

// Size of the weights of `file` once packed for `kernels`, in bytes: more than in the file if codes are widened (TQ1_0:
// 1.2 times). Exact for dense transformers; off by some headers and small vectors for families that cut or transpose
// tensors. Without the RoPE tables, which grow with the context (ModelOutline). Reads the directory of tensors only.
[[nodiscard]] std::uint64_t packed_weight_bytes(const ModelFile& file, const kernels::KernelTable& kernels);

// The part of it for experts of which a token uses some: without routers and experts that all tokens share. 0: none.
[[nodiscard]] std::uint64_t packed_expert_bytes(const ModelFile& file, const kernels::KernelTable& kernels);

// The matrices with which a step multiplies, packed for `kernels`, as far as the names of tensors say. num_experts,
// num_experts_used: of a layer; 0: none. Reads the directory of tensors only.
[[nodiscard]] std::vector<MatrixWork> packed_matrices(const ModelFile& file, const kernels::KernelTable& kernels,
                                                      std::uint32_t num_experts, std::uint32_t num_experts_used);

// Upper bound of the bytes that the tokenizer of `file` takes, during and after its construction; at most three times
// the true size. 0 without a vocabulary. Reads metadata only; O(tokens).
[[nodiscard]] std::uint64_t expected_vocabulary_bytes(const ModelFile& file);

// Whether both fit `budget`. Error: out_of_memory, with the numbers.
[[nodiscard]] Status check_budget(const ModelFile& file, const kernels::KernelTable& kernels, std::uint64_t budget);

// make_tokenizer() for callers that load no weights. Further error: out_of_memory, before anything is built, if
// expected_vocabulary_bytes() are above `budget`.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> make_tokenizer_within(const ModelFile& file,
                                                                             std::uint64_t budget);

struct CachePlan {
  std::vector<std::uint32_t> num_blocks;  // by group
  std::uint32_t num_snapshots = 0;
  std::uint32_t num_states = 0;  // one per open sequence; 0: the model has no recurrent state
};

// `left`: bytes beside the weights. At least one sequence of the whole context fits, else the error (out_of_memory)
// names the context that would. Numbers given in `options` are used as they are, or the same error. Plans at most
// max_sequences whole contexts. Live states get at most a quarter of the memory, snapshots at most a quarter of the
// rest, or half if there are no K and V.
[[nodiscard]] Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                                           std::uint64_t left);

// Bytes beside weights and vocabulary with which plan_cache() succeeds: one sequence of the whole context, or
// options.num_blocks. An upper bound for models with recurrent layers, exact for others.
[[nodiscard]] std::uint64_t least_cache_bytes(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options);

// The most blocks of a group that one sequence needs, during a long prefill chunk.
[[nodiscard]] std::uint32_t blocks_needed(const CacheGroup& group, std::uint32_t context);

}  // namespace troupe::engine
