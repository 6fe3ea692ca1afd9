// troupe run --receipt and troupe verify: right answers are proved, and a changed one is found where it was changed.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// A receipt of the server's answer to these arguments.
json receipt_of(const ServerProcess& server, const TempFolder& folder, const std::vector<std::string>& arguments) {
  const std::string path = folder.write("answer.json", "");
  const Finished answered = server.call(joined({"run", "--receipt", path}, arguments));
  INFO(answered.err);
  REQUIRE(answered.code == 0);
  return json::parse(read(path));
}

}  // namespace

TEST_CASE("verify: answers are proved by a server and by the model alone, whatever the parameters") {
  const TempFolder folder;
  ServerProcess server;
  const std::vector<std::vector<std::string>> requests{
      {"--temp", "0", "-n", "60", "Once upon a time"},
      {"--seed", "7", "-n", "200", "Once upon a time"},
      {"--seed", "8", "--repeat-penalty", "1.4", "--presence-penalty", "0.3", "-n", "60", "Once upon a time"},
      {"--seed", "9", "--stop", "was", "--stop", "there", "-n", "60", "Once upon a time"},
      {"--temp", "0", "--logit-bias", "300=-inf", "--logit-bias", "337=3", "-n", "40", "One day"},
      {"--seed", "10", "--stop-id", "337,352", "-n", "60", "Once upon a time"},
      {"--seed", "11", "--choices", "3", "-n", "30", "Once upon a time"},
      {"--seed", "12", "--ignore-eos", "-n", "-1", "The end."},
  };
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    paths.push_back(folder.write(std::to_string(i) + ".json", ""));
    const Finished answered = server.call(joined({"run", "--receipt", paths.back()}, requests[i]));
    INFO(answered.err);
    REQUIRE(answered.code == 0);
  }
  const json first = json::parse(read(paths[0]));
  CHECK(first["receipt_version"] == 1);
  CHECK(first["answer"]["ids"].size() == 60);
  CHECK(json::parse(read(paths[6])).size() == 3);
  CHECK(json::parse(read(paths[6]))[2]["sampling"]["choice"] == 2);
  const Finished by_server = server.call(joined({"verify"}, paths));
  INFO(by_server.out << by_server.err);
  CHECK(by_server.code == 0);
  CHECK_THAT(by_server.out, Contains("0.json: proved: 60 tokens and the end by length, in ") &&
                                Contains("6.json[2]: proved: 30 tokens") && Contains("end by stop_string") &&
                                Contains("end by stop_id") && Contains("0.json: not proved: seed and choice") &&
                                Contains("4.json: proved for the model ") &&
                                Contains("logit_bias of 2 ids (300: -inf, 337: 3)") && Contains("seed 12, ") &&
                                Contains("ignore_eos"));
  json renamed = first;
  renamed["model"]["name"] = "gpt-9";
  const Finished other_name = server.call({"verify", folder.write("renamed.json", renamed.dump())});
  CHECK_THAT(other_name.out, Contains("proved: ") && Contains("not proved: the name \"gpt-9\" (here the model with "
                                                              "this hash is \"troupe tales 5M\")"));
  const Finished alone = invoke(joined({"verify", "-m", kModel}, paths));
  INFO(alone.out << alone.err);
  CHECK(alone.code == 0);
  CHECK_THAT(alone.out, Contains("7.json: proved: ") && !Contains("differs"));
}

TEST_CASE("verify: a changed token, end or text is found at its place, with what belongs there") {
  const TempFolder folder;
  ServerProcess server;
  const json right = receipt_of(server, folder, {"--seed", "7", "-n", "40", "Once upon a time"});
  const auto verify = [&](const std::function<void(json&)>& change) {
    json wrong = right;
    change(wrong);
    const Finished found = server.call({"verify", folder.write("wrong.json", wrong.dump())});
    INFO(found.out << found.err);
    CHECK(found.code == 1);
    return found.out;
  };
  const auto id_at = [&](std::size_t i) { return right["answer"]["ids"][i].get<int>(); };
  for (const std::size_t at : {0u, 1u, 17u, 38u, 39u})
    CHECK_THAT(verify([&](json& receipt) { receipt["answer"]["ids"][at] = id_at(at) + 1; }),
               Contains("differs: token " + std::to_string(at + 1) + " of 40 is " + std::to_string(id_at(at) + 1)) &&
                   Contains("the model gives " + std::to_string(id_at(at)) + " (\""));
  CHECK_THAT(verify([&](json& receipt) { receipt["answer"]["ids"].erase(39); }),
             Contains("it ends by length after 39 tokens, where the model gives " + std::to_string(id_at(39))));
  CHECK_THAT(verify([&](json& receipt) { receipt["answer"]["end"] = "eos"; }),
             Contains("its end is eos, the model's length"));
  CHECK_THAT(verify([&](json& receipt) { receipt["sampling"]["max_tokens"] = 50; }),
             Contains("it ends by length after 40"));
  CHECK_THAT(verify([&](json& receipt) { receipt["answer"]["text"] = "Hello"; }),
             Contains("its text is not that of its tokens"));
  CHECK_THAT(verify([&](json& receipt) { receipt["sampling"]["seed"] = "8"; }), Contains("differs: token "));
  CHECK_THAT(verify([&](json& receipt) { receipt["prompt_ids"][1] = 500; }), Contains("differs: token "));
  CHECK_THAT(verify([&](json& receipt) { receipt["sampling"]["stop"] = {" the"}; }),
             Contains("ends the answer by stop_string"));
}

TEST_CASE("verify: other numerics and another model are refused by name, and no file is taken that is no receipt") {
  const TempFolder folder;
  ServerProcess server;
  const json right = receipt_of(server, folder, {"--temp", "0", "-n", "20", "Once upon a time"});
  const auto verify = [&](const json& receipt, std::vector<std::string> more = {}) {
    return server.call(joined({"verify", folder.write("other.json", receipt.dump())}, more));
  };
  const std::string id = right["numerics_id"], hash = right["model"]["hash"], recipe = id.substr(0, id.find('-'));
  json other = right;
  other["numerics_id"] = recipe + "-avx9-int8-" + hash;
  const Finished refused = verify(other);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("under numerics " + recipe + "-avx9-int8-" + hash) &&
                              Contains("here they are " + id) && Contains("--kernels avx9 --kv-type int8") &&
                              Contains("--anyway"));
  const Finished anyway = verify(other, {"--anyway"});
  INFO(anyway.out << anyway.err);
  CHECK(anyway.code == 0);
  CHECK_THAT(anyway.out, Contains("proved (here with numerics " + id));
  other["numerics_id"] = recipe + "-avx512vnni-f16-0123456789abcdef";
  other["model"]["hash"] = "0123456789abcdef";
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--anyway"}}) {
    const Finished model = verify(other, more);
    CHECK(model.code == 2);
    CHECK_THAT(model.err, Contains("by another model, ") && Contains("0123456789abcdef") && Contains(hash));
  }
  json outside = right;
  outside["prompt_ids"][0] = 2000000000;
  const Finished beyond = verify(outside);
  CHECK(beyond.code == 2);
  CHECK_THAT(beyond.out, Contains("not verified: token_ids[0] is 2000000000"));

  const std::string good = folder.write("good.json", right.dump());
  const Finished mixed = server.call({"verify", folder.write("bad.json", "{\"a\":"), "/nonexistent.json", good});
  CHECK(mixed.code != 0);
  CHECK_THAT(mixed.err, Contains("bad.json is no receipt: ") && Contains("/nonexistent.json: "));
  CHECK_THAT(mixed.out, Contains("good.json: proved"));
  CHECK(server.call({"verify"}).code == 2);
  CHECK(server.call({"verify", "-m", kModel, good}).code == 2);  // a server and a model
  CHECK(invoke({"run", "--receipt", "/nonexistent/x.json", "hello"}).code != 0);
}

TEST_CASE("verify: that nothing could be asked has another exit code than an answer that differs") {
  const TempFolder folder;
  json right;
  {
    ServerProcess server;
    right = receipt_of(server, folder, {"--temp", "0", "-n", "20", "Once upon a time"});
    json wrong = right;
    wrong["answer"]["text"] = "Hello";
    const std::string good = folder.write("good.json", right.dump()), bad = folder.write("bad.json", wrong.dump());
    CHECK(server.call({"verify", "/nonexistent.json"}).code == 2);
    CHECK(server.call({"verify", folder.write("none.json", "{}")}).code == 2);
    CHECK(server.call({"verify", "/nonexistent.json", bad, good}).code == 1);
    CHECK(server.call({"verify", good, "/nonexistent.json"}).code == 2);
  }
  const std::string good = folder.write("good.json", right.dump());
  const Finished nobody = invoke({"verify", "--socket", folder.path("none.sock"), good});
  CHECK(nobody.code == 75);
  CHECK_THAT(nobody.err, Contains("no server at"));
  CHECK(invoke({"verify", "-m", folder.path("none.gguf"), good}).code == 66);
  CHECK(invoke({"verify", "-m", folder.write("bad.gguf", "no model"), good}).code == 65);
  CHECK(invoke({"verify", "--no-such-flag", good}).code == 2);
  // A socket that no server listens on.
  const troupe::FileDescriptor listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder.path("other.sock");
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK(invoke({"verify", "--socket", path, good}).code == 75);
}

TEST_CASE("verify: a receipt that came over HTTP is proved, also one of a stream") {
  const TempFolder folder;
  ServerProcess server;
  for (const bool streams : {false, true}) {
    const json body{
        {"prompt", "Once upon a time"}, {"max_tokens", 12}, {"stream", streams}, {"troupe", {{"receipt", "full"}}}};
    const std::string answer = post(server.socket(), "/v1/completions", body.dump());
    const std::size_t at = answer.find("\"proof\":");
    REQUIRE(at != std::string::npos);
    // The object from there on.
    std::string proof;
    int depth = 0;
    for (std::size_t i = at + 8; i < answer.size() && (proof.empty() || depth > 0); ++i) {
      proof += answer[i];
      depth += (answer[i] == '{') - (answer[i] == '}');
    }
    const Finished proved = server.call({"verify", folder.write("http.json", proof)});
    INFO(proved.out << proved.err);
    CHECK(proved.code == 0);
  }
}

TEST_CASE("verify: the receipts of answers of a form are proved, and not those of another form") {
  const TempFolder folder;
  ServerProcess server;
  const std::string schema =
      R"({"type":"object","properties":{"name":{"type":"string"},"friends":{"type":"array","items":{"type":"string"}}},)"
      R"("required":["name","friends"]})";
  const std::vector<std::vector<std::string>> forms = {{"--json-schema", schema},
                                                       {"--json-object"},
                                                       {"--regex", "(There was a [a-z]{2,9}\\. ){3,9}The end\\."},
                                                       {"--choice", "a dragon", "--choice", "a small dog"}};
  for (const auto& form : forms)
    for (const char* const temperature : {"0", "1"}) {
      json receipt = receipt_of(server, folder,
                                joined({"-n", "30", "--temp", temperature, "--seed", "3", "Once upon a time"}, form));
      const std::string path = folder.write("form.json", receipt.dump());
      const Finished proved = server.call({"verify", path});
      INFO(proved.out << proved.err);
      CHECK(proved.code == 0);
      CHECK_THAT(proved.out, Contains("the form "));
      receipt["sampling"].erase("form");
      CHECK(server.call({"verify", folder.write("other.json", receipt.dump())}).code == 1);
      if (*temperature == '1') continue;
      const Finished alone = invoke({"verify", "-m", kModel, path});
      INFO(alone.out << alone.err);
      CHECK(alone.code == 0);
    }
  // One that was cut proves its tokens, which its form has chosen among those that it could have had.
  json cut = receipt_of(server, folder, {"-n", "60", "--seed", "3", "--json-schema", schema, "Well,"});
  json& ids = cut["answer"]["ids"];
  ids.erase(ids.begin() + 9, ids.end());
  cut["answer"]["text"] = "";
  cut["answer"]["end"] = "deadline";
  const Finished proved = server.call({"verify", folder.write("cut.json", cut.dump())});
  INFO(proved.out << proved.err);
  CHECK(proved.code == 0);
  CHECK_THAT(proved.out, Contains("proved: 9 tokens; its end, deadline, was not the model's"));
  ids[5] = ids[5].get<int>() + 1;
  CHECK(server.call({"verify", folder.write("cut.json", cut.dump())}).code == 1);
}

TEST_CASE("verify: the receipts of calls are proved, and not those of other tools") {
  const TempFolder folder;
  const std::string chat_template = folder.write(
      "calls.jinja",
      "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
      "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}");
  ServerProcess server({"--chat-template", chat_template, "--tool-format", "hermes"});
  const json tools = json::array({{{"type", "function"}, {"function", {{"name", "get_weather"}}}}});
  const json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  for (const json& choice : {json("required"), named, json("auto")})
    for (const int temperature : {0, 1}) {
      const json body{{"messages", json::array({{{"role", "user"}, {"content", "Once upon a time"}}})},
                      {"tools", tools},
                      {"tool_choice", choice},
                      {"temperature", temperature},
                      {"seed", 5},
                      {"n", 2},
                      {"max_tokens", 40},
                      {"troupe", {{"receipt", "full"}}}};
      const std::string answer = post(server.socket(), "/v1/chat/completions", body.dump());
      INFO(answer);
      const json answered = json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
      for (const json& each : answered["troupe"]["choices"]) {
        const json& receipt = each["proof"];
        const std::string text = receipt["answer"]["text"];
        CHECK(receipt["sampling"]["form"]["kind"] == "calls");
        CHECK(receipt["sampling"]["form"]["calls"]["must_call"] == (choice != "auto"));
        if (choice != "auto") CHECK(text.starts_with("<tool_call>"));
        const std::string path = folder.write("call.json", receipt.dump());
        const Finished proved = server.call({"verify", path});
        INFO(proved.out << proved.err);
        CHECK(proved.code == 0);
        if (choice == "auto") continue;
        CHECK_THAT(proved.out, Contains("the form calls of "));
        json other = receipt;
        other["sampling"]["form"]["text"] = R"([{"type":"function","function":{"name":"get_time"}}])";
        other["sampling"]["form"]["calls"]["name"] = "";
        CHECK(server.call({"verify", folder.write("other.json", other.dump())}).code == 1);
        other["sampling"].erase("form");
        CHECK(server.call({"verify", folder.write("other.json", other.dump())}).code == 1);
        if (temperature == 1) continue;
        const Finished alone = invoke({"verify", "-m", kModel, path});
        INFO(alone.out << alone.err);
        CHECK(alone.code == 0);
      }
    }
}
