// serve, run and status together, over a real socket.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/process.h"
#include "tests/cli/prometheus_text.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

// Endless for a test: runs until it is stopped (the context is 1,024 tokens unless -c says otherwise).
const std::vector<std::string> kEndless{"run", "--ignore-eos", "--temp", "0", "Once upon a time"};

json status_of(const ServerProcess& server) { return json::parse(server.call({"status", "--json"}).out); }

// Whether a number of the status becomes more than 0 within a thousand queries.
bool wait_for_first(const ServerProcess& server, const char* number) {
  for (int look = 0; look < 1000; ++look)
    if (status_of(server)[number] != 0) return true;
  return false;
}

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.begin() + 1, more.begin(), more.end());
  return arguments;
}

}  // namespace

TEST_CASE("a socket's directory that a group may write to is refused with 77, and with --no-strict-modes warned of") {
  const TempFolder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0770) == 0);
  const Finished refused = invoke({"serve", "--socket", folder.path("s.sock")});
  CHECK(refused.code == 77);
  CHECK_THAT(refused.err, Contains("(mode 0770)") && Contains("chmod g-w") && Contains("--no-strict-modes"));
  Process server({.arguments = {"serve", "--no-strict-modes", "--socket", folder.path("s.sock")}});
  CHECK(server.wait_for_err("ready"));
  server.signal(SIGTERM);
  const Finished served = server.wait();
  CHECK(served.code == 0);
  CHECK_THAT(served.err, Contains("warning") && Contains("(mode 0770)"));
}

TEST_CASE("the kinds of memory that status lists are the resident memory, within 5 %, before and after a load") {
  ServerProcess server;
  const auto require_whole = [](const json& status) {
    INFO(status["memory"].dump(2));
    double sum = 0;
    for (const auto& [kind, use] : status["memory"].items()) {
      sum += use["bytes"].get<double>();
      CHECK(use["peak_bytes"] >= use["bytes"]);
    }
    const double resident = status["resident_bytes"];
    CHECK(resident <= status["peak_resident_bytes"].get<double>());
    CHECK(sum >= 0.95 * resident);
    CHECK(sum <= 1.05 * resident);
  };
  const json before = status_of(server);
  if (before["memory"]["heap"]["bytes"] == 0) {
    WARN("skipped: a sanitizer's allocator does not tell");
    return;
  }
  require_whole(before);
  // No blocks were written but for the 16 of the steps that were measured at load, in pages of up to 2 MiB.
  CHECK(before["memory"]["kv_cache"]["bytes"] <=
        (2 << 20) + 16 * 32 * before["models"][0]["kv_bytes_per_token"].get<double>());
  CHECK(before["memory"]["weights"]["bytes"] == before["weight_bytes"]);
  std::string prompt;
  for (int i = 0; i < 150; ++i) prompt += "Once upon a time there was a cat. ";
  for (int i = 0; i < 4; ++i) {
    const Finished answer =
        server.call({"run", "-n", "40", "--ignore-eos", std::to_string(i) + prompt.substr(0, 2000)});
    INFO(answer.err);
    REQUIRE(answer.code == 0);
  }
  const json after = status_of(server);
  require_whole(after);
  const double block = 32 * after["models"][0]["kv_bytes_per_token"].get<double>();
  const double written = after["memory"]["kv_cache"]["bytes"];
  CHECK(written >= block * after["blocks_cached"].get<double>());
  CHECK(written < 0.5 * after["kv_bytes"].get<double>());  // of 2,048 blocks most were never written
  CHECK(after["memory"]["step_buffers"]["bytes"] > before["memory"]["step_buffers"]["bytes"]);
}

TEST_CASE("a server with --profile reports the time of its operations, in its status and at its end") {
  ServerProcess server({"--profile", "--threads", "2"});
  const Finished nothing = server.call({"status", "--profile"});
  CHECK(nothing.code == 0);
  CHECK(nothing.out == "no step was computed yet\n");
  REQUIRE(server.call({"run", "--temp", "0", "-n", "20", "--ignore-eos", "Once upon a time"}).code == 0);
  CHECK(status_of(server).count("profile") == 0);  // only an answer to --profile has it
  const Finished asked = server.call({"status", "--profile", "--json"});
  REQUIRE(asked.code == 0);
  const json profile = json::parse(asked.out)["profile"];
  CHECK(profile["num_threads"] == 2);
  REQUIRE(profile["phases"].size() == 2);
  CHECK(profile["phases"][0]["phase"] == "decode");
  CHECK(profile["phases"][0]["steps"] == 19);
  CHECK(profile["phases"][1]["phase"] == "prefill");
  CHECK(profile["phases"][1]["tokens"] == 5);
  const json& operations = profile["phases"][1]["operations"];
  CHECK(operations.size() == 15);
  for (const json& operation : operations) {
    INFO(operation.dump());
    CHECK(operation["seconds"].get<double>() > 0);
    CHECK(operation["calls"] == (operation["layer_seconds"].empty() ? operation["operation"] == "prepare" ? 3 : 1 : 6));
    double threads = 0;
    for (const char* part : {"busy_seconds", "wake_up_seconds", "wait_seconds", "absent_seconds"})
      threads += operation[part].get<double>();
    CHECK(threads == Approx(2 * operation["join_seconds"].get<double>()).margin(1e-9));
  }
  const Finished text = server.call({"status", "--profile"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("decode: 19 steps of 1.0 tokens, ") && Contains("| attn_qkv | ") &&
                           Contains("cost model: steps were predicted to take "));
  CHECK(server.call({"status", "--profile", "--prometheus"}).code == 2);
  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains("profile: decode: 19 steps") && Contains("profile: | attention | "));

  ServerProcess plain;
  const Finished without = plain.call({"status", "--profile"});
  CHECK(without.code == 1);
  CHECK_THAT(without.err, Contains("troupe serve --profile"));
}

TEST_CASE("serve, run, status, SIGTERM: one session from the start to the end") {
  ServerProcess server;
  const Finished answer = server.call({"run", "--temp", "0", "-n", "8", "-v", "Once upon a time"});
  INFO(answer.err);
  CHECK(answer.code == 0);
  CHECK(answer.out == ", there was a little girl named Lily\n");
  CHECK_THAT(answer.err, Contains("5 prompt tokens (0 cached)"));
  CHECK_THAT(answer.err, Contains("tokens/s"));

  const Finished text = server.call({"status"});
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("health       ready\n"));
  CHECK_THAT(text.out, Contains("length 1"));
  const json status = status_of(server);
  CHECK(status["readiness"] == "ready");
  CHECK(status["requests_ended"]["length"] == 1);
  CHECK(status["prompt_tokens"] == 5);
  CHECK(status["generated_tokens"] == 8);
  CHECK(status["blocks_referenced"] == 0);
  CHECK(status["blocks_free"].get<int>() + status["blocks_cached"].get<int>() == status["blocks_total"]);
  CHECK(status["models"][0]["kv_bytes_per_token"] == 3072);

  // One request with a first token, seven gaps, and as many steps as tokens.
  const PrometheusText metrics(server.call({"status", "--prometheus"}).out);
  const auto count = [&](const std::string& name) {
    return metrics.families.at("troupe:" + name).samples.at("troupe:" + name + "_count").begin()->second;
  };
  CHECK(count("time_to_first_token_seconds") == 1);
  CHECK(count("inter_token_latency_seconds") == 7);
  CHECK(count("e2e_request_latency_seconds") == 1);
  CHECK(count("step_duration_seconds") == status["steps"].get<double>());
  CHECK(metrics.families.contains("troupe:memory_bytes"));
  const Finished top = server.call({"top", "--once"});
  CHECK(top.code == 0);
  CHECK_THAT(top.out, Contains("0 running, 0 waiting, 0 parked"));
  CHECK_THAT(server.call({"top"}).err, Contains("--once"));  // no terminal here

  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains("listens on " + server.socket()));
  CHECK_THAT(stopped.err, Contains("2048 blocks of 32 tokens"));
  CHECK_FALSE(std::filesystem::exists(server.socket()));
}

TEST_CASE("run --json has all fields of an answer, and the same seed gives it again") {
  ServerProcess server;
  const std::vector<std::string> arguments{"run", "--json", "--seed", "7", "-n", "12", "--logprobs", "2", "Once upon"};
  const Finished first = server.call(arguments);
  REQUIRE(first.code == 0);
  const json answer = json::parse(first.out);
  CHECK(answer["outcome"] == "length");
  CHECK(answer["seed"] == 7);
  CHECK(answer["ids"].size() == 12);
  CHECK(answer["logprobs"].size() == 12);
  CHECK(answer["logprobs"][0]["top"].size() == 2);
  CHECK(answer["usage"]["prompt_tokens"] == 3);
  CHECK(answer["usage"]["completion_tokens"] == 12);
  const json& receipt = answer["receipt"];
  CHECK(receipt["prompt_tokens"] == 3);
  CHECK(receipt["computed_tokens"] == 3 + 11);
  CHECK(receipt["compute_seconds"] > 0);
  CHECK(receipt["cpu_seconds"] >= receipt["compute_seconds"]);
  CHECK(receipt["share"] > 0.99);  // alone
  CHECK(receipt["preemptions"] == 0);
  const json again = json::parse(server.call(arguments).out);
  CHECK(again["text"] == answer["text"]);
  CHECK(again["logprobs"] == answer["logprobs"]);

  const json drawn = json::parse(server.call({"run", "--json", "-n", "12", "Once upon"}).out);
  const std::string seed = drawn["seed"].dump();
  CHECK(std::stoull(seed) < (1ull << 53));  // jq keeps numbers as doubles
  const json repeated = json::parse(server.call({"run", "--json", "-n", "12", "--seed", seed, "Once upon"}).out);
  CHECK(repeated["ids"] == drawn["ids"]);
}

TEST_CASE("a prompt comes from arguments, a file, stdin or token ids") {
  ServerProcess server;
  const std::string expected = server.call({"run", "--temp", "0", "-n", "8", "Once", "upon a time"}).out;
  const TempFolder folder;
  const std::string file = folder.write("prompt.txt", "Once upon a time\n");
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "-f", file}).out == expected);
  CHECK(server.call({"run", "--temp", "0", "-n", "8"}, "Once upon a time\n").out == expected);
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "--ids", "1 424 437 261 399"}).out == expected);
  CHECK(server.call({"run", "--ids", "1 x"}).code == 2);
}

TEST_CASE("stop strings, stop ids and logit bias reach the sampler") {
  ServerProcess server;
  const json stopped =
      json::parse(server.call({"run", "--json", "--temp", "0", "-n", "50", "--stop", " girl", "Once upon a time"}).out);
  CHECK(stopped["outcome"] == "stop_string");
  CHECK(stopped["stop"] == " girl");
  CHECK(stopped["text"] == ", there was a little");
  const json by_id = json::parse(
      server.call({"run", "--json", "--temp", "0", "-n", "50", "--stop-id", "401", "Once upon a time"}).out);
  CHECK(by_id["outcome"] == "stop_id");
  CHECK(by_id["ids"] == json({1995}));
  for (const char* bias : {"1995=-50", "1995-50"}) {
    const Finished biased =
        server.call({"run", "--json", "--temp", "0", "-n", "1", "--logit-bias", bias, "Once upon a time"});
    CHECK(json::parse(biased.out)["ids"][0] != 1995);
  }
  CHECK(json::parse(server.call({"run", "--json", "--temp", "0", "-n", "1", "-l", "7+99", "Once"}).out)["ids"][0] == 7);
  for (const char* bad : {"x=1", "7", "7=", "=1", "-7=1", "7=x"}) {
    const Finished finished = server.call({"run", "--logit-bias", bad, "Once"});
    CHECK(finished.code == 2);
    CHECK_THAT(finished.err, Contains("--logit-bias: '" + std::string(bad) + "' is not ID=BIAS"));
  }
}

TEST_CASE("without a server, run and status end with 1 and say how to start one") {
  const TempFolder folder;
  for (const char* name : {"run", "status"}) {
    std::vector<std::string> arguments{name, "--socket", folder.path("none.sock")};
    if (arguments[0] == "run") arguments.emplace_back("hello");
    const Finished finished = invoke(arguments);
    INFO(finished.err);
    CHECK(finished.code == 1);
    CHECK_THAT(finished.err, Contains(folder.path("none.sock")));
    CHECK_THAT(finished.err, Contains("troupe serve"));
  }
}

TEST_CASE("a refused request ends run with the exit code of its outcome, and says why") {
  ServerProcess server({"--alias", "tales"});
  std::string ids;
  for (int i = 0; i < 1100; ++i) ids += "5 ";
  const Finished too_long = server.call({"run", "--ids"}, ids);
  CHECK(too_long.code == 2);
  CHECK_THAT(too_long.err, Contains("refused (too_long): "));
  CHECK_THAT(too_long.err, Contains("1100"));
  const Finished model = server.call({"run", "--alias", "other", "hello"});
  CHECK(model.code == 2);
  CHECK_THAT(model.err, Contains("refused (unknown_model): "));
  for (const char* flag : {"--model-name", "--alias"})
    CHECK(server.call({"run", flag, "tales", "-n", "1", "hello"}).code == 0);
}

TEST_CASE("a server whose queue is full refuses with 75 and says when to try again") {
  ServerProcess server({"-c", "65536", "--parallel", "1", "--max-queued-requests", "1"});
  Process running(server.spawn(kEndless));
  REQUIRE(running.wait_for_out("Lily"));
  Process waiting(server.spawn(kEndless));
  REQUIRE(wait_for_first(server, "requests_waiting"));
  const Finished refused = server.call(kEndless);
  INFO(refused.err);
  CHECK(refused.code == 75);
  CHECK(refused.out.empty());
  CHECK_THAT(refused.err, Contains("refused (queue_full): "));
  CHECK_THAT(refused.err, Contains("try again in "));
  CHECK(status_of(server)["requests_ended"]["queue_full"] == 1);
  running.signal(SIGINT);
  CHECK(running.wait().code == 130);
  REQUIRE(waiting.wait_for_out("Lily"));  // the one that waited is served
  waiting.signal(SIGINT);
  CHECK(waiting.wait().code == 130);
}

TEST_CASE("run shows the progress of a long prompt on a terminal, and erases it") {
  ServerProcess server({"-c", "65536", "--max-step-tokens", "1"});
  std::string ids;
  for (int i = 0; i < 60'000; ++i) ids += std::to_string(5 + i % 1000) + " ";
  Spawn spawn = server.spawn({"run", "--ids"});
  spawn.stdin_text = ids;
  spawn.err_on_terminal = true;
  Process client(spawn);
  REQUIRE(client.wait_for_err(" of 60000 tokens, "));
  const Finished top = server.call({"top", "--once"});
  CHECK_THAT(top.out, Contains("/60000 "));
  client.signal(SIGINT);
  const Finished finished = client.wait();
  CHECK(finished.code == 130);
  const std::size_t last = finished.err.rfind(" of 60000 tokens, ");
  CHECK(finished.err.find("\r\033[K", last) < finished.err.find("troupe run: ", last));
}

TEST_CASE("Ctrl-C cancels the request and ends run with 130") {
  ServerProcess server({"-c", "65536"});
  Process client(server.spawn(kEndless));
  REQUIRE(client.wait_for_out("Lily"));
  client.signal(SIGINT);
  const Finished finished = client.wait();
  CHECK(finished.code == 130);
  CHECK_THAT(finished.err, Contains("cancelled"));
  CHECK(status_of(server)["requests_ended"]["cancelled"] == 1);
}

TEST_CASE("--timeout ends an answer with what it has, and run with 1") {
  ServerProcess server({"-c", "65536"});
  std::string text;
  // The first one that leaves time for a token, however slow this machine is.
  for (const char* timeout : {"300ms", "3s", "30s"}) {
    const Finished finished = server.call(with(kEndless, {"--timeout", timeout, "--json"}));
    CHECK(finished.code == 1);
    CHECK_THAT(finished.err, Contains("the answer is not complete (deadline)"));
    const json answer = json::parse(finished.out);
    CHECK(answer["outcome"] == "deadline");
    text = answer["text"].get<std::string>();
    if (!text.empty()) break;
  }
  CHECK_FALSE(text.empty());
}

TEST_CASE("SIGTERM lets a running answer finish and refuses new ones") {
  ServerProcess server({"-c", "65536", "--drain-timeout", "600s"});
  Process client(server.spawn(with(kEndless, {"-n", "500", "--json"})));
  REQUIRE(wait_for_first(server, "generated_tokens"));
  const Finished stopped = server.stop();
  const Finished finished = client.wait();
  INFO(stopped.err << finished.err);
  CHECK(stopped.code == 0);
  CHECK(finished.code == 0);
  CHECK(json::parse(finished.out)["ids"].size() == 500);
  CHECK_FALSE(std::filesystem::exists(server.socket()));
}

TEST_CASE("while a server drains, status and run say so with 75, and a second server finds the socket in use") {
  ServerProcess server({"-c", "65536", "--drain-timeout", "600s"});
  Process client(server.spawn(kEndless));
  REQUIRE(client.wait_for_out("Lily"));
  server.process().signal(SIGTERM);
  REQUIRE(server.process().wait_for_err("draining: 1 streams are open"));
  const Finished status = server.call({"status"});
  CHECK(status.code == 75);
  CHECK_THAT(status.out, Contains("draining"));
  const Finished late = server.call({"run", "Once"});
  CHECK(late.code == 75);
  CHECK_THAT(late.err, Contains("draining") && Contains("shutting down"));
  CHECK(invoke({"serve", "--socket", server.socket()}).code == 69);
  client.signal(SIGINT);  // ends the last stream, and with it the drain
  CHECK(client.wait().code == 130);
  CHECK(server.process().wait().code == 0);
  CHECK_FALSE(std::filesystem::exists(server.socket()));
}

TEST_CASE("a drain ends at --drain-timeout, and the answer that was cut says so") {
  ServerProcess server({"-c", "65536", "--drain-timeout", "100ms"});
  Process client(server.spawn(kEndless));
  REQUIRE(client.wait_for_out("Lily"));
  const Finished stopped = server.stop();
  const Finished finished = client.wait();
  INFO(finished.err);
  CHECK(stopped.code == 0);
  CHECK(finished.code == 1);
  CHECK_THAT(finished.err, Contains("not complete"));
}

TEST_CASE("one signal that is delivered twice is one signal") {
  ServerProcess server({"-c", "65536", "--drain-timeout", "600s"});
  Process client(server.spawn(with(kEndless, {"-n", "500", "--json"})));
  REQUIRE(wait_for_first(server, "generated_tokens"));
  server.process().signal(SIGTERM);
  server.process().signal(SIGTERM);
  const Finished stopped = server.process().wait();
  CHECK(stopped.code == 0);
  CHECK(json::parse(client.wait().out)["ids"].size() == 500);
}

TEST_CASE("a second signal stops at once, with the signal's exit code and no socket file left") {
  ServerProcess server({"-c", "65536"});
  Process client(server.spawn(kEndless));
  REQUIRE(client.wait_for_out("Lily"));
  server.process().signal(SIGTERM);
  REQUIRE(server.process().wait_for_err("a second signal stops at once"));
  server.process().signal(SIGINT);
  const Finished stopped = server.process().wait();
  CHECK(stopped.code == 130);
  CHECK_FALSE(std::filesystem::exists(server.socket()));
  const Finished finished = client.wait();
  CHECK(finished.code == 1);
  CHECK_FALSE(finished.err.empty());
}

TEST_CASE("a socket where another server listens is left alone: 69") {
  ServerProcess server;
  const Finished second = invoke({"serve", "--socket", server.socket()});
  CHECK(second.code == 69);
  CHECK_THAT(second.err, Contains("another server listens on " + server.socket()));
  CHECK(server.call({"status"}).code == 0);
}

TEST_CASE("a socket that cannot be made ends with 73, 77 or 2, each with its own message") {
  const TempFolder folder;
  const std::string file = folder.write("plain.sock", "precious");
  const Finished plain = invoke({"serve", "--socket", file});
  CHECK(plain.code == 73);
  CHECK_THAT(plain.err, Contains("is not a socket"));
  CHECK(std::filesystem::file_size(file) == 8);
  const Finished nowhere = invoke({"serve", "--socket", folder.path("none/t.sock")});
  CHECK(nowhere.code == 73);
  const Finished too_long = invoke({"serve", "--socket", folder.path(std::string(120, 'x'))});
  CHECK(too_long.code == 2);
  CHECK_THAT(too_long.err, Contains("107"));
  std::filesystem::create_directory(folder.path("open"));
  REQUIRE(::chmod(folder.path("open").c_str(), 0777) == 0);
  const Finished open = invoke({"serve", "--socket", folder.path("open/t.sock")});
  CHECK(open.code == 77);
  CHECK_THAT(open.err, Contains("everybody can write"));
}

TEST_CASE("a dead socket file is replaced") {
  const TempFolder folder;
  const std::string path = folder.path("t.sock");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::close(fd);
  Process server(Spawn{.arguments = {"serve", "--socket", path}});
  REQUIRE(server.wait_for_err("ready"));
  CHECK(invoke({"status", "--socket", path}).code == 0);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}

TEST_CASE("every line of a JSON log is an object with time, level and message") {
  const TempFolder folder;
  // A path with a quote, a backslash and a byte that is not UTF-8.
  const std::string model = folder.path("a\"b\\c\xff.gguf");
  std::filesystem::copy_file(TROUPE_MODELS "/tales-5m-tq2_0.gguf", model);
  ServerProcess server({"--log-format", "json", "-m", model});
  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  std::istringstream lines(stopped.err);
  int count = 0;
  bool named = false;
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line);
    CHECK(object["time"].get<std::string>().size() == 24);
    const bool is_info = object["level"] == "info";
    CHECK((is_info || object["level"] == "warning"));  // of a machine that refuses AMX or allows few descriptors
    count += is_info;
    named = named || object["message"].get<std::string>().find("a\"b\\c\xef\xbf\xbd.gguf") != std::string::npos;
  }
  CHECK(count >= 5);
  CHECK(named);
}

TEST_CASE("the log goes to a file when asked, and holds no prompt and no answer") {
  const TempFolder folder;
  const std::string file = folder.path("troupe.log");
  Process server(
      Spawn{.arguments = {"serve", "--socket", folder.path("t.sock"), "--log-file", file, "--log-level", "trace"}});
  // The server says nothing on stderr: a request that is answered shows that it is ready.
  Finished answer;
  for (int attempt = 0; attempt < 1000 && answer.code != 0; ++attempt)
    answer = invoke({"run", "--socket", folder.path("t.sock"), "-n", "20", "--temp", "0", "Zebra Zanzibar"});
  CHECK(answer.code == 0);
  server.signal(SIGTERM);
  const Finished stopped = server.wait();
  CHECK(stopped.code == 0);
  CHECK(stopped.err.empty());
  std::ifstream stream(file);
  const std::string log{std::istreambuf_iterator<char>(stream), {}};
  CHECK_THAT(log, Contains("ready"));
  CHECK_THAT(log, !Contains("Zanzibar"));
  CHECK_THAT(log, !Contains(answer.out.substr(0, 20)));
  const Finished denied =
      invoke({"serve", "--socket", folder.path("t.sock"), "--log-file", folder.path("none/troupe.log")});
  CHECK(denied.code == 1);
  CHECK_THAT(denied.err, Contains("--log-file: " + folder.path("none/troupe.log") + ": No such file"));
}

TEST_CASE("a context longer than the trained one is served with a warning") {
  ServerProcess server({"-c", "4096"});
  CHECK(status_of(server)["models"][0]["context"] == 4096);
  CHECK_THAT(server.stop().err, Contains("the context of 4096 tokens is longer than the 1024"));
}

TEST_CASE("a budget that holds no context is refused with the numbers") {
  const TempFolder folder;
  const Finished finished = invoke({"serve", "--socket", folder.path("t.sock"), "--memory", "3M"});
  INFO(finished.err);
  CHECK(finished.code == 1);
  CHECK_THAT(finished.err, Contains("memory"));
  CHECK_FALSE(std::filesystem::exists(folder.path("t.sock")));
}

TEST_CASE("embed prints a line of JSON for each text, from arguments, lines and ids, and says what it cannot do") {
  ServerProcess server({"-m", TROUPE_TEST_DATA "/tiny-bert.gguf"});
  const auto lines_of = [](const Finished& finished) {
    INFO(finished.err);
    REQUIRE(finished.code == 0);
    std::vector<json> lines;
    std::istringstream stream(finished.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  };
  const auto lines = lines_of(server.call({"embed", "a cat", "the sun"}));
  REQUIRE(lines.size() == 2);
  CHECK(lines[1]["index"] == 1);
  CHECK(lines[1]["embedding"].size() == 64);
  CHECK(lines_of(server.call({"embed"}, "a cat\nthe sun\n")) == lines);
  std::string many;
  for (int i = 0; i < 70; ++i) many += "a cat\n";  // more than one request holds
  const auto all = lines_of(server.call({"embed", "-f", "-"}, many));
  REQUIRE(all.size() == 70);
  CHECK(all[69]["index"] == 69);
  CHECK(all[69]["embedding"] == lines[0]["embedding"]);
  CHECK(lines_of(server.call({"embed", "--pooling", "mean", "a cat"}))[0] != lines[0]);
  CHECK(lines_of(server.call({"embed", "--no-normalise", "a cat"}))[0] != lines[0]);
  CHECK(lines_of(server.call({"embed", "--ids", "2 7 3"})).size() == 1);
  const std::string too_long(1000, '!');
  CHECK_THAT(server.call({"embed", too_long}).err, Contains("texts[0] has 1002 tokens"));
  const Finished cut = server.call({"embed", "--truncate", too_long, "a cat"});
  CHECK(cut.code == 0);
  CHECK_THAT(cut.err, Contains("cut 682 tokens"));
  CHECK(lines_of(cut)[1]["embedding"] == lines[0]["embedding"]);
  CHECK(server.call({"embed", "--pooling", "rank", "a cat"}).code == 2);
  const Finished beyond = server.call({"embed", "--ids", "9999"});
  CHECK(beyond.code == 2);
  CHECK_THAT(beyond.err, Contains("9999"));
  const Finished run = server.call({"run", "Once"});
  CHECK(run.code == 2);
  CHECK_THAT(run.err, Contains("encoder"));
}
