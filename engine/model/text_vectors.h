// Interface of models that make embeddings: an encoder, or the hidden states of a decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "cache/ids.h"
#include "engine/layers/pooling.h"
#include "engine/model.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

class TextVectors {
 public:
  // The computation of some texts' embeddings. One thread at a time; another job may use the team and the workspace
  // between two passes.
  class Reading {
   public:
    virtual ~Reading() = default;
    // Runs one pass: of at most max_tokens tokens (>= 1) if texts can be cut, else of one text or more. Returns whether
    // all texts are read: then the rows are written, and it must not be called again. The bits do not depend on
    // max_tokens.
    [[nodiscard]] virtual bool advance(Team& team, Workspace& workspace, std::size_t max_tokens) = 0;
    // Bytes allocated from the model's MemoryPolicy between two passes, beside the workspace.
    [[nodiscard]] virtual std::uint64_t bytes() const { return 0; }
  };

  virtual ~TextVectors() = default;
  virtual const ModelInfo& info() const = 0;
  virtual std::uint32_t max_tokens() const = 0;  // of one text
  // The default pooling: that of the file (ModelInfo::pooling), else mean for an encoder and last for a decoder.
  virtual Pooling pooling() const = 0;
  virtual const std::shared_ptr<const Tokenizer>& tokenizer() const = 0;  // null: the file has no vocabulary

  // rows [texts.size(), dim]: the vector of each text, of 1 to max_tokens() tokens of the vocabulary (asserted). A
  // text's bits do not depend on the other texts, nor on the team. All arguments must outlive the Reading. Throws
  // bad_alloc if memory runs out.
  [[nodiscard]] virtual std::unique_ptr<Reading> read(std::span<const std::span<const TokenId>> texts,
                                                      const PoolingOptions& pooling, float* rows) const = 0;
  // Reads all texts in one call.
  void encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
              Workspace& workspace, float* rows) const {
    if (texts.empty()) return;
    const std::unique_ptr<Reading> reading = read(texts, pooling, rows);
    while (!reading->advance(team, workspace, std::numeric_limits<std::size_t>::max())) {
    }
  }
};

}  // namespace troupe::engine
