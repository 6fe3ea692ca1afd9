// An Embed request and its answer: plain values, as in actors/request.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/request.h"
#include "engine/layers/pooling.h"

namespace troupe::actors {

struct EmbedRequest {
  scheduler::Tenant tenant;  // as in Request
  // Texts, or exact ids; 1 to kMaxEmbedInputs of them, none longer than TextVectors::max_tokens(): an encoder's
  // context, for other models at most engine::kMaxHiddenTokens.
  std::variant<std::vector<std::string>, std::vector<std::vector<TokenId>>> inputs;
  bool add_special = true;  // text only, as in Request
  bool parse_special = false;
  std::optional<engine::Pooling> pooling;  // none: the model's own
  bool normalise = true;

  std::size_t num_inputs() const {
    return std::visit([](const auto& each) { return each.size(); }, inputs);
  }
};

inline constexpr std::size_t kMaxEmbedInputs = 256;

struct Embeddings {
  engine::Pooling pooling = engine::Pooling::mean;
  std::uint32_t dim = 0;
  std::vector<float> values;  // [inputs, dim]
  std::uint64_t prompt_tokens = 0;
};

// The vectors, or an End of kind refused or failed, or cancelled.
using EmbedAnswer = std::variant<Embeddings, End>;
using OnEmbedded = std::function<void(EmbedAnswer)>;

// Set to true: the answer is not needed any more; the work ends as cancelled, at its next check of the flag.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;

}  // namespace troupe::actors
