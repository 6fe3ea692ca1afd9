// Benchmark results beside the limits of a machine, which is given as data: any machine, whatever this one is.
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "cli/model/bench_report.h"
#include "engine/engine.h"
#include "kernels/kernels.h"

using namespace troupe;
using namespace troupe::cli;
using Catch::Matchers::EndsWith;
using kernels::Unit;
using nlohmann::json;

namespace {

constexpr double kSlow = 1e6, kFast = 1e30;  // bytes or operations per second: only the slow one can be the limit
constexpr std::uint32_t kThreads = 2;

std::shared_ptr<engine::LoadedModel> load_tales(const kernels::KernelTable& table) {
  engine::LoadOptions options;
  options.kernels = table.name;
  options.ternary = engine::Ternary::multiply;
  options.context = 64;
  auto model = engine::LoadedModel::load(TROUPE_MODELS "/tales-5m-tq2_0.gguf", options);
  REQUIRE(model);
  return *model;
}

// What the products of a model run on, but for plain C++.
std::set<Unit> units_of(const engine::LoadedModel& model) {
  std::set<Unit> units;
  for (const engine::MatrixWork& matrix : model.info().matrices)
    units.insert(model.kernels().unit(matrix.type, matrix.layout));
  units.erase(Unit::none);
  return units;
}

engine::MachineProbe machine(std::optional<double> read, const std::map<Unit, double>& ops) {
  engine::MachineProbe probe;
  probe.machine = {"Some CPU", "", "0-1"};
  probe.measured_at = "2026-11-22T01:30:00Z";
  probe.num_threads = kThreads;
  probe.clock.per_second = 3e9;
  if (read) probe.reads = {{1u << 30, kThreads, true, {*read, 0, 0, 0}}};
  for (const auto& [unit, speed] : ops) probe.peaks.push_back({unit, kThreads, {speed, 0, 0, 0}});
  return probe;
}

// Prints results that took twice the least time, as a row and as JSON; both must name `limit`.
void check_names_limit(const engine::LoadedModel& model, const engine::MachineProbe& probe, const std::string& limit) {
  const BenchContext context{&model, 1u << 20, kThreads, &probe};
  for (const BenchCase& test : {BenchCase{.num_prompt = 16}, BenchCase{.num_gen = 4, .batch = 2}}) {
    INFO(model.kernels().name << ", " << test.name() << ", limit " << limit);
    const engine::RunLimits limits = limits_of(context, test);
    const double least = std::max(limits.read_seconds().value_or(0), limits.compute_seconds().value_or(0));
    REQUIRE(least > 0);
    const double tokens = test.num_prompt + static_cast<double>(test.num_gen) * test.batch;
    const BenchResult result{
        .test = test, .tokens_per_second = {tokens / (2 * least)}, .profile = {}, .step_buffer_bytes = 0};
    std::ostringstream row, report;
    print_markdown_row(context, result, row);
    CHECK_THAT(row.str(), EndsWith(" | 50 % of " + limit + " |\n"));
    print_json(context, {result}, report);
    const json printed = json::parse(report.str())["results"][0];
    CHECK(printed["limit"] == limit);
    CHECK(printed["share"].get<double>() == Approx(0.5));
    CHECK(printed.contains("read_share") == limits.read_seconds().has_value());
    CHECK(printed.contains("compute_share") == limits.compute_seconds().has_value());
    if (limit == "read") {
      CHECK(printed["read_share"] == printed["share"]);
    } else {
      CHECK(printed["compute_unit"] == limit);
      CHECK(printed["compute_share"] == printed["share"]);
    }
  }
}

}  // namespace

TEST_CASE("a result is named a share of the limit that binds it: reading, or any unit that multiplies") {
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    const auto model = load_tales(*table);
    const std::set<Unit> units = units_of(*model);
    CHECK(units.empty() == (table->name == "reference" || table->name == "scalar"));
    std::map<Unit, double> fast;
    for (const Unit unit : units) fast[unit] = kFast;

    check_names_limit(*model, machine(kSlow, fast), "read");  // weights come from memory
    for (const Unit unit : units) {                           // weights lie in a cache
      std::map<Unit, double> ops = fast;
      ops[unit] = kSlow;
      check_names_limit(*model, machine(kFast, ops), std::string(kernels::name(unit)));
      check_names_limit(*model, machine({}, ops), std::string(kernels::name(unit)));  // reading was not measured
      ops.erase(unit);  // nor was the unit: how long computing takes is not known
      check_names_limit(*model, machine(kSlow, ops), "read");
    }
  }
}

TEST_CASE("a result without any measured limit says unknown, and one without a probe says nothing") {
  const auto model = load_tales(kernels::best_table());
  const engine::MachineProbe nothing = machine({}, {});
  const BenchResult result{.test = {.num_gen = 4}, .tokens_per_second = {100}, .profile = {}, .step_buffer_bytes = 0};
  std::ostringstream unknown, silent, head, plain_head, report;
  const BenchContext context{model.get(), 1u << 20, kThreads, &nothing},
      plain{model.get(), 1u << 20, kThreads, nullptr};
  print_markdown_row(context, result, unknown);
  CHECK_THAT(unknown.str(), EndsWith(" | unknown |\n"));
  print_markdown_row(plain, result, silent);
  CHECK_THAT(silent.str(), EndsWith("| 100.00 ± 0.0 % |\n"));
  print_markdown_head(context, head);
  CHECK_THAT(head.str(), Catch::Contains("| tokens/s | of the limit |"));
  print_markdown_head(plain, plain_head);
  CHECK_THAT(plain_head.str(), Catch::Contains("run `troupe probe`") && !Catch::Contains("of the limit"));
  print_json(context, {result}, report);
  const json printed = json::parse(report.str())["results"][0];
  for (const char* absent : {"share", "limit", "read_share", "compute_share", "compute_unit"})
    CHECK_FALSE(printed.contains(absent));
}
