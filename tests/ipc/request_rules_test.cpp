// What frames and HTTP refuse alike.
#include "ipc/request_rules.h"

#include <catch2/catch.hpp>
#include <functional>

#include "ipc/frames/wire.h"
#include "ipc/http/api/call.h"

using namespace troupe;
using namespace troupe::ipc;
using scheduler::Outcome;

namespace {

constexpr std::uint32_t kMaxPrompt = 100;

scheduler::Tenant guest() {
  scheduler::Tenant tenant{.id = TenantId{1000}};
  return tenant;
}

RequestOrRefusal over_frames(const std::function<void(v1::Generate&)>& change) {
  v1::Generate generate;
  generate.set_text("hello");
  change(generate);
  return to_request(generate, guest(), kMaxPrompt);
}

std::variant<api::ApiCall, api::ApiError> over_http(const std::string& fields,
                                                    api::Endpoint endpoint = api::Endpoint::completions) {
  return api::parse_call(endpoint, R"({"model":"m")" + fields + "}",
                         {.tenant = guest(), .uid = 1000, .max_prompt_bytes = kMaxPrompt});
}

struct Case {
  std::string http;  // fields of a body
  std::function<void(v1::Generate&)> frame;
  Outcome outcome;
  std::string field, param;  // over frames, and over HTTP
  std::optional<std::uint64_t> limit{};
};

}  // namespace

TEST_CASE("frames and HTTP refuse the same values, each by the name that its clients know") {
  const std::string text(kMaxPrompt + 1, 'a');
  const Case cases[] = {
      {R"(,"prompt":"a","n":0)", [](auto& g) { g.set_n(0); }, Outcome::invalid_argument, "n", "n"},
      {R"(,"prompt":"a","n":65)", [](auto& g) { g.set_n(65); }, Outcome::invalid_argument, "n", "n", 64},
      {R"(,"prompt":")" + text + '"', [&](auto& g) { g.set_text(text); }, Outcome::too_long, "text", "prompt",
       kMaxPrompt},
      {R"(,"prompt":"a","logprobs":21)", [](auto& g) { g.set_logprobs(21); }, Outcome::invalid_argument, "logprobs",
       "logprobs", 20},
      {R"(,"prompt":"a","logprobs":2147483647)", [](auto& g) { g.set_logprobs(~0u); }, Outcome::invalid_argument,
       "logprobs", "logprobs", 20},
      {R"(,"prompt":"a","priority":1001)", [](auto& g) { g.set_priority(1001); }, Outcome::invalid_argument, "priority",
       "priority", 1000},
      {R"(,"prompt":"a","troupe":{"priority":-1})", [](auto& g) { g.set_priority(-1); }, Outcome::permission,
       "priority", "troupe.priority"},
      {R"(,"prompt":"a","stop":[""])", [](auto& g) { g.add_stop(""); }, Outcome::invalid_argument, "stop", "stop"},
      {R"(,"prompt":"a","stop":")" + std::string(257, 's') + '"', [](auto& g) { g.add_stop(std::string(257, 's')); },
       Outcome::invalid_argument, "stop", "stop", 256},
  };
  for (const Case& each : cases) {
    INFO(each.http.substr(0, 60));
    const auto framed = over_frames(each.frame);
    REQUIRE(std::holds_alternative<Refusal>(framed));
    const Refusal& refusal = std::get<Refusal>(framed);
    CHECK(refusal.outcome == each.outcome);
    CHECK(refusal.field == each.field);
    CHECK(refusal.limit == each.limit);
    const auto posted = over_http(each.http);
    REQUIRE(std::holds_alternative<api::ApiError>(posted));
    const api::ApiError& error = std::get<api::ApiError>(posted);
    CHECK(error.status == scheduler::info(each.outcome).http_status);
    CHECK(error.param == each.param);
  }
}

TEST_CASE("frames and HTTP measure a conversation alike, with its variables, and say the same of it") {
  const std::string fills(kMaxPrompt - std::string("user").size(), 'a'), variables = R"({"x":")" + fills + R"("})";
  const auto framed = [&](const std::string& content, const std::string& with) {
    return over_frames([&](v1::Generate& generate) {
      generate.mutable_messages()->set_variables(with);
      v1::Messages::Message& message = *generate.mutable_messages()->add_messages();
      message.set_role("user");
      message.set_content(content);
    });
  };
  const auto posted = [&](const std::string& content, const std::string& with, api::Endpoint endpoint) {
    return over_http(R"(,"messages":[{"role":"user","content":")" + content + R"("}])" +
                         (with.empty() ? "" : R"(,"chat_template_kwargs":)" + with),
                     endpoint);
  };
  CHECK(std::holds_alternative<actors::Request>(framed(fills, "")));
  for (const auto endpoint : {api::Endpoint::chat_completions, api::Endpoint::apply_template})
    CHECK(std::holds_alternative<api::ApiCall>(posted(fills, "", endpoint)));
  for (const auto& [content, with] : {std::pair(fills + "a", std::string()), std::pair(std::string("a"), variables)}) {
    const auto refusal = framed(content, with);
    REQUIRE(std::holds_alternative<Refusal>(refusal));
    CHECK(std::get<Refusal>(refusal).outcome == Outcome::too_long);
    CHECK(std::get<Refusal>(refusal).field == "messages");
    for (const auto endpoint : {api::Endpoint::chat_completions, api::Endpoint::apply_template}) {
      const auto error = posted(content, with, endpoint);
      REQUIRE(std::holds_alternative<api::ApiError>(error));
      CHECK(std::get<api::ApiError>(error).param == "messages");
      CHECK(std::get<api::ApiError>(error).message == std::get<Refusal>(refusal).message);
    }
  }
}

TEST_CASE("frames and HTTP make the same conversation of messages with tools, calls and results") {
  constexpr const char* kSchema = R"({"type":"object","properties":{"city":{"type":"string"}}})";
  const auto posted = api::parse_call(
      api::Endpoint::chat_completions,
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1",)"
      R"("type":"function","function":{"name":"f","arguments":"{\"city\": \"Bern\"}"}},{"id":"c2","type":"function",)"
      R"("function":{"name":"g","arguments":"{\"x\": "}}]},{"role":"tool","tool_call_id":"c1","content":"5"},)"
      R"({"role":"tool","tool_call_id":"c2","content":"Error: no"}],"tools":[{"type":"function","function":{"name":"f",)"
      R"("description":"d","parameters":)" +
          std::string(kSchema) +
          R"(}},{"type":"function","function":{"name":"g"}}],"parallel_tool_calls":false,)"
          R"("tool_choice":{"type":"function","function":{"name":"g"}}})",
      {.tenant = guest(), .uid = 1000, .max_prompt_bytes = 10'000});
  REQUIRE(std::holds_alternative<api::ApiCall>(posted));
  v1::Generate generate;
  const auto say = [&](const char* role, const char* content) -> v1::Messages::Message& {
    v1::Messages::Message& message = *generate.mutable_messages()->add_messages();
    message.set_role(role);
    message.set_content(content);
    return message;
  };
  const auto call = [](v1::Messages::Message& message, const char* id, const char* name, const char* arguments) {
    v1::ToolCall& added = *message.add_tool_calls();
    added.set_id(id);
    added.set_name(name);
    added.set_arguments(arguments);
  };
  say("user", "a");
  v1::Messages::Message& answer = say("assistant", "");
  call(answer, "c1", "f", R"({"city": "Bern"})");
  call(answer, "c2", "g", R"({"x": )");
  say("tool", "5").set_tool_call_id("c1");
  v1::Messages::Message& failed = say("tool", "no");
  failed.set_tool_call_id("c2");
  failed.set_is_error(true);
  v1::Tool& tool = *generate.add_tools();
  tool.set_name("f");
  tool.set_description("d");
  tool.set_parameters(kSchema);
  generate.add_tools()->set_name("g");
  generate.set_parallel_tool_calls(false);
  generate.set_tool_choice(v1::TOOL_CHOICE_REQUIRED);
  generate.set_called_tool("g");
  const auto framed = to_request(generate, guest(), 10'000);
  REQUIRE(std::holds_alternative<actors::Request>(framed));
  const actors::Request &by_frame = std::get<actors::Request>(framed),
                        &by_http = std::get<api::ApiCall>(posted).request;
  const auto &of_frame = std::get<actors::ChatPrompt>(by_frame.prompt),
             &of_http = std::get<actors::ChatPrompt>(by_http.prompt);
  CHECK(of_frame.tools == of_http.tools);
  REQUIRE(of_frame.messages.size() == of_http.messages.size());
  for (std::size_t i = 0; i < of_http.messages.size(); ++i) {
    INFO(of_frame.messages[i].members << " | " << of_http.messages[i].members);
    CHECK(of_frame.messages[i] == of_http.messages[i]);
  }
  CHECK(by_frame.tools->must_call == by_http.tools->must_call);
  CHECK(by_frame.tools->name == by_http.tools->name);
  CHECK(by_frame.tools->may_call_several == by_http.tools->may_call_several);
}

TEST_CASE("a deadline above a year is refused, however large its number is") {
  for (const std::uint64_t ms : {actors::kMaxDeadlineMs + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const auto framed = over_frames([&](auto& g) { g.set_deadline_ms(ms); });
    REQUIRE(std::holds_alternative<Refusal>(framed));
    CHECK(std::get<Refusal>(framed).field == "deadline_ms");
    CHECK(std::get<Refusal>(framed).limit == actors::kMaxDeadlineMs);
  }
  CHECK(
      std::holds_alternative<actors::Request>(over_frames([](auto& g) { g.set_deadline_ms(actors::kMaxDeadlineMs); })));
}

TEST_CASE("a request gets what its tenant's policy decides, and no more credit than can be counted") {
  actors::Request request;
  request.tenant = guest();
  request.prompt = "hello";
  request.credit = ~std::uint64_t{0};
  REQUIRE_FALSE(apply_rules(request, kMaxPrompt));
  CHECK(request.credit == kMaxCredit);
  CHECK(request.cache_scope.empty());

  const auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->public_cache = true;
  policy->most_urgent_priority = 5;
  request.tenant.policy = policy;
  REQUIRE_FALSE(apply_rules(request, kMaxPrompt));
  CHECK(request.cache_scope == "public");
  CHECK(request.priority == 5);
}
