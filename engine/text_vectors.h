// What makes vectors of texts, for who serves them: an encoder, or the hidden states of a model that continues texts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cache/ids.h"
#include "engine/model.h"
#include "engine/pooling.h"
#include "engine/tokenizer.h"

namespace troupe::engine {

class Team;
class Workspace;

class TextVectors {
 public:
  virtual ~TextVectors() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::uint32_t max_tokens() const = 0;  // of one text
  // Where nobody asks for another: that of the file (ModelInfo::pooling), else mean of an encoder and last of others.
  virtual Pooling pooling() const = 0;
  virtual const std::shared_ptr<const Tokenizer>& tokenizer() const = 0;  // null: the file has none

  // rows [texts.size(), dim]: the vector of each text, of 1 to max_tokens() tokens of the vocabulary (asserted).
  // A text's bits do not depend on the other texts, nor on the team. One thread at a time.
  virtual void encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                      Workspace& workspace, float* rows) const = 0;
};

}  // namespace troupe::engine
