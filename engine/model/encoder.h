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
#include "engine/compute/team.h"
#include "engine/engine.h"
#include "engine/layers/pooling.h"
#include "engine/memory/workspace.h"
#include "engine/model/text_vectors.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

struct EncoderWeights;

// Weights and vocabulary of one encoder. Immutable; keeps nothing between texts.
class Encoder final : public TextVectors {
 public:
  // Of `options`, what is about sequences (KV blocks, their number and type) does not matter. Errors as
  // LoadedModel::load; unsupported where the file is no encoder.
  // Throws as LoadedModel::load.
  static Result<std::shared_ptr<const Encoder>> load(const std::string& path, const LoadOptions& options);
  ~Encoder() override;

  const ModelInfo& info() const override;
  // The trained context or kMaxEncoderTokens, or what the options asked for below these.
  std::uint32_t max_tokens() const override { return info().context; }
  Pooling pooling() const override;  // that the file asks for; mean where it asks for none
  const kernels::KernelTable& kernels() const { return *kernels_; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const override { return tokenizer_; }
  // Equal ids give equal bits, as LoadedModel's.
  const std::string& numerics_id() const { return numerics_id_; }
  std::uint64_t weight_bytes() const;  // memory held by packed weights, vectors and tables
  std::uint64_t matrix_bytes() const;  // the part of it that came from the MemoryPolicy

  std::uint64_t vocabulary_bytes() const { return vocabulary_bytes_; }  // what the allocator gave for it

  // A pass has some thousand tokens, or one text.
  std::unique_ptr<Reading> read(std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                                float* rows) const override;

 private:
  class Pass;

  Encoder() = default;
  std::unique_ptr<const EncoderWeights> weights_;
  const kernels::KernelTable* kernels_ = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string numerics_id_;
  std::uint64_t vocabulary_bytes_ = 0;
};

// Whether the file says that it is one.
[[nodiscard]] bool is_encoder(const ModelFile& file);

}  // namespace troupe::engine
