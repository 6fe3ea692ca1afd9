#include "engine/model/file_verdict.h"

#include <fmt/format.h>

#include "engine/layers/encoder_weights.h"
#include "engine/model/encoder.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {
namespace {

Status check_model(const ModelFile& file, const LoadOptions& options) {
  if (is_encoder(file)) return check_encoder(file, options);
  const auto family = find_family(file);
  if (!family) return family.error();
  const auto outline = (*family)->outline(file, options);
  return outline ? Status(Ok{}) : outline.error();
}

// Of a model whose metadata are taken.
Status check_model_tensors(const ModelFile& file, const LoadOptions& options) {
  if (is_encoder(file)) return check_encoder_tensors(file, options);
  return (*find_family(file))->check(file, options);
}

Status check_size(const ModelFile& file, const Tokenizer& tokenizer) {
  const TensorInfo* const embedding = file.find_tensor("token_embd.weight");
  if (!embedding || tokenizer.size() == embedding->rows()) return Ok{};
  return Error{ErrorCode::bad_model, fmt::format("{}: the vocabulary has {} tokens, but the embedding has {} rows",
                                                 file.path(), tokenizer.size(), embedding->rows())};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> judge_metadata(const ModelFile& file, const LoadOptions& options,
                                                        std::uint64_t budget) {
  if (!file.tensors().empty())
    if (const Status model = check_model(file, options); !model) return model.error();
  if (!options.kernels.empty())
    if (const Status fits = check_budget(file, kernels_of(options), budget); !fits) return fits.error();
  auto tokenizer = make_tokenizer_within(file, budget);
  if (!tokenizer || !*tokenizer) return tokenizer;
  if (const Status same = check_size(file, **tokenizer); !same) return same.error();
  return tokenizer;
}

Result<std::shared_ptr<const Tokenizer>> judge_file(const ModelFile& file, const LoadOptions& options,
                                                    std::uint64_t budget) {
  auto tokenizer = judge_metadata(file, options, budget);
  if (!tokenizer || file.tensors().empty()) return tokenizer;
  if (const Status tensors = check_model_tensors(file, options); !tensors) return tensors.error();
  return tokenizer;
}

}  // namespace troupe::engine
