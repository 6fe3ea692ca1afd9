// Several models in one server, from outside.
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "config/file_descriptor.h"
#include "tests/cli/process.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kOther = TROUPE_MODELS "/tales-draft-q8_0.gguf";
const std::string kBert = TROUPE_TEST_DATA "/tiny-bert.gguf";
const std::string kAnswer = ", there was a little girl named Lily\n";

Finished ask(const ServerProcess& server, const std::string& model) {
  return server.call({"run", "--temp", "0", "-n", "8", "--model-name", model, "Once upon a time"});
}

// The status line of the answer to a completion, asked for over HTTP on a connection of its own.
std::string complete(const std::string& socket, const std::string& model) {
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return "no connection";
  const std::string body =
      json{{"model", model}, {"prompt", "Once upon a time"}, {"max_tokens", 4}, {"temperature", 0}}.dump();
  const std::string request =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
      "application/json\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    return "not sent";
  std::string answer;
  char part[4096];
  for (ssize_t size = 0; (size = ::recv(fd.get(), part, sizeof(part), 0)) > 0;)
    answer.append(part, static_cast<std::size_t>(size));
  return answer.substr(0, answer.find("\r\n"));
}

}  // namespace

TEST_CASE("serve -m NAME=FILE, several times: requests name their model, the first is the default") {
  ServerProcess server({"-m", "tales=" + kTales, "-m", "vectors=" + kBert, "-m", "twin=" + kTales, "-c", "256"});
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}).out == kAnswer);
  CHECK(ask(server, "tales").out == kAnswer);
  CHECK(ask(server, "twin").out == kAnswer);
  const Finished vectors = server.call({"embed", "--model-name", "vectors", "Once upon a time"});
  CHECK(vectors.code == 0);
  CHECK(json::parse(vectors.out)["embedding"].size() == 64);
  const Finished wrong = ask(server, "other");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("there is no model \"other\" here; this server has \"tales\", \"vectors\", \"twin\""));
  CHECK_THAT(ask(server, "vectors").err, Contains("unsupported"));

  const json status = json::parse(server.call({"status", "--json"}).out);
  REQUIRE(status["model_health"].size() == 3);
  CHECK(status["model_health"][1]["name"] == "vectors");
  CHECK(status["model_health"][2]["readiness"] == "ready");
  CHECK(server.stop().code == 0);
}

TEST_CASE("a [[model]] table for each model; one that cannot be loaded is named, and the others are served") {
  TempFolder folder;
  const std::string config = folder.write("t.toml",
                                          "ctx-size = 256\n[[model]]\npath = \"/nowhere/lost.gguf\"\n[[model]]\n"
                                          "path = \"" +
                                              kTales + "\"\nname = \"tales\"\nctx-size = 64\n");
  ServerProcess server({"--config", config});
  CHECK(ask(server, "tales").out == kAnswer);
  const Finished too_long = server.call({"run", "-n", "8", "--model-name", "tales", std::string(400, 'a')});
  CHECK(too_long.code == 2);
  CHECK_THAT(too_long.err, Contains("too_long"));
  const Finished lost = ask(server, "lost");
  CHECK(lost.code == 75);
  CHECK_THAT(lost.err, Contains("model_unloaded") && Contains("/nowhere/lost.gguf"));
  CHECK_THAT(server.call({"status"}).out,
             Catch::Matches("(.|\\n)*health +ready\\n(.|\\n)*model lost +failed: (.|\\n)*"));
  const Finished stopped = server.stop();
  CHECK(stopped.code == 0);
  CHECK_THAT(stopped.err, Contains("not served, for what is said above: lost"));
}

TEST_CASE("serve -a one,two: a model is asked by any of its names") {
  ServerProcess server({"-m", kTales, "-m", "other=" + kTales, "-c", "256", "-a", "one,two"});
  for (const char* name : {"one", "two", "other"}) CHECK(ask(server, name).out == kAnswer);
  CHECK_THAT(ask(server, "three").err, Contains("this server has \"one\", \"two\", \"other\""));
  const json info = json::parse(server.call({"model", "info", "two", "--json"}).out);
  CHECK(info["name"] == "one");
  CHECK(info["aliases"] == json{"two"});
  CHECK_THAT(server.call({"model", "ls"}).out, Contains("one ") && Contains("(default); also two\n"));
  const json status = json::parse(server.call({"status", "--json"}).out);
  CHECK(status["model_health"][0]["aliases"] == json{"two"});
  CHECK(server.call({"model", "unload", "two"}).out == "unloaded one\n");
  CHECK_THAT(ask(server, "two").err, Contains("there is no model \"two\" here"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("aliases and formats of calls in a [[model]] table; names that two models have are refused") {
  TempFolder folder;
  const std::string table = "ctx-size = 256\n[[model]]\npath = \"" + kTales + "\"\n";
  const std::string config =
      folder.write("t.toml", table + "aliases = [\"gpt\"]\nchat-template = \"chatml\"\ntool-format = \"glm-4\"\n");
  ServerProcess server({"--config", config});
  CHECK(ask(server, "gpt").out == kAnswer);
  CHECK(json::parse(server.call({"model", "info", "--json"}).out)["tool_format"] == "glm-4");
  CHECK(server.stop().code == 0);

  const auto not_served = [&](const std::string& text) {
    const Finished finished =
        invoke({"serve", "--config", folder.write("u.toml", text), "--socket", folder.path("u.sock")});
    CHECK(finished.code != 0);
    return finished.err;
  };
  // The first one's name is that in its file.
  CHECK_THAT(
      not_served(table + "[[model]]\npath = \"" + kTales + "\"\nname = \"x\"\naliases = [\"troupe tales 5M\"]\n"),
      Contains("are both called \"troupe tales 5M\"; give one another name"));
  CHECK_THAT(not_served(table + "tool-format = \"nope\"\n"),
             Contains("u.toml:2: tool-format: there is no format 'nope'"));
  CHECK_THAT(invoke({"serve", "-m", kTales, "-a", "x,y,x"}).err, Contains("--alias: 'x' is there twice"));
}

TEST_CASE("a server whose models all cannot be loaded, or have one name, does not start") {
  const TempFolder folder;
  const std::string socket = folder.path("t.sock");
  const Finished missing = invoke({"serve", "--socket", socket, "-m", "/nowhere/a.gguf", "-m", "/nowhere/b.gguf"});
  CHECK(missing.code == 66);
  CHECK_THAT(missing.err, Contains("/nowhere/a.gguf"));
  const Finished twice = invoke({"serve", "--socket", socket, "-m", "x=" + kTales, "-m", "x=" + kBert});
  CHECK(twice.code == 2);
  CHECK_THAT(twice.err, Contains("are both called \"x\"; give one another name"));
  const Finished elsewhere = invoke({"bench", "-m", kTales, "-m", kTales});
  CHECK(elsewhere.code == 2);
  CHECK_THAT(elsewhere.err, Contains("only `troupe serve` takes several"));
}

TEST_CASE("models share one memory budget: what does not fit beside the others is refused with the numbers") {
  ServerProcess server(
      {"-m", "a=" + kTales, "-m", "b=" + kTales, "-m", "c=" + kTales, "--memory", "11MiB", "-c", "512"});
  const json status = json::parse(server.call({"status", "--json"}).out);
  REQUIRE(status["model_health"].size() == 3);
  CHECK(status["model_health"][0]["readiness"] == "ready");
  CHECK(status["model_health"][1]["readiness"] == "ready");
  CHECK(status["model_health"][2]["readiness"] == "failed");
  CHECK_THAT(status["model_health"][2]["problem"].get<std::string>(),
             Contains("model c needs ") && Contains("of the memory budget of 11 MiB are left: a ") &&
                 (Contains(": a has ") || Contains(": a waits for ")) && Contains(", b "));  // whichever came first
}

TEST_CASE("troupe model loads, lists, shows and unloads, and says what cannot be") {
  ServerProcess server({"-m", "tales=" + kTales, "-c", "256", "--kv-blocks", "64", "--memory", "64MiB"});
  const auto model = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "model");
    return server.call(std::move(words));
  };
  const Finished loaded =
      model({"load", "twin=" + kTales, "ctx-size=64", "kv-type=int8", "pinned=true", "memory=20MiB"});
  INFO(loaded.err);
  CHECK(loaded.code == 0);
  CHECK(loaded.out == "loaded twin\n");
  CHECK(ask(server, "twin").code == 0);
  const json listed = json::parse(model({"ls", "--json"}).out);
  REQUIRE(listed["model_health"].size() == 2);
  CHECK(listed["model_health"][1]["name"] == "twin");
  CHECK_THAT(model({"ls"}).out, Contains("tales ") && Contains("ready (default)\n") && Contains("twin "));
  const json shown = json::parse(model({"info", "twin", "--json"}).out);
  CHECK(shown["context"] == 64);
  CHECK(shown["kv_bytes_per_token"].get<int>() < 3072);
  CHECK_THAT(model({"info"}).out, Contains("name           tales\n"));
  CHECK(model({"unload", "twin"}).out == "unloaded twin\n");
  CHECK_THAT(ask(server, "twin").err, Contains("unknown_model"));
  CHECK_THAT(model({"unload", "tales"}).err, Contains("it is the only model that this server serves"));
  CHECK_THAT(model({"load", "tales=" + kTales}).err,
             Contains("there is a model \"tales\" already") && Contains("replace=beside"));
  const Finished replaced = model({"load", "tales=" + kOther, "replace=beside", "ctx-size=128"});
  INFO(replaced.err);
  CHECK(replaced.out == "replaced tales\n");
  CHECK(json::parse(model({"info", "tales", "--json"}).out)["context"] == 128);
  CHECK(ask(server, "tales").code == 0);
  CHECK_THAT(model({"load", "tales=" + kTales, "replace=beside", "memory=63MiB"}).err,
             Contains("beside the one that serves, which stays") && Contains("unload-first"));
  CHECK(model({"load", "tales=" + kTales, "replace=unload-first", "memory=63MiB"}).code == 0);
  CHECK_THAT(model({"load", "lost=" + kTales, "replace=beside"}).err,
             Contains("there is no model \"lost\" to replace"));
  CHECK_THAT(model({"load", "x=" + kTales, "replace=soon"}).err, Contains("it may be beside, unload-first"));
  CHECK_THAT(model({"load", "x=/nowhere.gguf"}).err, Contains("/nowhere.gguf"));
  CHECK_THAT(model({"load", "x=" + kTales, "ctxsize=5"}).err, Contains("did you mean ctx-size?"));
  CHECK_THAT(model({"load", "x=" + kTales, "memory=1TiB"}).err, Contains("of the memory budget of 64 MiB are left"));
  CHECK(model({"load"}).code == 2);
  CHECK(model({"vanish"}).code == 2);
  CHECK(ask(server, "tales").out == kAnswer);
  CHECK(server.stop().code == 0);
}

TEST_CASE("SIGHUP loads the models of new tables, and unloads those whose tables are gone") {
  TempFolder folder;
  const auto table = [](const std::string& name, const std::string& more = "") {
    return "[[model]]\npath = \"" + kTales + "\"\nname = \"" + name + "\"\nmemory = \"16MiB\"\n" + more;
  };
  const std::string path = folder.write("t.toml", table("a") + table("b"));
  ServerProcess server({"--config", path, "-c", "256", "--memory", "64MiB"});
  CHECK(ask(server, "b").out == kAnswer);
  folder.write("t.toml", table("a") + table("c"));
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model b is unloaded"));
  CHECK(server.process().wait_for_err("reload: model c is loaded"));
  CHECK(ask(server, "c").out == kAnswer);
  CHECK_THAT(ask(server, "b").err, Contains("unknown_model"));
  folder.write("t.toml", table("a") + table("c", "ctx-size = 32\n"));
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model c is replaced"));
  CHECK(json::parse(server.call({"model", "info", "c", "--json"}).out)["context"] == 32);
  folder.write("t.toml", table("d"));  // behind which no other stays
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model d is loaded"));
  CHECK(server.process().wait_for_err("reload: model c is unloaded"));
  CHECK(ask(server, "d").out == kAnswer);
  CHECK(server.stop().code == 0);
}

TEST_CASE("SIGHUP replaces a model under its name, and clients that ask all the time see no failure") {
  TempFolder folder;
  const auto table = [](const std::string& path) {
    return "[[model]]\npath = \"" + path + "\"\nname = \"a\"\nmemory = \"16MiB\"\naliases = [\"also\"]\n";
  };
  const std::string path = folder.write("t.toml", table(kTales));
  ServerProcess server({"--config", path, "-c", "256", "--memory", "64MiB"});
  std::atomic<bool> done{false};
  std::vector<std::string> bad[2];
  std::atomic<int> num_good{0};
  std::vector<std::thread> clients;
  for (auto& own : bad)
    clients.emplace_back([&, model = &own == &bad[0] ? "a" : ""] {
      while (!done) {
        const std::string status = complete(server.socket(), model);
        if (status == "HTTP/1.1 200 OK")
          ++num_good;
        else
          own.push_back(status);
      }
    });
  for (const std::string& file : {kOther, kTales, kOther}) {
    folder.write("t.toml", table(file));
    server.process().signal(SIGHUP);
    CHECK(server.process().wait_for_err("model a: " + file + " serves it from now on"));
    CHECK(server.process().wait_for_err("reload: model a is replaced"));
  }
  done = true;
  for (std::thread& each : clients) each.join();
  for (const auto& own : bad) CHECK(own == std::vector<std::string>());
  CHECK(num_good > 0);
  CHECK(ask(server, "also").code == 0);
  CHECK(server.stop().code == 0);
}

TEST_CASE("SIGHUP judges all tables before it changes one: what is wrong is told with its line, and all stays") {
  TempFolder folder;
  const auto table = [](const std::string& name, const std::string& path, const std::string& more = "") {
    return "[[model]]\npath = \"" + path + "\"\nname = \"" + name + "\"\nmemory = \"16MiB\"\n" + more;
  };
  const std::string right = table("a", kTales) + table("b", kTales);
  const std::string path = folder.write("t.toml", right);
  ServerProcess server({"--config", path, "-c", "256", "--memory", "64MiB"});
  const json before = json::parse(server.call({"model", "ls", "--json"}).out)["model_health"];
  const auto judged = [&](const std::string& text, const std::string& problem) {
    folder.write("t.toml", "max-connections = 17\n" + text);
    server.process().signal(SIGHUP);
    CHECK(server.process().wait_for_err(problem));
    CHECK(server.process().wait_for_err("; everything stays as it was"));
  };
  // The other table's change, a further table and an option beside it are as good as before.
  judged(table("a", "/nowhere/typo.gguf") + table("b", kTales, "ctx-size = 32\n") + table("c", kTales),
         "reload: " + path + ":2: /nowhere/typo.gguf");
  judged(table("a", kTales, "chat-template = \"nope\"\n") + table("b", kTales), "'nope' is no file");
  judged(table("a", kTales, "draft = \"/nowhere/draft.gguf\"\n"), "the draft model");
  judged(table("a", kTales) + table("b", kTales) + table("c", kTales) + table("d", kTales) + table("e", kTales),
         "reload: " + path + ":18: model e needs");
  judged(table("a", kTales, "replace = \"quickly\"\n"), "replace is 'quickly'; it may be beside, unload-first");
  const json after = json::parse(server.call({"model", "ls", "--json"}).out)["model_health"];
  CHECK(after == before);
  CHECK(ask(server, "a").out == kAnswer);
  folder.write("t.toml", right);
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: no option has changed"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("beside a model that is served alone, and could use all of the memory, another one is loaded") {
  ServerProcess server({"-m", "one=" + kTales, "--memory", "64MiB", "--parallel", "64"});
  const Finished loaded = server.call({"model", "load", "other=" + kTales});
  INFO(loaded.err);
  CHECK(loaded.code == 0);
  CHECK(ask(server, "other").out == kAnswer);
  CHECK(server.call({"model", "load", "third=" + kTales}).code == 0);
  CHECK(ask(server, "one").out == kAnswer);
}

TEST_CASE("SIGHUP with several new tables divides the memory among them, and no idle model goes for it") {
  TempFolder folder;
  const auto table = [](const std::string& name) {
    return "[[model]]\npath = \"" + kTales + "\"\nname = \"" + name + "\"\n";
  };
  const std::string path = folder.write("t.toml", table("a") + "memory = \"12MiB\"\n");
  ServerProcess server({"--config", path, "--memory", "96MiB", "--parallel", "64"});
  CHECK(server.call({"model", "load", "idle=" + kTales, "memory=12MiB"}).code == 0);
  folder.write("t.toml", table("a") + "memory = \"12MiB\"\n" + table("b") + table("c") + table("d"));
  server.process().signal(SIGHUP);
  for (const char* const name : {"b", "c", "d"})
    CHECK(server.process().wait_for_err(std::string("reload: model ") + name + " is loaded"));
  const json use = json::parse(server.call({"model", "ls", "--json"}).out)["model_use"];
  REQUIRE(use.size() == 5);
  const auto bytes = [&](int i) { return use[static_cast<std::size_t>(i)]["kv_bytes"].get<double>(); };
  CHECK(bytes(2) > 5e6);
  CHECK(bytes(3) == Approx(bytes(2)).epsilon(0.2));
  CHECK(bytes(4) == Approx(bytes(2)).epsilon(0.2));
}

TEST_CASE("SIGHUP compares the tables with what is served: it tries again what failed, and what was unloaded by hand") {
  TempFolder folder;
  const std::string late = folder.path("late.gguf");
  const auto table = [](const std::string& name, const std::string& file) {
    return "[[model]]\npath = \"" + file + "\"\nname = \"" + name + "\"\nmemory = \"16MiB\"\n";
  };
  const std::string path = folder.write("t.toml", table("late", late) + table("a", kTales) + table("b", kTales));
  ServerProcess server({"--config", path, "-c", "256", "--memory", "96MiB"});
  CHECK(ask(server, "late").code == 75);
  CHECK(server.call({"model", "unload", "b"}).code == 0);
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: " + path + ":1: " + late));
  CHECK_THAT(ask(server, "b").err, Contains("unknown_model"));
  std::filesystem::create_symlink(kTales, late);
  server.process().signal(SIGHUP);  // the file of the configuration is the same
  CHECK(server.process().wait_for_err("reload: model late is replaced"));
  CHECK(server.process().wait_for_err("reload: model b is loaded"));
  CHECK(ask(server, "late").out == kAnswer);
  CHECK(ask(server, "b").out == kAnswer);
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: no option has changed"));
  // A model that is served as its table says stays, wherever its file is now.
  std::filesystem::remove(late);
  folder.write("t.toml", table("late", late) + table("a", kTales) + table("b", kTales) + "ctx-size = 32\n");
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model b is replaced"));
  CHECK(ask(server, "late").out == kAnswer);
  CHECK(server.stop().code == 0);
}

TEST_CASE("a request that names no model is answered by the first one or by none, until that one is unloaded") {
  ServerProcess server({"-m", "lost=/nowhere/lost.gguf", "-m", "tales=" + kTales, "-m", "twin=" + kTales, "-c", "256",
                        "--kv-blocks", "64"});
  const auto unnamed = [&] { return server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}); };
  const Finished none = unnamed();
  CHECK(none.code == 75);
  CHECK_THAT(none.err, Contains("model \"lost\" is not served: ") && Contains("/nowhere/lost.gguf"));
  CHECK_THAT(server.call({"model", "ls"}).out,
             Contains("lost ") && Contains("/nowhere/lost.gguf") && Contains(" (default)\ntales "));
  const Finished lost = ask(server, "lost");
  CHECK(lost.code == 75);
  CHECK_THAT(lost.err, Contains("model \"lost\" is not served: ") && Contains("/nowhere/lost.gguf"));
  CHECK(server.call({"model", "unload", "lost"}).code == 0);
  CHECK_THAT(server.call({"model", "ls"}).out, Contains("ready (default)\n"));
  CHECK(unnamed().out == kAnswer);
  CHECK(server.call({"model", "unload", "tales"}).code == 0);
  CHECK(unnamed().out == kAnswer);
  CHECK_THAT(server.stop().err, Contains("model twin is the default from now on"));
}

}  // namespace troupe::test
