#include "engine/evaluation/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "config/assert.h"
#include "engine/evaluation/passage_logits.h"

namespace troupe::engine {
namespace {

constexpr std::uint32_t kMinPassage = 4;
constexpr std::uint32_t kPositionBuckets = 16;

std::vector<PositionBucket> make_buckets(std::uint32_t length) {
  // Position 0 has no prediction.
  const std::uint32_t predicted = length - 1, count = std::min(kPositionBuckets, predicted);
  std::vector<PositionBucket> buckets(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    buckets[i].first = 1 + static_cast<std::uint32_t>(std::uint64_t{predicted} * i / count);
    buckets[i].last = static_cast<std::uint32_t>(std::uint64_t{predicted} * (i + 1) / count);
  }
  return buckets;
}

// Scores one group of passages at a time.
class Scorer {
 public:
  Scorer(const LoadedModel& model, Team& team) : team_(team), logits_(model, team), vocab_(model.info().vocab_size) {}

  // Computes nll()[w][i], of the token at i + 1 of passage w, for all i from `first_row` on.
  Status score(std::span<const std::vector<TokenId>> passages, std::uint32_t first_row) {
    if (auto opened = logits_.open(passages); !opened) return opened;
    const auto length = static_cast<std::uint32_t>(passages[0].size());
    nll_.assign(passages.size(), std::vector<double>(length - 1));
    logits_.skip(first_row);
    // The last token's prediction is not needed, so it is not computed.
    for (std::uint32_t row = first_row; row + 1 < length;) {
      const std::uint32_t count = std::min(logits_.max_advance(), length - 1 - row);
      logits_.advance(count);
      team_.parallel_for(passages.size() * count, [&](std::size_t index, std::uint32_t) {
        const std::size_t passage = index / count, i = index % count;
        nll_[passage][row + i] = negative_log_likelihood(logits_.logits(passage).subspan(i * vocab_, vocab_),
                                                         passages[passage][row + i + 1]);
      });
      row += count;
    }
    return Ok{};
  }

  const std::vector<std::vector<double>>& nll() const { return nll_; }

 private:
  Team& team_;
  PassageLogits logits_;
  std::size_t vocab_;
  std::vector<std::vector<double>> nll_;
};

}  // namespace

Normaliser::Normaliser(std::span<const float> logits)
    : top(static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin())) {
  const double largest = logits[top];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  log_sum = largest + std::log(sum);
}

double negative_log_likelihood(std::span<const float> logits, TokenId id) {
  TROUPE_ASSERT(id >= 0 && static_cast<std::size_t>(id) < logits.size());
  return Normaliser(logits).log_sum - logits[static_cast<std::size_t>(id)];
}

double LogLikelihood::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

double LogLikelihood::standard_error() const {
  if (count_ < 2) return 0;
  const double variance = squares_ / static_cast<double>(count_) - mean() * mean();
  return variance > 0 ? std::sqrt(variance / static_cast<double>(count_ - 1)) : 0;
}

double LogLikelihood::perplexity() const { return std::exp(mean()); }
double LogLikelihood::perplexity_error() const { return standard_error() * perplexity(); }

Result<std::vector<Passage>> cut_passages(std::size_t num_tokens, const PerplexityOptions& options) {
  const std::uint32_t length = options.length + options.stride / 2;
  if (options.length < kMinPassage) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a passage of {} tokens is too short; it needs {}", options.length, kMinPassage)};
  }
  if (options.stride >= length) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("a stride of {} leaves no context in passages of {} tokens; use a smaller --stride",
                             options.stride, length)};
  }
  if (num_tokens < 2 * std::size_t{length}) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the text has {} tokens, fewer than two passages of {}; use a longer text or a smaller -c",
                             num_tokens, length)};
  }
  const std::size_t step = options.stride ? options.stride : length;
  const std::size_t all = options.stride ? (num_tokens - length + step - 1) / step : num_tokens / length;
  std::vector<Passage> passages(options.max_passages ? std::min<std::size_t>(options.max_passages, all) : all);
  for (std::size_t i = 0; i < passages.size(); ++i)
    passages[i] = {
        .begin = i * step, .length = length, .first_row = options.stride ? length - options.stride - 1 : length / 2};
  return passages;
}

Result<PerplexityReport> measure_perplexity(const LoadedModel& model, Team& team, std::span<const TokenId> tokens,
                                            const PerplexityOptions& options, const PerplexityProgress& progress) {
  const auto passages = cut_passages(tokens.size(), options);
  if (!passages) return passages.error();
  if (auto checked = check_ids(model.info(), tokens); !checked) return checked.error();
  const std::uint32_t length = (*passages)[0].length, first_row = (*passages)[0].first_row;
  const std::size_t most = passages_at_once(model, length);

  PerplexityReport report;
  if (options.by_position) report.by_position = make_buckets(length);
  Scorer scorer(model, team);
  std::vector<std::vector<TokenId>> group;
  for (std::size_t done = 0; done < passages->size(); done += group.size()) {
    group.clear();
    for (std::size_t i = done; i < passages->size() && group.size() < most; ++i) {
      const auto text = tokens.subspan((*passages)[i].begin, length);
      group.emplace_back(text.begin(), text.end());
      if (options.begin_token && options.stride == 0) group.back()[0] = *options.begin_token;
    }
    if (auto scored = scorer.score(group, options.by_position ? 0 : first_row); !scored) return scored.error();
    for (std::size_t w = 0; w < group.size(); ++w) {
      const std::vector<double>& nll = scorer.nll()[w];
      for (std::uint32_t row = first_row; row + 1 < length; ++row) report.scored.add(nll[row]);
      for (PositionBucket& bucket : report.by_position)
        for (std::uint32_t position = bucket.first; position <= bucket.last; ++position)
          bucket.tokens.add(nll[position - 1]);
      report.running.push_back(report.scored.perplexity());
      if (progress) progress(done + w + 1, passages->size(), report.scored);
    }
  }
  return report;
}

}  // namespace troupe::engine
