// Tenants by rule in the real program: what a bad rule does at the start and on SIGHUP, and --print-config.
#include <unistd.h>

#include <sys/stat.h>
#include <catch2/catch.hpp>

#include <csignal>
#include <filesystem>

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

TEST_CASE("serve --check finds a chat template that takes too long in its trial") {
  const TempFolder folder;
  const std::string endless = folder.write(
      "endless.jinja", "{% set l = [1] * 10000 %}{% for i in l %}{% for j in l %}{% endfor %}{% endfor %}");
  const Finished found = invoke({"serve", "--check", "--chat-template", endless});
  CHECK(found.code == 78);
  CHECK_THAT(found.err, Contains("troupe serve: chat template '" + endless + "': its trial") &&
                            Contains("takes longer than 100 ms"));
  const std::string plain = folder.write("plain.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  CHECK(invoke({"serve", "--check", "--chat-template", plain}).code == 0);
}

TEST_CASE("serve --check finds all that a start would refuse, with file and line, and serves nothing") {
  const TempFolder folder;
  const auto check = [&](const std::string& config, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"serve", "--check", "--config", folder.write("t.toml", config)});
    return invoke(std::move(more));
  };
  const std::string file = folder.path("t.toml");
  const Finished well = check("threads = 1\n[[tenant]]\nuser = 'root'\nname = 'web'\nmin-kv-blocks = 8\n",
                              {"--socket", folder.path("t.sock"), "--log-file", folder.path("t.log"), "--access-log",
                               folder.path("a.log"), "-t", "1"});
  INFO(well.err);
  CHECK(well.code == 0);
  CHECK_THAT(well.out, Contains(file + ": nothing to complain of: 1 model (") &&
                           Contains("), 1 tenant rules; troupe tales 5M has no chat template"));
  CHECK_THAT(well.err, Contains("warning: --threads hides threads of " + file + ":1"));
  CHECK_FALSE(std::filesystem::exists(folder.path("t.sock")));
  CHECK_FALSE(std::filesystem::exists(folder.path("t.log")));
  CHECK_FALSE(std::filesystem::exists(folder.path("a.log")));

  const auto problem = [&](const std::string& config, const std::string& place, const std::string& why,
                           const std::vector<std::string>& more = {}) {
    const Finished found = check(config, more);
    INFO(config << found.out << found.err);
    CHECK(found.code == 78);
    CHECK(found.out.empty());
    CHECK_THAT(found.err, Contains("troupe serve: " + place + (place.empty() ? "" : ": ")) && Contains(why));
  };
  problem("\n[[tenant]]\nuser = 'no-such-user'\n", file + ":2", "this system has no user 'no-such-user'");
  problem("threads = 1\nallow-group = ['no-such-group']\n", file + ":2: allow-group", "nobody named 'no-such-group'");
  problem("[[model]]\npath = '" + folder.path("gone.gguf") + "'\n", file + ":1", "gone.gguf");
  problem("[[model]]\npath = '" + folder.write("bad.gguf", "nonsense") + "'\n", file + ":1", "bad.gguf");
  problem("chat-template = 'no-such'\n", file + ":1: chat-template", "'no-such' is no file");
  problem("socket = '" + folder.path("none/t.sock") + "'\n", file + ":1", "none");
  problem("log-file = '" + folder.path("none/t.log") + "'\n", file + ":1", "none/t.log");
  problem("threads = 1\naccess-log = '" + folder.path("none/a.log") + "'\n", file + ":2", "none/a.log");
  problem("listen = ['tcp://127.0.0.1:0']\ntls-cert = 'none.pem'\ntls-key = 'none.pem'\n", "", "none.pem");
  problem("log-file = '" + folder.path() + "'\n", file + ":1", "Is a directory");
  problem("threads = 1\naccess-log = '" + folder.path() + "'\n", file + ":2", "Is a directory");
  problem("socket = '" + file + "'\n", file + ":1", "exists and is not a socket");
  const std::string two =
      "[[model]]\npath = 'models/tales-5m-tq2_0.gguf'\nname = 'a'\n"
      "[[model]]\npath = 'models/tales-5m-tq2_0.gguf'\nname = 'b'\n";
  problem("memory = '8MiB'\n" + two, file + ":5", "model b needs");
  // Nothing that a file names is waited for, or read without an end.
  const std::string pipe = folder.path("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& endless : {pipe, std::string("/dev/zero")}) {
    problem("chat-template = '" + endless + "'\n", "--chat-template", endless);
    problem("[[model]]\npath = 'models/tales-5m-tq2_0.gguf'\nchat-template = '" + endless + "'\n", file + ":1",
            "name a plain file");
    problem("listen = ['tcp://127.0.0.1:0']\ntls-cert = '" + endless + "'\ntls-key = '" + file + "'\n", "", "");
    CHECK(invoke({"serve", "--check", "--config", endless}).code == 78);
  }
  // The pool is known before it is made.
  const std::string kept = "[[tenant]]\nuid = 1\nmin-kv-blocks = 1000000\n";
  problem("kv-blocks = 100\n" + kept, file + ":2", "with this rule 1000000 KV blocks are kept for tenants");
  problem("memory = '64MiB'\n" + kept, file + ":2", "with this rule 1000000 KV blocks are kept for tenants");
  CHECK(check(kept).code == 0);

  const Finished several = check("allow-user = ['no-such-user']\nlog-file = '" + folder.path("none/t.log") + "'\n");
  CHECK_THAT(several.err, Contains("no-such-user") && Contains("none/t.log"));
  const Finished templates = check(
      "[[model]]\npath = 'models/tales-5m-tq2_0.gguf'\nname = 'a'\nchat-template = '/none/a.jinja'\n"
      "[[model]]\npath = 'models/tales-5m-tq2_0.gguf'\nname = 'b'\nchat-template = '/none/b.jinja'\n");
  CHECK_THAT(templates.err, Contains(file + ":1: --chat-template: /none/a.jinja") &&
                                Contains(file + ":5: --chat-template: /none/b.jinja"));
}
