// troupe run --tools and troupe chat --tools, against a model whose answers are given.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

using namespace troupe::test;
using Catch::Matchers::Contains;
using nlohmann::json;

namespace {

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "get_weather", "description": "of a city",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}, {"name": "note"}])";

// The first answer to a question calls a tool, and the answer to a result says it.
constexpr const char* kTemplate =
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n"
    "{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>\n{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<|answer_{{ 0 if messages[-1].role == 'user' else 1 if messages[-1].content != "
    "'Error: broken' else 2 }}|>{% endif %}";

// A server with a model of tests/programs/scripted_model.py's.
std::unique_ptr<ServerProcess> scripted_server(const TempFolder& folder, std::vector<std::string> options = {}) {
  const std::string model = folder.path("scripted.gguf"), jinja = folder.write("scripted.jinja", kTemplate);
  const Finished written =
      run({.arguments = {"-B", "-c",
                         "import sys; sys.path.insert(0, sys.argv[1]); import scripted_model\n"
                         "scripted_model.write_scripted_model(sys.argv[2], ['I look.\\n<tool_call>\\n{\"name\": "
                         "\"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\\n</tool_call>', 'It is sunny there.', "
                         "'Something broke, sorry'], open(sys.argv[3]).read())",
                         TROUPE_MODELS "/../tests/programs", model, jinja},
           .program = TROUPE_PYTHON});
  INFO(written.err);
  REQUIRE(written.code == 0);
  options.insert(options.end(), {"-m", model});
  return std::make_unique<ServerProcess>(std::move(options));
}

// The lines of a text that are JSON objects.
std::vector<json> objects_in(const std::string& text) {
  std::vector<json> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('{')) found.push_back(json::parse(line));
  return found;
}

std::string without_objects(const std::string& text) {
  std::string rest;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with('{')) rest += line + "\n";
  return rest;
}

}  // namespace

TEST_CASE("run --tools prints the text, and each call as a line of JSON") {
  const TempFolder folder;
  const auto server = scripted_server(folder);
  const std::string tools = folder.write("tools.json", kTools);
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "--tools", tools, "--seed", "5"});
    more.push_back("What is the weather in Bern?");
    const Finished ran = server->call(more);
    INFO(ran.err);
    CHECK(ran.code == 0);
    return ran.out;
  };
  const std::string answer = run({});
  CHECK(without_objects(answer) == "I look.\n");
  const auto calls = objects_in(answer);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]["name"] == "get_weather");
  CHECK(calls[0]["arguments"] == json{{"city", "Bern"}});
  CHECK(calls[0]["id"].get<std::string>().size() == 9);
  CHECK_FALSE(calls[0].contains("incomplete"));
  CHECK(run({}) == answer);
  const json whole = json::parse(run({"--json"}));
  CHECK(whole["text"] == "I look.");
  CHECK(whole["tool_calls"] == json::array({calls[0]}));
  const auto both = objects_in(run({"--choices", "2"}));
  REQUIRE(both.size() == 2);
  CHECK(both[0]["id"] != both[1]["id"]);
  CHECK_THAT(run({"--tool-choice", "none"}), Contains("<tool_call>"));
  const auto demanded = objects_in(run({"--tool-choice", "note", "-n", "30"}));
  REQUIRE_FALSE(demanded.empty());
  CHECK(demanded[0]["name"] == "note");
  const auto cut = objects_in(run({"-n", "22"}));
  REQUIRE(cut.size() == 1);
  CHECK(cut[0]["incomplete"] == true);
}

TEST_CASE("run --tools says what is wrong with a file, a choice, or a model") {
  const TempFolder folder;
  ServerProcess server;
  const std::string tools = folder.write("tools.json", kTools);
  const auto refused = [&](const std::string& file, std::vector<std::string> more, int code = 2) {
    more.insert(more.begin(), {"run", "--tools", file});
    more.push_back("Hello");
    const Finished ran = server.call(more);
    CHECK(ran.code == code);
    return ran.err;
  };
  CHECK_THAT(refused(folder.write("a.json", "{\"a\": 1}"), {}), Contains("a.json: it is no JSON list of tools"));
  CHECK_THAT(refused(folder.write("b.json", "[{\"type\": \"web_search\"}]"), {}), Contains("[0] has no name"));
  CHECK_THAT(refused(folder.write("c.json", R"([{"name": "f", "description": 5}])"), {}),
             Contains("[0].description is no text"));
  CHECK_THAT(refused(folder.path("none.json"), {}, 1), Contains("none.json"));
  CHECK_THAT(refused(tools, {}), Contains("no chat template"));
  CHECK_THAT(refused(tools, {"--ids"}), Contains("--tools takes text"));
  CHECK_THAT(server.call({"run", "--tool-choice", "auto", "Hello"}).err,
             Contains("there are no tools without --tools"));
  CHECK_THAT(server.call({"chat", "--tools", tools}, "Hello\n").err, Contains("no chat template"));
  ServerProcess with({"--chat-template", "chatml"});
  const Finished unknown = with.call({"run", "--tools", tools, "--tool-choice", "nobody", "Hello"});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("'nobody', which is none of the tools"));
}

TEST_CASE("chat --tools shows calls, asks for their results, and the model goes on with them") {
  const TempFolder folder;
  const auto server = scripted_server(folder, {"--sessions-dir", folder.path("sessions")});
  const std::string tools = folder.write("tools.json", kTools), file = folder.path("talk.json");
  const auto chat = [&](const std::string& input, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"chat", "--tools", tools, "--temp", "0"});
    Spawn child = server->spawn(more);
    child.environment["HOME"] = child.environment["XDG_STATE_HOME"] = folder.path();
    child.stdin_text = input;
    const Finished finished = troupe::test::run(child);
    INFO(finished.err);
    CHECK(finished.code == 0);
    return finished.out;
  };
  const std::string talk = chat("What is the weather in Bern?\n21 degrees\n/save " + file + "\n");
  CHECK(without_objects(talk) == "I look.\nIt is sunny there.\n");
  REQUIRE(objects_in(talk).size() == 1);
  CHECK(objects_in(talk)[0]["arguments"]["city"] == "Bern");
  const json saved = json::parse(std::ifstream(file))["messages"];
  REQUIRE(saved.size() == 4);
  CHECK(saved[1]["tool_calls"][0]["name"] == "get_weather");
  CHECK(saved[2] ==
        json{{"role", "tool"}, {"content", "21 degrees"}, {"tool_call_id", saved[1]["tool_calls"][0]["id"]}});
  CHECK(saved[3]["content"] == "It is sunny there.");
  // What was saved goes on, from the result.
  CHECK(chat("/load " + file + "\n/regen\n") == "It is sunny there.\n");
  CHECK(without_objects(chat("And now?\n/error broken\n")) == "I look.\nSomething broke, sorry\n");
  CHECK(without_objects(chat("And now?\n\"\"\"\nbroken\n\"\"\"\n/save " + file + "\n")) ==
        "I look.\nIt is sunny there.\n");
  // Without a result the question is taken back.
  CHECK(without_objects(chat("/load " + file + "\nAnd now?\n")) == "I look.\n");
  // The same in a session of the server, which gets what is new alone.
  for (const char* const session : {"tea", "tea"})
    CHECK(without_objects(chat("And now?\n5\n", {"--session", session})) == "I look.\nIt is sunny there.\n");
}
