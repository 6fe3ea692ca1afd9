// A stop signal ends the server in every phase.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/interposed.h"
#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::vector<std::string> kEndless{"run", "--ignore-eos", "--temp", "0", "Once upon a time"};

std::string last_line(const std::string& log) {
  std::istringstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  return last;
}

// A server that is in the middle of something, with the client that it does it for.
class Scene {
 public:
  explicit Scene(std::vector<std::string> arguments, std::optional<std::pair<std::string, int>> held_call = {}) {
    arguments.insert(arguments.begin(), {"serve", "--socket", socket()});
    Spawn spawn{.arguments = std::move(arguments)};
    if (held_call) {
      gate.emplace(folder, held_call->first, held_call->second);
      spawn.environment = gate->environment();
    }
    server.emplace(spawn);
    if (gate) {
      gate->wait();
      return;
    }
    const bool ready = server->wait_for_err("ready");
    INFO((ready ? "" : server->wait().err));
    REQUIRE(ready);
  }

  std::string socket() const { return folder.path("t.sock"); }
  void ask(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin() + 1, {"--socket", socket()});
    client.emplace(Spawn{.arguments = std::move(arguments), .stdin_text = input});
  }
  json status() const { return json::parse(invoke({"status", "--json", "--socket", socket()}).out); }
  void wait_until(const std::function<bool(const json&)>& holds) const {
    for (int look = 0; look < 1000; ++look)
      if (holds(status())) return;
    FAIL("the server never came that far");
  }
  void signal(int number) { server->signal(number); }

  TempFolder folder;
  std::optional<Gate> gate;  // goes after the server: it lets go on what still waits
  std::optional<Process> server, client;
};

struct Phase {
  std::string name;
  std::function<void(std::optional<Scene>&, const std::vector<std::string>& arguments)> reach;
};

std::vector<std::string> operator+(std::vector<std::string> all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string ids(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(5 + i % 1000) + " ";
  return text;
}

bool runs(const json& status) { return status["requests_running"] == 1; }

std::vector<Phase> phases() {
  std::vector<Phase> all;
  if (kCanInterpose) {
    all.push_back({"loading", [](auto& scene, const auto& arguments) {
                     scene.emplace(arguments, std::pair("madvise", 5));  // some tensors are read
                   }});
    all.push_back({"saving", [](auto& scene, const auto& arguments) {
                     static const TempFolder cache;
                     scene.emplace(arguments + std::vector<std::string>{"--weights-cache", cache.path("weights")},
                                   std::pair("pwrite", 3));
                   }});
  }
  all.push_back({"encoding", [](auto& scene, const auto& arguments) {
                   scene.emplace(arguments + std::vector<std::string>{"--max-queued-tokens", "4194304"});
                   std::string text;
                   while (text.size() < 4'000'000)
                     text += "Once upon a time there was a cat, and it was " + std::to_string(text.size());
                   text.resize(4'000'000);
                   scene->ask({"run", "-f", "-"}, text);
                   scene->wait_until([](const json& status) { return status["requests_waiting"] == 1; });
                 }});
  all.push_back({"prefill", [](auto& scene, const auto& arguments) {
                   scene.emplace(arguments + std::vector<std::string>{"-c", "65536", "--max-step-tokens", "1"});
                   scene->ask({"run", "--ids"}, ids(60'000));
                   scene->wait_until(runs);
                 }});
  all.push_back({"decode", [](auto& scene, const auto& arguments) {
                   scene.emplace(arguments + std::vector<std::string>{"-c", "65536"});
                   scene->ask(kEndless);
                   REQUIRE(scene->client->wait_for_out("Lily"));
                 }});
  all.push_back({"embedding", [](auto& scene, const auto& arguments) {
                   scene.emplace(arguments + std::vector<std::string>{"-c", "65536", "--max-step-tokens", "1"});
                   std::string lines;
                   for (int i = 0; i < 60; ++i) lines += "Once " + std::string(1500, 'q') + "\n";
                   scene->ask({"embed", "-f", "-"}, lines);
                   scene->wait_until(runs);
                 }});
  return all;
}

void require_gone(const Scene& scene) { CHECK_FALSE(std::filesystem::exists(scene.socket())); }

}  // namespace

TEST_CASE("in every phase one signal ends the server with 0, and stopped is the last line of its log") {
  for (const Phase& phase : phases()) {
    INFO(phase.name);
    std::optional<Scene> scene;
    phase.reach(scene, {"--drain-timeout", "100ms"});
    scene->signal(SIGTERM);
    REQUIRE(scene->server->wait_for_err("signal 15: finishing what runs"));
    if (scene->gate) {
      REQUIRE(scene->server->wait_for_err("loading is given up"));
      scene->gate->open();
    }
    const Finished stopped = scene->server->wait();
    INFO(stopped.err);
    CHECK_FALSE(stopped.by_signal);
    CHECK(stopped.code == 0);
    CHECK_THAT(last_line(stopped.err), Catch::Matchers::EndsWith(" stopped"));
    require_gone(*scene);
    CHECK(stopped.err.find("draining: ") < stopped.err.find(" stopped\n"));
    if (scene->gate) CHECK_THAT(stopped.err, !Contains("loaded model"));
    if (scene->client) CHECK(scene->client->wait().code != 0);
  }
}

TEST_CASE("in every phase a second signal ends the server at once with its number, and leaves no socket file") {
  for (const Phase& phase : phases()) {
    INFO(phase.name);
    std::optional<Scene> scene;
    phase.reach(scene, {"--drain-timeout", "600s"});
    scene->signal(SIGTERM);
    REQUIRE(scene->server->wait_for_err("a second signal stops at once"));
    scene->signal(SIGINT);  // what waits at the gate still does
    const Finished stopped = scene->server->wait();
    INFO(stopped.err);
    CHECK_FALSE(stopped.by_signal);
    CHECK(stopped.code == 130);
    CHECK_THAT(stopped.err, Contains(" signal 2: stopping at once\n") && !Contains(" stopped\n"));
    require_gone(*scene);
  }
}

TEST_CASE("a second signal ends a draining server at once") {
  std::optional<Scene> scene;
  scene.emplace(std::vector<std::string>{"--drain-timeout", "600s", "-c", "65536"});
  scene->ask(kEndless);
  REQUIRE(scene->client->wait_for_out("Lily"));
  scene->signal(SIGINT);
  REQUIRE(scene->server->wait_for_err("draining: 1 streams are open"));
  scene->signal(SIGTERM);
  const Finished stopped = scene->server->wait();
  CHECK(stopped.code == 143);
  CHECK_THAT(stopped.err, Contains(" signal 15: stopping at once\n"));
  require_gone(*scene);
}

TEST_CASE("weights that were being written when the server stopped leave nothing in their directory") {
  if (!kCanInterpose) return;
  const TempFolder cache;
  Scene scene({"--weights-cache", cache.path("weights")}, std::pair("pwrite", 3));
  CHECK_FALSE(std::filesystem::is_empty(cache.path("weights")));
  scene.signal(SIGTERM);
  REQUIRE(scene.server->wait_for_err("loading is given up"));
  scene.gate->open();
  CHECK(scene.server->wait().code == 0);
  CHECK(std::filesystem::is_empty(cache.path("weights")));
}

TEST_CASE("a server that hangs while it stops is ended by force 5 seconds after its drain timeout") {
  if (!kCanInterpose) return;
  Scene scene({"--drain-timeout", "100ms"}, std::pair("madvise", 5));
  scene.signal(SIGTERM);
  const Finished stopped = scene.server->wait();
  INFO(stopped.err);
  CHECK_FALSE(stopped.by_signal);
  CHECK(stopped.code == 1);
  CHECK_THAT(last_line(stopped.err), Contains("ended by force: the server had not stopped 5100 ms after signal 15"));
  require_gone(scene);
}

TEST_CASE("a server whose I/O thread hangs says what it did, and ends with a code after which it is started again") {
  if (!kCanInterpose) return;
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  Gate gate(folder, "recv", 1);
  Process server(
      Spawn{.arguments = {"serve", "--socket", socket, "--progress-timeout", "1s"}, .environment = gate.environment()});
  REQUIRE(server.wait_for_err("ready"));
  const troupe::FileDescriptor client = connect_to(socket);
  REQUIRE(::write(client.get(), "GET /", 5) == 5);
  gate.wait();
  const Finished ended = server.wait();
  INFO(ended.err);
  CHECK_FALSE(ended.by_signal);
  CHECK(ended.code == 1);
  const std::string doing =
      "it reads frames of uid " + std::to_string(::geteuid()) + " pid " + std::to_string(::getpid());
  CHECK_THAT(ended.err, Contains("the I/O thread has stood still for 1") && Contains(doing));
  CHECK_THAT(last_line(ended.err), Contains("ended by force: the I/O thread") && Contains(doing));
  CHECK_FALSE(std::filesystem::exists(socket));
}

TEST_CASE("a reload and a drain whose disk is slow keep no client waiting") {
  if (!kCanInterpose) return;
  for (const bool drains : {false, true}) {
    INFO((drains ? "drain" : "reload"));
    const TempFolder folder;
    const std::string socket = folder.path("t.sock"), config = folder.write("troupe.toml", "log-level = \"info\"\n");
    Gate gate(folder, drains ? "unlink" : "chmod", 1);
    Process server(Spawn{.arguments = {"serve", "--socket", socket, "--config", config, "--sessions-dir", "off",
                                       "--usage-db", "off", "--progress-timeout", "1s"},
                         .environment = gate.environment()});
    REQUIRE(server.wait_for_err("ready"));
    folder.write("troupe.toml", "allow-uid = [" + std::to_string(::geteuid() + 1) + "]\n");
    server.signal(drains ? SIGTERM : SIGHUP);
    gate.wait();
    // Its answer comes while the disk is waited for; a server whose I/O thread waits would be ended by force.
    const Finished status = invoke({"status", "--socket", socket});
    CHECK(status.code == (drains ? 75 : 0));
    gate.open();
    if (!drains) server.signal(SIGTERM);
    const Finished ended = server.wait();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK_FALSE(std::filesystem::exists(socket));
  }
}

TEST_CASE("a second signal ends a server whose log is not read") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Process server(Spawn{.arguments = {"serve", "--socket", socket}, .err = ends[1]});
  Finished asked;
  for (int look = 0; look < 1000 && asked.code != 0; ++look) asked = invoke({"status", "--socket", socket});
  REQUIRE(asked.code == 0);
  // Full: whatever the server logs from now on waits for a reader. With a description of its own, for it alone not to
  // wait.
  const int writer = ::open(("/proc/self/fd/" + std::to_string(ends[1])).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(writer >= 0);
  const std::string filler(4096, '.');
  while (::write(writer, filler.data(), filler.size()) > 0) {
  }
  server.signal(SIGTERM);
  server.signal(SIGINT);
  const Finished stopped = server.wait();
  CHECK_FALSE(stopped.by_signal);
  CHECK((stopped.code == 130 || stopped.code == 143));  // the kernel hands over the lower number first
  CHECK_FALSE(std::filesystem::exists(socket));
  for (const int fd : {writer, ends[0], ends[1]}) ::close(fd);
}
