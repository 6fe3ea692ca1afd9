// Queue, planner and leases together, as a batcher uses them: tests/scheduler/serving_sim.h.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "cache/group.h"
#include "tests/scheduler/serving_sim.h"
#include "tests/support/sanitized.h"

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
  REQUIRE(counters.waiting == 0);
  for (const cache::PoolCounters& blocks : counters.groups) {
    REQUIRE(blocks.referenced() == 0);
    REQUIRE(blocks.free + blocks.cached == blocks.total);
  }
  REQUIRE(counters.snapshots.available == counters.snapshots.total);
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
  ServingSim sim({.groups = {{.num_blocks = 200}}, .planner = {64, 16}, .seed = 7});
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

      // Room for 3 prefixes, and for the tokens of each running request after them: 10 + 8.
      ServingSim sim({.groups = {{.num_blocks = 3 * kPrefixBlocks + max_sequences}},
                      .planner = {256, max_sequences},
                      .seed = seed});
      for (int prefix : order)
        sim.submit(joined(prefixes[static_cast<std::size_t>(prefix)], random_tokens(random, 10)), 8);
      sim.drain();
      require_right_answers(sim);
      require_all_came_back(sim);
      std::uint64_t hit = 0;
      for (const auto& [number, request] : sim.requests()) hit += request.cached_tokens / kBlockSize;
      const double share = static_cast<double>(hit) / (128.0 * kPrefixBlocks);
      INFO("seed " << seed << ", " << max_sequences << " at once: " << 100 * share << " % hit");
      CHECK(share >= 0.80);
    }
  }
}

TEST_CASE("clients that ask one after the other compute each full block of a shared prefix once") {
  std::mt19937_64 random(11);
  ServingSim sim({.groups = {{.num_blocks = 300}}, .planner = {128, 16}, .seed = 11});
  std::vector<std::vector<TokenId>> prefixes;
  for (int i = 0; i < 4; ++i) prefixes.push_back(random_tokens(random, 200));
  std::vector<RequestNumber> open;
  std::vector<int> left(16, 4);
  open.resize(16, 0);
  while (true) {
    bool is_waiting = false;
    for (std::size_t client = 0; client < 16; ++client) {
      if (open[client] != 0 && !sim.request(open[client]).ended) {
        is_waiting = true;
      } else if (left[client]-- > 0) {
        const auto& prefix = prefixes[(client + static_cast<std::size_t>(left[client])) % 4];
        open[client] = sim.submit(joined(prefix, random_tokens(random, 5 + random() % 40)), 6);
        is_waiting = true;
      }
    }
    if (!is_waiting) break;
    sim.tick();
  }
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
  std::uint64_t cached = 0;
  for (const auto& [number, request] : sim.requests()) cached += request.cached_tokens;
  REQUIRE(sim.requests().size() == 64);
  REQUIRE(cached == (64u - 4u) * 192u);
}

TEST_CASE("a request that needs every block preempts all younger ones and ends") {
  std::mt19937_64 random(3);
  ServingSim sim({.groups = {{.num_blocks = 10}}, .planner = {64, 4}, .seed = 3});
  const RequestNumber oldest = sim.submit(random_tokens(random, 40), 10 * kBlockSize + 1 - 40);
  for (int i = 0; i < 6; ++i) sim.submit(random_tokens(random, 60), 40);
  std::uint64_t ticks = 0;
  while (!sim.request(oldest).ended) {
    REQUIRE(sim.tick());
    REQUIRE(++ticks < 100'000);
  }
  REQUIRE(sim.request(oldest).num_admissions == 1);  // the oldest is never preempted
  REQUIRE(sim.num_preemptions() > 0);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("several answers to a prompt are computed from one prefill") {
  std::mt19937_64 random(21);
  ServingSim sim({.groups = {{.num_blocks = 100}}, .planner = {64, 8}, .seed = 21});
  const RequestNumber first = sim.submit_choices(random_tokens(random, 150), 40, 4);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
  REQUIRE(sim.request(first).cached_tokens == 0);
  for (RequestNumber fork = first + 1; fork < first + 4; ++fork) REQUIRE(sim.request(fork).cached_tokens >= 149);
}

TEST_CASE("a turn is copied from what its last one saved where the cache has lost it, and computes the rest") {
  for (const bool with_state : {false, true}) {
    std::mt19937_64 random(22);
    SimOptions options{.groups = {{.num_blocks = 16}, {.num_blocks = 12, .window = 70}},
                       .planner = {64, 4},
                       .seed = 22,
                       .saves_contents = true};
    if (with_state) {
      options.snapshot_rule = {.every = 64};
      options.num_snapshots = 4;
    }
    ServingSim sim(options);
    const RequestNumber first = sim.submit(random_tokens(random, 150), 40);
    sim.drain();
    sim.submit(random_tokens(random, 400), 80);  // takes all blocks
    sim.drain();
    const RequestNumber next = sim.submit_turn(first, random_tokens(random, 30), 20);
    sim.drain();
    REQUIRE(sim.request(next).num_filled == 189);  // the last token was never computed
    REQUIRE(sim.request(next).cached_tokens == 0);
    const RequestNumber soon = sim.submit_turn(next, random_tokens(random, 30), 20);
    sim.drain();
    REQUIRE(sim.request(soon).num_filled < 90);  // of what the cache still has, nothing
    require_right_answers(sim);
    require_all_came_back(sim);
  }
}

// --- windows and recurrent state ---

TEST_CASE("a prefix that arrives many times at once is computed once also by a model with recurrent state") {
  std::mt19937_64 random(7);
  ServingSim sim({.groups = {{.num_blocks = 200}},
                  .planner = {64, 16},
                  .seed = 7,
                  .snapshot_rule = {.every = 64},
                  .num_snapshots = 40});
  const std::vector<TokenId> prefix = random_tokens(random, 200);
  for (int i = 0; i < 16; ++i) sim.submit(joined(prefix, random_tokens(random, 20)), 8);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
  std::uint64_t cached = 0;
  for (const auto& [number, request] : sim.requests()) cached += request.cached_tokens;
  REQUIRE(cached == 15u * 192u);  // a multiple of 64, by chance
  REQUIRE(sim.book().counters().snapshot_hits == 15);
}

TEST_CASE("the same prompt again begins before its last token, from the snapshot at its end") {
  std::mt19937_64 random(8);
  ServingSim sim({.groups = {{.num_blocks = 200}}, .seed = 8, .snapshot_rule = {.every = 512}, .num_snapshots = 4});
  const std::vector<TokenId> prompt = random_tokens(random, 150);
  sim.submit(prompt, 20);
  sim.drain();
  const RequestNumber again = sim.submit(prompt, 20);
  const RequestNumber longer = sim.submit(joined(prompt, random_tokens(random, 90)), 20);
  sim.drain();
  REQUIRE(sim.request(again).cached_tokens == 128);
  REQUIRE(sim.request(longer).cached_tokens == 128);
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("a preempted sequence goes on from its last snapshot") {
  std::mt19937_64 random(3);
  // Room for both, but not once they have grown.
  ServingSim sim({.groups = {{.num_blocks = 14}},
                  .planner = {64, 4},
                  .seed = 3,
                  .snapshot_rule = {.every = 64, .at_prompt_end = false},
                  .num_snapshots = 8});
  sim.submit(random_tokens(random, 40), 200);
  const RequestNumber younger = sim.submit(random_tokens(random, 140), 120);
  std::uint32_t known = 0;  // when it was preempted
  while (sim.num_preemptions() == 0) {
    known = static_cast<std::uint32_t>(sim.request(younger).tokens.size());
    REQUIRE(sim.tick());
  }
  REQUIRE(known > 192);
  sim.drain();
  REQUIRE(sim.request(younger).num_admissions > 1);
  REQUIRE(sim.request(younger).resumed_at == 192);
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("however many sequences are parked, at most max_open have a state, and all end with the right answers") {
  std::mt19937_64 random(12);
  ServingSim sim({.groups = {{.num_blocks = 400}},
                  .planner = {.max_step_tokens = 64, .max_sequences = 16, .max_open = 3},
                  .seed = 12,
                  .snapshot_rule = {.every = 64},
                  .num_snapshots = 8});
  std::vector<RequestNumber> all;
  for (int i = 0; i < 40; ++i) all.push_back(sim.submit(random_tokens(random, 33), 30));
  // A client stops reading once its answer has begun, until all answers have.
  const auto begun = [&](RequestNumber number) { return sim.request(number).tokens.size() > 33; };
  while (!std::all_of(all.begin(), all.end(), begun)) {
    REQUIRE(sim.tick());
    for (const RequestNumber number : all)
      if (begun(number)) sim.park(number);
  }
  for (const RequestNumber number : all) sim.unpark(number);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("a long text holds the blocks of its window only, and those of the running step") {
  std::mt19937_64 random(4);
  for (std::uint32_t window : {1u, 16u, 33u, 100u}) {
    // Few enough to run on, by one block at a time; the names of positions are plenty.
    const std::uint32_t most = cache::most_window_blocks(window);
    ServingSim sim(
        {.groups = {{.num_blocks = 100}, {.num_blocks = most, .window = window}}, .planner = {32, 4}, .seed = window});
    sim.submit(random_tokens(random, 10 * window + 40), 10 * window + 40);
    sim.drain();
    REQUIRE(sim.most_blocks_held(1) == most);
    require_right_answers(sim);
    require_all_came_back(sim);
    sim.submit(random_tokens(random, 500), 50);
    sim.submit(random_tokens(random, 500), 50);
    sim.drain();
    require_right_answers(sim);
    require_all_came_back(sim);
  }
}

TEST_CASE("each group holds the blocks of its own window, beside a group that holds all") {
  std::mt19937_64 random(6);
  const std::uint32_t fewest = cache::most_window_blocks(20), more = cache::most_window_blocks(100);
  ServingSim sim(
      {.groups = {{.num_blocks = 100}, {.num_blocks = more, .window = 100}, {.num_blocks = fewest, .window = 20}},
       .planner = {32, 4},
       .seed = 6});
  sim.submit(random_tokens(random, 1000), 200);
  sim.submit(random_tokens(random, 500), 50);
  sim.drain();
  REQUIRE(sim.most_blocks_held(0) == blocks_for(1199));
  REQUIRE(sim.most_blocks_held(1) == more);
  REQUIRE(sim.most_blocks_held(2) == fewest);
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("where there is room enough a sequence needs no more than its window and three steps") {
  std::mt19937_64 random(5);
  ServingSim sim({.groups = {{.num_blocks = 100}, {.num_blocks = 100, .window = 64}}, .planner = {32, 4}, .seed = 5});
  sim.submit(random_tokens(random, 1000), 200);
  sim.drain();
  // The planner asks for blocks for two steps after the running one.
  REQUIRE(sim.most_blocks_held(1) <= cache::most_window_blocks(64) + 3);
  require_right_answers(sim);
}

// --- random workloads ---

// Floors and ceilings of three tenants, of which the floors leave a part of the pool to all, and each ceiling is at
// least that part.
std::map<TenantId, TenantLimits> random_limits(std::mt19937_64& random, std::uint32_t num_blocks) {
  std::map<TenantId, TenantLimits> limits;
  std::uint32_t left = num_blocks - 6, sum = 0;  // the longest request of the workload has 6 blocks
  for (std::uint64_t id = 1; id <= 3; ++id) {
    TenantLimits& of = limits[TenantId{id}];
    if (random() % 3 > 0) {
      of.min_kv_blocks = static_cast<std::uint32_t>(random() % (left + 1));
      left -= *of.min_kv_blocks;
      sum += *of.min_kv_blocks;
    }
    if (random() % 2 == 0)
      of.max_kv_blocks = std::max(6 + static_cast<std::uint32_t>(random() % 8), of.min_kv_blocks.value_or(0));
  }
  for (auto& [tenant, of] : limits) of.others_min_kv_blocks = sum - of.min_kv_blocks.value_or(0);
  return limits;
}

// Random prompts that share prefixes, in several scopes and priorities, with several answers to one prompt, turns that
// go on from earlier answers, and clients that leave or stop reading. Deaths: of batcher and keeper, and of steps.
void run_random_workload(std::uint64_t seed, bool with_deaths, int num_windows = 0, bool with_state = false,
                         bool with_limits = false) {
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  SimOptions options{
      .groups = {{.num_blocks = 8 + static_cast<std::uint32_t>(random() % 24)}},
      .planner = {static_cast<std::uint32_t>(1 + random() % 96), static_cast<std::uint32_t>(1 + random() % 8)},
      .seed = seed};
  for (int i = 0; i < num_windows; ++i) {
    const std::uint32_t window = 1 + static_cast<std::uint32_t>(random() % 80);
    const std::uint32_t num_blocks = cache::most_window_blocks(window) + static_cast<std::uint32_t>(random() % 10);
    options.groups.push_back({.num_blocks = num_blocks, .window = window});
  }
  if (with_state) {
    options.snapshot_rule = {.every = kBlockSize * (1 + static_cast<std::uint32_t>(random() % 4)),
                             .at_prompt_end = random() % 2 == 0};
    options.num_snapshots = static_cast<std::uint32_t>(random() % 12);
    options.planner.max_open = 1 + static_cast<std::uint32_t>(random() % 10);
  }
  if (seed % 3 != 0) {
    options.draft_probability = 0.7;
    options.planner.verify_all_drafts = seed % 3 == 1;
  }
  if (with_limits) options.limits = random_limits(random, options.groups[0].num_blocks);
  options.saves_contents = seed % 2 == 1;
  options.scored_probability = 0.1;
  if (with_deaths) options.failure_probability = 0.03;
  ServingSim sim(options);
  std::vector<std::vector<TokenId>> prefixes;
  for (int i = 0; i < 4; ++i)
    prefixes.push_back(random_tokens(random, 16 + static_cast<std::uint32_t>(random() % 110)));
  const std::vector<cache::ScopeList> scopes = {{cache::kPublicScope},
                                                cache::scopes_for(TenantId{1}, ""),
                                                cache::scopes_for(TenantId{2}, ""),
                                                cache::scopes_for(TenantId{1}, "notes")};
  const std::vector<TenantId> tenants_of_scopes = {TenantId{3}, TenantId{1}, TenantId{2}, TenantId{1}};
  std::vector<RequestNumber> parked;
  for (int event = 0; event < 600; ++event) {
    const std::uint64_t dice = random() % 100;
    const RequestNumber any = sim.requests().empty() ? 0 : 1 + random() % sim.requests().size();
    if (dice < 12 && sim.requests().size() < 60) {
      const auto suffix = random_tokens(random, 1 + static_cast<std::uint32_t>(random() % (with_limits ? 30 : 60)));
      const auto num_generated = 1 + static_cast<std::uint32_t>(random() % (with_limits ? 30 : 60));
      const std::size_t scope = random() % scopes.size();
      // Public prefixes are of any tenant.
      const TenantId tenant = with_limits && scope == 0 ? TenantId{1 + random() % 3} : tenants_of_scopes[scope];
      // The longest prompts above take 216 tokens; six blocks fit into every tenant's ceiling.
      const std::size_t most = with_limits ? 6 * kBlockSize : 216;
      const std::uint64_t kind = random() % 4;
      if (kind == 0) {
        sim.submit_choices(joined(prefixes[random() % 4], suffix), num_generated, 2 + random() % 3,
                           with_limits ? tenant : TenantId{1});
        continue;
      }
      if (kind == 1 && any != 0 && sim.request(any).ended &&
          sim.request(any).tokens.size() + suffix.size() + num_generated <= most) {
        sim.submit_turn(any, suffix, num_generated);
        continue;
      }
      sim.submit(joined(prefixes[random() % 4], suffix), num_generated, static_cast<std::int32_t>(random() % 3) - 1,
                 scopes[scope], with_limits ? tenant : TenantId{1});
    } else if (dice == 12 && any != 0) {
      sim.cancel(any);
    } else if (dice < 15 && any != 0) {
      sim.park(any);
      parked.push_back(any);
    } else if (dice < 20 && !parked.empty()) {
      sim.unpark(parked.back());
      parked.pop_back();
    } else if (dice == 20 && with_deaths) {
      sim.kill_batcher();
    } else if (dice == 21 && with_deaths && random() % 3 == 0) {
      sim.kill_keeper();
    } else {
      for (int i = 0; i < 10; ++i) sim.tick();
    }
  }
  for (RequestNumber number : parked) sim.unpark(number);
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
}

std::uint64_t last_seed(std::uint64_t first, std::uint64_t count) {
  return first + (test::kSanitized ? count / 5 : count) - 1;
}

TEST_CASE("drafts save steps, and none is verified that is not predicted to pay") {
  std::map<double, std::uint64_t> steps;
  for (const double token_seconds : {0.0001, 0.02}) {
    for (const double drafts : {0.0, 1.0}) {
      ServingSim sim({.token_seconds = token_seconds, .draft_probability = drafts});
      std::mt19937_64 random(3);
      for (int i = 0; i < 4; ++i) sim.submit(random_tokens(random, 20), 300);
      sim.drain();
      require_right_answers(sim);
      INFO(token_seconds << " s a token, " << sim.num_steps() << " steps, " << sim.num_accepted() << " accepted");
      if (drafts == 0) {
        steps[token_seconds] = sim.num_steps();
      } else if (token_seconds < 0.001) {
        CHECK(3 * sim.num_steps() < steps[token_seconds]);
      } else {  // some are tried before it is known what a token costs
        CHECK(sim.num_accepted() < 100);
      }
    }
  }
}

TEST_CASE("random workloads end with the right answers, and all blocks are freed") {
  for (std::uint64_t seed = 1; seed <= last_seed(1, 150); ++seed) run_random_workload(seed, false);
}

TEST_CASE("random workloads survive restarts of batcher and keeper") {
  for (std::uint64_t seed = 1001; seed <= last_seed(1001, 150); ++seed) run_random_workload(seed, true);
}

TEST_CASE("random workloads of models with windows end with the right answers, and survive restarts") {
  for (std::uint64_t seed = 2001; seed <= last_seed(2001, 100); ++seed)
    run_random_workload(seed, seed % 2 == 0, 1, false);
}

TEST_CASE("random workloads of models with three cache groups end with the right answers, and survive restarts") {
  for (std::uint64_t seed = 5001; seed <= last_seed(5001, 100); ++seed)
    run_random_workload(seed, seed % 2 == 0, 2, false);
}

TEST_CASE("random workloads of models with recurrent state end with the right answers, and survive restarts") {
  for (std::uint64_t seed = 3001; seed <= last_seed(3001, 100); ++seed)
    run_random_workload(seed, seed % 2 == 0, 0, true);
}

TEST_CASE("random workloads of models with windows and state end with the right answers, and survive restarts") {
  for (std::uint64_t seed = 4001; seed <= last_seed(4001, 50); ++seed)
    run_random_workload(seed, seed % 2 == 0, 1, true);
}

TEST_CASE("random workloads of tenants with floors and ceilings end with the right answers, and survive restarts") {
  for (std::uint64_t seed = 6001; seed <= last_seed(6001, 200); ++seed)
    run_random_workload(seed, seed % 2 == 0, 0, false, true);
}

TEST_CASE("random workloads of tenants with floors and ceilings end also with windows and recurrent state") {
  for (std::uint64_t seed = 7001; seed <= last_seed(7001, 60); ++seed)
    run_random_workload(seed, seed % 2 == 0, 1, true, true);
}

// --- floors and ceilings ---

namespace {

constexpr TenantId kAnna{2}, kBert{1};

TenantLimits with_floor(std::uint32_t num_blocks) {
  TenantLimits limits;
  limits.min_kv_blocks = num_blocks;
  return limits;
}

TenantLimits with_ceiling(std::uint32_t num_blocks) {
  TenantLimits limits;
  limits.max_kv_blocks = num_blocks;
  return limits;
}

RequestNumber submit(ServingSim& sim, std::vector<TokenId> prompt, std::uint32_t num_generated, TenantId tenant) {
  return sim.submit(std::move(prompt), num_generated, 0, cache::scopes_for(tenant, ""), tenant);
}

// What is cached of Bert's four prompts, which he sends in turn, while Anna sends 30 new ones of so many tokens at a
// time; after the first round. Each of Bert's has 5 blocks. No tokens: Bert is alone.
double hit_rate_beside(std::uint32_t annas_tokens, std::uint64_t seed, const TenantLimits& of_bert) {
  std::mt19937_64 random(seed);
  ServingSim sim({.groups = {{.num_blocks = 80}}, .planner = {128, 8}, .seed = seed, .limits = {{kBert, of_bert}}});
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 4; ++i) prompts.push_back(random_tokens(random, 5 * kBlockSize + 1));
  constexpr int kRounds = 60;
  std::uint64_t hit = 0;
  for (int i = 0; i < kRounds; ++i) {
    const RequestNumber asked = submit(sim, prompts[static_cast<std::size_t>(i) % 4], 4, kBert);
    for (int n = 0; n < 30 && annas_tokens > 0; ++n) submit(sim, random_tokens(random, annas_tokens), 10, kAnna);
    sim.drain();
    if (i >= 4) hit += sim.request(asked).cached_tokens / kBlockSize;
  }
  require_right_answers(sim);
  require_all_came_back(sim);
  return static_cast<double>(hit) / (5.0 * (kRounds - 4));
}

}  // namespace

TEST_CASE("a tenant that floods the cache costs another at most 5 % of its hit rate, with a floor and without") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    INFO("seed " << seed);
    REQUIRE(hit_rate_beside(0, seed, {}) == 1);
    CHECK(hit_rate_beside(150, seed, {}) >= 0.95);
    // Her eight sequences alone would fill the pool.
    CHECK(hit_rate_beside(300, seed, with_floor(24)) >= 0.95);
  }
}

TEST_CASE("a floor that others have borrowed is recalled from their running sequences") {
  std::mt19937_64 random(5);
  ServingSim sim({.groups = {{.num_blocks = 20}}, .planner = {64, 8}, .seed = 5, .limits = {{kBert, with_floor(15)}}});
  for (int i = 0; i < 4; ++i) submit(sim, random_tokens(random, 100), 50, kAnna);
  while (sim.book().blocks_of(kAnna).blocks < 14) REQUIRE(sim.tick());
  // Three within the floor, which without it would run one at a time beside Anna's: they are never preempted.
  std::vector<RequestNumber> of_bert;
  for (int i = 0; i < 3; ++i) of_bert.push_back(submit(sim, random_tokens(random, 130), 20, kBert));
  const auto ended = [&](RequestNumber number) { return sim.request(number).ended; };
  std::uint32_t most_used = 0;
  while (!std::ranges::all_of(of_bert, ended)) {
    REQUIRE(sim.tick());
    const auto count = sim.book().blocks_of(kBert);
    most_used = std::max(most_used, count.blocks - count.unused);
  }
  REQUIRE(most_used == 15);
  for (const RequestNumber number : of_bert) REQUIRE(sim.request(number).num_admissions == 1);
  REQUIRE(sim.num_preemptions() > 0);
  REQUIRE_FALSE(ended(2));  // Anna's second
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
}

TEST_CASE("a sequence that runs alone gets also the blocks that a floor keeps") {
  std::mt19937_64 random(7);
  ServingSim sim({.groups = {{.num_blocks = 20}}, .seed = 7, .limits = {{kBert, with_floor(10)}}});
  submit(sim, random_tokens(random, 300), 10, kBert);
  sim.drain();
  REQUIRE(sim.book().blocks_of(kBert).blocks == 9);
  const RequestNumber of_anna = submit(sim, random_tokens(random, 400), 20 * kBlockSize + 1 - 400, kAnna);
  sim.drain(100'000);
  REQUIRE(sim.request(of_anna).num_admissions == 1);
  REQUIRE(sim.book().blocks_of(kBert).blocks == 0);
  require_right_answers(sim);
}

TEST_CASE("a tenant at its ceiling waits for its own sequences, and others run beside it") {
  std::mt19937_64 random(6);
  ServingSim sim({.groups = {{.num_blocks = 40}}, .planner = {64, 8}, .seed = 6, .limits = {{kAnna, with_ceiling(8)}}});
  std::vector<RequestNumber> of_anna;
  for (int i = 0; i < 12; ++i) of_anna.push_back(submit(sim, random_tokens(random, 100), 100, kAnna));
  while (sim.num_at_ceiling() == 0) REQUIRE(sim.tick());
  const RequestNumber of_bert = submit(sim, random_tokens(random, 200), 40, kBert);
  while (!sim.request(of_bert).ended) REQUIRE(sim.tick());
  REQUIRE(sim.request(of_bert).num_admissions == 1);
  REQUIRE_FALSE(sim.request(of_anna[2]).ended);
  REQUIRE(sim.request(of_anna[0]).num_admissions == 1);  // preempted were only younger ones of hers
  sim.drain();
  require_right_answers(sim);
  require_all_came_back(sim);
}
