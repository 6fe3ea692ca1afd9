// The door to models that turn a text into one vector: BERT-type encoders, which read a whole text at once.
//
//   auto encoder = engine::Encoder::load("bge-small.gguf", {});
//   const auto ids = (*encoder)->tokenizer()->encode("a text", {});
//   (*encoder)->encode(team, {{ids}}, {}, workspace, vector.data());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"
#include "engine/pooling.h"
#include "engine/team.h"
#include "engine/tokenizer.h"
#include "engine/workspace.h"

namespace troupe::engine {

struct EncoderWeights;

// Weights and vocabulary of one encoder. Immutable; keeps nothing between texts.
class Encoder {
 public:
  // Of `options`, what is about sequences (KV blocks, their number and type) does not matter. Errors as
  // LoadedModel::load; unsupported where the file is no encoder.
  static Result<std::shared_ptr<const Encoder>> load(const std::string& path, const LoadOptions& options);
  ~Encoder();

  const ModelInfo& info() const;  // context: the longest text, in tokens
  Pooling pooling() const;        // that the file asks for; mean where it asks for none
  const kernels::KernelTable& kernels() const { return *kernels_; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }  // null: the file has none
  // Equal ids give equal bits, as LoadedModel's.
  const std::string& numerics_id() const { return numerics_id_; }
  std::uint64_t weight_bytes() const;  // memory held by packed weights, vectors and tables
  std::uint64_t matrix_bytes() const;  // the part of it that came from the MemoryPolicy

  // rows [texts.size(), dim]: the vector of each text, of 1 to info().context tokens of the vocabulary (asserted).
  // A text's bits do not depend on the other texts, nor on the team. One thread at a time per workspace.
  void encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
              Workspace& workspace, float* rows) const;

 private:
  Encoder() = default;
  std::unique_ptr<const EncoderWeights> weights_;
  const kernels::KernelTable* kernels_ = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string numerics_id_;
};

// Whether the file says that it is one.
[[nodiscard]] bool is_encoder(const ModelFile& file);

}  // namespace troupe::engine
