// Tenants that share a server, in simulated time: tests/scheduler/serving_sim.h, in which only steps take time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "tests/scheduler/serving_sim.h"
#include "tests/support/sanitized.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

constexpr TenantId kAnn{1}, kBob{2};

class Tenants {
 public:
  explicit Tenants(SimOptions options) : sim(options), random_(options.seed) {}

  RequestNumber submit(TenantId tenant, std::uint32_t prompt, std::uint32_t generated, std::int32_t priority = 0) {
    std::vector<TokenId> tokens(prompt);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % 50000);
    const auto scope = static_cast<cache::ScopeId>(tenant);
    return sim.submit(std::move(tokens), generated, priority, {scope}, tenant);
  }
  // Runs until `seconds` from now; before each event `each` may submit more.
  void run(
      double seconds, const std::function<void()>& each = [] {}) {
    const double end = sim.time() + seconds;
    while (sim.time() < end) {
      each();
      REQUIRE(sim.tick());
    }
  }
  // Keeps `count` requests of the tenant at the server.
  void keep(TenantId tenant, std::size_t count, std::uint32_t prompt, std::uint32_t generated) {
    std::vector<RequestNumber>& live = live_[tenant];
    std::erase_if(live, [&](RequestNumber number) { return sim.request(number).ended; });
    while (live.size() < count) live.push_back(submit(tenant, prompt, generated));
  }
  double first_token_after(RequestNumber number) {
    while (sim.request(number).first_token_at < 0) REQUIRE(sim.tick());
    return sim.request(number).first_token_at - sim.request(number).submitted_at;
  }
  std::size_t tokens_of(RequestNumber number) const {
    return sim.request(number).tokens.size() - sim.request(number).num_prompt;
  }

  ServingSim sim;

 private:
  std::mt19937_64 random_;
  std::map<TenantId, std::vector<RequestNumber>> live_;
};

SimOptions options_of(std::uint64_t seed) {
  return {.groups = {{.num_blocks = 400}}, .planner = {128, 8}, .seed = seed, .repeat_probability = 0.05};
}

double jain(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return sum * sum / (static_cast<double>(shares.size()) * squares);
}

}  // namespace

TEST_CASE("a short request waits for steps, not for another tenant's queue") {
  for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 4 : 20); ++seed) {
    INFO("seed " << seed);
    Tenants tenants(options_of(seed));
    for (int i = 0; i < 64; ++i) tenants.submit(kAnn, 300, 200);
    tenants.run(2);
    while (tenants.sim.num_sequences(kAnn) < 8) REQUIRE(tenants.sim.tick());  // all places
    const RequestNumber short_one = tenants.submit(kBob, 8, 8);
    // A full step takes 0.138 s; messages to the keeper and back pass in between at random.
    CHECK(tenants.first_token_after(short_one) < 8 * 0.138);
    CHECK(tenants.sim.num_preemptions() >= 1);
    tenants.sim.drain();
  }
}

TEST_CASE("a single stream beside a crowd has as much time as the crowd") {
  Tenants alone(options_of(5));
  const RequestNumber undisturbed = alone.submit(kBob, 16, 2000);
  alone.run(5);
  Tenants tenants(options_of(5));
  const RequestNumber stream = tenants.submit(kBob, 16, 2000);
  tenants.run(5, [&] { tenants.keep(kAnn, 64, 60, 100); });
  const double share =
      static_cast<double>(tenants.tokens_of(stream)) / static_cast<double>(alone.tokens_of(undisturbed));
  CHECK(share > 0.4);
  const double seconds = tenants.sim.seconds_of(kAnn);
  CHECK(seconds > 0.45 * tenants.sim.time());
}

TEST_CASE("saturating tenants are served equally, whatever their requests look like") {
  struct Load {
    std::uint32_t prompt, generated;
  };
  const auto [a, b] = GENERATE(std::pair{Load{900, 4}, Load{8, 64}}, std::pair{Load{300, 300}, Load{30, 3}},
                               std::pair{Load{64, 64}, Load{64, 64}});
  Tenants tenants(options_of(3));
  tenants.run(60, [&, a = a, b = b] {
    tenants.keep(kAnn, 20, a.prompt, a.generated);
    tenants.keep(kBob, 12, b.prompt, b.generated);
  });
  const double ann = tenants.sim.seconds_of(kAnn), bob = tenants.sim.seconds_of(kBob);
  INFO(ann << " s and " << bob << " s");
  CHECK(std::min(ann, bob) > 0.95 * std::max(ann, bob));
}

TEST_CASE("saturating tenants are served in proportion to their weights") {
  struct Load {
    std::uint32_t prompt, generated;
  };
  const double weight = GENERATE(1.0, 3.0, 0.25);
  const auto [a, b] = GENERATE(std::pair{Load{900, 4}, Load{8, 64}}, std::pair{Load{8, 64}, Load{900, 4}},
                               std::pair{Load{64, 64}, Load{64, 64}});
  Tenants tenants(options_of(5));
  tenants.sim.set_weight(kBob, weight);
  tenants.run(60, [&, a = a, b = b] {
    tenants.keep(kAnn, 20, a.prompt, a.generated);
    tenants.keep(kBob, 12, b.prompt, b.generated);
  });
  const double ann = tenants.sim.seconds_of(kAnn), bob = tenants.sim.seconds_of(kBob) / weight;
  INFO(ann << " s and " << bob << " s per weight, of weight " << weight);
  CHECK(std::min(ann, bob) > 0.95 * std::max(ann, bob));
}

TEST_CASE("a tenant with a large weight has no use for it when it comes back from being idle") {
  Tenants tenants(options_of(29));
  tenants.sim.set_weight(kBob, 3);
  tenants.run(20, [&] { tenants.keep(kAnn, 16, 100, 50); });
  const double before = tenants.sim.seconds_of(kAnn);
  tenants.run(20, [&] {
    tenants.keep(kAnn, 16, 100, 50);
    tenants.keep(kBob, 16, 100, 50);
  });
  const double ann = tenants.sim.seconds_of(kAnn) - before, bob = tenants.sim.seconds_of(kBob) / 3;
  CHECK(std::min(ann, bob) > 0.9 * std::max(ann, bob));
}

TEST_CASE("twenty tenants share eight places") {
  Tenants tenants(options_of(11));
  tenants.run(120, [&] {
    for (std::uint32_t i = 1; i <= 20; ++i) tenants.keep(TenantId{i}, 2, 20 * i, 200 / i + 5);
  });
  std::vector<double> shares;
  for (std::uint32_t i = 1; i <= 20; ++i) shares.push_back(tenants.sim.seconds_of(TenantId{i}));
  CHECK(jain(shares) >= 0.98);
}

TEST_CASE("a tenant that was idle has no more than its share afterwards") {
  Tenants tenants(options_of(17));
  tenants.run(20, [&] { tenants.keep(kAnn, 16, 100, 50); });
  const double before = tenants.sim.seconds_of(kAnn);
  tenants.run(20, [&] {
    tenants.keep(kAnn, 16, 100, 50);
    tenants.keep(kBob, 16, 100, 50);
  });
  const double ann = tenants.sim.seconds_of(kAnn) - before, bob = tenants.sim.seconds_of(kBob);
  CHECK(std::min(ann, bob) > 0.9 * std::max(ann, bob));
}

TEST_CASE("a tenant at its max_running waits, and holds up no other") {
  for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 3 : 10); ++seed) {
    INFO("seed " << seed);
    SimOptions options = options_of(seed);
    options.limits[kAnn].max_running = 2;
    Tenants tenants(options);
    for (int i = 0; i < 30; ++i) tenants.submit(kAnn, 60, 40);
    std::uint32_t most_of_ann = 0, most_of_bob = 0;
    tenants.run(4, [&] {
      tenants.keep(kBob, 20, 60, 40);
      most_of_ann = std::max(most_of_ann, tenants.sim.num_sequences(kAnn));
      most_of_bob = std::max(most_of_bob, tenants.sim.num_sequences(kBob));
    });
    CHECK(most_of_ann == 2);
    CHECK(most_of_bob >= 6);  // the places that are left
    tenants.sim.drain();
  }
}

TEST_CASE("with max_running, parking and losses of the batcher no tenant has more sequences, and all requests end") {
  constexpr std::uint32_t kMost = 3;
  for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 6 : 30); ++seed) {
    INFO("seed " << seed);
    SimOptions options = options_of(seed);
    options.groups = {{.num_blocks = 80}};
    options.planner = {64, 6};
    for (std::uint32_t i = 1; i <= 4; ++i) options.limits[TenantId{i}].max_running = 1 + i % kMost;
    Tenants tenants(options);
    std::mt19937_64 random(seed);
    std::vector<RequestNumber> all;
    for (int i = 0; i < 40; ++i) {
      const TenantId tenant{1 + static_cast<std::uint32_t>(random() % 5)};
      all.push_back(
          tenants.submit(tenant, 1 + random() % 200, 1 + random() % 60, static_cast<std::int32_t>(random() % 3)));
      for (int tick = 0; tick < 20; ++tick) {
        tenants.sim.tick();
        for (const auto& [limited, limits] : options.limits)
          REQUIRE(tenants.sim.num_sequences(limited) <= *limits.max_running);
        const RequestNumber some = all[random() % all.size()];
        if (random() % 8 == 0) random() % 2 == 0 ? tenants.sim.park(some) : tenants.sim.unpark(some);
      }
      if (random() % 16 == 0) tenants.sim.kill_batcher();
    }
    for (const RequestNumber number : all) tenants.sim.unpark(number);
    tenants.sim.drain();
    for (const auto& [number, request] : tenants.sim.requests())
      REQUIRE(request.tokens == ServingSim::expected_tokens(request));
  }
}

TEST_CASE("answers are right while tenants take places from each other") {
  for (std::uint64_t seed = 1; seed <= (test::kSanitized ? 6 : 30); ++seed) {
    INFO("seed " << seed);
    SimOptions options = options_of(seed);
    options.groups = {{.num_blocks = 60}};
    options.planner = {64, 4};
    Tenants tenants(options);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 40; ++i) {
      tenants.submit(TenantId{1 + static_cast<std::uint32_t>(random() % 6)}, 1 + random() % 300, 1 + random() % 60,
                     static_cast<std::int32_t>(random() % 3));
      for (int tick = 0; tick < 20; ++tick) tenants.sim.tick();
      if (random() % 16 == 0) tenants.sim.kill_batcher();
    }
    tenants.sim.drain();
    for (const auto& [number, request] : tenants.sim.requests())
      REQUIRE(request.tokens == ServingSim::expected_tokens(request));
  }
}
