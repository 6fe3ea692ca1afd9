// Perplexity: how well a model predicts a text. Computed as llama-perplexity computes it, so that figures compare.
//
// The text is cut into passages. Each is computed on its own, from an empty cache, and the tokens of its later part are
// scored; those before them are context. Perplexity is exp of the mean negative log likelihood of the scored tokens; a
// token's likelihood is the softmax, in double, of the raw logits of the position before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// The log of the sum of exp(logit), in double with the terms added in ascending order, and the index of the largest
// logit. `logits` must not be empty.
struct Normaliser {
  explicit Normaliser(std::span<const float> logits);
  std::size_t top;
  double log_sum = 0;
};

// -log softmax(logits)[id]. `id` must be in range (asserted).
[[nodiscard]] double negative_log_likelihood(std::span<const float> logits, TokenId id);

// The log likelihood of scored tokens, summed one after another.
class LogLikelihood {
 public:
  void add(double nll) {
    ++count_;
    sum_ += nll;
    squares_ += nll * nll;
  }

  std::uint64_t count() const { return count_; }
  double mean() const;              // negative log likelihood of a token; 0 without tokens
  double standard_error() const;    // of mean(), from the variance of the tokens; 0 for fewer than two
  double perplexity() const;        // exp(mean())
  double perplexity_error() const;  // standard_error() x perplexity()

 private:
  std::uint64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
};

struct PerplexityOptions {
  std::uint32_t length = 512;  // tokens; at least 4
  // 0: passages do not overlap, and the tokens after the middle of each are scored. Else passages of `length` + stride
  // / 2 tokens start every `stride` tokens, and the last `stride` tokens of each are scored.
  std::uint32_t stride = 0;
  std::uint32_t max_passages = 0;  // 0: all
  // Replaces the first token of every passage. (Not of strided ones: llama-perplexity leaves them as they are.)
  std::optional<TokenId> begin_token = {};
  bool by_position = false;
};

// A range of the text's tokens; the predictions of rows `first_row` to length - 2 are scored.
struct Passage {
  std::size_t begin = 0;
  std::uint32_t length = 0;
  std::uint32_t first_row = 0;
  friend bool operator==(const Passage&, const Passage&) = default;
};

// The passages of a text of `num_tokens` tokens. Error: invalid_argument if the text is shorter than two passages, or a
// passage shorter than the stride.
[[nodiscard]] Result<std::vector<Passage>> cut_passages(std::size_t num_tokens, const PerplexityOptions& options);

// Tokens at the positions `first` to `last` of their passages, scored or not.
struct PositionBucket {
  std::uint32_t first = 0, last = 0;
  LogLikelihood tokens;
};

struct PerplexityReport {
  LogLikelihood scored;
  std::vector<double> running;              // the estimate after each passage
  std::vector<PositionBucket> by_position;  // at most 16, if PerplexityOptions::by_position
};

// Called after each passage, with the estimate so far.
using PerplexityProgress = std::function<void(std::size_t done, std::size_t total, const LogLikelihood& scored)>;

// Several passages are computed as one batch. Bits depend on the model's numerics id, tokens and options only. Uses the
// model's KV blocks from 0 on. Errors: as cut_passages; invalid_argument for ids outside the vocabulary, and for
// passages that do not fit the context.
[[nodiscard]] Result<PerplexityReport> measure_perplexity(const LoadedModel& model, Team& team,
                                                          std::span<const TokenId> tokens,
                                                          const PerplexityOptions& options,
                                                          const PerplexityProgress& progress = {});

}  // namespace troupe::engine
