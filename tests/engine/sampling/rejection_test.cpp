// Rejection sampling of proposals: the tokens have the distribution of tokens drawn without proposals.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "engine/sampling/sampler.h"
#include "tests/support/sanitized.h"

namespace troupe::engine {
namespace {

constexpr std::uint32_t kDraws = test::kSanitized ? 20'000 : 200'000;
const double kMargin = 2.5 / std::sqrt(kDraws);  // five standard deviations of a share of the draws, at least
const std::vector<float> kLogits = {0.5f, -1, 2, 0, 1.5f, -0.5f, 1, 0.25f, -2, 1.75f, 0.75f, -0.25f};
// Of a draft: other likeliest tokens, and one that the target seldom draws.
const std::vector<float> kDraftLogits = {1.0f, -1.5f, 1.25f, 0.5f, 1.5f, 0, -0.5f, 0.25f, 1, 1.5f, 0.5f, -1};
const std::vector<TokenId> kHistory = {2, 5, 2, 9, 4, 2};

Sampler make(const SamplingParams& params) {
  Sampler sampler(kernels::best_table(), params, {});
  for (const TokenId id : kHistory) sampler.accept(id);
  return sampler;
}

// The distribution that `params` describe, in float64 and by sorting.
std::vector<double> expected_distribution(const SamplingParams& params) {
  std::vector<double> weights(kLogits.begin(), kLogits.end());
  for (std::size_t id = 0; id < weights.size(); ++id) {
    const auto count = std::count(kHistory.begin(), kHistory.end(), static_cast<TokenId>(id));
    if (count == 0) continue;
    double& logit = weights[id];
    logit = logit > 0 ? logit / double{params.repeat_penalty} : logit * double{params.repeat_penalty};
    logit -= double{params.presence_penalty} + static_cast<double>(count) * double{params.frequency_penalty};
  }
  for (double& weight : weights) weight = std::exp(weight / double{params.temperature});
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return weights[a] > weights[b]; });
  double above = 0, kept = 0;
  for (const std::size_t id : order) {
    if (above >= double{params.top_p} * sum && params.top_p < 1) weights[id] = 0;
    above += weights[id];
    kept += weights[id];
  }
  for (double& weight : weights) weight /= kept;
  return weights;
}

// The probability of a chi-square above `x`: the regularised upper incomplete gamma function by its series.
double chi_square_p(double x, int degrees) {
  const double a = degrees / 2.0, z = x / 2;
  double term = 1 / a, sum = term;
  for (int n = 1; n < 1000; ++n) sum += term *= z / (a + n);
  return 1 - sum * std::exp(-z + a * std::log(z) - std::lgamma(a));
}

// p of the hypothesis that `counts` were drawn from `distribution`; 0 if a token of probability 0 was drawn.
double p_value(const std::vector<std::uint32_t>& counts, const std::vector<double>& distribution) {
  double chi_square = 0;
  int degrees = -1;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const double expected = kDraws * distribution[id];
    if (expected == 0 && counts[id] != 0) return 0;
    if (expected == 0) continue;
    chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++degrees;
  }
  return chi_square_p(chi_square, degrees);
}

struct Drawn {
  std::vector<std::uint32_t> counts = std::vector<std::uint32_t>(kLogits.size());
  double accepted = 0;  // of the proposals
};

// The proposals come from a draft's sampler with the same seed, or are always `fixed`.
Drawn draw(const SamplingParams& params, std::optional<TokenId> fixed) {
  SamplingParams draft_params = params;
  draft_params.is_proposing = true;
  Sampler target = make(params), draft = make(draft_params);
  std::vector<float> logits;
  Drawn drawn;
  for (std::uint32_t position = 0; position < kDraws; ++position) {
    logits = kDraftLogits;
    SampledToken proposed;
    if (fixed)
      proposed.id = *fixed;
    else
      proposed = draft.sample(logits, position);
    logits = kLogits;
    const TokenId id =
        target.sample_proposed(logits, position, {.id = proposed.id, .distribution = proposed.distribution}).id;
    ++drawn.counts[static_cast<std::size_t>(id)];
    drawn.accepted += id == proposed.id ? 1.0 / kDraws : 0;
  }
  return drawn;
}

std::vector<SamplingParams> some_params() {
  std::vector<SamplingParams> all;
  for (const float temperature : {0.3f, 0.7f, 1.0f, 1.5f})
    for (const bool filters : {false, true}) {
      SamplingParams params;
      params.temperature = temperature;
      params.seed = 3;
      if (filters) {
        params.top_p = 0.85f;
        params.repeat_penalty = 1.2f;
        params.presence_penalty = 0.1f;
        params.frequency_penalty = 0.15f;
      }
      all.push_back(params);
    }
  return all;
}

TEST_CASE("chi-square's p is that of the tables") {
  CHECK(chi_square_p(3.841, 1) == Approx(0.05).margin(1e-4));
  CHECK(chi_square_p(24.725, 11) == Approx(0.01).margin(1e-4));
}

TEST_CASE("with a draft that draws, tokens follow the target's distribution") {
  for (const SamplingParams& params : some_params()) {
    INFO("temperature " << params.temperature << ", top_p " << params.top_p);
    const std::vector<double> expected = expected_distribution(params);
    const Drawn drawn = draw(params, std::nullopt);
    CHECK(p_value(drawn.counts, expected) > 0.01);
    // Acceptance is the overlap of both distributions.
    SamplingParams draft_params = params;
    draft_params.is_proposing = true;
    std::vector<float> logits = kDraftLogits;
    double overlap = 0;
    for (const auto& [id, probability] : make(draft_params).sample(logits, 0).distribution)
      overlap += std::min(expected[static_cast<std::size_t>(id)], double{probability});
    CHECK(drawn.accepted == Approx(overlap).margin(kMargin));
  }
}

TEST_CASE("with proposals chosen without a draw, tokens follow the target's distribution") {
  for (const SamplingParams& params : some_params())
    for (const TokenId fixed : {4, 8}) {  // a likely token, and the unlikeliest one
      INFO("temperature " << params.temperature << ", top_p " << params.top_p << ", proposed " << fixed);
      const std::vector<double> expected = expected_distribution(params);
      const Drawn drawn = draw(params, fixed);
      CHECK(p_value(drawn.counts, expected) > 0.01);
      CHECK(drawn.accepted == Approx(expected[static_cast<std::size_t>(fixed)]).margin(kMargin));
    }
}

TEST_CASE("a draft with the target's own distribution is always accepted") {
  SamplingParams params = some_params()[3], draft_params = params;
  draft_params.is_proposing = true;
  Sampler target = make(params), draft = make(draft_params);
  std::vector<float> logits;
  for (std::uint64_t position = 0; position < 1000; ++position) {
    logits = kLogits;
    const SampledToken proposed = draft.sample(logits, position);
    logits = kLogits;
    REQUIRE(target.sample_proposed(logits, position, {proposed.id, proposed.distribution}).id == proposed.id);
  }
}

TEST_CASE("at temperature 0 the likeliest token is taken, whatever is proposed and however") {
  SamplingParams params;
  params.temperature = 0;
  Sampler target(kernels::best_table(), params, {});
  const std::vector<TokenProbability> distribution = {{2, 0.25f}, {3, 0.75f}};
  for (const TokenId id : {2, 3}) {
    std::vector<float> logits = kLogits;
    CHECK(target.sample_proposed(logits, 7, {.id = id, .distribution = distribution}).id == 2);
  }
}

TEST_CASE("a banned token is never accepted, and none is drawn in its place that is banned") {
  SamplingParams params;
  params.logit_bias = {{4, -std::numeric_limits<float>::infinity()}};
  Sampler target(kernels::best_table(), params, {});
  for (std::uint64_t position = 0; position < 2000; ++position) {
    std::vector<float> logits = kLogits;
    REQUIRE(target.sample_proposed(logits, position, {.id = 4, .distribution = {}}).id != 4);
  }
}

}  // namespace
}  // namespace troupe::engine
