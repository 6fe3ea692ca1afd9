// Tenants by rule in the real program: what a bad rule does at the start and on SIGHUP, and --print-config.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;

TEST_CASE("a bad tenant rule ends the start with 78, file, line and reason") {
  const TempFolder folder;
  const auto refused = [&](const std::string& rules) {
    const std::string config = folder.write("t.toml", rules);
    const Finished ended = invoke({"serve", "--socket", folder.path("t.sock"), "--config", config});
    CHECK(ended.code == 78);
    const std::size_t at = ended.err.find(config + ":");
    return at == std::string::npos ? ended.err : ended.err.substr(at + config.size() + 1);
  };
  CHECK_THAT(refused("[[tenant]]\nweight = 2\n"), Contains("1: this rule matches nothing"));
  CHECK_THAT(refused("[[tenant]]\nuid = 1\nweight = 0\n"), Contains("3: weight is 0"));
  CHECK_THAT(refused("\n[[tenant]]\nuser = 'no-such-user'\n"), Contains("2: this system has no user 'no-such-user'"));
  CHECK_THAT(refused("[[tenant]]\ngroup = ['root', 'no-such-group']\n"),
             Contains("1: this system has no group 'no-such-group'"));
  CHECK_THAT(refused("[[tenant]]\nuid = [1, 0]\n\n[[tenant]]\nuser = 'root'\nweight = 2\n"),
             Contains("4: the rule in line 1 names uid 0, too, and comes first"));
  CHECK_THAT(refused("[[tenant]]\nuid = 1\nname = 'a'\nmin-kv-blocks = 9\n[[tenant]]\nuid = 2\nname = 'b'\n"
                     "min-kv-blocks = 1000000\n"),
             Contains("5: with this rule 1000009 KV blocks are kept for tenants (min-kv-blocks), and the model has"));
}

TEST_CASE("tenant rules that --print-config prints are rules of a configuration") {
  const TempFolder folder;
  const std::string config =
      folder.write("t.toml", "threads = 1\n[[tenant]]\nuser = 'root'\nname = 'web'\nweight = 2.5\n");
  const Finished first = invoke({"serve", "--config", config, "--print-config"});
  REQUIRE(first.code == 0);
  CHECK_THAT(first.out,
             Contains("\n[[tenant]]  # from " + config + ":2\nuser = [\"root\"]\nname = \"web\"\nweight = 2.5\n"));
  const Finished second = invoke({"serve", "--config", folder.write("u.toml", first.out), "--print-config"});
  INFO(second.err);
  REQUIRE(second.code == 0);
  CHECK_THAT(second.out, Contains("\nuser = [\"root\"]\nname = \"web\"\nweight = 2.5\n"));
  CHECK_THAT(invoke({"serve", "--help"}).out, Contains("[[tenant]]"));
}

TEST_CASE("SIGHUP takes tenant rules over, and a bad one leaves the old ones") {
  const TempFolder folder;
  const std::string us = "[[tenant]]\nuid = " + std::to_string(::geteuid()) + "\n";
  const std::string config = folder.write("t.toml", us + "name = 'first'\n");
  Process server({.arguments = {"serve", "--socket", folder.path("t.sock"), "--config", config}});
  REQUIRE(server.wait_for_err("ready"));
  folder.write("t.toml", us + "name = 'second'\nweight = 2\n");
  server.signal(SIGHUP);
  REQUIRE(server.wait_for_err("reload: 1 tenant rules (" + config + ")"));
  folder.write("t.toml", us + "weight = 0\n");
  server.signal(SIGHUP);
  REQUIRE(server.wait_for_err("reload: " + config + ":3: weight is 0; it may be from 0.001 to 1000; everything stays"));
  folder.write("t.toml", us + "name = 'third'\nmin-kv-blocks = 1000000\n");
  server.signal(SIGHUP);
  REQUIRE(server.wait_for_err("reload: " + config + ":1: with this rule 1000000 KV blocks are kept"));
  CHECK(invoke({"run", "-n", "4", "--socket", folder.path("t.sock"), "Once"}).code == 0);
  server.signal(SIGTERM);
  CHECK(server.wait().code == 0);
}
