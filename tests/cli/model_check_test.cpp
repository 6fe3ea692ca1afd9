// troupe model check, canaries that are recorded, and a server that finds itself wrong.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/process.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;
using CheckJson = nlohmann::json;
namespace fs = std::filesystem;

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kEncoder = TROUPE_TEST_DATA "/tiny-bert.gguf";

CheckJson read_record(const std::string& path) {
  std::ifstream in(path);
  return CheckJson::parse(std::string{std::istreambuf_iterator<char>(in), {}});
}

}  // namespace

TEST_CASE("model check: canaries, checksums and files of all models, or of one") {
  TempFolder folder;
  const std::string copy = folder.path("copy.gguf");
  fs::copy_file(kModel, copy);
  ServerProcess server({"-m", "tales=" + copy, "-m", "vectors=" + kEncoder, "-c", "256", "--canary-file", "off"});
  const Finished all = server.call({"model", "check"});
  CHECK(all.code == 0);
  CHECK_THAT(all.out, Matches("tales: canary ok, checksums ok, \\S+ \\S+ checked in [0-9.]+ s, file unchanged\n"
                              "vectors: canary ok, checksums ok, \\S+ \\S+ checked in [0-9.]+ s, file unchanged\n"));
  fs::last_write_time(copy, fs::last_write_time(copy) + std::chrono::seconds(5));
  const CheckJson one = CheckJson::parse(server.call({"model", "check", "tales", "--json"}).out);
  REQUIRE(one["checks"].size() == 1);
  CHECK(one["checks"][0]["model"] == "tales");
  CHECK(one["checks"][0]["canary_ok"] == true);
  CHECK(one["checks"][0]["weights_ok"] == true);
  CHECK(one["checks"][0]["bytes"] > 1'000'000);
  CHECK(one["checks"][0]["file_changed"] == true);
  CHECK_THAT(one["checks"][0]["file_change"].get<std::string>(), Contains("was written to since it was loaded"));
  CHECK(one["checks"][0]["problem"] == "");
  CHECK_THAT(server.call({"model", "check", "other"}).err, Contains("there is no model \"other\" here"));
  CHECK(server.call({"model", "check", "other"}).code == 2);
  CHECK_THAT(
      server.call({"status", "--prometheus"}).out,
      Contains("model_canary_runs_total") && Contains("model_file_changed{model_name=\"tales\",model=\"tales\"} 1"));
  CHECK(server.stop().code == 0);
}

TEST_CASE(
    "serve --canary-file: a start compares with the one before, and a server that computes something else does not "
    "serve") {
  TempFolder folder;
  const std::string record = folder.path("state/canaries.json");
  const std::vector<std::string> arguments{"-m", "tales=" + kModel, "-c", "256", "--canary-file", record};
  {
    ServerProcess first(arguments);
    const Finished stopped = first.stop();
    CHECK(stopped.code == 0);
    CHECK_THAT(stopped.err, Contains("it is recorded in " + record));
  }
  {
    ServerProcess second(arguments);
    CHECK_THAT(second.stop().err, Contains(", as recorded on 20"));
  }
  {
    // What the numerics id does not say, as how long sequences may be, is no difference.
    ServerProcess shorter({"-m", "tales=" + kModel, "-c", "8", "--canary-file", record, "-t", "1"});
    CHECK(shorter.stop().code == 0);
    ServerProcess longer({"-m", "tales=" + kModel, "-c", "512", "--canary-file", record, "--kv-blocks", "64"});
    CHECK_THAT(longer.stop().err, Contains(", as recorded on 20"));
    ServerProcess other({"-m", "tales=" + kModel, "--canary-file", record, "--kv-type", "int8", "--draft",
                         TROUPE_MODELS "/tales-draft-q8_0.gguf"});
    CHECK_THAT(other.stop().err, Contains("it is recorded in " + record));
  }
  CheckJson kept = read_record(record);
  REQUIRE(kept["canaries"].size() == 3);  // the whole one, one of 8 tokens, one with other K and V
  kept["canaries"][0]["value"] = "0000000000000001";
  std::ofstream(record, std::ios::trunc) << kept;
  std::vector<std::string> serve = arguments;
  serve.insert(serve.begin(), {"serve", "--socket", folder.path("t.sock")});
  const Finished wrong = invoke(serve);
  CHECK(wrong.code == 1);
  CHECK_THAT(wrong.err, Contains("it is loaded once more, from its file and not from the weights cache") &&
                            Contains("this machine's memory or a CPU may be faulty") &&
                            Contains("move " + record + " away"));
  CHECK(read_record(record) == kept);
  // Beside another model it is that one alone which does not serve.
  serve = arguments;
  serve.insert(serve.end(), {"-m", "vectors=" + kEncoder});
  ServerProcess beside(serve);
  const Finished checked = beside.call({"model", "check"});
  CHECK(checked.code == 1);
  CHECK_THAT(checked.out, Contains("tales: not checked: its canary is ") && Contains("vectors: canary ok"));
  CHECK(beside.call({"run", "--model-name", "tales", "x"}).code == 75);
  CHECK(beside.call({"embed", "--model-name", "vectors", "x"}).code == 0);
  CHECK(beside.stop().code == 0);
  fs::remove(record);
  ServerProcess anew(arguments);
  CHECK(anew.call({"run", "-n", "2", "x"}).code == 0);
}

TEST_CASE("serve --canary-interval and --scrub-rate: by themselves, from time to time") {
  ServerProcess server({"-m", "tales=" + kModel, "-c", "256", "--canary-file", "off", "--canary-interval", "1ms",
                        "--scrub-rate", "1GiB"});
  const auto metric = [&](const std::string& name) {
    const CheckJson status = CheckJson::parse(server.call({"status", "--json"}).out);
    for (const CheckJson& each : status["metrics"])
      if (each["name"] == name) return each["value"].get<double>();
    return -1.0;
  };
  // Each question takes some milliseconds; what does not come at all ends the test by its time limit.
  while (metric("model_canary_runs") < 5 || metric("model_weights_timestamp_seconds") == 0) {
  }
  CHECK(metric("model_canary_failures") == 0);
  CHECK(metric("model_weights_checked_bytes") >= metric("model_weights_watched_bytes"));
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}).out ==
        ", there was a little girl named Lily\n");
  CHECK(server.stop().code == 0);
}

}  // namespace troupe::test
