// The beginning of loading any model: way of multiplying ternary weights, file, budget, tokenizer. The kernel variant:
// kernel_choice.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// Formats a number of bytes for messages ("12 MiB").
[[nodiscard]] std::string mebibytes(std::uint64_t bytes);

// Without a value: TROUPE_TERNARY, else automatic. Error: invalid_argument.
[[nodiscard]] Result<Ternary> choose_ternary(std::optional<Ternary> ternary);

// A model file that has been opened and checked, with its tokenizer; its weights are not loaded yet.
struct OpenedModel {
  std::shared_ptr<const ModelFile> file;
  std::shared_ptr<const Tokenizer> tokenizer;  // null if the file has no vocabulary
  std::uint64_t budget = 0;                    // bytes for the whole model
  std::uint64_t expected_vocabulary = 0;       // bytes, an upper bound
  std::uint64_t vocabulary_bytes = 0;          // heap bytes that the tokenizer took
  std::unique_ptr<Team> own_team;              // if the options have none
  LoadOptions options;  // for load_model() and load_encoder(): with the variant and the team that were chosen
};
// A file that judge_file() refuses is refused before anything is packed. Errors as LoadedModel::load.
[[nodiscard]] Result<OpenedModel> open_model(std::shared_ptr<const ModelFile> file, const LoadOptions& options);

// What was taken otherwise than the file has it, or guessed: Tokenizer::notes() (the tokenizer may be null), and keys
// that only describe the model and are no text.
[[nodiscard]] std::vector<std::string> metadata_notes(const ModelFile& file, const Tokenizer* tokenizer);

// Heap bytes taken since the heap was this large; 0 if it has shrunk: other threads may free memory in between.
[[nodiscard]] std::uint64_t heap_growth(std::uint64_t before);

// Recipe version, variant, KV type, model hash, and with states kept as f16 the positions after which they are rounded
// ("4-avx512vnni-f16-9f3c...").
[[nodiscard]] std::string make_numerics_id(const kernels::KernelTable& kernels, const CacheSpec& cache,
                                           std::uint64_t hash);

}  // namespace troupe::engine
