// Embeddings from a decoder model: its hidden states after the last norm, pooled.
//
// Does not use an Executor: the K and V, or the state, of a text live only as long as its Reading, in memory allocated
// for it. The blocks that sequences lease are not touched.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.h"
#include "engine/model/text_vectors.h"

namespace troupe::engine {

// The longest text, in tokens, even with a longer context: its K and V come on top of the memory budget.
inline constexpr std::uint32_t kMaxHiddenTokens = 2048;

class HiddenStates final : public TextVectors {
 public:
  explicit HiddenStates(std::shared_ptr<const LoadedModel> model) : model_(std::move(model)) {}

  const ModelInfo& info() const override { return model_->info(); }
  std::uint32_t max_tokens() const override { return std::min(info().context, kMaxHiddenTokens); }
  // As the file says (files of embedding models do); else last, the only token that attends to all of them.
  Pooling pooling() const override { return info().pooling.value_or(Pooling::last); }
  const std::shared_ptr<const Tokenizer>& tokenizer() const override { return model_->tokenizer(); }
  // Reads texts one after the other; a pass takes at most 512 tokens, of one text or several.
  std::unique_ptr<Reading> read(std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                                float* rows) const override;

 private:
  std::shared_ptr<const LoadedModel> model_;
};

}  // namespace troupe::engine
