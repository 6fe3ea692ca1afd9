// Models that are loaded on request under traffic, held to what scheduler/models/residency.h promises, and beside what
// is usual elsewhere.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/scheduler/models_sim.h"

using namespace troupe;
using namespace troupe::scheduler;

namespace {

struct Scene {
  const char* name;
  ModelsSimOptions options;
};

std::vector<SimModel> models_of(std::size_t count, double load_seconds) {
  return std::vector<SimModel>(count, {.bytes = 4, .load_seconds = load_seconds});
}

std::vector<SimTenant> tenants_of(std::size_t count, std::uint32_t favourite_step) {
  std::vector<SimTenant> tenants;
  for (std::size_t i = 0; i < count; ++i)
    tenants.push_back({.num_clients = 2, .favourite = favourite_step * static_cast<std::uint32_t>(i)});
  return tenants;
}

// One of many sizes: 0.2 to 20 s of load, bytes alike.
std::vector<SimModel> mixed_models(std::size_t count) {
  std::vector<SimModel> models;
  for (std::size_t i = 0; i < count; ++i) {
    const double seconds[] = {2, 0.2, 20, 5, 1};
    models.push_back({.bytes = static_cast<std::uint64_t>(1 + seconds[i % 5]), .load_seconds = seconds[i % 5]});
  }
  return models;
}

// What the table compares. Each client thinks for 5 seconds and asks for 4 seconds of work, means of exponentials; the
// machine runs four requests as fast as one, and 0.7 of that beside a load.
std::vector<Scene> scenes() {
  const auto scene = [](const char* name, std::vector<SimModel> models, std::vector<SimTenant> tenants,
                        std::uint64_t budget, double zipf, double stay) {
    return Scene{name,
                 {.models = std::move(models),
                  .tenants = std::move(tenants),
                  .budget = budget,
                  .zipf = zipf,
                  .stay = stay,
                  .seconds = 4 * 3600}};
  };
  std::vector<Scene> all;
  all.push_back(scene("2 tenants, 2 models of 20 s, 1 fits", models_of(2, 20), tenants_of(2, 1), 4, 1.2, 0.95));
  all.push_back(scene("the same, of 2 s", models_of(2, 2), tenants_of(2, 1), 4, 1.2, 0.95));
  all.push_back(scene("the same, of 0.2 s", models_of(2, 0.2), tenants_of(2, 1), 4, 1.2, 0.95));
  all.push_back(scene("4 tenants, 6 models of 5 s, 2 fit", models_of(6, 5), tenants_of(4, 1), 8, 0.9, 0.7));
  all.push_back(all.back());
  all.back().name = "the same, one tenant has 16 clients";
  all.back().options.tenants[0].num_clients = 16;
  all.push_back(scene("3 tenants with a model each, a fourth with 8 clients goes through all 12 of 5 s; 3 fit",
                      models_of(12, 5), tenants_of(4, 1), 12, 1.2, 0.98));
  all.back().options.tenants[3] = {.num_clients = 8, .favourite = 3, .zipf = 0, .stay = 0};
  all.push_back(
      scene("8 tenants, 20 models of 5 s, 5 fit; exponent 0.6", models_of(20, 5), tenants_of(8, 0), 20, 0.6, 0.7));
  all.push_back(scene("the same, exponent 1.2", models_of(20, 5), tenants_of(8, 0), 20, 1.2, 0.7));
  all.push_back(
      scene("8 tenants, 10 models of 0.2 to 20 s, a third fits", mixed_models(10), tenants_of(8, 1), 22, 0.9, 0.7));
  all.push_back(scene("4 tenants, 6 models of 5 s, all fit", models_of(6, 5), tenants_of(4, 1), 24, 0.9, 0.7));
  return all;
}

ModelsSimReport run_scene(std::size_t index, bool lru) {
  ModelsSimOptions options = scenes().at(index).options;
  options.lru = lru;
  return run_models_sim(options);
}

// Any traffic within bounds.
ModelsSimOptions random_options(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&](std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random);
  };
  const auto real = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
  ModelsSimOptions options{.seed = seed,
                           .zipf = real(0.6, 1.2),
                           .stay = real(0, 0.95),
                           .think_seconds = real(0.5, 20),
                           .work_seconds = real(0.5, 10),
                           .cancel_probability = number(0, 1) * real(0, 0.3),
                           .seconds = 1500,
                           .max_wait_seconds = number(0, 3) > 0 ? kForever : real(30, 300),
                           .drain_seconds = real(2, 60)};
  std::uint64_t largest = 0, all = 0, pinned = 0;
  const std::uint64_t num_models = number(2, 20);
  for (std::uint64_t i = 0; i < num_models; ++i) {
    options.models.push_back({.bytes = number(1, 10),
                              .load_seconds = std::exp(real(std::log(0.2), std::log(20.0))),
                              .keep_alive = number(0, 1) > 0 ? kForever : real(0, 200),
                              .pinned = number(0, 9) == 0,
                              .failure_probability = number(0, 5) > 0 ? 0 : real(0, 1)});
    const SimModel& model = options.models.back();
    largest = std::max(largest, model.bytes);
    all += model.bytes;
    if (model.pinned) pinned += model.bytes;
  }
  options.budget = std::min(all, number(largest + pinned, largest + pinned + all / 2));
  options.max_models = static_cast<std::uint32_t>(number(0, 2) > 0 ? 1000 : number(num_models / 2 + 1, num_models));
  options.max_loading = number(0, 4) > 0 ? 1 : 2;
  const std::uint64_t num_tenants = number(2, 8);
  for (std::uint64_t i = 0; i < num_tenants; ++i) {
    const std::uint64_t right = number(0, 5);
    options.tenants.push_back({.num_clients = static_cast<std::uint32_t>(number(1, 8)),
                               .weight = number(0, 1) > 0 ? 1 : real(0.5, 8),
                               .may_load = right == 0   ? MayLoad::never
                                           : right == 1 ? MayLoad::idle
                                                        : MayLoad::turns,
                               .favourite = static_cast<std::uint32_t>(number(0, num_models - 1))});
  }
  return options;
}

std::string row_of(const std::string& name, const std::string& policy, const ModelsSimReport& report) {
  const auto [least, most] = std::ranges::minmax(report.mean_waits);
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(),
                "| %s | %s | %d | %.0f %% | %.0f %% | %d | %.1f (%.1f to %.1f) | %.0f | %.3f |", name.c_str(),
                policy.c_str(), static_cast<int>(report.num_loads), 100 * report.loading_share, 100 * report.lost_share,
                static_cast<int>(report.num_requests), report.mean_wait, least, most, report.p99_wait, report.jain);
  return line.data();
}

}  // namespace

TEST_CASE("models' turns: whatever is asked for, what is promised holds, and the same events have the same decisions") {
  std::uint64_t num_loads = 0, num_failed = 0, num_refused = 0, num_interrupted = 0, num_cancelled = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    const ModelsSimOptions options = random_options(seed);
    const ModelsSimReport report = run_models_sim(options);
    num_loads += report.num_loads;
    num_failed += report.num_failed_loads;
    num_refused += report.num_refused;
    num_interrupted += report.num_interrupted;
    num_cancelled += report.num_cancelled;
    if (seed % 10 == 0) REQUIRE(run_models_sim(options).trace == report.trace);
  }
  CHECK((num_loads > 3000 && num_failed > 100 && num_refused > 100 && num_interrupted > 10 && num_cancelled > 100));
}

TEST_CASE("models' turns: two tenants whose models do not fit together are served twice as much as with plain LRU") {
  const ModelsSimReport lru = run_scene(0, true), turns = run_scene(0, false);
  CHECK(turns.served_seconds > 2 * lru.served_seconds);
  CHECK(turns.mean_wait < lru.mean_wait / 2);
  CHECK(turns.num_loads < lru.num_loads / 2);
  CHECK(turns.jain > 0.99);
}

TEST_CASE("models' turns: a tenant that goes through all models costs others less than with plain LRU") {
  const ModelsSimReport lru = run_scene(5, true), turns = run_scene(5, false);
  for (std::size_t tenant = 0; tenant < 3; ++tenant) {
    CHECK(turns.served[tenant] > lru.served[tenant]);
    CHECK(turns.mean_waits[tenant] < lru.mean_waits[tenant]);
  }
}

TEST_CASE("models' turns: nothing waits longer than for one turn of each other model") {
  ModelsSimOptions options = scenes().at(0).options;
  const double load = 1.5 * options.models[0].load_seconds;  // the longest
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    options.seed = seed;
    CHECK(run_models_sim(options).longest_wait <=
          2 * (ModelResidency::kMaxTurnLoads * load + options.drain_seconds + 0.1 + load));
  }
}

TEST_CASE("models' turns: tenants have turns by their weights where models are used all the time") {
  ModelsSimOptions options{
      .models = models_of(2, 5), .budget = 4, .zipf = 60, .stay = 1, .think_seconds = 0.1, .seconds = 20000};
  options.tenants = {{.num_clients = 8, .weight = 3, .favourite = 0}, {.num_clients = 8, .weight = 1, .favourite = 1}};
  const ModelsSimReport report = run_models_sim(options);
  CHECK(report.served[0] / report.served[1] > 2);
  CHECK(report.served[0] / report.served[1] < 4);
}

TEST_CASE("models' turns: the share of loading that is reported is that of the last minutes") {
  const ModelsSimReport turns = run_scene(6, false);
  CHECK(std::abs(turns.reported_share - turns.loading_share) < 0.2);
  CHECK(run_scene(9, false).reported_share < 0.001);
}

TEST_CASE("the table of docs/background/model_turns.md", "[.][models_table]") {
  std::puts("| | | loads | loading | lost | requests | mean wait, s (by tenant) | p99 | Jain |");
  std::puts("|---|---|---:|---:|---:|---:|---:|---:|---:|");
  const std::vector<Scene> all = scenes();
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const bool lru : {true, false})
      std::puts(row_of(lru ? all[i].name : "", lru ? "LRU" : "turns", run_scene(i, lru)).c_str());
}
