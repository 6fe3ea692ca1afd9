// What a unit serves: a language model, which continues texts and makes vectors of them, or an encoder, which only
// makes vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/status_snapshot.h"
#include "engine/engine.h"
#include "engine/model/encoder.h"
#include "engine/model/text_vectors.h"

namespace troupe::actors {

struct ModelDescription {
  std::string name;
  engine::ModelInfo info;
  std::string numerics_id;
  std::uint64_t kv_bytes_per_token = 0;
  std::optional<TokenId> bos{}, eos{};
  std::vector<TokenId> end_ids{};  // tokens that end an answer (EOS, EOT, EOM), ascending
  std::uint32_t max_context = 0;
};

// Immutable, except for what the models themselves allow.
class ServedModel {
 public:
  explicit ServedModel(std::shared_ptr<const engine::LoadedModel> model);
  explicit ServedModel(std::shared_ptr<const engine::Encoder> encoder);

  const std::shared_ptr<const engine::LoadedModel>& language_model() const { return model_; }  // null: an encoder
  const engine::TextVectors& vectors() const { return *vectors_; }
  const engine::ModelInfo& info() const { return vectors_->info(); }
  // Null if the file has no vocabulary.
  const std::shared_ptr<const engine::Tokenizer>& tokenizer() const { return vectors_->tokenizer(); }
  const std::string& numerics_id() const { return model_ ? model_->numerics_id() : encoder_->numerics_id(); }
  const kernels::KernelTable& kernels() const { return model_ ? model_->kernels() : encoder_->kernels(); }
  std::uint64_t weight_bytes() const;

  ModelDescription describe(std::string name) const;
  // Address space of weights, vocabulary, cache and snapshots: its part of the memory budget.
  std::uint64_t budget_bytes() const;
  // Adds the resident memory.
  void add_to(KnownMemory& known) const;

 private:
  std::shared_ptr<const engine::LoadedModel> model_;
  std::shared_ptr<const engine::Encoder> encoder_;
  std::shared_ptr<const engine::TextVectors> vectors_;
};

}  // namespace troupe::actors
