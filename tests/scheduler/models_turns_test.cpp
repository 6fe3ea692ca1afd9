// Models that are loaded on request under traffic, held to what scheduler/models/residency.h promises, and beside what
// is usual elsewhere.
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
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

std::vector<Scene> scenes() {
  std::vector<Scene> all;
  all.push_back({"2 tenants, 2 models, one fits; 20 s", {.models = models_of(2, 20), .tenants = tenants_of(2, 1), .budget = 4, .zipf = 1.2, .stay = 0.95}});
  all.push_back({"the same; 2 s", {.models = models_of(2, 2), .tenants = tenants_of(2, 1), .budget = 4, .zipf = 1.2, .stay = 0.95}});
  all.push_back({"the same; 0.2 s", {.models = models_of(2, 0.2), .tenants = tenants_of(2, 1), .budget = 4, .zipf = 1.2, .stay = 0.95}});
  all.push_back({"4 tenants, 6 models, 2 fit; 5 s", {.models = models_of(6, 5), .tenants = tenants_of(4, 1), .budget = 8, .zipf = 0.9}});
  {
    Scene greedy{"the same, one tenant with 16 clients", {.models = models_of(6, 5), .tenants = tenants_of(4, 1), .budget = 8, .zipf = 0.9}};
    greedy.options.tenants[0].num_clients = 16;
    all.push_back(greedy);
  }
  {
    Scene reader{"3 tenants with a model each, one that goes through all 12; 3 fit, 5 s", {.models = models_of(12, 5), .tenants = tenants_of(4, 1), .budget = 12, .zipf = 1.2, .stay = 0.98}};
    reader.options.tenants[3] = {.num_clients = 8, .favourite = 3, .zipf = 0, .stay = 0};
    all.push_back(reader);
  }
  all.push_back({"8 tenants, 20 models, 5 fit; 5 s, Zipf 0.6", {.models = models_of(20, 5), .tenants = tenants_of(8, 0), .budget = 20, .zipf = 0.6}});
  all.push_back({"the same, Zipf 1.2", {.models = models_of(20, 5), .tenants = tenants_of(8, 0), .budget = 20, .zipf = 1.2}});
  all.push_back({"8 tenants, 10 models of 0.2 to 20 s, a third fits", {.models = mixed_models(10), .tenants = tenants_of(8, 1), .budget = 22, .zipf = 0.9}});
  all.push_back({"4 tenants, 6 models, all fit; 5 s", {.models = models_of(6, 5), .tenants = tenants_of(4, 1), .budget = 24, .zipf = 0.9}});
  for (Scene& scene : all) scene.options.seconds = 4 * 3600;
  return all;
}

std::string row_of(const char* name, const char* policy, const ModelsSimReport& report) {
  std::string waits;
  for (const double w : report.mean_waits) waits += std::to_string(int(w)) + " ";
  for (const double w : report.served) waits += std::to_string(int(w)) + " ";
  char line[256];
  std::snprintf(line, sizeof line, "| %s | %s | %d | %.0f | %.0f | %d | %.1f | %.0f | %.3f | %s |", name, policy,
                static_cast<int>(report.num_loads), 100 * report.loading_share, 100 * report.lost_share,
                static_cast<int>(report.num_requests), report.mean_wait, report.p99_wait, report.jain, waits.c_str());
  return line;
}

}  // namespace

TEST_CASE("the table of docs/background/model_turns.md", "[.][models_table]") {
  std::printf("| | | loads | loading, %% | lost, %% | requests | mean wait, s | p99 | Jain |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (Scene& scene : scenes()) {
    for (const bool lru : {true, false}) {
      scene.options.lru = lru;
      const ModelsSimReport report = run_models_sim(scene.options);
      std::printf("%s\n", row_of(lru ? scene.name : "", lru ? "LRU" : "turns", report).c_str());
      std::fflush(stdout);
    }
  }
}
