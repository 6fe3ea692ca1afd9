// Tools over frames: what a client offers, the calls that it gets, and what it sends back.
#include <nlohmann/json.hpp>

#include "tests/ipc/real_server.h"

namespace troupe::ipc {
namespace {

using namespace test;
using client::Completion;
using client::FormKind;
using client::Request;
using client::ToolCall;
using client::ToolChoice;
using scheduler::Outcome;

// A template in Hermes' format that writes everything of a conversation.
actors::GatewayOptions tool_model() {
  actors::GatewayOptions options = embedded_model();
  options.model().chat_template = {
      .name = "calls",
      .source =
          "{% for t in tools or [] %}{{ t.function.name }}: {{ t.function.description }} "
          "{{ (t.function.parameters or {}) | tojson }}\n{% endfor %}{% for m in messages %}{{ m.role }} {{ m.name }} "
          "{{ m.tool_call_id }}: "
          "{{ m.content }}\n{% for c in m.tool_calls or [] %}<tool_call>\n{{ c.function | tojson }}\n"
          "</tool_call>\n{% endfor %}{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
      .tool_format = "hermes"};
  return options;
}

// What the model is made to write, as its answer's beginning.
constexpr const char* kCall =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";

Request weather(std::uint32_t max_tokens = 90) {
  Request request;
  request.prompt = client::Conversation{.messages = {{.role = "user", .content = "What is the weather in Bern?"}}};
  request.tools = {{.name = "get_weather",
                    .description = "Weather of a city",
                    .parameters = R"({"type":"object","properties":{"city":{"type":"string"}}})"},
                   {.name = "note"}};
  request.sampling = {.temperature = 0.8f, .seed = 4, .max_tokens = max_tokens, .ignore_eos = true};
  return request;
}

TEST_CASE(
    "an answer that calls a tool has the call apart from its text, whole and in parts, with the same id each time") {
  RealServer server(tool_model());
  const auto client = server.connect();
  Request request = weather();
  request.begins_with = std::string("Let me see.\n") + kCall;
  request.parallel_tool_calls = false;
  const Completion answer = complete(*client, request);
  INFO(answer.text << answer.ended.message);
  CHECK(answer.ended.outcome == Outcome::tool_call);
  CHECK(answer.text == "Let me see.");
  REQUIRE(answer.calls.size() == 1);
  CHECK(answer.calls[0].name == "get_weather");
  CHECK(answer.calls[0].arguments == R"({"city": "Bern"})");
  CHECK(answer.calls[0].is_complete);
  CHECK(answer.calls[0].id.size() == 9);
  CHECK(answer.ended.usage.tool_calls == 1);
  CHECK(answer.ended.usage.tool_call_tokens > 10);
  CHECK(answer.ended.usage.tool_call_tokens < answer.ended.usage.completion_tokens);

  // In parts: ids and texts come in their order, and no more often than they are.
  std::string text;
  std::vector<TokenId> ids;
  std::vector<ToolCall> calls;
  std::size_t num_parts = 0;
  client::Callbacks callbacks;
  callbacks.on_tokens = [&](const client::Tokens& tokens) {
    CHECK(tokens.first_index == ids.size());
    text += tokens.text;
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    for (const client::CallPart& part : tokens.calls) client::add_call_part(calls, part);
    num_parts += tokens.calls.size();
  };
  const auto stream = client->generate(request, std::move(callbacks));
  REQUIRE(stream);
  REQUIRE(stream->wait());
  CHECK(text == answer.text);
  CHECK(ids == answer.ids);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].id == answer.calls[0].id);
  CHECK(calls[0].arguments == answer.calls[0].arguments);
  CHECK(num_parts > 3);

  // The exact text is in the receipt.
  request.proof = true;
  const Completion proved = complete(*client, request);
  CHECK(proved.ended.receipt->proof->text.find(R"(<tool_call>
{"name": "get_weather", "arguments": {"city": "Bern"}})") != std::string::npos);
  CHECK(proved.ended.receipt->proof->begins_with == request.begins_with);
}

TEST_CASE("a tool_choice that demands a call gets one, of the tool that it names, and none gets none") {
  RealServer server(tool_model());
  const auto client = server.connect();
  Request request = weather(40);
  request.tool_choice = ToolChoice::required;
  request.proof = true;
  const auto proof = complete(*client, request).ended.receipt->proof;
  CHECK(proof->text.starts_with("<tool_call>"));
  REQUIRE(proof->form);
  CHECK(proof->form->kind == FormKind::calls);
  CHECK(proof->form->calls.must_call);
  CHECK(proof->form->calls.format == "hermes");
  request.proof = false;
  request.called_tool = "note";
  request.n = 2;
  const auto both = client->complete_all(request, kPatience);
  REQUIRE(both);
  REQUIRE(both->size() == 2);
  for (const Completion& each : *both) {
    REQUIRE_FALSE(each.calls.empty());
    CHECK(each.calls[0].name == "note");
  }
  CHECK((*both)[0].calls[0].id != (*both)[1].calls[0].id);
  request = weather();
  request.tool_choice = ToolChoice::none;
  request.begins_with = kCall;
  const Completion none = complete(*client, request);
  CHECK(none.calls.empty());
  CHECK(none.text.find(kCall) == 0);
  // The model is told of no tool.
  Request without = request;
  without.tools.clear();
  CHECK(complete(*client, without).ended.usage.prompt_tokens == none.ended.usage.prompt_tokens);
}

TEST_CASE("demanded calls meet their schemas, and a strict tool that cannot be had is refused by its name") {
  RealServer server(tool_model());
  const auto client = server.connect();
  Request request = weather(60);
  request.sampling.ignore_eos = false;
  request.tool_choice = ToolChoice::required;
  request.called_tool = "get_weather";
  request.tools[0].parameters = R"({"type":"object","properties":{"unit":{"enum":["celsius","kelvin"]}},)"
                                R"("required":["unit"],"additionalProperties":false})";
  request.tools[0].strict = true;
  for (const std::uint64_t seed : {1, 2, 3}) {
    request.sampling.seed = seed;
    const Completion answer = complete(*client, request);
    INFO(answer.text << answer.ended.message);
    REQUIRE_FALSE(answer.calls.empty());
    CHECK(answer.text.empty());
    for (const ToolCall& call : answer.calls) {
      CHECK(call.is_complete);
      const auto arguments = nlohmann::json::parse(call.arguments);
      CHECK(arguments.size() == 1);
      CHECK((arguments["unit"] == "celsius" || arguments["unit"] == "kelvin"));
    }
  }
  request.tools[0].parameters = R"({"type":"object","unevaluatedProperties":false})";
  const Completion refused = complete(*client, request);
  CHECK(refused.ended.field == "tools");
  CHECK(refused.ended.message.find("the tool 'get_weather' is strict") != std::string::npos);
  request.tools[0].strict = false;
  CHECK_FALSE(complete(*client, request).calls.empty());
}

TEST_CASE(
    "a call that the answer's length cuts is not complete, and what it would have been comes back as incomplete") {
  RealServer server(tool_model());
  const auto client = server.connect();
  Request request = weather(60);
  request.begins_with =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A very long name of a town";
  request.begins_with += std::string(400, 'q');  // more than the answer may have
  const Completion cut = complete(*client, request);
  CHECK(cut.ended.outcome == Outcome::length);
  REQUIRE(cut.calls.size() == 1);
  CHECK_FALSE(cut.calls[0].is_complete);
  CHECK(cut.calls[0].arguments.find(R"({"city": "A very)") == 0);
  auto& chat = std::get<client::Conversation>(request.prompt);
  chat.messages.push_back({.role = "assistant", .content = cut.text, .tool_calls = cut.calls});
  chat.messages.push_back(
      {.role = "tool", .content = "no such town", .tool_call_id = cut.calls[0].id, .is_error = true});
  request.begins_with.clear();
  CHECK(complete(*client, request).ended.done());
}

TEST_CASE("calls and results that are sent back make the prompt that HTTP makes of them, and all but them is cached") {
  RealServer server(tool_model());
  const auto client = server.connect();
  Request request = weather();
  request.begins_with = kCall;
  request.parallel_tool_calls = false;
  const Completion first = complete(*client, request);
  REQUIRE(first.calls.size() == 1);
  auto& chat = std::get<client::Conversation>(request.prompt);
  chat.messages.push_back({.role = "assistant", .content = first.text, .tool_calls = first.calls});
  chat.messages.push_back({.role = "tool", .content = "21 degrees", .tool_call_id = first.calls[0].id});
  request.begins_with.clear();
  const Completion second = complete(*client, request);
  CHECK(second.ended.done());
  CHECK(second.ended.usage.prompt_tokens > first.ended.usage.prompt_tokens + 20);
  CHECK(second.ended.usage.cached_tokens >= first.ended.usage.prompt_tokens / 32 * 32);
}

TEST_CASE("tools that cannot be served are refused by name") {
  RealServer server(tool_model());
  const auto client = server.connect();
  const auto refused = [&](const std::function<void(Request&)>& change, const std::string& field) {
    Request request = weather();
    change(request);
    const Completion answer = complete(*client, request);
    CHECK(scheduler::info(answer.ended.outcome).kind == scheduler::OutcomeKind::refused);
    CHECK(answer.ended.field == field);
    return answer.ended.message;
  };
  const auto message = [](Request& request) -> client::Message& {
    return std::get<client::Conversation>(request.prompt).messages.back();
  };
  CHECK(refused([](Request& r) { r.tools[1].name = "two words"; }, "tools").find("tools[1].name 'two words'") == 0);
  CHECK(refused([](Request& r) { r.tools[1].name = "get_weather"; }, "tools").find("tools[1].name") == 0);
  CHECK(refused([](Request& r) { r.tools[1].parameters = "[]"; }, "tools") ==
        "tools[1].parameters must be a JSON object");
  CHECK(refused([](Request& r) { r.tools[0].parameters = "{\"a\":1},{}"; }, "tools").find("tools[0].parameters") == 0);
  CHECK(refused([](Request& r) { r.tools.resize(1025); }, "tools").find("1025") != std::string::npos);
  refused([](Request& r) { r.prompt = std::string("Once"); }, "tools");
  refused([](Request& r) { r.called_tool = "note"; }, "called_tool");
  refused(
      [](Request& r) {
        r.tool_choice = ToolChoice::required;
        r.called_tool = "none of them";
      },
      "tool_choice");
  refused(
      [](Request& r) {
        r.tool_choice = ToolChoice::required;
        r.tools.clear();
      },
      "tool_choice");
  refused(
      [](Request& r) {
        r.tool_choice = ToolChoice::required;
        r.begins_with = "Well,";
      },
      "begins_with");
  refused([&](Request& r) { message(r).tool_calls = {{.id = "a", .name = "note"}}; }, "messages");
  refused([&](Request& r) { message(r).tool_call_id = "a"; }, "messages");
  refused([&](Request& r) { message(r).is_error = true; }, "messages");
  refused(
      [&](Request& r) {
        message(r) = {.role = "assistant", .members = "{\"tool_calls\": []}", .tool_calls = {{.id = "a", .name = "f"}}};
      },
      "messages");
  refused([&](Request& r) { message(r) = {.role = "assistant", .tool_calls = std::vector<ToolCall>(16'385)}; },
          "messages");
}

}  // namespace
}  // namespace troupe::ipc
