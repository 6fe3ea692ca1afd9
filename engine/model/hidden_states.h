// Vectors of texts out of a model that continues them: its hidden states behind the last norm, pooled.
//
// Not through an Executor: a text needs its K and V, or its state, only while it is read, in memory of its own that
// comes and goes with a reading. So nothing here touches the blocks that sequences lease.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/engine.h"
#include "engine/model/text_vectors.h"

namespace troupe::engine {

// The longest text, in tokens, whatever the context: what it keeps meanwhile comes on top of the memory budget.
inline constexpr std::uint32_t kMaxHiddenTokens = 2048;

class HiddenStates final : public TextVectors {
 public:
  explicit HiddenStates(std::shared_ptr<const LoadedModel> model) : model_(std::move(model)) {}

  const ModelInfo& info() const override { return model_->info(); }
  std::uint32_t max_tokens() const override;
  // That the file asks for, as embedding models do; else last: the one token that has seen them all.
  Pooling pooling() const override { return info().pooling.value_or(Pooling::last); }
  const std::shared_ptr<const Tokenizer>& tokenizer() const override { return model_->tokenizer(); }
  // Texts one after the other; a pass has 512 tokens at most, of one text or several.
  std::unique_ptr<Reading> read(std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                                float* rows) const override;

 private:
  std::shared_ptr<const LoadedModel> model_;
};

}  // namespace troupe::engine
