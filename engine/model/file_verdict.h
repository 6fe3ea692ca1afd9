// Whether a model file is one that can be used: the same verdict, in the same words, for every command that reads it.
#pragma once

#include <cstdint>
#include <memory>

#include "config/result.h"
#include "engine/formats/model_file.h"
#include "engine/model.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// Judges the metadata and the vocabulary: that the file is a model of a supported family or encoder, that the
// family takes the values of its keys, that everything fits the budget, that the tokenizer can be built (null: the file
// has none) and has as many tokens as the embedding. A file without tensors has a vocabulary and no model: only the
// vocabulary is judged.
// Errors: bad_model, unsupported, invalid_argument (context), out_of_memory.
// `options`: those that affect the cache; the context may be refused. With options.kernels, for which weights are to be
// packed, these must fit the budget (in bytes), else the vocabulary alone must.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> judge_metadata(const ModelFile& file, const LoadOptions& options,
                                                                      std::uint64_t budget);

// Judges these, and that the tensors are those of the family, in names and shapes, and vectors finite. The values of
// matrices are checked when the weights are loaded.
[[nodiscard]] Result<std::shared_ptr<const Tokenizer>> judge_file(const ModelFile& file, const LoadOptions& options,
                                                                  std::uint64_t budget);

}  // namespace troupe::engine
