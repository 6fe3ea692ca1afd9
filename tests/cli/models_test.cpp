// Several models in one server, from outside.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/process.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kBert = TROUPE_TEST_DATA "/tiny-bert.gguf";
const std::string kAnswer = ", there was a little girl named Lily\n";

Finished ask(const ServerProcess& server, const std::string& model) {
  return server.call({"run", "--temp", "0", "-n", "8", "--model-name", model, "Once upon a time"});
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
    const Finished finished = invoke({"serve", "--config", folder.write("u.toml", text)});
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
  const Finished missing = invoke({"serve", "-m", "/nowhere/a.gguf", "-m", "/nowhere/b.gguf"});
  CHECK(missing.code == 66);
  CHECK_THAT(missing.err, Contains("/nowhere/a.gguf"));
  const Finished twice = invoke({"serve", "-m", "x=" + kTales, "-m", "x=" + kBert});
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
  CHECK_THAT(model({"load", "tales=" + kTales}).err, Contains("there is a model \"tales\" already"));
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
  folder.write("t.toml", table("a") + table("c", "ctx-size = 32\n") + "[[model]]\npath = \"/nowhere.gguf\"\n");
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model c is unloaded"));
  CHECK(server.process().wait_for_err("(model nowhere is not loaded)"));
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
  CHECK(server.process().wait_for_err("(model late is not loaded)"));
  CHECK(server.process().wait_for_err("reload: model b is loaded"));
  CHECK(ask(server, "b").out == kAnswer);
  std::filesystem::create_symlink(kTales, late);
  server.process().signal(SIGHUP);  // the file of the configuration is the same
  CHECK(server.process().wait_for_err("reload: model late is loaded"));
  CHECK(ask(server, "late").out == kAnswer);
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: no option has changed"));
  CHECK(server.stop().code == 0);
}

TEST_CASE(
    "a request that names no model goes to the next one that serves, when the first could not be loaded or goes") {
  ServerProcess server({"-m", "lost=/nowhere/lost.gguf", "-m", "tales=" + kTales, "-m", "twin=" + kTales, "-c", "256",
                        "--kv-blocks", "64"});
  const auto unnamed = [&] { return server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}); };
  CHECK(unnamed().out == kAnswer);
  CHECK_THAT(server.call({"model", "ls"}).out, Contains("ready (default)\n"));
  const Finished lost = ask(server, "lost");
  CHECK(lost.code == 75);
  CHECK_THAT(lost.err, Contains("model \"lost\" is not served: ") && Contains("/nowhere/lost.gguf"));
  CHECK(server.call({"model", "unload", "tales"}).code == 0);
  CHECK(unnamed().out == kAnswer);
  CHECK(server.stop().code == 0);
}

}  // namespace troupe::test
