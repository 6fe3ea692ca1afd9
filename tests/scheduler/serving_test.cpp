// Queue, planner and leases together, as a batcher uses them: tests/scheduler/serving_sim.h.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/scheduler/serving_sim.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

std::vector<TokenId> random_tokens(std::mt19937_64& random, std::uint32_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 50000);
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void require_all_came_back(const ServingSim& sim) {
  sim.book().check();
  const cache::CacheCounters counters = sim.book().counters();
  REQUIRE(counters.referenced == 0);
  REQUIRE(counters.waiting == 0);
  REQUIRE(counters.free + counters.cached == counters.total);
}

void require_right_answers(const ServingSim& sim) {
  for (const auto& [number, request] : sim.requests()) {
    INFO("request " << number);
    REQUIRE(request.tokens == ServingSim::expected_tokens(request));
    if (!request.cancelled) REQUIRE(request.tokens.size() == request.max_known);
  }
}

}  // namespace

TEST_CASE("a prefix that arrives many times at once is computed once") {
  std::mt19937_64 random(7);
  ServingSim sim({.num_blocks = 200, .planner = {64, 16}, .seed = 7});
  const std::vector<TokenId> prefix = random_tokens(random, 200);
  for (int i = 0; i < 16; ++i) sim.submit(joined(prefix, random_tokens(random, 20)), 8);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
  std::uint64_t cached = 0;
  for (const auto& [number, request] : sim.requests()) cached += request.cached_tokens;
  REQUIRE(cached == 15u * 192u);
  REQUIRE(sim.num_preemptions() == 0);
}

TEST_CASE("128 shuffled requests over 8 prefixes with room for 3 hit at least 80 % of the prefix blocks") {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    for (std::uint32_t max_sequences : {1u, 4u}) {
      std::mt19937_64 random(seed);
      constexpr std::uint32_t kPrefixBlocks = 16;
      std::vector<std::vector<TokenId>> prefixes;
      for (int i = 0; i < 8; ++i) prefixes.push_back(random_tokens(random, kPrefixBlocks * kBlockSize));
      std::vector<int> order(128);
      for (int i = 0; i < 128; ++i) order[static_cast<std::size_t>(i)] = i % 8;
      std::shuffle(order.begin(), order.end(), random);

      // Room for 3 prefixes, and for what each running request needs beyond them: 10 + 8 tokens.
      ServingSim sim({.num_blocks = 3 * kPrefixBlocks + max_sequences, .planner = {256, max_sequences}, .seed = seed});
      for (int prefix : order)
        sim.submit(joined(prefixes[static_cast<std::size_t>(prefix)], random_tokens(random, 10)), 8);
      sim.drain();
      require_right_answers(sim);
      require_all_came_back(sim);
      std::uint64_t hit = 0;
      for (const auto& [number, request] : sim.requests()) hit += request.cached_tokens / kBlockSize;
      const double share = static_cast<double>(hit) / (128.0 * kPrefixBlocks);
      WARN("seed " << seed << ", " << max_sequences << " at once: " << 100 * share << " % hit, "
                   << sim.num_preemptions() << " preemptions");
      CHECK(share >= 0.80);
    }
  }
}
