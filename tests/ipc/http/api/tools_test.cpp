// Tools in the three APIs: what a model is told of them, and how its calls are written.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "actors/requests/answer_form.h"
#include "engine/chat/tools/tool_format.h"
#include "ipc/http/api/answer.h"
#include "ipc/http/api/custom_input.h"
#include "tests/ipc/http/api/api_support.h"

namespace troupe::ipc::api {
namespace {

using nlohmann::json;
using scheduler::Outcome;

constexpr const char* kSchema = R"({"type":"object","properties":{"city":{"type":"string"}}})";

// A body with two tools, f and g, in the shape of this endpoint.
std::string body_with_tools(Endpoint endpoint, const std::string& more = "") {
  const std::string schema = kSchema;
  if (endpoint == Endpoint::chat_completions)
    return R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",)"
           R"("description":"d","parameters":)" +
           schema + R"(,"strict":false}},{"type":"function","function":{"name":"g"}}])" + more + "}";
  if (endpoint == Endpoint::responses)
    return R"({"input":"x","tools":[{"type":"function","name":"f","description":"d","parameters":)" + schema +
           R"(,"strict":null},{"type":"function","name":"g"}])" + more + "}";
  return R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","description":"d",)"
         R"("input_schema":)" +
         schema + R"(},{"type":"custom","name":"g"}])" + more + "}";
}

constexpr Endpoint kEndpoints[] = {Endpoint::chat_completions, Endpoint::responses, Endpoint::messages};

TEST_CASE("tools reach the template in one form, in the order in which they are sent") {
  const std::string f =
      R"({"type":"function","function":{"name":"f","description":"d","parameters":)" + std::string(kSchema) + "}}";
  const std::string g = R"({"type":"function","function":{"name":"g"}})";
  for (const Endpoint endpoint : kEndpoints) {
    const ApiCall call = taken(endpoint, body_with_tools(endpoint));
    CHECK(chat_of(call).tools == "[" + f + "," + g + "]");
    REQUIRE(call.request.tools);
    CHECK(call.request.tools->set->size() == 2);
    CHECK_FALSE(call.request.tools->must_call);
    CHECK(call.request.tools->may_call_several);
  }
}

TEST_CASE("a choice of tools is none, any, one of them, or a single call") {
  const auto tools_of = [](Endpoint endpoint, const std::string& choice) {
    return taken(endpoint, body_with_tools(endpoint, "," + choice)).request.tools;
  };
  CHECK_FALSE(tools_of(Endpoint::chat_completions, R"("tool_choice":"none")"));
  CHECK_FALSE(tools_of(Endpoint::responses, R"("tool_choice":"none")"));
  CHECK_FALSE(tools_of(Endpoint::messages, R"("tool_choice":{"type":"none"})"));
  CHECK(tools_of(Endpoint::chat_completions, R"("tool_choice":"required")")->must_call);
  CHECK(tools_of(Endpoint::responses, R"("tool_choice":"required")")->must_call);
  CHECK(tools_of(Endpoint::messages, R"("tool_choice":{"type":"any"})")->must_call);
  CHECK(tools_of(Endpoint::chat_completions, R"("tool_choice":{"type":"function","function":{"name":"g"}})")->name ==
        "g");
  CHECK(tools_of(Endpoint::responses, R"("tool_choice":{"type":"function","name":"g"})")->name == "g");
  CHECK(tools_of(Endpoint::messages, R"("tool_choice":{"type":"tool","name":"g"})")->name == "g");
  CHECK_FALSE(tools_of(Endpoint::chat_completions, R"("parallel_tool_calls":false)")->may_call_several);
  CHECK_FALSE(tools_of(Endpoint::messages, R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})")
                  ->may_call_several);
}

TEST_CASE("what a request wants of its calls is taken with its tools: strict ones by the names that the model knows") {
  const auto wish_of = [](const ApiCall& call) { return call.request.tools->form->constraint().calls; };
  const engine::constraints::CallWish any = wish_of(taken(
      Endpoint::responses,
      R"({"input":"x","tools":[{"type":"function","name":"f","strict":true},{"type":"function","name":"g","strict":false},)"
      R"({"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"h","strict":true}]}]})"));
  CHECK(any.strict == std::vector<std::string>{"f", "n__h"});
  CHECK_FALSE(any.must_call);
  CHECK(any.may_call_several);
  const engine::constraints::CallWish one =
      wish_of(taken(Endpoint::chat_completions,
                    body_with_tools(Endpoint::chat_completions, R"(,"parallel_tool_calls":false,"tool_choice":)"
                                                                R"({"type":"function","function":{"name":"g"}})")));
  CHECK(one.strict.empty());
  CHECK(one.must_call);
  CHECK(one.name == "g");
  CHECK_FALSE(one.may_call_several);
  CHECK(wish_of(taken(Endpoint::messages, R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":)"
                                          R"([{"name":"f","input_schema":{"type":"object"},"strict":true}]})"))
            .strict == std::vector<std::string>{"f"});
}

TEST_CASE("tools that cannot be served are refused by name, and tools that no client runs are left out") {
  const auto message_of = [](Endpoint endpoint, const std::string& more, const std::string& param) {
    const ApiError error = refused(endpoint, body_with_tools(endpoint, more));
    CHECK(error.param == param);
    return error.message;
  };
  CHECK(message_of(Endpoint::chat_completions, R"(,"tool_choice":{"type":"function","function":{"name":"h"}})",
                   "tool_choice") == "tool_choice names 'h', which is none of the tools");
  CHECK_THAT(message_of(Endpoint::messages, R"(,"tool_choice":{"type":"what"})", "tool_choice"),
             Catch::StartsWith("tool_choice is what; it is an object with the type auto"));
  CHECK(refused(Endpoint::chat_completions, R"({"messages":[{"role":"user","content":"x"}],"tool_choice":"required"})")
            .message == "tool_choice demands a call, and there are no tools");
  CHECK(refused(Endpoint::responses, R"({"input":"x","tools":[{"type":"function","name":"a b"}]})")
            .message.find("tools[0].name 'a b' is no name of a tool") == 0);
  const ApiCall call = taken(Endpoint::responses, R"({"input":"x","tools":[{"type":"web_search","external":1},)"
                                                  R"({"type":"function","name":"f"}]})");
  CHECK(call.request.tools->set->size() == 1);
  CHECK(call.ignored == std::vector<std::string_view>{"tools[].type"});
  CHECK_FALSE(taken(Endpoint::messages, R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}],)"
                                        R"("tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5}]})")
                  .request.tools);
}

TEST_CASE("calls and results that are sent back are the same messages in all three APIs") {
  const std::string members =
      R"({"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"city":"Bern"}}}]})";
  const std::vector<std::pair<Endpoint, std::string>> bodies = {
      {Endpoint::chat_completions,
       R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"Hm.","tool_calls":[{"id":"c1",)"
       R"("type":"function","function":{"name":"f","arguments":"{\"city\":\"Bern\"}"}}]},)"
       R"({"role":"tool","tool_call_id":"c1","content":"5"}]})"},
      {Endpoint::responses,
       R"({"input":[{"role":"user","content":"x"},{"role":"assistant","content":"Hm."},{"type":"function_call",)"
       R"("id":"fc_c1","call_id":"c1","name":"f","arguments":"{\"city\":\"Bern\"}","status":"completed"},)"
       R"({"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"5"}]}]})"},
      {Endpoint::messages,
       R"({"max_tokens":9,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"text",)"
       R"("text":"Hm."},{"type":"tool_use","id":"c1","name":"f","input":{"city":"Bern"}}]},)"
       R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"5"}]}]}]})"}};
  for (const auto& [endpoint, body] : bodies) {
    const std::vector<actors::ChatMessage> messages = chat_of(taken(endpoint, body)).messages;
    REQUIRE(messages.size() == 3);
    CHECK(messages[1].content == "Hm.");
    CHECK(json::parse(messages[1].members) == json::parse(members));
    CHECK(messages[2].role == "tool");
    CHECK(messages[2].name == "f");
    CHECK(messages[2].content == "5");
    CHECK(messages[2].members == R"({"tool_call_id":"c1"})");
  }
  const auto failed =
      chat_of(taken(Endpoint::messages,
                    R"({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result",)"
                    R"("tool_use_id":"c1","is_error":true,"content":"no"},{"type":"text","text":"Go on."}]}]})"))
          .messages;
  REQUIRE(failed.size() == 2);
  CHECK(failed[0].content == "Error: no");
  CHECK(failed[1].content == "Go on.");
}

// The answer of a model with the format "hermes" that writes these texts.
std::string answered(Endpoint endpoint, const std::vector<std::string>& texts, const std::string& more = "",
                     Outcome outcome = Outcome::eos) {
  AnswerFacts facts = facts_of_test();
  facts.tool_format = engine::chat::find_tool_format("hermes");
  const auto answer = make_answer(taken(endpoint, body_with_tools(endpoint, more)), std::move(facts));
  std::string out;
  for (const std::string& text : texts) out += answer->on_tokens(run_of(text)).bytes;
  return out + answer->on_end(end_of(outcome)).bytes;
}

const std::vector<std::string> kTwoCalls = {"Let me",
                                            " see.\n<tool_c",
                                            "all>\n{\"name\": \"f\", \"argu",
                                            "ments\": {\"city\": \"Be",
                                            "rn\"}}\n</tool_call>\n<tool_call>",
                                            "{\"name\": \"g\", \"arguments\": {}}</tool_call>"};

std::vector<json> events_of(const std::string& bytes) {
  std::vector<json> events;
  for (std::size_t at = bytes.find("data: {"); at != std::string::npos; at = bytes.find("data: {", at + 1))
    events.push_back(json::parse(bytes.substr(at + 6, bytes.find("\n\n", at) - at - 6)));
  return events;
}

TEST_CASE("a chat completion has its calls beside its text, whole and in deltas") {
  const json whole = json::parse(answered(Endpoint::chat_completions, kTwoCalls))["choices"][0];
  CHECK(whole["finish_reason"] == "tool_calls");
  CHECK(whole["message"]["content"] == "Let me see.");
  REQUIRE(whole["message"]["tool_calls"].size() == 2);
  CHECK(whole["message"]["tool_calls"][0]["type"] == "function");
  CHECK(whole["message"]["tool_calls"][0]["function"] == json{{"name", "f"}, {"arguments", "{\"city\": \"Bern\"}"}});
  CHECK(whole["message"]["tool_calls"][1]["function"] == json{{"name", "g"}, {"arguments", "{}"}});
  CHECK(whole["message"]["tool_calls"][0]["id"].get<std::string>().size() == 9);

  std::string text, ids;
  std::vector<std::string> arguments(2);
  json last;
  for (const json& event : events_of(answered(Endpoint::chat_completions, kTwoCalls, R"(,"stream":true)"))) {
    const json& choice = event["choices"][0];
    text += choice["delta"].value("content", "");
    for (const json& call : choice["delta"].value("tool_calls", json::array())) {
      arguments[call["index"].get<std::size_t>()] += call["function"]["arguments"].get<std::string>();
      ids += call.value("id", "");
    }
    last = choice["finish_reason"];
  }
  CHECK(text == "Let me see.");
  CHECK(arguments == std::vector<std::string>{"{\"city\": \"Bern\"}", "{}"});
  CHECK(ids == whole["message"]["tool_calls"][0]["id"].get<std::string>() +
                   whole["message"]["tool_calls"][1]["id"].get<std::string>());
  CHECK(last == "tool_calls");
}

TEST_CASE("the same seed gives calls the same ids, whatever the answer's id is") {
  const auto id_of = [](const std::string& answer_id, const std::string& seed) {
    AnswerFacts facts = facts_of_test();
    facts.id = answer_id;
    facts.tool_format = engine::chat::find_tool_format("hermes");
    const auto answer = make_answer(
        taken(Endpoint::chat_completions, body_with_tools(Endpoint::chat_completions, seed)), std::move(facts));
    (void)answer->on_tokens(run_of("<tool_call>{\"name\": \"f\"}"));
    const json whole = json::parse(answer->on_end(end_of(Outcome::eos)).bytes);
    return whole["choices"][0]["message"]["tool_calls"][0]["id"].get<std::string>();
  };
  CHECK(id_of("1", R"(,"seed":5)") == id_of("2", R"(,"seed":5)"));
  CHECK(id_of("1", R"(,"seed":5)") != id_of("1", R"(,"seed":6)"));
  CHECK(id_of("1", "") != id_of("2", ""));
}

TEST_CASE("an answer that is cut within a call has what came of it, and one before its name has text") {
  const auto choice_of = [](const std::string& text) {
    return json::parse(answered(Endpoint::chat_completions, {text}, "", Outcome::length))["choices"][0];
  };
  const json within = choice_of("<tool_call>{\"name\": \"f\", \"arguments\": {\"city\": \"B");
  CHECK(within["finish_reason"] == "length");
  CHECK(within["message"]["content"].is_null());
  CHECK(within["message"]["tool_calls"][0]["function"]["arguments"] == "{\"city\": \"B");
  const json before = choice_of("<tool_call>{\"name\": \"f");
  CHECK(before["message"]["content"] == "<tool_call>{\"name\": \"f");
  CHECK_FALSE(before["message"].contains("tool_calls"));
}

TEST_CASE("a message of Anthropic's has its calls as blocks, whole and in events") {
  const json whole = json::parse(answered(Endpoint::messages, kTwoCalls));
  CHECK(whole["stop_reason"] == "tool_use");
  REQUIRE(whole["content"].size() == 3);
  CHECK(whole["content"][0]["text"] == "Let me see.");
  CHECK(whole["content"][1]["type"] == "tool_use");
  CHECK(whole["content"][1]["input"] == json{{"city", "Bern"}});
  CHECK(whole["content"][2]["name"] == "g");

  std::string lines;
  for (const json& event : events_of(answered(Endpoint::messages, kTwoCalls, R"(,"stream":true)"))) {
    const std::string type = event["type"];
    if (type == "content_block_start") lines += "start " + event["content_block"]["type"].get<std::string>() + "\n";
    if (type == "content_block_delta")
      lines += event["delta"].value("text", "") + event["delta"].value("partial_json", "") + "\n";
    if (type == "content_block_stop") lines += "stop " + event["index"].dump() + "\n";
    if (type == "message_delta") lines += event["delta"]["stop_reason"].get<std::string>();
  }
  CHECK(lines ==
        "start text\nLet me\n see.\nstop 0\nstart tool_use\n{\"city\": \"Be\nrn\"}\nstop 1\nstart tool_use\n{}\nstop "
        "2\ntool_use");
  const json cut = json::parse(
      answered(Endpoint::messages, {"<tool_call>{\"name\": \"f\", \"arguments\": {\"c"}, "", Outcome::length));
  CHECK(cut["stop_reason"] == "max_tokens");
  CHECK(cut["content"][0]["input"] == json{{"incomplete", "{\"c"}});
}

TEST_CASE("a response has its calls as items, whole and in numbered events") {
  const json whole = json::parse(answered(Endpoint::responses, kTwoCalls));
  REQUIRE(whole["output"].size() == 3);
  CHECK(whole["output"][0]["content"][0]["text"] == "Let me see.");
  CHECK(whole["output"][1]["type"] == "function_call");
  CHECK(whole["output"][1]["name"] == "f");
  CHECK(whole["output"][1]["arguments"] == "{\"city\": \"Bern\"}");
  CHECK(whole["output"][1]["status"] == "completed");

  const std::vector<json> events = events_of(answered(Endpoint::responses, kTwoCalls, R"(,"stream":true)"));
  std::string lines;
  std::uint64_t number = 0;
  for (const json& event : events) {
    CHECK(event["sequence_number"] == number++);
    const std::string type = event["type"];
    if (type == "response.output_item.added" || type == "response.output_item.done")
      lines +=
          type.substr(21) + " " + event["output_index"].dump() + " " + event["item"]["type"].get<std::string>() + "\n";
    if (type == "response.function_call_arguments.delta") lines += event["delta"].get<std::string>() + "\n";
    if (type == "response.function_call_arguments.done") lines += "= " + event["arguments"].get<std::string>() + "\n";
  }
  CHECK(
      lines ==
      "added 0 message\ndone 0 message\nadded 1 function_call\n{\"city\": \"Be\nrn\"}\n= {\"city\": \"Bern\"}\ndone 1 "
      "function_call\nadded 2 function_call\n{}\n= {}\ndone 2 function_call\n");
  json output = events.back()["response"]["output"];
  CHECK(output == whole["output"]);
}

TEST_CASE("reasoning comes before calls, and what looks like a call in it is none") {
  AnswerFacts facts = facts_of_test();
  facts.tool_format = engine::chat::find_tool_format("hermes");
  facts.reasoning = {.open = "<think>", .close = "</think>"};
  const auto answer =
      make_answer(taken(Endpoint::chat_completions, body_with_tools(Endpoint::chat_completions)), std::move(facts));
  for (const char* text : {"<think>I could <tool_call>{\"name\": \"g\"}</tool_call>", " not.</think>\n\n<tool_",
                           "call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"})
    (void)answer->on_tokens(run_of(text));
  const json message = json::parse(answer->on_end(end_of(Outcome::eos)).bytes)["choices"][0]["message"];
  CHECK(message["reasoning_content"] == "I could <tool_call>{\"name\": \"g\"}</tool_call> not.");
  CHECK(message["tool_calls"].size() == 1);
  CHECK(message["tool_calls"][0]["function"]["name"] == "f");
}

// --- custom tools and namespaces ---

const std::string kOneTextParameter =
    R"("parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]})";

TEST_CASE("a custom tool is a function of one text for the model") {
  const std::string f = R"([{"type":"function","function":{"name":"f","description":"d",)" + kOneTextParameter + "}}]";
  for (const std::string format : {"", R"(,"format":{"type":"text"})"}) {
    const ApiCall chat = taken(Endpoint::chat_completions,
                               R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"custom","custom":)"
                               R"({"name":"f","description":"d")" +
                                   format + "}}]}");
    CHECK(chat_of(chat).tools == f);
    const ApiCall response = taken(
        Endpoint::responses, R"({"input":"x","tools":[{"type":"custom","name":"f","description":"d")" + format + "}]}");
    CHECK(chat_of(response).tools == f);
    CHECK(response.client_tools.at("f").is_custom);
  }
  // Of Anthropic's it is a function as any other.
  CHECK(taken(Endpoint::messages, body_with_tools(Endpoint::messages)).client_tools.empty());
}

TEST_CASE("grammars of custom tools are refused by name") {
  const ApiError response =
      refused(Endpoint::responses, R"({"input":"x","tools":[{"type":"custom","name":"f","format":{"type":"grammar",)"
                                   R"("syntax":"lark","definition":"start: WORD"}}]})");
  CHECK(response.param == "tools[0].format.type");
  CHECK_THAT(response.message, Catch::Contains("grammars are not served yet"));
  CHECK(refused(Endpoint::chat_completions,
                R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"custom","custom":{"name":"f",)"
                R"("format":{"grammar":{"syntax":"lark","definition":"start: WORD"},"type":"grammar"}}}]})")
            .param == "tools[0].custom.format.grammar");
}

TEST_CASE("a choice of a tool says whether it is custom") {
  const std::string tools =
      R"({"input":"x","tools":[{"type":"custom","name":"c"},{"type":"function","name":"f"}],"tool_choice":)";
  CHECK(taken(Endpoint::responses, tools + R"({"type":"custom","name":"c"}})").request.tools->name == "c");
  CHECK(taken(Endpoint::chat_completions,
              R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"custom","custom":{"name":"c"}}],)"
              R"("tool_choice":{"type":"custom","custom":{"name":"c"}}})")
            .request.tools->name == "c");
  CHECK(refused(Endpoint::responses, tools + R"({"type":"function","name":"c"}})").message ==
        "tool_choice names 'c', which is a custom tool; its type is custom");
  CHECK(refused(Endpoint::responses, tools + R"({"type":"custom","name":"f"}})").message ==
        "tool_choice names 'f', which is a function, not custom");
  CHECK(
      refused(Endpoint::responses, R"({"input":"x","tools":[{"type":"web_search"}],"tool_choice":"required"})").param ==
      "tool_choice");
}

constexpr const char* kNamespaces =
    R"({"input":"x","tools":[{"type":"function","name":"f"},{"type":"namespace","name":"mcp__files","description":)"
    R"("Files.","tools":[{"type":"function","name":"read","description":"Reads.","strict":false,"parameters":)"
    R"({"type":"object"}},{"type":"custom","name":"write"},{"type":"what"}]},{"type":"namespace","name":"old__",)"
    R"("description":"","tools":[{"type":"function","name":"g"}]}])";

TEST_CASE("tools of a namespace stand among the others, with its name before theirs") {
  const ApiCall call = taken(Endpoint::responses, std::string(kNamespaces) + "}");
  CHECK(chat_of(call).tools ==
        R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"mcp__files__read",)"
        R"("description":"Files.\n\nReads.","parameters":{"type":"object"}}},)"
        R"({"type":"function","function":{"name":"mcp__files__write",)" +
            kOneTextParameter + R"(}},{"type":"function","function":{"name":"old__g"}}])");
  CHECK(call.client_tools.at("mcp__files__read").name == "read");
  CHECK(call.client_tools.at("mcp__files__read").name_space == "mcp__files");
  CHECK(call.client_tools.at("mcp__files__write").is_custom);
  CHECK(call.client_tools.at("old__g").name_space == "old__");
  CHECK(call.client_tools.count("f") == 0);
  CHECK(call.ignored == std::vector<std::string_view>{"tools[].type"});
  CHECK(taken(Endpoint::responses,
              std::string(kNamespaces) + R"(,"tool_choice":{"type":"function","name":"mcp__files__read"}})")
            .request.tools->name == "mcp__files__read");
}

TEST_CASE("what is wrong with a tool names its place in the request, also within a namespace") {
  const auto message_of = [](const std::string& tools) {
    const ApiError error = refused(Endpoint::responses, R"({"input":"x","tools":)" + tools + "}");
    return error.message;
  };
  CHECK_THAT(message_of(R"([{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"function",)"
                        R"("name":"a b"}]}])"),
             Catch::StartsWith("tools[1].tools[0].name 'n__a b' is no name of a tool"));
  CHECK(message_of(R"([{"type":"function","name":"n__a"},{"type":"namespace","name":"n","tools":[{"type":"function",)"
                   R"("name":"a"}]}])") == "tools[1].tools[0].name 'n__a' is taken");
  CHECK(message_of(R"([{"type":"namespace","name":"n"}])") == "tools[0] has no tools");
  CHECK(message_of(R"([{"type":"namespace","tools":[]}])") == "tools[0] has no name");
  CHECK(message_of(R"([{"type":"namespace","name":"n","tools":[{"type":"function","name":"a","defer_loading":true}]}])")
            .find("tools[0].tools[0].defer_loading") == 0);
  CHECK(message_of(R"([{"type":"namespace","name":"n","tools":[5]}])") == "tools[0].tools[0] must be an object");
}

TEST_CASE("calls of custom tools and of namespaces that are sent back are calls of the model's names") {
  const auto messages =
      chat_of(taken(Endpoint::responses,
                    R"({"input":[{"role":"user","content":"x"},{"type":"custom_tool_call","id":"ctc_1",)"
                    R"("call_id":"1","name":"c","input":"a \"b\"\n","status":"completed"},)"
                    R"({"type":"function_call","call_id":"2","namespace":"mcp__files","name":"read",)"
                    R"("arguments":"{}"},{"type":"custom_tool_call_output","call_id":"1","output":"5"},)"
                    R"({"type":"function_call_output","call_id":"2","output":[{"type":"input_text",)"
                    R"("text":"6"}]}]})"))
          .messages;
  REQUIRE(messages.size() == 4);
  CHECK(json::parse(messages[1].members) ==
        json::parse(R"({"tool_calls":[{"id":"1","type":"function","function":{"name":"c","arguments":)"
                    R"({"input":"a \"b\"\n"}}},{"id":"2","type":"function","function":{"name":"mcp__files__read",)"
                    R"("arguments":{}}}]})"));
  CHECK(messages[2].name == "c");
  CHECK(messages[2].content == "5");
  CHECK(messages[3].name == "mcp__files__read");

  const auto turns = chat_of(taken(Endpoint::chat_completions,
                                   R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","tool_calls":[)"
                                   R"({"id":"1","type":"custom","custom":{"name":"c","input":"a"}}]},)"
                                   R"({"role":"tool","tool_call_id":"1","content":"5"}]})"))
                         .messages;
  CHECK(json::parse(turns[1].members) ==
        json::parse(
            R"({"tool_calls":[{"id":"1","type":"function","function":{"name":"c","arguments":{"input":"a"}}}]})"));
  CHECK(turns[2].name == "c");
}

// The answer to a body, of a model with the format "hermes" that writes these texts.
std::string answer_to_tools(Endpoint endpoint, const std::string& body, const std::vector<std::string>& texts) {
  AnswerFacts facts = facts_of_test();
  facts.tool_format = engine::chat::find_tool_format("hermes");
  const auto answer = make_answer(taken(endpoint, body), std::move(facts));
  std::string out;
  for (const std::string& text : texts) out += answer->on_tokens(run_of(text)).bytes;
  return out + answer->on_end(end_of(Outcome::eos)).bytes;
}

const std::vector<std::string> kNamespaceCalls = {
    "<tool_call>{\"name\": \"mcp__files__read\", \"arguments\": {\"path\": \"a\"}}</tool_call><tool_call>",
    "{\"name\": \"mcp__files__write\", \"arguments\": {\"inp", "ut\": \"one\\", "ntwo\"}}</tool_call>"};

TEST_CASE("calls of a namespace's tools say its name and theirs, and custom ones have a text") {
  const std::string body = std::string(kNamespaces) + "}", streamed = std::string(kNamespaces) + R"(,"stream":true})";
  const json output = json::parse(answer_to_tools(Endpoint::responses, body, kNamespaceCalls))["output"];
  REQUIRE(output.size() == 2);
  CHECK(output[0]["type"] == "function_call");
  CHECK(output[0]["namespace"] == "mcp__files");
  CHECK(output[0]["name"] == "read");
  CHECK(output[0]["arguments"] == "{\"path\": \"a\"}");
  CHECK(output[1]["type"] == "custom_tool_call");
  CHECK(output[1]["namespace"] == "mcp__files");
  CHECK(output[1]["name"] == "write");
  CHECK(output[1]["input"] == "one\ntwo");
  CHECK(output[1]["id"] == "ctc_" + output[1]["call_id"].get<std::string>());

  std::string lines;
  const std::vector<json> events = events_of(answer_to_tools(Endpoint::responses, streamed, kNamespaceCalls));
  for (const json& event : events) {
    const std::string type = event["type"];
    if (type == "response.output_item.added") lines += "added " + event["item"]["name"].get<std::string>() + "\n";
    if (type.ends_with("call_input.delta")) lines += event["delta"].dump() + "\n";
    if (type.ends_with("call_input.done")) lines += "= " + event["input"].dump() + "\n";
    if (type.ends_with("arguments.done")) lines += event["name"].get<std::string>() + event["arguments"].dump() + "\n";
  }
  CHECK(lines == "added read\nread\"{\\\"path\\\": \\\"a\\\"}\"\nadded write\n\"one\"\n\"\\ntwo\"\n= \"one\\ntwo\"\n");
  CHECK(events.back()["response"]["output"] == output);
}

TEST_CASE("a chat completion has custom calls beside others") {
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}},)"
      R"({"type":"custom","custom":{"name":"c"}}])";
  const std::vector<std::string> texts = {"<tool_call>{\"name\": \"c\", \"arguments\": {\"input\": \"print(\\\"",
                                          "\\u00e9\\\")\"}}</tool_call>",
                                          "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"};
  const json choice = json::parse(answer_to_tools(Endpoint::chat_completions, body + "}", texts))["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  const json& calls = choice["message"]["tool_calls"];
  REQUIRE(calls.size() == 2);
  CHECK(calls[0]["type"] == "custom");
  CHECK(calls[0]["custom"] == json{{"name", "c"}, {"input", "print(\"é\")"}});
  CHECK_FALSE(calls[0].contains("function"));
  CHECK(calls[1]["function"] == json{{"name", "f"}, {"arguments", "{}"}});

  std::string input, type;
  for (const json& event : events_of(answer_to_tools(Endpoint::chat_completions, body + R"(,"stream":true})", texts)))
    for (const json& call : event["choices"][0]["delta"].value("tool_calls", json::array()))
      if (call["index"] == 0) {
        type += call.value("type", "");
        input += call["custom"]["input"].get<std::string>();
      }
  CHECK(type == "custom");
  CHECK(input == "print(\"é\")");
}

TEST_CASE("the input of a custom call is its text, in whatever pieces it comes, or what came in its place") {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "a\"b\\\n\u00e9\ud83d\ude00"})", "a\"b\\\né😀"},
      {R"( { "input" : "a" , "more": "b"} )", "a"},
      {R"("alone")", "alone"},
      {R"({"input": "cut \u00)", "cut \\u00"},
      {R"({"input": "cut)", "cut"},
      {R"({"inp)", R"({"inp)"},
      {R"({"input": 5})", R"({"input": 5})"},
      {R"({"code": "a"})", R"({"code": "a"})"},
      {"print(1)", "print(1)"},
      {"", ""},
  };
  for (const auto& [arguments, input] : cases)
    for (std::size_t size = 1; size <= arguments.size() + 1; ++size) {
      INFO(arguments << " in pieces of " << size);
      CustomInput reader;
      std::string out;
      for (std::size_t at = 0; at < arguments.size(); at += size) out += reader.push(arguments.substr(at, size));
      CHECK(out + reader.finish() == input);
    }
  const std::string text = "\"quoted\" \\ and\nlines é";
  CustomInput back;
  std::string out = back.push(custom_arguments(text));
  CHECK(out + back.finish() == text);
}

// tests/programs/shapes: what programs send. These are refused, in words that make them go on or say what to do.
struct RefusedShape {
  std::string_view file, param;
};
constexpr RefusedShape kRefusedShapes[] = {{"ai_responses_2.json", "input[2].type"},
                                           {"anthropic_sdk_1.json", "thread"}};

TEST_CASE("requests of agents and libraries with tools are taken") {
  std::size_t num_taken = 0, num_refused = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_PROGRAM_SHAPES)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const json shape = json::parse(file);
    INFO(name);
    std::string path = shape["path"];
    path = path.substr(0, path.find('?'));
    const Endpoint endpoint = path == "/v1/chat/completions" ? Endpoint::chat_completions
                              : path == "/v1/responses"      ? Endpoint::responses
                                                             : Endpoint::messages;
    const auto known = std::ranges::find(kRefusedShapes, name, &RefusedShape::file);
    if (known != std::end(kRefusedShapes)) {
      const ApiError error = refused(endpoint, shape["body"].dump());
      CHECK(error.param == known->param);
      if (known->param == "thread")
        CHECK_THAT(error_body(error, Dialect::anthropic), Catch::Contains("thread_unsupported_request"));
      ++num_refused;
      continue;
    }
    const ApiCall call = taken(endpoint, shape["body"].dump());
    REQUIRE(call.request.tools);
    CHECK(call.request.tools->set->size() >= 1);
    if (name.starts_with("codex_")) {  // the tools of its MCP server
      CHECK_FALSE(call.client_tools.empty());
      CHECK_THAT(chat_of(call).tools, Catch::Contains("__tool_"));
    }
    ++num_taken;
  }
  CHECK(num_taken >= 22);
  CHECK(num_refused == std::size(kRefusedShapes));
}

}  // namespace
}  // namespace troupe::ipc::api
