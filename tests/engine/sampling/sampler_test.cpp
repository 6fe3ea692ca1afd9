#include "engine/sampling/sampler.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "engine/sampling/philox.h"
#include "tests/support/count_allocations.h"
#include "tests/support/variants.h"

namespace troupe::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

Sampler make(const SamplingParams& params, std::vector<TokenId> end_ids = {}) {
  return Sampler(kernels::best_table(), params, std::move(end_ids));
}
SampledToken sample(Sampler& sampler, std::vector<float> logits, std::uint64_t position = 0) {
  return sampler.sample(logits, position);
}
TokenId greedy(SamplingParams params, const std::vector<TokenId>& history, const std::vector<float>& logits,
               std::vector<TokenId> end_ids = {}) {
  params.temperature = 0;
  Sampler sampler = make(params, std::move(end_ids));
  for (const TokenId id : history) sampler.accept(id);
  return sample(sampler, logits).id;
}
// Which ids come out in many draws, and how often.
std::map<TokenId, int> draws(const SamplingParams& params, const std::vector<float>& logits, int count) {
  Sampler sampler = make(params);
  std::map<TokenId, int> counts;
  for (int i = 0; i < count; ++i) ++counts[sample(sampler, logits, static_cast<std::uint64_t>(i)).id];
  return counts;
}
std::vector<TokenId> drawn_ids(const SamplingParams& params, const std::vector<float>& logits) {
  std::vector<TokenId> ids;
  for (const auto& [id, count] : draws(params, logits, 3000)) ids.push_back(id);
  return ids;
}
using Ids = std::vector<TokenId>;

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of its authors") {
  REQUIRE(philox4x32_10({0, 0, 0, 0}, {0, 0}) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t k1 = 0xffffffff;
  REQUIRE(philox4x32_10({k1, k1, k1, k1}, {k1, k1}) == PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a uniform draw is below 1, and depends on seed, position, choice and nothing else") {
  double sum = 0;
  for (std::uint64_t position = 0; position < 10000; ++position) {
    const double u = uniform_draw(1, position, 0, DrawPurpose::token);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
  }
  REQUIRE(sum / 10000 == Approx(0.5).margin(0.01));
  const double u = uniform_draw(1, 5, 0, DrawPurpose::token);
  REQUIRE(u == uniform_draw(1, 5, 0, DrawPurpose::token));
  REQUIRE(u != uniform_draw(2, 5, 0, DrawPurpose::token));
  REQUIRE(u != uniform_draw(1ull << 32 | 1, 5, 0, DrawPurpose::token));
  REQUIRE(u != uniform_draw(1, 5 + (1ull << 32), 0, DrawPurpose::token));
  REQUIRE(u != uniform_draw(1, 5, 1, DrawPurpose::token));
}

TEST_CASE("temperature 0 takes the largest logit, the lowest id among equals") {
  REQUIRE(greedy({}, {}, {1, 3, 2}) == 1);
  REQUIRE(greedy({}, {}, {1, 3, 3}) == 1);
  REQUIRE(greedy({}, {}, {-kInf, std::nanf(""), -2, -2}) == 2);
  REQUIRE(greedy({}, {}, {0, kInf, 5, kInf}) == 1);
  SamplingParams nearly;
  nearly.temperature = 1e-5f;
  Sampler sampler = make(nearly);
  REQUIRE(sample(sampler, {1, 1.0001f, 1}).id == 1);
}

TEST_CASE("draws follow the softmax of the logits at the temperature") {
  // Pearson's chi-square over 20,000 draws, fixed seed. 24.3 is the 99.9 % quantile for 7 degrees of freedom.
  const std::vector<float> logits = {0.5f, -1, 2, 0, 1.5f, -0.5f, 1, 0.25f};
  for (const auto* table : test::variants_here()) {
    for (const float temperature : {0.7f, 1.0f, 3.0f}) {
      SamplingParams params;
      params.temperature = temperature;
      params.seed = 42;
      Sampler sampler(*table, params, {});
      std::vector<int> counts(logits.size());
      constexpr int kDraws = 20000;
      for (int i = 0; i < kDraws; ++i) {
        ++counts[static_cast<std::size_t>(sample(sampler, logits, static_cast<std::uint64_t>(i)).id)];
      }
      double total = 0, chi_square = 0;
      for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const double expected = kDraws * std::exp(static_cast<double>(logits[i]) / temperature) / total;
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
      INFO(table->name << ", temperature " << temperature);
      REQUIRE(chi_square < 24.3);
    }
  }
}

TEST_CASE("draws are spread evenly over a large flat vocabulary") {
  SamplingParams params;
  params.seed = 3;
  Sampler sampler = make(params);
  constexpr std::size_t kVocabulary = 16000;
  std::vector<int> counts(16);  // runs of 1,000 ids, across the borders of tiles
  for (std::uint64_t i = 0; i < 8000; ++i) {
    ++counts[static_cast<std::size_t>(sample(sampler, std::vector<float>(kVocabulary, -3.0f), i).id) / 1000];
  }
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 500.0) * (count - 500.0) / 500.0;
  REQUIRE(chi_square < 37.7);  // 99.9 % at 15 degrees of freedom
}

TEST_CASE("only the kept tokens are drawn, and the filters come in their order") {
  const std::vector<float> logits = {1, 4, 3, 2, 3.5f, -kInf};
  SamplingParams params;
  params.seed = 11;
  REQUIRE(drawn_ids(params, logits) == Ids{0, 1, 2, 3, 4});
  params.top_k = 3;
  REQUIRE(drawn_ids(params, logits) == Ids{1, 2, 4});
  params.top_k = 1;
  REQUIRE(drawn_ids(params, logits) == Ids{1});
  params = {.top_p = 0.6f, .seed = 11};  // 0.479 + 0.290
  REQUIRE(drawn_ids(params, logits) == Ids{1, 4});
  params = {.min_p = 0.3f, .seed = 11};  // exp(-1) = 0.368 stays, exp(-2) goes
  REQUIRE(drawn_ids(params, logits) == Ids{1, 2, 4});
  // Temperature first: hotter is flatter, so the same top_p and min_p keep more.
  params = {.temperature = 4, .top_p = 0.6f, .seed = 11};
  REQUIRE(drawn_ids(params, logits) == Ids{1, 2, 4});
  params = {.temperature = 4, .min_p = 0.3f, .seed = 11};
  REQUIRE(drawn_ids(params, logits) == Ids{0, 1, 2, 3, 4});
  // top_p counts within the tokens that top_k kept: of {0.622, 0.378} 0.6 needs one.
  params = {.top_k = 2, .top_p = 0.6f, .seed = 11};
  REQUIRE(drawn_ids(params, logits) == Ids{1});
}

TEST_CASE("the same position gives the same draw, independent of earlier draws") {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(3000);
  for (float& logit : logits) logit = normal(random);
  const SamplingParams params{.temperature = 0.9f, .top_p = 0.95f, .repeat_penalty = 1.1f, .seed = 77};
  Sampler whole = make(params);
  Ids ids;
  for (std::uint64_t position = 0; position < 50; ++position) {
    ids.push_back(sample(whole, logits, position).id);
    whole.accept(ids.back());
  }
  Sampler resumed = make(params);
  for (std::size_t i = 0; i < 30; ++i) resumed.accept(ids[i]);
  for (std::uint64_t position = 30; position < 50; ++position) {
    REQUIRE(sample(resumed, logits, position).id == ids[position]);
    resumed.accept(ids[position]);
  }
  SamplingParams reseeded = params, second = params;
  reseeded.seed = 78;
  second.choice = 1;
  Sampler other_seed = make(reseeded), other_choice = make(second);
  int equal_seed = 0, equal_choice = 0;
  for (std::uint64_t position = 0; position < 50; ++position) {
    equal_seed += sample(other_seed, logits, position).id == ids[position];
    equal_choice += sample(other_choice, logits, position).id == ids[position];
  }
  REQUIRE(equal_seed < 10);
  REQUIRE(equal_choice < 10);
}

TEST_CASE("repeat penalty divides positive logits and multiplies the others") {
  const SamplingParams params{.repeat_penalty = 2};
  REQUIRE(greedy(params, {0}, {2, 0.9f}) == 0);     // 1.0
  REQUIRE(greedy(params, {0}, {2, 1.1f}) == 1);     // 1.0
  REQUIRE(greedy(params, {0, 0}, {2, 0.9f}) == 0);  // once, however often
  REQUIRE(greedy(params, {0}, {-1, -1.9f}) == 1);   // -2.0
  REQUIRE(greedy(params, {0}, {-1, -2.1f}) == 0);
}

TEST_CASE("presence is subtracted once, frequency for each time") {
  REQUIRE(greedy({.presence_penalty = 1}, {0, 0, 0}, {3, 1.9f}) == 0);
  REQUIRE(greedy({.presence_penalty = 1}, {0, 0, 0}, {3, 2.1f}) == 1);
  REQUIRE(greedy({.frequency_penalty = 0.5f}, {0, 0, 0}, {3, 1.4f}) == 0);
  REQUIRE(greedy({.frequency_penalty = 0.5f}, {0, 0, 0}, {3, 1.6f}) == 1);
  REQUIRE(greedy({.presence_penalty = -1}, {1}, {3, 2.1f}) == 1);  // a reward
  // All three: 4 / 2 - 1 - 2 * 0.25 = 0.5
  const SamplingParams all{.repeat_penalty = 2, .presence_penalty = 1, .frequency_penalty = 0.25f};
  REQUIRE(greedy(all, {0, 0}, {4, 0.45f}) == 0);
  REQUIRE(greedy(all, {0, 0}, {4, 0.55f}) == 1);
}

TEST_CASE("presence and frequency count all tokens of the answer, and none of the prompt; the repeat penalty both") {
  const auto after = [](SamplingParams params, std::size_t num_prompt) {
    params.temperature = 0;
    params.repeat_last_n = 2;
    Sampler sampler = make(params);
    sampler.set_prompt(num_prompt);
    for (const TokenId id : {0, 0, 1, 2, 2, 2}) sampler.accept(id);
    return sample(sampler, {3, 2.8f, 2.6f, 2.2f}).id;
  };
  CHECK(after({.presence_penalty = 1}, 0) == 3);
  CHECK(after({.presence_penalty = 1}, 2) == 0);  // of the prompt alone
  CHECK(after({.presence_penalty = 1}, 1) == 3);
  CHECK(after({.presence_penalty = 1}, 6) == 0);
  CHECK(after({.frequency_penalty = 0.35f}, 0) == 1);  // 2.3, 2.45, 1.55
  CHECK(after({.frequency_penalty = 0.35f}, 1) == 0);  // 2.65
  CHECK(after({.frequency_penalty = 0.35f}, 6) == 0);
  for (const std::size_t num_prompt : {0, 4, 6}) CHECK(after({.repeat_penalty = 3}, num_prompt) == 0);
}

TEST_CASE("the repeat penalty applies to the last repeat_last_n tokens") {
  SamplingParams params{.repeat_penalty = 2, .repeat_last_n = 2};
  REQUIRE(greedy(params, {0, 2, 2}, {3, 2.5f, 0}) == 0);  // out of the window
  REQUIRE(greedy(params, {2, 0, 2}, {3, 2.5f, 0}) == 1);
  params.repeat_last_n = 0;
  REQUIRE(greedy(params, {0, 0}, {3, 2.5f, 0}) == 0);
  params.repeat_last_n = -1;
  Ids history(1000, 2);
  history[0] = 0;
  REQUIRE(greedy(params, history, {3, 2.5f, 0}) == 1);
  REQUIRE(greedy({.repeat_penalty = 2}, history, {3, 2.5f, 0}) == 0);  // 64 by default
}

TEST_CASE("retracted tokens are not penalised, and older ones are in the window again") {
  SamplingParams params{.temperature = 0, .repeat_penalty = 2, .repeat_last_n = 2};
  Sampler sampler = make(params);
  for (const TokenId id : {1, 2, 0, 2}) sampler.accept(id);
  REQUIRE(sample(sampler, {3, 2.5f, -9}).id == 1);
  sampler.retract(2);
  REQUIRE(sample(sampler, {3, 2.5f, -9}).id == 0);
  REQUIRE(sample(sampler, {1.6f, 2.5f, -9}).id == 0);  // 1 is in the window again
}

TEST_CASE("logit bias is added first; minus infinity bans") {
  REQUIRE(greedy({.logit_bias = {{2, 5.0f}}}, {}, {1, 3, 0}) == 2);
  REQUIRE(greedy({.logit_bias = {{1, -kInf}}}, {}, {1, 3, 0}) == 0);
  REQUIRE(greedy({.logit_bias = {{0, -kInf}, {0, 100.0f}}}, {}, {3, -kInf}) == 1);  // the ban wins
  REQUIRE(greedy({.logit_bias = {{0, -kInf}}}, {}, {-kInf, -kInf}) == 1);           // less than impossible
  // Before the penalty: (1 + 3) / 2 = 2, not 1 / 2 + 3.
  REQUIRE(greedy({.repeat_penalty = 2, .logit_bias = {{0, 3.0f}}}, {0}, {1, 2.5f}) == 1);
  SamplingParams ban{.logit_bias = {{1, -kInf}}, .seed = 1};
  REQUIRE(drawn_ids(ban, {1, 9, 1}) == Ids{0, 2});
}

TEST_CASE("ignore_eos keeps end-of-generation tokens from being drawn") {
  REQUIRE(greedy({}, {}, {1, 9, 8, 0}, {1, 2}) == 1);
  REQUIRE(greedy({.ignore_eos = true}, {}, {1, 9, 8, 0}, {1, 2}) == 0);
  REQUIRE(greedy({.ignore_eos = true}, {}, {-kInf, kInf}, {1}) == 0);
  REQUIRE(greedy({.logit_bias = {{1, 1e6f}}, .ignore_eos = true}, {}, {0, 0}, {1}) == 0);
}

TEST_CASE("before min_tokens of an answer neither end-of-generation tokens nor stop ids are drawn") {
  const auto drawn_at = [](std::uint64_t position, SamplingParams params) {
    params.temperature = 0;
    params.stop_ids = {2};
    params.min_tokens = 3;
    Sampler sampler = make(params, {1});
    sampler.set_prompt(10);
    CHECK(sampler.is_plain_greedy(position) ==
          (position >= 13 && params.logit_bias.empty() && params.num_logprobs < 0));
    return sample(sampler, {1, 9, 8, 0}, position).id;
  };
  for (const std::uint64_t position : {10u, 11u, 12u}) CHECK(drawn_at(position, {}) == 0);
  for (const std::uint64_t position : {13u, 1000u}) CHECK(drawn_at(position, {}) == 1);
  CHECK(drawn_at(12, {.logit_bias = {{1, 1e6f}}}) == 0);
  CHECK(drawn_at(13, {.logit_bias = {{1, -kInf}}}) == 2);
  CHECK(drawn_at(12, {.num_logprobs = 2}) == 0);
}

TEST_CASE("logprobs are the log-softmax of the raw logits, with any parameters") {
  const std::vector<float> logits = {1, 2, 3, 3, -4};
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  for (const auto* table : test::variants_here()) {
    for (const float temperature : {0.0f, 2.0f}) {
      SamplingParams params{.temperature = temperature, .presence_penalty = 1.5f, .logit_bias = {{2, 0.5f}}};
      params.num_logprobs = 3;
      Sampler sampler(*table, params, {});
      sampler.accept(3);
      const SampledToken token = sample(sampler, logits);
      const auto expected = [&](TokenId id) { return logits[static_cast<std::size_t>(id)] - std::log(total); };
      REQUIRE(token.logprob == Approx(expected(token.id)).margin(1e-5));
      REQUIRE(token.top.size() == 3);
      const Ids order = {2, 3, 1};
      for (std::size_t i = 0; i < 3; ++i) {
        REQUIRE(token.top[i].id == order[i]);
        REQUIRE(token.top[i].logprob == Approx(expected(order[i])).margin(1e-5));
      }
    }
  }
  Sampler chosen_only = make({.num_logprobs = 0});
  REQUIRE(sample(chosen_only, logits).top.empty());
  REQUIRE(sample(chosen_only, logits).logprob < 0);
  Sampler none = make({});
  REQUIRE(sample(none, logits).logprob == 0);
  Sampler more_than_all = make({.num_logprobs = 20});
  REQUIRE(sample(more_than_all, logits).top.size() == 5);
}

TEST_CASE("logprobs of a large vocabulary sum to one, the likeliest first and equals by id") {
  std::mt19937 random(9);
  std::vector<float> logits(5000);
  for (float& logit : logits) logit = static_cast<float>(random() % 40) / 4;
  Sampler sampler = make({.num_logprobs = 20});
  const SampledToken token = sample(sampler, logits);
  Ids sorted(logits.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = static_cast<TokenId>(i);
  std::stable_sort(sorted.begin(), sorted.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const double log_total = logits[static_cast<std::size_t>(token.id)] - token.logprob;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - log_total);
  REQUIRE(sum == Approx(1).epsilon(1e-4));
  for (std::size_t i = 0; i < 20; ++i) REQUIRE(token.top[i].id == sorted[i]);
}

TEST_CASE("NaN, infinities and huge values: always an id, and the same one each time") {
  std::mt19937 random(123);
  const float odd[] = {std::nanf(""), kInf, -kInf, 3e38f, -3e38f, 1e-40f, 0, -0.0f, 5, -5};
  for (int round = 0; round < 3000; ++round) {
    std::vector<float> logits(1 + random() % 1500);
    const std::size_t kinds = 1 + random() % std::size(odd);
    for (float& logit : logits) logit = odd[random() % kinds];
    SamplingParams params;
    params.temperature = std::array{0.0f, 1e-4f, 0.7f, 1.0f, 100.0f}[random() % 5];
    params.top_k = std::array{0, 1, 40, 2000}[random() % 4];
    params.top_p = std::array{1.0f, 0.9f, 1e-30f}[random() % 3];
    params.min_p = std::array{0.0f, 0.05f, 1.0f}[random() % 3];
    params.repeat_penalty = std::array{1.0f, 1e-30f, 100.0f}[random() % 3];
    params.frequency_penalty = std::array{0.0f, -100.0f, 100.0f}[random() % 3];
    params.ignore_eos = random() % 2;
    params.min_tokens = static_cast<std::uint32_t>(random() % 4000);
    params.seed = random();
    params.num_logprobs = static_cast<std::int32_t>(random() % 3) - 1;
    params.logit_bias = {{0, odd[2 + random() % 3 * 2]}};
    const auto run = [&] {
      Sampler sampler = make(params, {static_cast<TokenId>(logits.size() - 1)});
      for (int i = 0; i < 5; ++i) sampler.accept(static_cast<TokenId>(static_cast<std::size_t>(i) % logits.size()));
      return sample(sampler, logits, static_cast<std::uint64_t>(round));
    };
    const SampledToken first = run(), second = run();
    REQUIRE(first.id >= 0);
    REQUIRE(static_cast<std::size_t>(first.id) < logits.size());
    REQUIRE(first.id == second.id);
    REQUIRE(first.logprob == second.logprob);
    REQUIRE(std::isfinite(first.logprob));
    if ((params.ignore_eos || params.min_tokens > static_cast<unsigned>(round)) && logits.size() > 2)
      REQUIRE(static_cast<std::size_t>(first.id) + 1 < logits.size());
  }
}

TEST_CASE("a warm sampler allocates nothing") {
  std::vector<float> logits(20000);
  std::mt19937 random(1);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) / 100;
  const SamplingParams params{
      .temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f, .repeat_penalty = 1.1f, .num_logprobs = 0};
  for (SamplingParams variant : {params, SamplingParams{}, SamplingParams{.top_p = 0.9f}}) {
    Sampler sampler = make(variant);
    for (TokenId id = 0; id < 100; ++id) sampler.accept(id);
    std::vector<float> scratch = logits;
    (void)sampler.sample(scratch, 0);
    for (std::uint64_t position = 1; position < 5; ++position) {
      scratch = logits;
      const std::size_t before = test::num_allocations();
      (void)sampler.sample(scratch, position);
      REQUIRE(test::num_allocations() == before);
    }
  }
}

TEST_CASE("parameters out of range are refused by name, with the range") {
  constexpr std::uint32_t kVocabulary = 100;
  const auto field = [&](const SamplingParams& params) {
    const auto error = validate(params, kVocabulary);
    return error ? error->field + ": " + error->message : std::string();
  };
  const float nan = std::nanf("");
  REQUIRE(field({}).empty());
  REQUIRE(field({.temperature = -0.1f}) ==
          "sampling.temperature: temperature is -0.1; it must be from 0 (greedy) to 100");
  REQUIRE(field({.temperature = nan}).rfind("sampling.temperature", 0) == 0);
  REQUIRE(field({.temperature = 101}).rfind("sampling.temperature", 0) == 0);
  REQUIRE(field({.top_k = -2}) == "sampling.top_k: top_k is -2; it must be -1 or 0 (all), or more");
  REQUIRE(field({.top_p = 1.5f}) == "sampling.top_p: top_p is 1.5; it must be above 0 and at most 1");
  REQUIRE(field({.top_p = 0}).rfind("sampling.top_p", 0) == 0);
  REQUIRE(field({.top_p = nan}).rfind("sampling.top_p", 0) == 0);
  REQUIRE(field({.min_p = -0.1f}) == "sampling.min_p: min_p is -0.1; it must be from 0 to 1");
  REQUIRE(field({.min_p = nan}).rfind("sampling.min_p", 0) == 0);
  REQUIRE(field({.repeat_penalty = 0}).rfind("sampling.repeat_penalty", 0) == 0);
  REQUIRE(field({.repeat_penalty = kInf}).rfind("sampling.repeat_penalty", 0) == 0);
  REQUIRE(field({.presence_penalty = nan}).rfind("sampling.presence_penalty", 0) == 0);
  REQUIRE(field({.frequency_penalty = 101}).rfind("sampling.frequency_penalty", 0) == 0);
  REQUIRE(field({.repeat_last_n = -2}).rfind("sampling.repeat_last_n", 0) == 0);
  REQUIRE(field({.max_tokens = 0}).rfind("sampling.max_tokens", 0) == 0);
  REQUIRE(field({.num_logprobs = 21}).rfind("sampling.num_logprobs", 0) == 0);
  REQUIRE(field({.num_logprobs = -2}).rfind("sampling.num_logprobs", 0) == 0);
  REQUIRE(field({.logit_bias = {{100, 1.0f}}}) ==
          "sampling.logit_bias: logit_bias names token 100; it must be an id from 0 to 99, as the vocabulary has");
  REQUIRE(field({.logit_bias = {{-1, 1.0f}}}).rfind("sampling.logit_bias", 0) == 0);
  REQUIRE(field({.logit_bias = {{1, nan}}}).rfind("sampling.logit_bias", 0) == 0);
  REQUIRE(field({.logit_bias = {{1, kInf}}}).rfind("sampling.logit_bias", 0) == 0);
  REQUIRE(field({.logit_bias = {{1, -kInf}}}).empty());
  SamplingParams many;
  many.logit_bias.assign(kMaxLogitBias + 1, {1, 1.0f});
  REQUIRE(field(many) == "sampling.logit_bias: logit_bias has 1025 entries; it must have at most 1024");
  many = {};
  many.stop_ids.assign(kMaxStopIds + 1, 1);
  REQUIRE(field(many) == "sampling.stop_ids: stop_ids has 65 entries; it must have at most 64");
  REQUIRE(field({.stop_ids = {100}}).rfind("sampling.stop_ids", 0) == 0);
}

}  // namespace troupe::engine
