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

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::string kDraft = TROUPE_MODELS "/tales-draft-q8_0.gguf";
const std::string kBert = TROUPE_TEST_DATA "/tiny-bert.gguf";
const std::string kAnswer = ", there was a little girl named Lily\n";

Finished ask(const ServerProcess& server, const std::string& model) {
  return server.call({"run", "--temp", "0", "-n", "8", "--model-name", model, "Once upon a time"});
}

std::string table(const std::string& name, const std::string& path, const std::string& more = "") {
  return "[[model]]\npath = \"" + path + "\"\nname = \"" + name + "\"\nload = \"on-request\"\n" + more;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("serve: of three models on request two fit, and each is loaded when it is asked for") {
  TempFolder folder;
  const std::string more = "memory = \"16MiB\"\n";
  const std::string config = folder.write(
      "t.toml", "ctx-size = 64\nmemory = \"40MiB\"\n" + table("a", kTales, more) + table("b", kTales, more) +
                    table("c", kTales, more + "keep-alive = 0\n"));
  ServerProcess server({"--config", config});
  CHECK(server.call({"run", "--temp", "0", "-n", "8", "Once upon a time"}).out == kAnswer);  // the first is the default
  CHECK(server.process().wait_for_err("model a is loaded: it is asked for"));
  CHECK(ask(server, "b").out == kAnswer);
  CHECK(ask(server, "c").out == kAnswer);
  CHECK(server.process().wait_for_err("model c is put out: nothing asked for it within its keep-alive"));
  CHECK(ask(server, "a").out == kAnswer);
  CHECK_THAT(ask(server, "d").err, Contains("this server has \"a\", \"b\", \"c\""));
  const Finished ended = server.stop();
  CHECK(ended.code == 0);
  CHECK(count_of(ended.err, "is put out: others need its memory") >= 1);
  CHECK_THAT(ended.err, !Contains("not served"));
}

TEST_CASE("serve --models-max: one model on request is in memory at a time") {
  TempFolder folder;
  const std::string config = folder.write("t.toml", "ctx-size = 64\n" + table("a", kTales) + table("b", kTales));
  ServerProcess server({"--config", config, "--models-max", "1"});
  CHECK(ask(server, "a").out == kAnswer);
  CHECK(ask(server, "b").out == kAnswer);
  CHECK(server.process().wait_for_err("model a is put out: others need its memory"));
  CHECK(server.stop().code == 0);
}

TEST_CASE("serve --models-dir: what a listing shows is served, and the rest is named with its reason") {
  TempFolder folder;
  const fs::path dir = folder.path("models");
  fs::create_directories(dir / "Nested");
  fs::create_directories(dir / "Both");
  fs::create_directories(dir / "empty");
  fs::create_symlink(kTales, dir / "linked.gguf");
  fs::copy_file(kDraft, dir / "Nested/anything.GGUF");
  fs::copy_file(kDraft, dir / "Both/one.gguf");
  fs::copy_file(kDraft, dir / "Both/two.gguf");
  fs::copy_file(kBert, dir / "vectors.gguf");
  fs::copy_file(kDraft, dir / "draft.gguf");
  folder.write("models/.hidden.gguf", "x");
  folder.write("models/mmproj-linked.gguf", "x");
  folder.write("models/part-00002-of-00002.gguf", "x");
  folder.write("models/notes.txt", "x");
  folder.write("models/broken.gguf", "GGUF, but not for long");
  fs::create_symlink("nowhere", dir / "lost.gguf");
  const std::vector<std::string> options{"-c", "64", "-m", "vectors=" + kTales, "-m", "small=" + kDraft, "--models-dir",
                                         dir.string()};
  std::vector<std::string> check = options;
  check.insert(check.begin(), {"serve", "--check"});
  const Finished checked = invoke(check);
  INFO(checked.err);
  CHECK(checked.code == 0);
  CHECK_THAT(checked.out, Contains("5 models (Nested, draft, linked, vectors, small)") ||
                              Contains("5 models (vectors, small, Nested, draft, linked)"));
  for (const char* reason : {"broken is left out: ", "lost is left out: ", "Both is left out: it has 2 models",
                             "vectors.gguf is left out: another model is called vectors"})
    CHECK_THAT(checked.out, Contains(reason));
  for (const char* passed_over : {"hidden", "mmproj", "part-0000", "notes", "empty"})
    CHECK_THAT(checked.out, !Contains(passed_over));

  ServerProcess server(options);
  CHECK(ask(server, "linked").out == kAnswer);
  CHECK(ask(server, "Nested").code == 0);
  CHECK_THAT(ask(server, "broken").err, Contains("there is no model \"broken\" here"));
  const Finished ended = server.stop();
  CHECK(ended.code == 0);
  CHECK_THAT(ended.err, Contains("on request: Nested, draft, linked"));
  CHECK_THAT(ended.err, Contains("broken is left out: "));
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
      folder.write("t.toml", "ctx-size = 256\n[[model]]\npath = \"" + kTales +
                                 "\"\nname = \"secret\"\nchat-template = \"chatml\"\n[[model]]\npath = \"" + kTales +
                                 "\"\nname = \"open\"\nchat-template = \"chatml\"\n" + rules);
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
  const std::string unknown =
      post(server.socket(), "/v1/completions", json{{"model", "secret"}, {"prompt", "x"}}.dump(), "Troupe-Tenant: lab\r\n");
  CHECK_THAT(unknown, Contains("there is no model \\\"secret\\\" here; this server has \\\"open\\\""));
  CHECK(status_of("/v1/completions", {{"prompt", "x"}, {"max_tokens", 1}}, "") == "200");  // by "open"
  CHECK(ask(server, "secret").out == kAnswer);                                             // the owner
  CHECK(server.stop().code == 0);
}

TEST_CASE("tenants: who may have nothing loaded is told so, and uses what others have loaded") {
  TempFolder folder;
  const std::string rules = "[[tenant]]\nuid = " + std::to_string(::geteuid()) +
                            "\nname = \"proxy\"\ntrusted-proxy = true\n"
                            "[[tenant]]\nuid = 61001\nname = \"lab\"\nmay-load = \"never\"\n";
  const std::string config = folder.write("t.toml", "ctx-size = 64\n" + table("a", kTales) + rules);
  ServerProcess server({"--config", config});
  const auto as_lab = [&] {
    return post(server.socket(), "/v1/completions", json{{"prompt", "Once"}, {"max_tokens", 1}}.dump(),
                "Troupe-Tenant: lab\r\n");
  };
  const std::string refused = as_lab();
  CHECK(refused.substr(9, 3) == "403");
  CHECK_THAT(refused, Contains("model a is not loaded, and you may not have models loaded (may-load)"));
  CHECK(ask(server, "a").out == kAnswer);
  CHECK(as_lab().substr(9, 3) == "200");
  CHECK(server.stop().code == 0);
}

}  // namespace
}  // namespace troupe::test
