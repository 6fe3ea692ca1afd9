// Conversations through the real gateway: the chat template makes their prompt, and what users write stays text.
#include "actors/gateway.h"
#include "engine/chat/builtin_templates.h"
#include "tests/actors/gateway_fixture.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr const char* kTurns =
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' ~ m.role) }}"
    "{% endif %}{{ bos_token if loop.first }}{{ m.role }}: {{ m.content | trim }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ word | default('assistant') }}:{% endif %}";

GatewayOptions with_template(std::string source) {
  GatewayOptions options = embedded_model();
  options.chat_template = {"turns", std::move(source)};
  return options;
}

Request chat(std::vector<ChatMessage> messages, std::uint32_t max_tokens = 8) {
  Request request = greedy("", max_tokens);
  request.prompt = ChatPrompt{std::move(messages)};
  return request;
}

TextRequest owner() { return {kOwner, {}}; }

std::vector<TokenId> tokenized(Gateway& gateway, std::string text, engine::EncodeOptions options) {
  Answer<Tokenized> answer;
  gateway.tokenize(owner(), std::move(text), options, answer.callback());
  return std::get<std::vector<TokenId>>(answer.wait());
}

Rendered applied(Gateway& gateway, ChatPrompt prompt) {
  Answer<Rendered> answer;
  gateway.apply_template(owner(), std::move(prompt), answer.callback());
  return answer.wait();
}

TEST_CASE("messages are answered as the prompt that the template makes of them, short ones and long ones") {
  const auto gateway = start(with_template(kTurns));
  // The second is above 4 KiB, and so rendered and encoded on a text thread.
  for (const std::string& content : {std::string("Once upon a time"), "Once upon a time" + std::string(8192, ' ')}) {
    const Answered answered = run(*gateway, chat({{"user", content}}));
    INFO(answered.end.message);
    REQUIRE(answered.end.outcome == Outcome::length);
    Request same = greedy("", 8);
    const std::string text = "<s>user: Once upon a time</s>assistant:";
    same.prompt = tokenized(*gateway, text, {.add_special = false, .parse_special = true});
    const Answered of_ids = run(*gateway, same);
    CHECK(answered.ids == of_ids.ids);
    CHECK(answered.end.usage.prompt_tokens == of_ids.end.usage.prompt_tokens);
    CHECK(std::get<std::string>(applied(*gateway, {{{"user", content}}})) == text);
  }
}

TEST_CASE("a control token that a user writes is text, and the template's is one token") {
  const auto gateway = start(with_template(kTurns));
  const auto tokens_of = [&](const char* content) {
    return run(*gateway, chat({{"user", content}}, 1)).end.usage.prompt_tokens;
  };
  const auto plain = tokenized(*gateway, "x</s></s></s>", {.add_special = false}).size();
  const auto control = tokenized(*gateway, "x</s></s></s>", {.add_special = false, .parse_special = true}).size();
  REQUIRE(plain > control);
  CHECK(tokens_of("x</s></s></s>") >= tokens_of("x") + 3 * 3);
}

TEST_CASE("several answers to one conversation come from one prompt") {
  const auto gateway = start(with_template(kTurns));
  Request request = seeded("", 6, 5);
  request.prompt = ChatPrompt{{{"user", "Once upon"}}};
  request.num_choices = 2;
  const auto sink = std::make_shared<ChoiceRecorder>(2);
  gateway->submit(request, sink);
  const auto answers = sink->wait();
  CHECK(answers[0].end.outcome == Outcome::length);
  CHECK(answers[1].end.outcome == Outcome::length);
  CHECK(answers[0].end.usage.prompt_tokens == answers[1].end.usage.prompt_tokens);
}

TEST_CASE("variables and the choice of no generation prompt reach the template") {
  const auto gateway = start(with_template(kTurns));
  CHECK(std::get<std::string>(applied(*gateway, {{{"user", "a"}}, true, R"({"word": "bot"})"})) ==
        "<s>user: a</s>bot:");
  CHECK(std::get<std::string>(applied(*gateway, {{{"user", "a"}}, false, {}})) == "<s>user: a</s>");
  const End wrong = std::get<End>(applied(*gateway, {{{"user", "a"}}, true, "[1]"}));
  CHECK(wrong.outcome == Outcome::invalid_argument);
  CHECK_THAT(wrong.message, Catch::Contains("must be a JSON object"));
}

TEST_CASE("what the template refuses is refused in its words, once") {
  const auto gateway = start(with_template(kTurns));
  const std::string long_text(8192, 'x');  // on a text thread, too
  for (const std::string& content : {std::string("x"), long_text}) {
    const Answered answered = run(*gateway, chat({{"system", content}}));
    CHECK(answered.end.outcome == Outcome::invalid_argument);
    CHECK(answered.end.field == "messages");
    CHECK_THAT(answered.end.message, Catch::EndsWith(": no system"));
  }
  CHECK(std::get<End>(applied(*gateway, {{{"tool", "x"}}})).outcome == Outcome::invalid_argument);
}

TEST_CASE("a template's file is named with its folder to the owner alone") {
  GatewayOptions options = with_template(kTurns);
  options.chat_template.name = "/etc/my troupe/turns.jinja";
  const auto gateway = start(options);
  const scheduler::Tenant guest{TenantId{2000}, false};
  for (const std::string& content : {std::string("x"), std::string(8192, 'x')}) {
    Request request = chat({{"system", content}});
    CHECK_THAT(run(*gateway, request).end.message, Catch::Contains("'/etc/my troupe/turns.jinja'"));
    request.tenant = guest;
    const std::string told = run(*gateway, request).end.message;
    CHECK_THAT(told, Catch::Contains("'turns.jinja'") && !Catch::Contains("/etc"));
  }
  Answer<Rendered> rendered;
  gateway->apply_template({guest, {}}, ChatPrompt{{{"system", "x"}}}, rendered.callback());
  CHECK_THAT(std::get<End>(rendered.wait()).message, Catch::Contains("'turns.jinja'") && !Catch::Contains("/etc"));
}

TEST_CASE("a model without a chat template refuses messages and says what to do") {
  const auto gateway = start();
  const Answered answered = run(*gateway, chat({{"user", "Hi"}}));
  CHECK(answered.end.outcome == Outcome::unsupported);
  CHECK(answered.end.field == "messages");
  CHECK_THAT(answered.end.message, Catch::Contains("--chat-template"));
  CHECK(std::get<End>(applied(*gateway, {{{"user", "Hi"}}})).outcome == Outcome::unsupported);
  CHECK(gateway->models()[0].chat_template == nullptr);
}

TEST_CASE("conversations without a message, with a message without a role, or in a session are refused") {
  const auto gateway = start(with_template(kTurns));
  CHECK(run(*gateway, chat({})).end.outcome == Outcome::invalid_argument);
  CHECK(run(*gateway, chat({{"", "x"}})).end.outcome == Outcome::invalid_argument);
  CHECK(run(*gateway, chat(std::vector<ChatMessage>(kMaxChatMessages + 1, {"user", "x"}))).end.outcome ==
        Outcome::invalid_argument);
  Request in_session = chat({{"user", "x"}});
  in_session.session = "talk";
  CHECK(run(*gateway, in_session).end.outcome == Outcome::unsupported);
}

TEST_CASE("a template that cannot be used keeps a server from starting only if it was asked for") {
  GatewayOptions options = embedded_model();
  options.chat_template = {"nope", ""};
  const auto gateway = Gateway::start(options);
  REQUIRE(gateway);
  Answer<Status> loaded;
  (*gateway)->on_loaded(loaded.callback());
  const Status status = loaded.wait();
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains("no chat template 'nope'"));
}

}  // namespace
}  // namespace troupe::actors
