// The filters of the sampler against a full sort, in every variant this CPU has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "engine/sampling/candidates.h"
#include "tests/support/variants.h"

namespace troupe::engine {
namespace {

using Ids = std::vector<TokenId>;

Ids ids_of(const Candidates& candidates) { return {candidates.ids().begin(), candidates.ids().end()}; }

// All ids, largest value first, the lower id first among equals.
Ids sorted_ids(const std::vector<float>& values) {
  Ids ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  return ids;
}

// Logits with this standard deviation (a model's have about 3), on a grid, so that many are equal.
std::vector<float> random_logits(std::size_t count, std::uint32_t seed, float grid, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = std::round(normal(random) / grid) * grid;
  return logits;
}

}  // namespace

TEST_CASE("top-k keeps the k largest logits, equal ones by id, in ascending id") {
  for (const auto* table : test::variants_here()) {
    Candidates candidates(*table);
    for (const std::size_t count : {1u, 2u, 50u, 1024u, 1025u, 5000u, 130000u}) {
      for (const float grid : {0.001f, 0.5f}) {
        const auto logits = random_logits(count, static_cast<std::uint32_t>(count), grid);
        const Ids sorted = sorted_ids(logits);
        for (const std::size_t k : {1u, 2u, 3u, 40u, 127u, 128u, 1000u, 60000u, 1u << 30}) {
          INFO(table->name << ", " << count << " logits, grid " << grid << ", k " << k);
          Ids expected(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(std::min(k, count)));
          std::sort(expected.begin(), expected.end());
          candidates.assign_top_k(logits, k);
          REQUIRE((ids_of(candidates) == expected));
          for (std::size_t i = 0; i < expected.size(); ++i) {
            if (candidates.values()[i] != logits[static_cast<std::size_t>(expected[i])]) FAIL("value " << i);
          }
        }
      }
    }
  }
}

TEST_CASE("top-k orders negative, zero and huge logits") {
  Candidates candidates(kernels::best_table());
  const std::vector<float> logits = {-1e30f, -0.0f, 0.0f, 1e30f, -5, 1e-30f, -1e-30f};
  candidates.assign_top_k(logits, 3);
  REQUIRE(ids_of(candidates) == Ids{1, 3, 5});  // -0 equals 0, and has the lower id
}

TEST_CASE("top-p keeps the smallest set of the likeliest tokens with at least p of the sum") {
  for (const auto* table : test::variants_here()) {
    Candidates candidates(*table);
    for (const std::size_t count : {1u, 7u, 1500u, 130000u}) {
      for (const auto& [top_p, spread] : std::vector<std::pair<float, float>>{
               {1e-6f, 3}, {0.1f, 3}, {0.5f, 3}, {0.9f, 3}, {0.95f, 3}, {0.999f, 3}, {0.1f, 0.1f}, {0.9f, 0.1f}}) {
        INFO(table->name << ", " << count << " logits, top_p " << top_p << ", spread " << spread);
        const std::vector<float> logits =
            random_logits(count, static_cast<std::uint32_t>(count) + 1, spread / 12, spread);
        candidates.assign(logits);
        candidates.to_weights(1.0f / 0.8f);
        const std::vector<float> weights(candidates.values().begin(), candidates.values().end());
        candidates.keep_top_p(top_p);

        const Ids sorted = sorted_ids(weights);
        const std::size_t kept = candidates.ids().size();
        REQUIRE(kept >= 1);
        Ids expected(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(kept));
        const auto mass = [&](std::size_t n) {
          double sum = 0;
          for (std::size_t i = 0; i < n; ++i) sum += weights[static_cast<std::size_t>(sorted[i])];
          return sum;
        };
        // The variants' sums of tiles are float: the cut may be off by that rounding, not more.
        const double total = mass(count);
        REQUIRE(mass(kept) >= total * top_p * (1 - 1e-5));
        REQUIRE(mass(kept - 1) <= total * top_p * (1 + 1e-5));
        std::sort(expected.begin(), expected.end());
        REQUIRE((ids_of(candidates) == expected));
      }
    }
  }
}

TEST_CASE("top-p of equal logits keeps the lowest ids") {
  Candidates candidates(kernels::best_table());
  const std::vector<float> logits(131072, 1.5f);
  candidates.assign(logits);
  candidates.to_weights(1);
  candidates.keep_top_p(0.5f);
  REQUIRE(candidates.ids().size() == 65536);
  REQUIRE(candidates.ids().back() == 65535);
}

TEST_CASE("top-p by hand") {
  Candidates candidates(kernels::best_table());
  // Weights 8, 4, 2, 1, 1 of 16 (logits are multiples of ln 2).
  const float ln2 = 0.69314718f;
  const std::vector<float> logits = {ln2, 3 * ln2, 0, 2 * ln2, 0};
  const auto kept = [&](float top_p) {
    candidates.assign(logits);
    candidates.to_weights(1);
    candidates.keep_top_p(top_p);
    return ids_of(candidates);
  };
  REQUIRE(kept(0.49f) == Ids{1});
  REQUIRE(kept(0.51f) == Ids{1, 3});
  REQUIRE(kept(0.76f) == Ids{0, 1, 3});
  REQUIRE(kept(0.9f) == Ids{0, 1, 2, 3});
  REQUIRE(kept(0.95f) == Ids{0, 1, 2, 3, 4});
  REQUIRE(kept(1e-9f) == Ids{1});
}

TEST_CASE("min-p keeps tokens with at least that share of the likeliest one") {
  Candidates candidates(kernels::best_table());
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.26f), std::log(0.14f)};
  const auto kept = [&](float min_p) {
    candidates.assign(logits);
    candidates.to_weights(1);
    candidates.keep_min_p(min_p);
    return ids_of(candidates);
  };
  REQUIRE(kept(1.0f) == Ids{1});
  REQUIRE(kept(0.5f) == Ids{1, 2});
  REQUIRE(kept(0.25f) == Ids{1, 2, 3});
  REQUIRE(kept(0.1f) == Ids{0, 1, 2, 3});
}

TEST_CASE("a draw is the inverse of the cumulative distribution in ascending id") {
  for (const auto* table : test::variants_here()) {
    Candidates candidates(*table);
    const std::vector<float> equal(4, 2.0f);
    candidates.assign(equal);
    candidates.to_weights(1);
    REQUIRE(candidates.draw(0) == 0);
    REQUIRE(candidates.draw(0.2499) == 0);
    REQUIRE(candidates.draw(0.2501) == 1);
    REQUIRE(candidates.draw(0.7501) == 3);
    REQUIRE(candidates.draw(0x1.fffffffffffffp-1) == 3);

    // Over several tiles, with weight only here and there.
    std::vector<float> logits(5000, -1e30f);
    for (const std::size_t id : {7u, 1023u, 1024u, 4000u}) logits[id] = 1;
    candidates.assign(logits);
    candidates.to_weights(1);
    REQUIRE(candidates.draw(0) == 7);
    REQUIRE(candidates.draw(0.3) == 1023);
    REQUIRE(candidates.draw(0.6) == 1024);
    REQUIRE(candidates.draw(0.9) == 4000);
    REQUIRE(candidates.draw(0x1.fffffffffffffp-1) == 4000);
  }
}

}  // namespace troupe::engine
