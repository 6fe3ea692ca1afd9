#include "engine/encoder.h"

#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "engine/encoder_pass.h"
#include "engine/encoder_weights.h"
#include "engine/families.h"
#include "engine/load_choices.h"
#include "engine/memory_budget.h"

namespace troupe::engine {
namespace {

// Rows that go through the layers together: enough for the matrix units, and their activations bound what the
// workspace takes. A text is never cut.
constexpr std::size_t kRowsPerPass = 1024;

}  // namespace

bool is_encoder(const ModelFile& file) { return architecture_is(file, "bert") || architecture_is(file, "nomic-bert"); }

Result<std::shared_ptr<const Encoder>> Encoder::load(const std::string& path, const LoadOptions& options) {
  const auto table = choose_kernels(options.kernels, options.notes);
  if (!table) return table.error();
  const auto ternary = choose_ternary(options.ternary);
  if (!ternary) return ternary.error();
  const auto file = open_gguf(path);
  if (!file) return file.error();
  if (const Status whole = refuse_shard(**file); !whole) return whole.error();
  if (!is_encoder(**file)) {
    return Error{ErrorCode::unsupported, path + ": this is no encoder; bert and nomic-bert are"};
  }
  auto tokenizer = make_tokenizer(**file);
  if (!tokenizer) return tokenizer.error();
  const std::uint64_t budget = options.memory ? options.memory : default_memory_budget();
  const std::uint64_t estimate = packed_weight_bytes(**file, **table);
  if (estimate > budget) {
    return Error{ErrorCode::out_of_memory, path + ": a memory budget of " + mebibytes(budget) +
                                               " is too small: weights take " + mebibytes(estimate) +
                                               "; use a larger --memory or a smaller model"};
  }
  std::unique_ptr<Team> own_team;
  if (!options.team) own_team = std::make_unique<Team>(default_num_threads());
  auto weights = load_encoder(**file, {.kernels = *table,
                                       .ternary = *ternary,
                                       .kv_type = options.kv_type,
                                       .context = options.context,
                                       .memory = std::max<std::uint64_t>(budget - estimate, 1),
                                       .team = options.team ? options.team : own_team.get(),
                                       .weights_cache = options.weights_cache,
                                       .memory_policy = options.memory_policy,
                                       .progress = options.progress,
                                       .notes = options.notes});
  if (!weights) return weights.error();
  if (*tokenizer && (*tokenizer)->size() != weights->info.vocab_size) {
    return Error{ErrorCode::bad_model, path + ": the vocabulary has " + std::to_string((*tokenizer)->size()) +
                                           " tokens, but the embedding has " +
                                           std::to_string(weights->info.vocab_size) + " rows"};
  }
  auto encoder = std::shared_ptr<Encoder>(new Encoder());
  encoder->numerics_id_ = make_numerics_id(**table, weights->cache, weights->content_hash);
  encoder->kernels_ = *table;
  encoder->tokenizer_ = std::move(*tokenizer);
  encoder->weights_ = std::make_unique<const EncoderWeights>(std::move(*weights));
  return std::shared_ptr<const Encoder>(std::move(encoder));
}

Encoder::~Encoder() = default;

const ModelInfo& Encoder::info() const { return weights_->info; }
Pooling Encoder::pooling() const { return info().pooling.value_or(Pooling::mean); }
std::uint64_t Encoder::weight_bytes() const { return weights_->bytes; }
std::uint64_t Encoder::matrix_bytes() const { return weights_->matrix_bytes; }

void Encoder::encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                     Workspace& workspace, float* rows) const {
  const std::size_t dim = info().dim;
  for (std::size_t begin = 0; begin < texts.size();) {
    std::size_t end = begin + 1, num_rows = texts[begin].size();
    while (end < texts.size() && num_rows + texts[end].size() <= kRowsPerPass) num_rows += texts[end++].size();
    EncoderPass pass(*weights_, team, texts.subspan(begin, end - begin), workspace);
    const std::span<const float> hidden = pass.run();
    for (std::size_t i = begin; i < end; ++i) {
      pool_rows(hidden.data() + pass.first_row(i - begin) * dim, texts[i].size(), dim, pooling, rows + i * dim);
    }
    begin = end;
  }
}

}  // namespace troupe::engine
