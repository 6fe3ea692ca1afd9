// The public interface to embedding models of the BERT type: encoders, which read a whole text at once.
//
//   auto encoder = engine::Encoder::load("bge-small.gguf", {});
//   const auto ids = (*encoder)->tokenizer()->encode("a text", {});
//   (*encoder)->encode(team, {{ids}}, {}, workspace, vector.data());
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "config/result.h"
#include "engine/engine.h"
#include "engine/memory/workspace.h"
#include "engine/model/text_vectors.h"

namespace troupe::engine {

struct EncoderWeights;

// Weights and vocabulary of one encoder. Immutable; keeps nothing between texts.
class Encoder final : public TextVectors {
 public:
  // Ignores the `options` about sequences (number and type of KV blocks). Errors as LoadedModel::load; unsupported if
  // the file is no encoder. Throws as LoadedModel::load.
  static Result<std::shared_ptr<const Encoder>> load(const std::string& path, const LoadOptions& options);
  static Result<std::shared_ptr<const Encoder>> load(std::shared_ptr<const ModelFile> file, const LoadOptions& options);
  ~Encoder() override;

  const ModelInfo& info() const override;
  // The smallest of the trained context, kMaxEncoderTokens and (unless 0) LoadOptions::context.
  std::uint32_t max_tokens() const override { return info().context; }
  Pooling pooling() const override;  // as the file says; else mean
  const kernels::KernelTable& kernels() const { return *kernels_; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const override { return tokenizer_; }
  // Equal ids give equal bits, as LoadedModel's.
  const std::string& numerics_id() const { return numerics_id_; }
  kernels::KvType kv_type() const;
  std::uint64_t weight_bytes() const;  // memory held by packed weights, vectors and tables
  std::uint64_t matrix_bytes() const;  // the part of weight_bytes() allocated by the MemoryPolicy

  // As Model::visit_weights().
  void visit_weights(WeightVisitor& visitor) const;

  std::uint64_t vocabulary_bytes() const { return vocabulary_bytes_; }  // heap bytes

  // A pass takes whole texts: as many as have so many tokens together, or one. Enough for AMX, and few enough to bound
  // the workspace.
  static constexpr std::size_t kTokensPerPass = 1024;
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

// Whether the file's architecture is an encoder.
[[nodiscard]] bool is_encoder(const ModelFile& file);

}  // namespace troupe::engine
