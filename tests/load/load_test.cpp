// `troupe load` against a real server on the embedded model.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/process.h"

using namespace troupe::test;
using nlohmann::json;

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs `troupe load` with a report, and shows what it said when a check fails.
struct Loaded {
  Loaded(const ServerProcess& server, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"load", "-o", folder.path("report.json")});
    finished = server.call(std::move(arguments));
    report = json::parse(read_file(folder.path("report.json")), nullptr, false);
  }

  TempFolder folder;
  Finished finished;
  json report;
};

}  // namespace

TEST_CASE("a closed loop sends every request, and every answer is the one of the request alone") {
  const ServerProcess server;
  TempFolder folder;
  const std::string trace = folder.path("trace.jsonl"), page = folder.path("page.html");
  const Loaded loaded(server, {"--clients", "4", "--num-prompts", "12", "--prompt-len", "8..40", "--output-len",
                               "4..12", "--prefix-len", "70", "--num-prefixes", "2", "--verify", "--seed", "5",
                               "--trace-out", trace, "--html", page});
  INFO(loaded.finished.err << loaded.finished.out);
  REQUIRE(loaded.finished.code == 0);
  const json& report = loaded.report;
  CHECK(report["completed"] == 12);
  CHECK(report["troupe"]["verification"]["equal"] == 12);
  CHECK(report["troupe"]["verification"]["different"] == 0);
  CHECK(report["troupe"]["exactly_once"]["held"] == true);
  // A prefix has two full blocks, computed by the first request that begins with it and hit by the others.
  std::set<int> prefixes;
  for (const json& request : report["troupe"]["requests"]) prefixes.insert(request["prefix"].get<int>());
  CHECK(report["troupe"]["cached_tokens"] == (12 - prefixes.size()) * 64);
  CHECK(report["max_concurrent_requests"].get<int>() <= 4);
  for (const json& length : report["output_lens"]) CHECK((length >= 4 && length <= 12));
  for (const json& length : report["input_lens"]) CHECK((length >= 78 && length <= 110));
  CHECK(read_file(page).find("<svg") != std::string::npos);

  // Once more, warm: now the first ones hit as well.
  const Loaded warmed(server, {"--clients", "4", "--num-prompts", "12", "--prompt-len", "8..40", "--output-len",
                               "4..12", "--prefix-len", "70", "--num-prefixes", "2", "--seed", "5", "--warm"});
  CHECK(warmed.finished.code == 0);
  CHECK(warmed.report["troupe"]["cached_tokens"] == 12 * 64);

  // The same requests once more, from the trace.
  const Loaded replayed(server, {"--trace", trace, "--verify"});
  INFO(replayed.finished.err << replayed.finished.out);
  REQUIRE(replayed.finished.code == 0);
  CHECK(replayed.report["output_lens"] == report["output_lens"]);
  CHECK(replayed.report["input_lens"] == report["input_lens"]);
  CHECK(replayed.report["troupe"]["verification"]["equal"] == 12);
}

TEST_CASE("requests with faults end once, the others are undisturbed, and the server comes to rest") {
  const ServerProcess server;
  const Loaded loaded(server, {"--clients", "6", "--num-prompts", "36", "--prompt-len", "8..64", "--output-len",
                               "2..24", "--fault-cancel", "0.2", "--fault-disconnect", "0.2", "--fault-slow-reader",
                               "0.2", "--fault-garbage", "0.2", "--fault-pause", "100ms", "--verify"});
  INFO(loaded.finished.err << loaded.finished.out);
  REQUIRE(loaded.finished.code == 0);
  CHECK(loaded.report["troupe"]["exactly_once"]["held"] == true);
  CHECK(loaded.report["troupe"]["verification"]["different"] == 0);
  for (const char* fault : {"cancel", "disconnect", "slow reader", "garbage"})
    CHECK(loaded.report["troupe"]["faults"].value(fault, 0) > 0);
  CHECK(loaded.report["troupe"]["failures"].empty());
  std::map<std::string, int> cut;  // faults that came in time, by how they ended the request
  for (const json& request : loaded.report["troupe"]["requests"])
    if (!request["fault_at_s"].is_null())
      ++cut[request["fault"].get<std::string>() + ", " + request["outcome"].get<std::string>()];
  CHECK(cut["cancel, cancelled"] > 0);
  CHECK(cut["disconnect, disconnected"] > 0);
  CHECK(cut["slow reader, length"] > 0);
  CHECK(cut["garbage, length"] > 0);
  const json &server_says = loaded.report["troupe"]["server"], &garbage = loaded.report["troupe"]["garbage"];
  CHECK(server_says["at_rest"] == true);
  CHECK(server_says["received"] == 36);
  CHECK(server_says["ended"] == 36);
  CHECK(garbage["sent"] == loaded.report["troupe"]["faults"]["garbage"]);
  CHECK(garbage["closed"] == garbage["sent"]);
  CHECK(loaded.finished.out.find("36 received, 36 ended; at rest, no block held") != std::string::npos);
}

TEST_CASE("an open loop sends at its rate, and a missed goal is printed and is the exit code") {
  const ServerProcess server;
  const Loaded loaded(
      server, {"--rate", "40", "--burstiness", "0", "--num-prompts", "10", "--prompt-len", "16", "--output-len", "4",
               "--goodput", "ttft:0.001", "tpot:10000", "--require-goodput", "0.5"});
  INFO(loaded.finished.err << loaded.finished.out);
  CHECK(loaded.finished.code == 1);
  CHECK(loaded.finished.err.find("goal missed: of the undisturbed requests 0 % were within the limits") !=
        std::string::npos);
  CHECK(loaded.report["completed"] == 10);
  CHECK(loaded.report["troupe"]["goodput"]["ttft_ms"] == 0.001);
  CHECK(loaded.report["troupe"]["goodput"]["tpot_ms"] == 10000);
  CHECK(loaded.report["request_rate"] == 40);
}

TEST_CASE("refusals are counted by reason, and with retries every request is served in the end") {
  const ServerProcess server({"--parallel", "1", "--max-queued-requests", "1"});
  const std::vector<std::string> flood{"--clients",    "8",  "--num-prompts", "24",
                                       "--prompt-len", "16", "--output-len",  "32"};
  const Loaded refused(server, flood);
  INFO(refused.finished.err << refused.finished.out);
  CHECK(refused.finished.code == 0);
  CHECK(refused.report["troupe"]["refusals"].value("queue_full", 0) > 0);
  CHECK(refused.report["troupe"]["exactly_once"]["held"] == true);

  std::vector<std::string> strict = flood;
  strict.insert(strict.end(), {"--max-refused", "0"});
  CHECK(Loaded(server, strict).finished.code == 1);

  std::vector<std::string> patient = flood;
  patient.insert(patient.end(), {"--max-retries", "100", "--max-refused", "0", "--verify"});
  const Loaded served(server, patient);
  INFO(served.finished.err << served.finished.out);
  CHECK(served.finished.code == 0);
  CHECK(served.report["completed"] == 24);
  CHECK(served.report["troupe"]["retries"].get<int>() > 0);
}

TEST_CASE("a deadline is each request's, and one that cannot be met is refused or cuts the answer") {
  const ServerProcess server;
  const Loaded late(server, {"--num-prompts", "6", "--clients", "2", "--prompt-len", "400", "--output-len", "600",
                             "--deadline", "1ms", "--seed", "8"});
  INFO(late.finished.err << late.finished.out);
  CHECK(late.report["completed"] == 0);
  const json& outcomes = late.report["troupe"]["outcomes"];
  CHECK(outcomes["refused"].get<int>() + outcomes["cut"].get<int>() == 6);
  CHECK(late.finished.out.find("1 ms") != std::string::npos);

  const Loaded early(server, {"--num-prompts", "6", "--clients", "2", "--prompt-len", "40", "--output-len", "6",
                              "--deadline", "10m", "--seed", "8"});
  CHECK(early.report["completed"] == 6);
}

TEST_CASE("Ctrl-C ends a run early, and what came so far is reported") {
  const ServerProcess server;
  Process load(
      server.spawn({"load", "--clients", "2", "--duration", "10m", "--output-len", "900", "--prompt-len", "4"}));
  REQUIRE(load.wait_for_err("closed loop, 2 clients"));
  const auto received = [&] {
    return json::parse(server.call({"status", "--json"}).out)["requests_received"].get<int>();
  };
  while (received() == 0) {
  }
  load.signal(SIGINT);
  const Finished finished = load.wait();
  INFO(finished.err << finished.out);
  CHECK(finished.code == 130);
  CHECK(finished.out.find("Throughput") != std::string::npos);
}

TEST_CASE("a server that goes while it is under load ends the run, and the message says so") {
  for (const bool by_http : {false, true}) {
    ServerProcess server;
    std::vector<std::string> arguments{"load", "--clients",    "4", "--num-prompts", "5000", "--prompt-len",
                                       "4",    "--output-len", "8"};
    if (by_http) arguments.insert(arguments.end(), {"--openai", "http+unix://" + server.socket()});
    Process load(server.spawn(arguments));
    REQUIRE(load.wait_for_err("closed loop, 4 clients"));
    while (json::parse(server.call({"status", "--json"}).out)["requests_received"].get<int>() < 8) {
    }
    server.process().signal(SIGKILL);
    const Finished finished = load.wait();
    INFO(finished.err << finished.out);
    CHECK(finished.code == 75);
    CHECK(finished.err.find("stopped: the server cannot be reached any more: ") != std::string::npos);
    CHECK(finished.out.find("Throughput") != std::string::npos);
  }
}

TEST_CASE("without a server there is an error and no report") {
  TempFolder folder;
  const Finished finished = invoke({"load", "--socket", folder.path("none.sock"), "-o", folder.path("report.json")});
  CHECK(finished.code == 1);
  CHECK(finished.err.find("no server at") != std::string::npos);
  CHECK(read_file(folder.path("report.json")).empty());
}

TEST_CASE("a report that cannot be written is an error before a server is looked for") {
  TempFolder folder;
  const std::string socket = folder.path("none.sock");
  for (const char* flag : {"-o", "--html", "--trace-out"}) {
    INFO(flag);
    const Finished nowhere = invoke({"load", "--socket", socket, flag, folder.path("missing/report")});
    CHECK(nowhere.code == 1);
    CHECK(nowhere.err.find("missing/report: folder " + folder.path("missing") + ": No such file") != std::string::npos);
    CHECK(nowhere.err.find("no server at") == std::string::npos);
    const Finished directory = invoke({"load", "--socket", socket, flag, folder.path()});
    CHECK(directory.code == 1);
    CHECK(directory.err.find("it is a directory") != std::string::npos);
  }
  const std::string earlier = folder.write("earlier.json", "kept");
  CHECK(invoke({"load", "--socket", socket, "-o", earlier}).err.find("no server at") != std::string::npos);
  CHECK(read_file(earlier) == "kept");
}

TEST_CASE("a server of another kind is asked by HTTP, and cannot be verified against") {
  TempFolder folder;
  const std::string unused = "http+unix://" + folder.path("none.sock");
  const Finished finished = invoke({"load", "--openai", unused, "--patience", "1s"});
  INFO(finished.err);
  CHECK(finished.code == 1);
  CHECK(finished.err.find("none.sock") != std::string::npos);
  const Finished verified = invoke({"load", "--openai", unused, "--verify"});
  CHECK(verified.code == 2);
  CHECK(verified.err.find("--verify and --warm need a troupe server") != std::string::npos);
  const Finished dated = invoke({"load", "--openai", unused, "--deadline", "1s"});
  CHECK(dated.code == 2);
  CHECK(dated.err.find("--deadline needs a troupe server") != std::string::npos);
}

TEST_CASE("tenants of all kinds run beside each other, and each alone before, and their reports agree") {
  const ServerProcess server;
  TempFolder folder;
  const std::string page = folder.path("page.html");
  const Loaded loaded(server, {"--num-prompts", "6", "--prompt-len", "8..40", "--output-len", "4..12", "--tenant",
                               "crowd:clients=4,num-prompts=12,weight=2", "--tenant", "reader:embed,clients=2",
                               "--tenant", "splitter:tokenize,clients=1", "--tenants",
                               folder.write("more", "# late\nlate:start=50ms,clients=1,goodput=e2el:60000\n"),
                               "--compare-alone", "crowd,late", "--verify", "--html", page});
  INFO(loaded.finished.err << loaded.finished.out);
  REQUIRE(loaded.finished.code == 0);
  const json& ours = loaded.report["troupe"];
  CHECK(loaded.report["completed"] == 12 + 3 * 6);
  CHECK(ours["exactly_once"]["held"] == true);
  CHECK(ours["verification"]["equal"] == 12 + 6);
  CHECK(ours["verification"]["different"] == 0);
  REQUIRE(ours["tenants"].size() == 4);
  const json &crowd = ours["tenants"][0], &reader = ours["tenants"][1], &splitter = ours["tenants"][2],
             &late = ours["tenants"][3];
  CHECK(crowd["name"] == "crowd");
  CHECK(crowd["weight"] == 2);
  CHECK(crowd["together"]["completed"] == 12);
  CHECK(crowd["alone"]["completed"] == 12);
  CHECK(crowd["alone"]["output_tokens"] == crowd["together"]["output_tokens"]);  // the same requests
  CHECK(reader["together"]["completed"] == 6);
  CHECK(reader["together"]["output_tokens"] == 0);
  CHECK(reader["together"]["input_tokens"].get<int>() >= 6 * 8);
  CHECK(reader["alone"].is_null());
  CHECK(splitter["together"]["completed"] == 6);
  CHECK(splitter["together"]["input_tokens"] == 0);
  CHECK(late["together"]["good_share"] == 1);
  CHECK(late["alone"]["completed"] == 6);
  for (const json& request : ours["requests"])
    if (request["intended_s"] < 0.05) CHECK(request["index"].get<int>() < 12);
  for (std::size_t i = late["first_request"]; i < ours["requests"].size(); ++i)
    CHECK(ours["requests"][i]["intended_s"] >= 0.05);
  CHECK(loaded.finished.out.find("Beside the others and alone") != std::string::npos);
  CHECK(read_file(page).find("<h2>Tenants</h2>") != std::string::npos);
}

TEST_CASE("tenants with uids are different users to the server, and one that may not enter ends the run") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can act as another user");
    return;
  }
  // Each user may have one request at a time: two clients of one user refuse each other, two users do not.
  TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  const std::string socket = folder.path("troupe.sock");
  Process server(
      {.arguments = {"serve", "--socket", socket, "--allow-uid", "34567,34568", "--max-requests-per-user", "1"}});
  REQUIRE(server.wait_for_err("ready"));
  const auto num_refused = [&](const std::string& first, const std::string& second) {
    const std::string report = folder.path("report.json");
    const Finished finished =
        invoke({"load", "--socket", socket, "-o", report, "--clients", "1", "--num-prompts", "12", "--prompt-len", "8",
                "--output-len", "64", "--tenant", "A:uid=" + first, "--tenant", "B:uid=" + second});
    INFO(finished.err << finished.out);
    REQUIRE(finished.code == 0);
    return json::parse(read_file(report))["troupe"]["outcomes"]["refused"].get<int>();
  };
  CHECK(num_refused("34567", "34568") == 0);
  CHECK(num_refused("34567", "34567") > 0);
  const Finished stranger = invoke({"load", "--socket", socket, "--tenant", "C:uid=45678"});
  CHECK(stranger.code == 77);
  CHECK(stranger.err.find("as uid 45678: the server ended the connection: uid 45678 may not use") != std::string::npos);
}

TEST_CASE("flags that contradict each other or the model are errors before anything is sent") {
  const ServerProcess server;
  const auto error_of = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "load");
    const Finished finished = server.call(std::move(arguments));
    CHECK(finished.code == 2);
    return finished.err;
  };
  CHECK(error_of({"--prompt-len", "5000"}).find("more than the model's context of 1024") != std::string::npos);
  CHECK(error_of({"--output-len", "many"}).find("--output-len: 'many'") != std::string::npos);
  CHECK(error_of({"--require-goodput", "0.9"}).find("needs the limits") != std::string::npos);
  CHECK(error_of({"ttft:5"}).find("unexpected argument 'ttft:5'") != std::string::npos);
  CHECK(error_of({"--tenant", "A:clients=x"}).find("tenant A: clients: 'x' is not a whole number") !=
        std::string::npos);
  CHECK(error_of({"--tenant", "A:prompt-len=5000"}).find("tenant A: the shortest request has") != std::string::npos);
  CHECK(error_of({"--tenant", "A", "--openai", "http://h:1"}).find("--openai knows no tenants") != std::string::npos);
  CHECK(error_of({"--fault-cancel", "0.6", "--fault-garbage", "0.6"}).find("add up to 1.2") != std::string::npos);
}
