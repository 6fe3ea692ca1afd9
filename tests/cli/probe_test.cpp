// troupe probe: what it stores, and how bench uses it.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using nlohmann::json;

namespace {

// The only file of a folder.
std::filesystem::path kept_file(const TempFolder& cache) {
  const std::filesystem::directory_iterator files(cache.path("troupe"));
  REQUIRE(files != std::filesystem::directory_iterator());
  const std::filesystem::path path = files->path();
  CHECK(std::distance(files, std::filesystem::directory_iterator()) == 1);
  return path;
}

const std::vector<std::string> kBench{"bench", "-p", "16", "-n", "4", "-b", "1", "-r", "1", "-t", "1"};

std::vector<std::string> bench(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = kBench;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// The last cell of the row of one test: "64 % of read".
std::string share_cell(const std::string& table, const std::string& test) {
  const std::size_t row = table.find("| " + test + " |");
  if (row == std::string::npos) return {};
  const std::string line = table.substr(row, table.find('\n', row) - row);
  const std::size_t end = line.rfind(" |"), begin = line.rfind("| ", end - 1);
  return line.substr(begin + 2, end - begin - 2);
}

// Rows and report name the same limit: the longer one of reading and computing. Which one that is, the machine decides:
// a large cache makes reading fast, a matrix unit makes computing fast.
void check_shares(const std::string& table, const json& report) {
  CHECK_THAT(table, Contains("| tokens/s | of the limit |"));
  REQUIRE(report["results"].size() == 2);
  for (const json& row : report["results"]) {
    INFO(row.dump(2));
    CHECK(row["weight_bytes_per_second"].get<double>() > 0);
    CHECK(row["ops_per_second"].get<double>() > 0);
    const double reading = row["read_share"], computing = row.value("compute_share", 0.0);
    CHECK(reading > 0);
    CHECK(row["share"] == std::max(reading, computing));
    const std::string limit = row["limit"];
    CHECK(limit == (reading >= computing ? "read" : row["compute_unit"]));
    CHECK_THAT(share_cell(table, row["test"]), EndsWith(" % of " + limit));
  }
}

}  // namespace

TEST_CASE("probe measures once, also where AMX is denied; bench then knows its limits") {
  const TempFolder cache;
  const std::map<std::string, std::string> environment{{"XDG_CACHE_HOME", cache.path()}};
  const auto call = [&](std::vector<std::string> arguments, bool deny_amx = false) {
    return run({.arguments = std::move(arguments), .environment = environment, .amx_error = deny_amx ? EPERM : 0});
  };

  // Without one, the benchmark says so once, and measures.
  const Finished before = call(kBench);
  CHECK(before.code == 0);
  const std::string advice = "run `troupe probe`";
  CHECK_THAT(before.out, Contains(advice));
  CHECK(before.out.find(advice, before.out.find(advice) + 1) == std::string::npos);
  CHECK_THAT(before.out, !Contains("of the limit"));

  const Finished first = call({"probe", "--quick", "-t", "1", "-o", "json"}, true);
  INFO(first.err);
  REQUIRE(first.code == 0);
  CHECK(first.err.empty());
  const json probe = json::parse(first.out);
  CHECK(probe["num_threads"] == 1);
  CHECK(probe["quick"] == true);
  CHECK(probe["clock"]["hz"].get<double>() > 0);
  CHECK(probe["clock_beside_amx"].is_null());
  CHECK_FALSE(probe["reads"].empty());
  for (const json& peak : probe["peaks"]) {
    CHECK(peak["ops_per_second"].get<double>() > 0);
    CHECK_THAT(peak["unit"].get<std::string>(), !Contains("amx"));
  }

  // A second call shows the stored result: the same bytes, without measuring.
  CHECK(call({"probe", "--quick", "-t", "1", "-o", "json"}).out == first.out);
  const Finished text = call({"probe", "--quick", "-t", "1"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains(probe["measured_at"].get<std::string>()));
  CHECK_THAT(text.out, Contains("int8-amx") && Contains("absent") && Contains("--refresh measures again"));
  CHECK_THAT(text.out, Contains(kept_file(cache).string()));

  const Finished table = call(kBench);
  CHECK(table.code == 0);
  CHECK_THAT(table.out, !Contains(advice));
  const json report = json::parse(call(bench({"-o", "json"})).out);
  CHECK(report["probe"] == probe);
  check_shares(table.out, report);

  // With kernels whose unit was measured, computing has its share too. It is the limit where a cache reads fast.
  const json variants = json::parse(call({"version", "--json"}).out)["kernels"];
  if (std::find(variants.begin(), variants.end(), "avx2") != variants.end()) {
    const json narrow = json::parse(call(bench({"--kernels", "avx2", "-o", "json"})).out);
    check_shares(call(bench({"--kernels", "avx2"})).out, narrow);
    for (const json& row : narrow["results"]) CHECK(row["compute_share"].get<double>() > 0);
  }

  // A damaged one is as none.
  std::ofstream(kept_file(cache), std::ios::trunc) << first.out.substr(0, 200);
  const Finished after = call(kBench);
  CHECK(after.code == 0);
  CHECK_THAT(after.out, Contains(advice));
  CHECK(json::parse(call(bench({"-o", "json"})).out)["probe"].is_null());
}

TEST_CASE("probe refuses a model that is not there, and what it cannot print") {
  const TempFolder cache;
  const std::map<std::string, std::string> environment{{"XDG_CACHE_HOME", cache.path()}};
  const Finished missing = run({.arguments = {"probe", "-m", "/nonexistent.gguf"}, .environment = environment});
  CHECK(missing.code == 66);
  CHECK_THAT(missing.err, Contains("/nonexistent.gguf"));
  CHECK(run({.arguments = {"probe", "-o", "md"}, .environment = environment}).code == 2);
  CHECK_FALSE(std::filesystem::exists(cache.path("troupe")));
}
