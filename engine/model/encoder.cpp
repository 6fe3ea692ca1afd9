#include "engine/model/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "config/assert.h"
#include "engine/layers/encoder_pass.h"
#include "engine/layers/encoder_weights.h"
#include "engine/memory/process_memory.h"
#include "engine/model/load_choices.h"
#include "engine/model/memory_budget.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {
namespace {

// Rows per pass over the layers: enough for AMX, and few enough to bound the workspace. A text is never cut.
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
  const std::uint64_t budget = options.memory ? options.memory : default_memory_budget();
  const std::uint64_t estimate = expected_vocabulary_bytes(**file) + packed_weight_bytes(**file, **table);
  if (const Status fits = check_budget(**file, **table, budget); !fits) return fits.error();
  const std::uint64_t heap_before = process_memory().heap_used;
  auto tokenizer = make_tokenizer(**file);
  if (!tokenizer) return tokenizer.error();
  const std::uint64_t heap_with_vocabulary = process_memory().heap_used;
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
    return Error{ErrorCode::bad_model, fmt::format("{}: the vocabulary has {} tokens, but the embedding has {} rows",
                                                   path, (*tokenizer)->size(), weights->info.vocab_size)};
  }
  auto encoder = std::shared_ptr<Encoder>(new Encoder());
  encoder->numerics_id_ = make_numerics_id(**table, weights->cache, weights->content_hash);
  encoder->kernels_ = *table;
  encoder->tokenizer_ = std::move(*tokenizer);
  encoder->vocabulary_bytes_ = heap_with_vocabulary - std::min(heap_before, heap_with_vocabulary);
  encoder->weights_ = std::make_unique<const EncoderWeights>(std::move(*weights));
  return std::shared_ptr<const Encoder>(std::move(encoder));
}

Encoder::~Encoder() = default;

const ModelInfo& Encoder::info() const { return weights_->info; }
Pooling Encoder::pooling() const { return info().pooling.value_or(Pooling::mean); }
std::uint64_t Encoder::weight_bytes() const { return weights_->bytes; }
std::uint64_t Encoder::matrix_bytes() const { return weights_->matrix_bytes; }

// Reads some whole texts per pass.
class Encoder::Pass final : public TextVectors::Reading {
 public:
  Pass(const EncoderWeights& weights, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
       float* rows)
      : weights_(weights), texts_(texts.begin(), texts.end()), pooling_(pooling), rows_(rows) {}

  bool advance(Team& team, Workspace& workspace, std::size_t) override {
    if (begin_ == texts_.size()) return true;
    const std::size_t dim = weights_.info.dim;
    std::size_t end = begin_ + 1, num_rows = texts_[begin_].size();
    while (end < texts_.size() && num_rows + texts_[end].size() <= kRowsPerPass) num_rows += texts_[end++].size();
    EncoderPass pass(weights_, team, std::span(texts_).subspan(begin_, end - begin_), workspace);
    const std::span<const float> hidden = pass.run();
    for (std::size_t i = begin_; i < end; ++i) {
      pool_rows(hidden.data() + pass.first_row(i - begin_) * dim, texts_[i].size(), dim, pooling_, rows_ + i * dim);
    }
    begin_ = end;
    return begin_ == texts_.size();
  }

 private:
  const EncoderWeights& weights_;
  std::vector<std::span<const TokenId>> texts_;
  PoolingOptions pooling_;
  float* rows_;
  std::size_t begin_ = 0;  // text
};

std::unique_ptr<TextVectors::Reading> Encoder::read(std::span<const std::span<const TokenId>> texts,
                                                    const PoolingOptions& pooling, float* rows) const {
  return std::make_unique<Pass>(*weights_, texts, pooling, rows);
}

}  // namespace troupe::engine
