// What makes vectors of texts, for who serves them: an encoder, or the hidden states of a model that continues texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cache/ids.h"
#include "engine/layers/pooling.h"
#include "engine/model.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

class Team;
class Workspace;

class TextVectors {
 public:
  // Some texts on their way through the model. One thread at a time; another job may use the team and the workspace
  // between two passes.
  class Reading {
   public:
    virtual ~Reading() = default;
    // One pass: of at most max_tokens tokens (>= 1) where texts can be cut, else of one text or more. Whether all texts
    // are read: then the rows are written, and no more passes are asked for. The bits depend on neither.
    [[nodiscard]] virtual bool advance(Team& team, Workspace& workspace, std::size_t max_tokens) = 0;
    // What it holds between two passes of the model's MemoryPolicy, beside the workspace.
    [[nodiscard]] virtual std::uint64_t bytes() const { return 0; }
  };

  virtual ~TextVectors() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::uint32_t max_tokens() const = 0;  // of one text
  // Where nobody asks for another: that of the file (ModelInfo::pooling), else mean of an encoder and last of others.
  virtual Pooling pooling() const = 0;
  virtual const std::shared_ptr<const Tokenizer>& tokenizer() const = 0;  // null: the file has none

  // rows [texts.size(), dim]: the vector of each text, of 1 to max_tokens() tokens of the vocabulary (asserted).
  // A text's bits do not depend on the other texts, nor on the team. All must outlive the reading. Throws bad_alloc
  // where there is no memory.
  [[nodiscard]] virtual std::unique_ptr<Reading> read(std::span<const std::span<const TokenId>> texts,
                                                      const PoolingOptions& pooling, float* rows) const = 0;
  // The same at once.
  void encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
              Workspace& workspace, float* rows) const;
};

}  // namespace troupe::engine
