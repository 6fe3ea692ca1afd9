// Models that are loaded when a request asks for them, from outside: tables, folders, and who may use and load which.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using nlohmann::json;

const std::string kRequestedTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kRequestedDraft = TROUPE_MODELS "/tales-draft-q8_0.gguf";
const std::string kRequestedBert = TROUPE_TEST_DATA "/tiny-bert.gguf";
const std::string kRequestedAnswer = ", there was a little girl named Lily\n";

Finished ask_model(const ServerProcess& server, const std::string& model) {
  return server.call({"run", "--temp", "0", "-n", "8", "--model-name", model, "Once upon a time"});
}

std::string on_request_table(const std::string& name, const std::string& path, const std::string& more = "") {
  return "[[model]]\npath = \"" + path + "\"\nname = \"" + name + "\"\nload = \"on-request\"\n" + more;
}

std::size_t times_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("serve: of three models on request two fit, and each is loaded when it is asked for") {
  TempFolder folder;
  const std::string more = "memory = \"16MiB\"\n";
  const std::string config =
      folder.write("t.toml", "ctx-size = 64\nmemory = \"40MiB\"\n" + on_request_table("a", kRequestedTales, more) +
                                 on_request_table("b", kRequestedTales, more) +
                                 on_request_table("c", kRequestedTales, more + "keep-alive = 0\n"));
  ServerProcess server({"--config", config});
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}).out ==
        kRequestedAnswer);  // the first is the default
  CHECK(server.process().wait_for_err("model a is loaded: it is asked for"));
  CHECK(ask_model(server, "b").out == kRequestedAnswer);
  CHECK(ask_model(server, "c").out == kRequestedAnswer);
  CHECK(server.process().wait_for_err("model c is put out: nothing asked for it within its keep-alive"));
  CHECK(ask_model(server, "a").out == kRequestedAnswer);
  CHECK_THAT(ask_model(server, "d").err, Contains("this server has \"a\", \"b\", \"c\""));
  const Finished ended = server.stop();
  CHECK(ended.code == 0);
  CHECK(times_of(ended.err, "is put out: others need its memory") >= 1);
  CHECK_THAT(ended.err, !Contains("not served"));
}

TEST_CASE("serve --models-max: one model on request is in memory at a time") {
  TempFolder folder;
  const std::string config = folder.write(
      "t.toml", "ctx-size = 64\n" + on_request_table("a", kRequestedTales) + on_request_table("b", kRequestedTales));
  ServerProcess server({"--config", config, "--models-max", "1"});
  CHECK(ask_model(server, "a").out == kRequestedAnswer);
  CHECK(ask_model(server, "b").out == kRequestedAnswer);
  CHECK(server.process().wait_for_err("model a is put out: others need its memory"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("serve --models-dir: what a listing shows is served, and the rest is named with its reason") {
  TempFolder folder;
  const fs::path dir = folder.path("models");
  fs::create_directories(dir / "Nested");
  fs::create_directories(dir / "Both");
  fs::create_directories(dir / "empty");
  fs::copy_file(kRequestedTales, folder.path("elsewhere.gguf"));
  fs::create_symlink(folder.path("elsewhere.gguf"), dir / "linked.gguf");
  fs::create_symlink(kRequestedTales, dir / "same-as-vectors.gguf");  // which -m names
  fs::copy_file(kRequestedDraft, dir / "Nested/anything.GGUF");
  fs::copy_file(kRequestedDraft, dir / "Both/one.gguf");
  fs::copy_file(kRequestedDraft, dir / "Both/two.gguf");
  fs::copy_file(kRequestedBert, dir / "vectors.gguf");
  fs::copy_file(kRequestedDraft, dir / "draft.gguf");
  folder.write("models/.hidden.gguf", "x");
  folder.write("models/mmproj-linked.gguf", "x");
  folder.write("models/part-00002-of-00002.gguf", "x");
  folder.write("models/notes.txt", "x");
  folder.write("models/broken.gguf", "GGUF, but not for long");
  fs::create_symlink("nowhere", dir / "lost.gguf");
  const std::vector<std::string> options{
      "-c", "64", "-m", "vectors=" + kRequestedTales, "-m", "small=" + kRequestedDraft, "--models-dir", dir.string()};
  std::vector<std::string> check = options;
  check.insert(check.begin(), {"serve", "--check"});
  const Finished checked = invoke(check);
  INFO(checked.err);
  CHECK(checked.code == 0);
  CHECK_THAT(checked.out, Contains("5 models (vectors, small, Nested, draft, linked)"));
  for (const char* reason : {"broken is left out: ", "lost is left out: ", "Both is left out: it has 2 models",
                             "vectors.gguf is left out: another model is called vectors"})
    CHECK_THAT(checked.out, Contains(reason));
  for (const char* passed_over : {"hidden", "mmproj", "part-0000", "notes", "empty", "same-as"})
    CHECK_THAT(checked.out, !Contains(passed_over));

  ServerProcess server(options);
  CHECK(ask_model(server, "linked").out == kRequestedAnswer);
  CHECK(ask_model(server, "Nested").code == 0);
  CHECK_THAT(ask_model(server, "broken").err, Contains("there is no model \"broken\" here"));
  const Finished ended = server.stop();
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Contains("on request: Nested, draft, linked"));
  CHECK_THAT(ended.err, Contains("broken is left out: "));
}

TEST_CASE("serve --models-dir: of more models than a server may have, those that can be served come first") {
  TempFolder folder;
  const fs::path dir = folder.path("models");
  fs::create_directories(dir);
  for (int i = 100; i < 200; ++i) folder.write("models/broken-" + std::to_string(i) + ".gguf", "no model");
  for (int i = 100; i < 166; ++i) fs::create_symlink(kRequestedDraft, dir / ("good-" + std::to_string(i) + ".gguf"));
  const Finished checked = invoke({"serve", "--check", "-c", "64", "--models-dir", dir.string()});
  INFO(checked.err);
  CHECK_THAT(checked.out, Contains("64 models (good-100, ") && Contains("good-163), "));
  CHECK(times_of(checked.out, " is left out: ") == 20);
  CHECK_THAT(checked.out, Contains("81 more are left out"));
}

TEST_CASE("SIGHUP lists the folder again: what has come is served, what is gone is not") {
  TempFolder folder;
  const fs::path dir = folder.path("models");
  fs::create_directories(dir);
  fs::copy_file(kRequestedTales, dir / "a.gguf");
  fs::copy_file(kRequestedTales, dir / "stays.gguf");
  ServerProcess server({"--models-dir", dir.string(), "-c", "64"});
  CHECK(ask_model(server, "a").out == kRequestedAnswer);
  fs::copy_file(kRequestedTales, dir / "b.gguf");
  folder.write("models/c.gguf", "no model");
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: c is left out: "));
  CHECK(server.process().wait_for_err("reload: model b is served on request"));
  CHECK(ask_model(server, "b").out == kRequestedAnswer);
  folder.write("models/stays.gguf", "half written");
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: stays is left out: "));
  fs::remove(dir / "stays.gguf");
  fs::copy_file(kRequestedTales, dir / "stays.gguf");
  CHECK(ask_model(server, "stays").out == kRequestedAnswer);
  fs::remove(dir / "a.gguf");
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("reload: model a is unloaded"));
  CHECK_THAT(ask_model(server, "a").err, Contains("there is no model \"a\" here; this server has \"stays\", \"b\""));
  CHECK(ask_model(server, "stays").out == kRequestedAnswer);
  fs::remove_all(dir);
  server.process().signal(SIGHUP);
  CHECK(server.process().wait_for_err("models cannot be read: No such file or directory; everything stays as it was"));
  CHECK(ask_model(server, "b").out == kRequestedAnswer);
  CHECK(server.stop().code == 0);
}

TEST_CASE("troupe model load: a model on request is there at once, and loaded by the first request") {
  ServerProcess server({"-m", "tales=" + kRequestedTales, "-c", "64"});
  const auto load = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"model", "load"});
    return server.call(std::move(words));
  };
  const Finished added = load({"late=" + kRequestedTales, "load=on-request", "keep-alive=0"});
  INFO(added.err);
  CHECK(added.out == "added late\n");
  CHECK_THAT(server.call({"model", "ls"}).out, Contains("late") && Contains("on-request"));
  CHECK(ask_model(server, "late").out == kRequestedAnswer);
  CHECK(server.process().wait_for_err("model late is put out: nothing asked for it within its keep-alive"));
  CHECK_THAT(load({"x=" + kRequestedTales, "keep-alive=5m"}).err, Contains("add load = \"on-request\""));
  CHECK_THAT(load({"x=" + kRequestedTales, "load=soon"}).err, Contains("load is 'soon'; it may be start, on-request"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("serve --models-dir: a folder without a model, or none, ends the start with what to do") {
  TempFolder folder;
  fs::create_directories(folder.path("models"));
  const auto start = [&](const std::string& dir) {
    return invoke({"serve", "--socket", folder.path("t.sock"), "--models-dir", dir});
  };
  const Finished empty = start(folder.path("models"));
  CHECK(empty.code == 66);
  CHECK_THAT(empty.err, Contains("has none; put GGUF files there, or name a model with -m"));
  const Finished missing = start(folder.path("nowhere"));
  CHECK(missing.code == 78);
  CHECK_THAT(missing.err, Contains("--models-dir: ") && Contains("nowhere cannot be read"));
  CHECK_THAT(invoke({"serve", "--keep-alive", "soon"}).err, Contains("'soon' is no time: 10m, 90s, 0 or forever"));
}

TEST_CASE("tenants: a model that a rule does not name is unknown at every door, and another one is the default") {
  TempFolder folder;
  const std::string rules = "[[tenant]]\nuid = " + std::to_string(::geteuid()) +
                            "\nname = \"proxy\"\ntrusted-proxy = true\n"
                            "[[tenant]]\nuid = 61001\nname = \"lab\"\nmodels = [\"op*\"]\n";
  const std::string config =
      folder.write("t.toml", "ctx-size = 256\n[[model]]\npath = \"" + kRequestedTales +
                                 "\"\nname = \"secret\"\nchat-template = \"chatml\"\n[[model]]\npath = \"" +
                                 kRequestedTales + "\"\nname = \"open\"\nchat-template = \"chatml\"\n" + rules);
  ServerProcess server({"--config", config});
  const auto status_of = [&](const std::string& path, json body, const std::string& model) {
    if (!model.empty()) body["model"] = model;
    const std::string answer = post(server.socket(), path, body.dump(), "Troupe-Tenant: lab\r\n");
    return answer.substr(9, 3);
  };
  const json messages = json::array({{{"role", "user"}, {"content", "x"}}});
  const std::vector<std::pair<std::string, json>> doors{
      {"/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}},
      {"/v1/chat/completions", {{"messages", messages}, {"max_tokens", 1}}},
      {"/v1/responses", {{"input", "x"}, {"max_output_tokens", 16}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 1}}},
      {"/v1/embeddings", {{"input", "x"}}},
      {"/tokenize", {{"content", "x"}}},
      {"/detokenize", {{"tokens", json::array({5})}}},
      {"/apply-template", {{"messages", messages}}},
      {"/v1/messages/count_tokens", {{"messages", messages}}},
  };
  for (const auto& [path, body] : doors) {
    INFO(path);
    CHECK(status_of(path, body, "secret") == "404");
    CHECK(status_of(path, body, "none") == "404");
    CHECK(status_of(path, body, "open") == "200");
  }
  const std::string unknown = post(server.socket(), "/v1/completions",
                                   json{{"model", "secret"}, {"prompt", "x"}}.dump(), "Troupe-Tenant: lab\r\n");
  CHECK_THAT(unknown, Contains("there is no model \\\"secret\\\" here; this server has \\\"open\\\""));
  CHECK(status_of("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}, "") == "200");  // by "open"
  CHECK(ask_model(server, "secret").out == kRequestedAnswer);                              // the owner
  CHECK(server.stop().code == 0);
}

TEST_CASE("tenants: who may have nothing loaded is told so, and uses what others have loaded") {
  TempFolder folder;
  const std::string rules = "[[tenant]]\nuid = " + std::to_string(::geteuid()) +
                            "\nname = \"proxy\"\ntrusted-proxy = true\n"
                            "[[tenant]]\nuid = 61001\nname = \"lab\"\nmay-load = \"never\"\n";
  const std::string config = folder.write("t.toml", "ctx-size = 64\n" + on_request_table("a", kRequestedTales) + rules);
  ServerProcess server({"--config", config});
  const auto as_lab = [&] {
    return post(server.socket(), "/v1/completions", json{{"prompt", "Once"}, {"max_tokens", 1}}.dump(),
                "Troupe-Tenant: lab\r\n");
  };
  const std::string refused = as_lab();
  CHECK(refused.substr(9, 3) == "403");
  CHECK_THAT(refused, Contains("model a is not loaded, and you may not have models loaded (may-load)"));
  CHECK(ask_model(server, "a").out == kRequestedAnswer);
  CHECK(as_lab().substr(9, 3) == "200");
  CHECK(server.stop().code == 0);
}

}  // namespace
}  // namespace troupe::test
