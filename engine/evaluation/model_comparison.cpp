#include "engine/evaluation/model_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "config/assert.h"
#include "engine/evaluation/passage_logits.h"

namespace troupe::engine {
namespace {

// The value of the nearest rank: of ten values the 99 % quantile is the tenth.
double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

Status check(const LoadedModel& first, const LoadedModel& second, std::span<const std::vector<TokenId>> passages) {
  const std::uint32_t ours = first.info().vocab_size, theirs = second.info().vocab_size;
  if (ours != theirs) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("the two models have vocabularies of {} and {} tokens: their logits do not compare", ours, theirs)};
  }
  if (passages.empty()) return Error{ErrorCode::invalid_argument, "there are no tokens to evaluate"};
  for (const std::vector<TokenId>& tokens : passages) {
    if (tokens.empty()) return Error{ErrorCode::invalid_argument, "there are no tokens to evaluate"};
    if (auto checked = check_ids(first.info(), tokens); !checked) return checked;
  }
  return Ok{};
}

}  // namespace

RowDifference compare_rows(std::span<const float> first, std::span<const float> second) {
  TROUPE_ASSERT(!first.empty() && first.size() == second.size());
  const Normaliser a(first), b(second);
  RowDifference row;
  row.same_top = a.top == b.top;
  double mean = 0;
  for (const float logit : first) mean += logit;
  mean /= static_cast<double>(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double difference = double{first[i]} - second[i];
    const double log_p = first[i] - a.log_sum;
    row.kl_divergence += std::exp(log_p) * (log_p - (second[i] - b.log_sum));
    row.squares += difference * difference;
    row.max_abs = std::max(row.max_abs, std::abs(difference));
    row.spread += (first[i] - mean) * (first[i] - mean);
  }
  row.kl_divergence = std::max(0.0, row.kl_divergence);  // only rounding can make it negative
  return row;
}

ModelComparison summarise(std::span<const RowDifference> rows, std::size_t vocab_size) {
  ModelComparison out;
  out.num_positions = rows.size();
  if (rows.empty()) return out;
  std::vector<double> divergences;
  double squares = 0, spread = 0, divergence = 0;
  std::size_t same = 0;
  for (const RowDifference& row : rows) {
    divergences.push_back(row.kl_divergence);
    divergence += row.kl_divergence;
    squares += row.squares;
    spread += row.spread;
    same += row.same_top;
    out.max_abs = std::max(out.max_abs, row.max_abs);
  }
  std::sort(divergences.begin(), divergences.end());
  const auto count = static_cast<double>(rows.size());
  out.mean_kl_divergence = divergence / count;
  out.median_kl_divergence = quantile(divergences, 0.5);
  out.p99_kl_divergence = quantile(divergences, 0.99);
  out.max_kl_divergence = divergences.back();
  out.same_top = static_cast<double>(same) / count;
  out.rms = std::sqrt(squares / (count * static_cast<double>(vocab_size)));
  out.relative_rms = spread > 0 ? std::sqrt(squares / spread) : 0;
  return out;
}

Result<ModelComparison> compare_models(const LoadedModel& first, const LoadedModel& second, Team& team,
                                       std::span<const std::vector<TokenId>> passages) {
  if (auto checked = check(first, second, passages); !checked) return checked.error();
  const std::size_t vocab = first.info().vocab_size;
  PassageLogits a(first, team), b(second, team);
  std::vector<RowDifference> rows;
  LogLikelihood likelihood_a, likelihood_b;
  for (const std::vector<TokenId>& tokens : passages) {
    const std::span passage(&tokens, 1);
    const auto length = static_cast<std::uint32_t>(tokens.size());
    if (auto opened = a.open(passage); !opened) return opened.error();
    if (auto opened = b.open(passage); !opened) return opened.error();
    for (std::uint32_t done = 0; done < length;) {
      const std::uint32_t count = std::min({length - done, a.max_advance(), b.max_advance()});
      a.advance(count);
      b.advance(count);
      const std::size_t before = rows.size();
      rows.resize(before + count);
      std::vector<std::pair<double, double>> likelihoods(count);
      team.parallel_for(count, [&](std::size_t i, std::uint32_t) {
        const auto row_a = a.logits(0).subspan(i * vocab, vocab), row_b = b.logits(0).subspan(i * vocab, vocab);
        rows[before + i] = compare_rows(row_a, row_b);
        if (done + i + 1 < length) {
          const TokenId next = tokens[done + i + 1];
          likelihoods[i] = {negative_log_likelihood(row_a, next), negative_log_likelihood(row_b, next)};
        }
      });
      for (std::size_t i = 0; i < count && done + i + 1 < length; ++i) {
        likelihood_a.add(likelihoods[i].first);
        likelihood_b.add(likelihoods[i].second);
      }
      done += count;
    }
  }
  ModelComparison out = summarise(rows, vocab);
  out.first = likelihood_a;
  out.second = likelihood_b;
  return out;
}

}  // namespace troupe::engine
