// A process that may not use the matrix unit of its CPU: the kernel really refuses it, by a filter of system calls.
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::string kInstead = "kernels avx512vnni in place of amx: ";

bool amx_is_best_here() {
  if (json::parse(invoke({"version", "--json"}).out)["best_kernels"] == "amx") return true;
  WARN("skipped: this CPU has no matrix unit (AMX), or this process may not use it");
  return false;
}

int count(const std::string& text, const std::string& part) {
  int times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("where the permission for AMX is refused, a server takes the next best kernels, says so once, and serves") {
  if (!amx_is_best_here()) return;
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  Process server({.arguments = {"serve", "--socket", socket}, .amx_error = EPERM});
  REQUIRE(server.wait_for_err("ready"));
  const Finished answer =
      invoke({"run", "--socket", socket, "--temp", "0", "--ignore-eos", "-n", "12", "--json", "Once upon a time"});
  INFO(answer.err);
  CHECK(answer.code == 0);
  CHECK(json::parse(answer.out)["ids"].size() == 12);
  server.signal(SIGTERM);
  const Finished ended = server.wait();
  INFO(ended.err);
  CHECK(ended.code == 0);
  CHECK(count(ended.err, "in place of amx") == 1);
  CHECK_THAT(ended.err, Contains("warning") && Contains(kInstead));
  CHECK_THAT(ended.err, Contains("arch_prctl ARCH_REQ_XCOMP_PERM: Operation not permitted"));  // what was refused
  CHECK_THAT(ended.err, Contains("seccomp profile"));                                          // what to do
  CHECK_THAT(ended.err, Contains("-avx512vnni-f16-"));                                         // what computed
}

TEST_CASE("where AMX is refused the answer has the bits of the kernels in its place, which by name warn of nothing") {
  if (!amx_is_best_here()) return;
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 424, 437, 261, 399]");
  const auto eval = [&](const std::string& name, std::vector<std::string> flags, int amx_error) {
    flags.insert(flags.begin(), {"eval", "--tokens", ids, "-o", folder.path(name)});
    return run({.arguments = std::move(flags), .amx_error = amx_error});
  };
  const Finished fallen_back = eval("fallen_back", {}, EPERM);
  INFO(fallen_back.err);
  REQUIRE(fallen_back.code == 0);
  CHECK(count(fallen_back.err, kInstead) == 1);
  const Finished forced = eval("forced", {"--kernels", "avx512vnni"}, EPERM);
  REQUIRE(forced.code == 0);
  CHECK(count(forced.err, "in place of") == 0);
  const Finished allowed = eval("allowed", {}, 0);
  REQUIRE(allowed.code == 0);
  CHECK(count(allowed.err, "in place of") == 0);
  CHECK_THAT(allowed.err, Contains("-amx-"));

  CHECK_FALSE(read_file(folder.path("fallen_back")).empty());
  CHECK(read_file(folder.path("fallen_back")) == read_file(folder.path("forced")));
}

TEST_CASE("refused AMX that is asked for by name is an error with the reason, and version has it too") {
  if (!amx_is_best_here()) return;
  const TempFolder folder;
  const std::string ids = folder.write("ids.json", "[1, 2]");
  const Finished asked_for =
      run({.arguments = {"eval", "--tokens", ids, "--greedy", "1", "--kernels", "amx"}, .amx_error = EPERM});
  CHECK(asked_for.code == 2);
  CHECK_THAT(asked_for.err, Contains("--kernels: 'amx' cannot run here: ") && Contains("Operation not permitted") &&
                                Contains("what can run is reference, scalar"));

  // Each reason that Linux has comes with what helps against it.
  const std::vector<std::pair<int, std::string>> advice{{EPERM, "seccomp"},
                                                        {ENOSYS, "seccomp"},
                                                        {EINVAL, "Linux 5.16"},
                                                        {EOPNOTSUPP, "clearcpuid"},
                                                        {ENOSPC, "signal stack"}};
  for (const auto& [error, helps] : advice) {
    const Finished text = run({.arguments = {"version"}, .amx_error = error});
    INFO(text.out);
    CHECK(text.code == 0);
    CHECK_THAT(text.out, Contains("(best: avx512vnni)") && Contains("not amx: ") && Contains(helps));
    const json object = json::parse(run({.arguments = {"version", "--json"}, .amx_error = error}).out);
    CHECK(object["best_kernels"] == "avx512vnni");
    CHECK_THAT(object["amx_refusal"].get<std::string>(), Contains(helps));
  }
  CHECK(json::parse(invoke({"version", "--json"}).out)["amx_refusal"].is_null());
}
