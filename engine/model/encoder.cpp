#include "engine/model/encoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/layers/encoder_pass.h"
#include "engine/layers/encoder_weights.h"
#include "engine/model/load_choices.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {

bool is_encoder(const ModelFile& file) { return architecture_is(file, "bert") || architecture_is(file, "nomic-bert"); }

Result<std::shared_ptr<const Encoder>> Encoder::load(const std::string& path, const LoadOptions& options) {
  auto file = open_gguf(path);
  if (!file) return file.error();
  return load(*std::move(file), options);
}

Result<std::shared_ptr<const Encoder>> Encoder::load(std::shared_ptr<const ModelFile> file,
                                                     const LoadOptions& options) {
  if (!is_encoder(*file))
    return Error{ErrorCode::unsupported, file->path() + ": this is no encoder; bert and nomic-bert are"};
  auto opened = open_model(std::move(file), options);
  if (!opened) return opened.error();
  auto weights = load_encoder(*opened->file, opened->options);
  if (!weights) return weights.error();
  auto encoder = std::shared_ptr<Encoder>(new Encoder());
  encoder->kernels_ = &kernels_of(opened->options);
  encoder->numerics_id_ = make_numerics_id(*encoder->kernels_, weights->cache, weights->content_hash);
  encoder->tokenizer_ = std::move(opened->tokenizer);
  encoder->vocabulary_bytes_ = opened->vocabulary_bytes;
  encoder->weights_ = std::make_unique<const EncoderWeights>(std::move(*weights));
  return std::shared_ptr<const Encoder>(std::move(encoder));
}

Encoder::~Encoder() = default;

const ModelInfo& Encoder::info() const { return weights_->info; }
Pooling Encoder::pooling() const { return info().pooling.value_or(Pooling::mean); }
kernels::KvType Encoder::kv_type() const { return weights_->cache.kv_type; }
std::uint64_t Encoder::weight_bytes() const { return weights_->bytes; }
std::uint64_t Encoder::matrix_bytes() const { return weights_->matrix_bytes; }
void Encoder::visit_weights(WeightVisitor& visitor) const { weights_->visit(visitor); }

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
    while (end < texts_.size() && num_rows + texts_[end].size() <= kTokensPerPass) num_rows += texts_[end++].size();
    StepScope scope(team, {.step = step_++,
                           .num_rows = static_cast<std::uint32_t>(num_rows),
                           .num_sequences = static_cast<std::uint32_t>(end - begin_),
                           .begin = ProfileClock::now(),
                           .end = {}});
    EncoderPass pass(weights_, team, std::span(texts_).subspan(begin_, end - begin_), workspace);
    const std::span<const float> hidden = pass.run();
    for (std::size_t i = begin_; i < end; ++i) {
      pool_rows(hidden.data() + pass.first_row(i - begin_) * dim, texts_[i].size(), dim, pooling_, rows_ + i * dim);
    }
    scope.end(ProfileClock::now());
    begin_ = end;
    return begin_ == texts_.size();
  }

 private:
  const EncoderWeights& weights_;
  std::vector<std::span<const TokenId>> texts_;
  PoolingOptions pooling_;
  float* rows_;
  std::size_t begin_ = 0;  // text
  std::uint64_t step_ = 0;
};

std::unique_ptr<TextVectors::Reading> Encoder::read(std::span<const std::span<const TokenId>> texts,
                                                    const PoolingOptions& pooling, float* rows) const {
  return std::make_unique<Pass>(*weights_, texts, pooling, rows);
}

}  // namespace troupe::engine
