// Compares the logits of two evaluations of the same tokens: of two models, two kernel variants, two types of KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"
#include "engine/evaluation/perplexity.h"

namespace troupe::engine {

// The difference at one position.
struct RowDifference {
  double kl_divergence = 0;  // of the second distribution from the first, in nats; at least 0
  double squares = 0;        // sum of the squared differences of the logits
  double max_abs = 0;
  double spread = 0;  // sum of the squared distances of the first logits from their mean; `squares` is relative to it
  bool same_top = false;  // the same likeliest token; among equal logits the lowest id
};

// In double, terms in ascending order. Both have the same, positive size (asserted).
[[nodiscard]] RowDifference compare_rows(std::span<const float> first, std::span<const float> second);

struct ModelComparison {
  std::uint64_t num_positions = 0;
  double mean_kl_divergence = 0, median_kl_divergence = 0, p99_kl_divergence = 0, max_kl_divergence = 0;
  double same_top = 0;      // share of the positions
  double rms = 0;           // of the differences of all logits
  double relative_rms = 0;  // relative to the spread of the first model's logits around their means
  double max_abs = 0;
  // Likelihood of the next tokens, in both evaluations.
  LogLikelihood first, second;
};

// Adds up rows in order; quantiles by nearest rank.
[[nodiscard]] ModelComparison summarise(std::span<const RowDifference> rows, std::size_t vocab_size);

// Compares both models at every position of these passages. Uses KV blocks of both models from 0 on; they may be the
// same model. Errors: invalid_argument for different vocabulary sizes, ids outside them, no tokens, passages that do
// not fit.
[[nodiscard]] Result<ModelComparison> compare_models(const LoadedModel& first, const LoadedModel& second, Team& team,
                                                     std::span<const std::vector<TokenId>> passages);

}  // namespace troupe::engine
