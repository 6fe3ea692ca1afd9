// troupe doctor from outside.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

// All findings of a topic, each as "GRADE FOUND REMEDY".
std::vector<std::string> on(const std::string& topic, const Finished& finished) {
  std::vector<std::string> found;
  const json report = json::parse(finished.out);
  for (const json& each : report["findings"])
    if (each["topic"] == topic)
      found.push_back(each["grade"].get<std::string>() + " " + each["found"].get<std::string>() + " " +
                      (each["remedy"].is_null() ? "" : each["remedy"].get<std::string>()));
  return found;
}

std::string only(const std::string& topic, const Finished& finished) {
  const auto found = on(topic, finished);
  INFO(finished.out << finished.err);
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace

TEST_CASE("doctor judges machine and installation without a server, and changes nothing") {
  const TempFolder folder;
  const std::string home = folder.path("home");
  REQUIRE(::mkdir(home.c_str(), 0700) == 0);
  const std::map<std::string, std::string> environment{{"HOME", home}, {"XDG_RUNTIME_DIR", home}};
  const Finished finished = run({.arguments = {"doctor", "--json"}, .environment = environment});
  CHECK(finished.code < 2);  // what this machine lacks is its own affair
  CHECK(finished.err.empty());
  const json report = json::parse(finished.out);
  CHECK(report["grade"] == (finished.code == 0 ? "ok" : "advice"));
  CHECK_THAT(only("program", finished), Contains("ok troupe "));
  CHECK_THAT(only("CPU", finished), Contains(" kernels "));
  CHECK_THAT(only("bandwidth", finished), Contains("not known") && Contains("troupe probe"));
  CHECK_THAT(only("configuration", finished), Contains("ok no configuration file: nothing to complain of: 1 model"));
  CHECK_THAT(only("model", finished), Contains("ok troupe tales 5M needs at least "));
  CHECK_THAT(only("state", finished), Contains("ok " + home + "/.local/state/troupe/sessions: "));
  CHECK(std::filesystem::is_empty(home));
}

TEST_CASE("doctor: a server that answers, one that has ended, and one that is an older program") {
  ServerProcess server;
  CHECK_THAT(only("socket", server.call({"doctor", "--json"})), Contains("ok " + server.socket() + ": troupe "));
  CHECK(on("old program", server.call({"doctor", "--json"})).empty());
  CHECK(server.stop().code == 0);
  const Finished ended = run({.arguments = {"doctor", "--json", "--socket", server.socket()}});
  CHECK(ended.code == 2);
  CHECK_THAT(only("socket", ended), Contains("broken") && Contains("there is no such socket"));

  // Its program is removed while it runs, as an upgrade does.
  const TempFolder folder;
  const std::string program = folder.path("troupe"), socket = folder.path("old.sock");
  std::filesystem::copy_file(TROUPE_BINARY, program);
  Process old(
      {.arguments = {"serve", "--socket", socket, "-m", TROUPE_MODELS "/tales-5m-tq2_0.gguf"}, .program = program});
  REQUIRE(old.wait_for_err("ready"));
  std::filesystem::remove(program);
  const Finished replaced = run({.arguments = {"doctor", "--json", "--socket", socket}});
  CHECK_THAT(only("old program", replaced),
             Contains("advice") && Contains("whose file was replaced") && Contains("restart"));
}

TEST_CASE("doctor: what a start would refuse is broken, with where it stands") {
  const TempFolder folder;
  const std::string config = folder.write("troupe.toml", "ctx-size = 256\n[[model]]\npath = \"/nowhere/lost.gguf\"\n");
  const Finished wrong = run({.arguments = {"doctor", "--json", "--config", config}});
  CHECK(wrong.code == 2);
  CHECK_THAT(only("configuration", wrong), Contains("broken " + config + ":2: ") && Contains("/nowhere/lost.gguf"));
  // A file that cannot be read at all ends every command.
  const Finished slip = run({.arguments = {"doctor", "--config", folder.write("slip.toml", "thread = 2\n")}});
  CHECK(slip.code == 78);
  CHECK_THAT(slip.err, Contains("slip.toml:1: unknown key thread; did you mean threads?"));
  // A model that has no room here.
  const Finished large = run({.arguments = {"doctor", "--json"}, .environment = {{"TROUPE_MEMORY", "1MiB"}}});
  CHECK(large.code == 2);
  CHECK_THAT(only("model", large), Contains("of 1.00 MiB that a server would take") && Contains("a smaller context"));
}

TEST_CASE("doctor: a state directory that cannot be written, and a socket that lets others in") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can run this as two users");
    return;
  }
  const TempFolder folder;
  const std::string home = folder.path("home");
  REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
  REQUIRE(::mkdir(home.c_str(), 0755) == 0);
  Spawn spawn{.arguments = {"doctor", "--json"}, .environment = {{"XDG_STATE_HOME", home}}, .as_nobody = true};
  const Finished state = run(spawn);
  CHECK(state.code == 2);
  CHECK_THAT(only("state", state), Contains("broken " + home + " cannot be written: ") &&
                                       Contains("Permission denied") && Contains("--sessions-dir"));

  ServerProcess server;  // of root, its socket for root alone
  spawn.arguments = {"doctor", "--json", "--socket", server.socket()};
  spawn.environment = {{"HOME", home}};
  CHECK_THAT(only("socket", run(spawn)), Contains("broken") && (Contains("adduser") || Contains("--allow-user")));
}

}  // namespace troupe::test
