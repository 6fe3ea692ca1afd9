// Conversations through the real gateway: the chat template makes their prompt, and what users write stays text.
#include <fstream>
#include <future>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/gateway.h"
#include "engine/chat/builtin_templates.h"
#include "engine/formats/model_file.h"
#include "tests/actors/gateway_fixture.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/shared_data.h"
#include "tests/support/temp_folder.h"

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
  options.model().chat_template = {"turns", std::move(source)};
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

TEST_CASE("a model's defaults are what a request leaves open, and its receipt says them") {
  GatewayOptions options = with_template("{% for m in messages %}{{ m.content }}{% endfor %}");
  config::ModelDefaults& defaults = options.model().defaults;
  defaults.temperature = 0;
  defaults.system = "Once upon";
  const auto gateway = start(std::move(options));
  const Answered whole = run(*gateway, greedy("Once upon a time", 8));

  Request request = chat({{"user", " a time"}});
  request.sampling.temperature = 1;  // a program's preset
  request.wants_proof = true;
  const Answered answered = run(*gateway, request);
  REQUIRE(answered.end.outcome == Outcome::length);
  CHECK(answered.ids == whole.ids);
  REQUIRE(answered.end.proof);
  CHECK(answered.end.proof->sampling.temperature == 0);

  request.given_numbers.add(config::kTemperature);
  CHECK(run(*gateway, request).end.proof->sampling.temperature == 1);
  CHECK(gateway->models().front().defaults.system == "Once upon");
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

TEST_CASE("the last message is continued, and an assistant's without text is begun") {
  const auto gateway = start(with_template(kTurns));
  const auto continued = [&](std::vector<ChatMessage> messages) {
    ChatPrompt prompt{std::move(messages)};
    prompt.continue_final_message = true;
    const Rendered answer = applied(*gateway, prompt);
    return std::holds_alternative<End>(answer) ? std::get<End>(answer).message : std::get<std::string>(answer);
  };
  CHECK(continued({{"user", "a"}, {"assistant", "Sure,"}}) == "<s>user: a</s>assistant: Sure,");
  CHECK(continued({{"user", "a"}, {"assistant", " "}}) == "<s>user: a</s>assistant:");
  CHECK(continued({{"user", "a b"}}) == "<s>user: a b");
  CHECK_THAT(continued({{"user", ""}}), Catch::Contains("no text that could be continued"));
  Request same = greedy("", 8), asked = chat({{"user", "a"}, {"assistant", "Once upon"}});
  std::get<ChatPrompt>(asked.prompt).continue_final_message = true;
  same.prompt =
      tokenized(*gateway, "<s>user: a</s>assistant: Once upon", {.add_special = false, .parse_special = true});
  CHECK(run(*gateway, asked).ids == run(*gateway, same).ids);
}

TEST_CASE("reasoning ends by its marker once its budget is used up, greedy, drawn, and with drafts") {
  const auto gateway = start(with_template("{% for m in messages %}{{ m.content }}{% endfor %}<think>"));
  for (const float temperature : {0.0f, 1.0f}) {
    Request request = chat({{"user", "Once upon a time"}}, 24);
    request.sampling.temperature = temperature;
    request.sampling.ignore_eos = true;
    request.has_seed = true;
    const Answered free = run(*gateway, request);
    request.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = 6};
    const Answered limited = run(*gateway, request);
    INFO(limited.text);
    const std::size_t end = limited.text.find("</think>");
    REQUIRE(end != std::string::npos);
    CHECK(limited.text.substr(0, end) == free.text.substr(0, end));
    CHECK(limited.text.find("</think>", end + 1) == std::string::npos);
    CHECK(limited.ids.size() == 24);
    CHECK(std::equal(limited.ids.begin(), limited.ids.begin() + 6, free.ids.begin()));
    for (const auto source : {engine::DraftSource::ngram, engine::DraftSource::suffix}) {
      request.speculation.source = source;
      CHECK(run(*gateway, request).ids == limited.ids);
    }
    request.speculation = {};
    request.prompt = "Once upon a time";  // no reasoning: nothing to end
    CHECK(run(*gateway, request).text.find("</think>") == std::string::npos);
  }
}

TEST_CASE("reasoning ends by the markers of the model's template") {
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"[THINK]", "[/THINK]"},
                                    {"<|START_THINKING|>", "<|END_THINKING|>"},
                                    {"<seed:think>", "</seed:think>"}}) {
    const auto gateway = start(with_template("{% for m in messages %}{{ m.content }}{% endfor %}" + open));
    const ModelDescription description = gateway->models()[0];
    CHECK(description.reasoning.open == open);
    CHECK(description.begins_reasoning);
    Request request = chat({{"user", "Once upon a time"}}, 24);
    request.sampling.ignore_eos = true;
    request.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = 3};
    const Answered limited = run(*gateway, request);
    INFO(limited.text);
    CHECK(limited.text.find(close) != std::string::npos);
    CHECK(limited.text.find("</think>") == std::string::npos);
  }
  CHECK_FALSE(start(with_template(kTurns))->models()[0].begins_reasoning);
}

TEST_CASE("a developer's message is the system's for a template that does not know developers") {
  const std::string roles = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
  const auto rendered = [](const std::string& source) {
    const auto gateway = start(with_template(source));
    return std::get<std::string>(applied(*gateway, {{{"developer", "Be terse."}, {"user", "Hi"}}}));
  };
  CHECK(rendered(roles) == "[system]Be terse.[user]Hi");
  CHECK(rendered(roles + "{# knows developer #}") == "[developer]Be terse.[user]Hi");
}

TEST_CASE("further members of a message reach the template as input") {
  const auto gateway = start(with_template("{% for m in messages %}{{ m | tojson }}{% endfor %}"));
  ChatMessage call{.role = "assistant", .content = ""}, result{.role = "tool", .content = "42"};
  call.members = R"({"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]})";
  result.members = R"({"tool_call_id": "a"})";
  CHECK(std::get<std::string>(applied(*gateway, {{call, result}})) ==
        R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]})"
        R"({"role": "tool", "content": "42", "tool_call_id": "a"})");
  for (const char* wrong : {"[1]", "{", R"({"content": "x"})"}) {
    call.members = wrong;
    CHECK(std::get<End>(applied(*gateway, {{call}})).outcome == Outcome::invalid_argument);
  }
}

// A model whose file has the template kTurns, and this one for conversations with tools.
GatewayOptions with_tool_template(const troupe::test::TempFolder& folder, const std::string& source) {
  GatewayOptions options = embedded_model();
  const auto original = engine::open_gguf(options.model().path);
  REQUIRE(original);
  troupe::test::MetadataFile metadata((*original)->metadata());
  metadata["tokenizer.chat_template"] = std::string(kTurns);
  metadata["tokenizer.chat_template.tool_use"] = source;
  options.model().path = folder.write("model.gguf", troupe::test::model_with(**original, metadata));
  return options;
}

TEST_CASE("a conversation with tools gets the file's template for them, others its own") {
  const troupe::test::TempFolder folder;
  GatewayOptions options = with_tool_template(
      folder, "{{ tools | default([]) | tojson }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  const std::string plain = "<s>user: Hi</s>assistant:", offered = R"({"tools": [{"name": "f"}], "word": "bot"})";
  ChatMessage call{.role = "assistant", .content = ""};
  call.members = R"({"tool_calls": [{"function": {"name": "f"}}]})";
  {
    const auto gateway = start(options);
    const auto prompt = [&](ChatPrompt chat) { return std::get<std::string>(applied(*gateway, std::move(chat))); };
    CHECK(prompt({{{"user", "Hi"}}}) == plain);
    CHECK(prompt({{{"user", "Hi"}}, true, R"({"tools": null})"}) == plain);
    CHECK(prompt({{{"user", "Hi"}}, true, R"({"word": "tools"})"}) == "<s>user: Hi</s>tools:");
    CHECK(prompt({{{"user", "Hi"}}, true, R"({"tools": []})"}) == "[]<user>Hi");
    CHECK(prompt({{{"user", "Hi"}}, true, offered}) == R"([{"name": "f"}]<user>Hi)");
    CHECK(prompt({{{"user", "Hi"}, call}}) == "[]<user>Hi<assistant>");
    CHECK(prompt({{{"user", "Hi"}, call, {"tool", "42"}}}) == "[]<user>Hi<assistant><tool>42");
    // The answer is to that prompt.
    Request request = chat({{"user", "Once upon a time"}}), same = greedy("", 8);
    std::get<ChatPrompt>(request.prompt).variables = R"({"tools": []})";
    same.prompt = tokenized(*gateway, "[]<user>Once upon a time", {.add_special = true, .parse_special = true});
    CHECK(run(*gateway, request).ids == run(*gateway, same).ids);
  }
  // One that was asked for is the only one.
  options.model().chat_template.name = "default";
  CHECK(std::get<std::string>(applied(*start(options), {{{"user", "Hi"}}, true, offered})) == "<s>user: Hi</s>bot:");
  // One that cannot be used does not exist.
  CHECK(std::get<std::string>(applied(*start(with_tool_template(folder, "{% if %}")),
                                      {{{"user", "Hi"}}, true, offered})) == "<s>user: Hi</s>bot:");
}

TEST_CASE("a published template for tools renders as with Jinja2 where a request has them") {
  const auto source =
      troupe::test::shared_file("thirdparty/templates/NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja");
  const auto cases = troupe::test::shared_file("thirdparty/templates/expected.jsonl");
  if (!source || !cases) return;
  std::ifstream file(*source, std::ios::binary), lines(*cases);
  const troupe::test::TempFolder folder;
  const auto gateway = start(with_tool_template(folder, std::string(std::istreambuf_iterator<char>(file), {})));
  int num_cases = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto expected = nlohmann::ordered_json::parse(line);
    if (!source->ends_with(expected["template"].get<std::string>()) || !expected["options"].contains("tools")) continue;
    ChatPrompt prompt;
    for (const auto& each : expected["messages"])
      prompt.messages.push_back({each["role"].get<std::string>(), each["content"].get<std::string>()});
    prompt.variables = nlohmann::ordered_json{{"tools", expected["options"]["tools"]}}.dump();
    CHECK(std::get<std::string>(applied(*gateway, prompt)) == expected["expected"].get<std::string>());
    ++num_cases;
  }
  CHECK(num_cases >= 1);
}

TEST_CASE("what the template refuses is refused in its words, once") {
  const auto gateway = start(with_template(kTurns));
  const std::string long_text(8192, 'x');  // on a text thread, too
  for (const std::string& content : {std::string("x"), long_text}) {
    const Answered answered = run(*gateway, chat({{"critic", content}}));
    CHECK(answered.end.outcome == Outcome::invalid_argument);
    CHECK(answered.end.field == "messages");
    CHECK_THAT(answered.end.message, Catch::EndsWith(": no critic"));
  }
  CHECK(std::get<End>(applied(*gateway, {{{"tool", "x"}}})).outcome == Outcome::invalid_argument);
}

TEST_CASE("a template's file is named with its folder to the owner alone") {
  GatewayOptions options = with_template(kTurns);
  options.model().chat_template.name = "/etc/my troupe/turns.jinja";
  const auto gateway = start(options);
  const scheduler::Tenant guest{TenantId{2000}, false};
  for (const std::string& content : {std::string("x"), std::string(8192, 'x')}) {
    Request request = chat({{"critic", content}});
    CHECK_THAT(run(*gateway, request).end.message, Catch::Contains("'/etc/my troupe/turns.jinja'"));
    request.tenant = guest;
    const std::string told = run(*gateway, request).end.message;
    CHECK_THAT(told, Catch::Contains("'turns.jinja'") && !Catch::Contains("/etc"));
  }
  Answer<Rendered> rendered;
  gateway->apply_template({guest, {}}, ChatPrompt{{{"critic", "x"}}}, rendered.callback());
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

TEST_CASE("gateway: what a rendering may hold is an option of the server") {
  // 4 MB for this content alone, not for those of the trial.
  GatewayOptions options = with_template(
      "{{ messages[0].content }}{% if messages[0].content == 'much' %}{{ ('x' * 4000000) | length }}{% endif %}");
  CHECK(std::get<std::string>(applied(*start(options), {{{"user", "much"}}})) == "much4000000");
  options.max_rendering_bytes = 1u << 20;
  CHECK_THAT(std::get<End>(applied(*start(options), {{{"user", "much"}}})).message,
             Catch::Contains("its values take more than 1 MiB"));
}

TEST_CASE("conversations without a message, or with a message without a role, are refused") {
  const auto gateway = start(with_template(kTurns));
  CHECK(run(*gateway, chat({})).end.outcome == Outcome::invalid_argument);
  CHECK(run(*gateway, chat({{"", "x"}})).end.outcome == Outcome::invalid_argument);
  CHECK(run(*gateway, chat(std::vector<ChatMessage>(kMaxChatMessages + 1, {"user", "x"}))).end.outcome ==
        Outcome::invalid_argument);
}

TEST_CASE("messages continue a session behind its last answer, and its tokens stay") {
  const troupe::test::TempFolder folder;
  GatewayOptions options = with_template(kTurns);
  options.sessions_directory = folder.path("sessions");
  const auto gateway = start(options);
  const auto ids_of = [&](const std::string& text) {
    return tokenized(*gateway, text, {.add_special = false, .parse_special = true});
  };
  std::vector<TokenId> all;
  const auto say = [&](std::vector<ChatMessage> messages, const std::string& written) {
    Request request = chat(std::move(messages), 6);
    request.sampling.ignore_eos = true;
    request.session = "talk";
    const Answered answered = run(*gateway, request);
    INFO(answered.end.message);
    const std::vector<TokenId> ids = ids_of(written);
    all.insert(all.end(), ids.begin(), ids.end());
    CHECK(answered.end.usage.prompt_tokens == all.size());
    Request same = greedy("", 6);
    same.sampling.ignore_eos = true;
    same.prompt = all;
    CHECK(answered.ids == run(*gateway, same).ids);
    all.insert(all.end(), answered.ids.begin(), answered.ids.end());
  };
  say({{"user", "Once upon a time"}}, "<s>user: Once upon a time</s>assistant:");
  say({{"user", "And then?"}}, "</s>user: And then?</s>assistant:");
  say({{"user", "a"}, {"assistant", "b"}, {"user", "c"}}, "</s>user: a</s>assistant: b</s>user: c</s>assistant:");
}

TEST_CASE("a template that does not write earlier answers cannot continue a session by messages") {
  const troupe::test::TempFolder folder;
  GatewayOptions options = with_template("{{ messages[-1].content }}:");
  options.sessions_directory = folder.path("sessions");
  const auto gateway = start(options);
  Request request = chat({{"user", "Once"}}, 2);
  request.session = "talk";
  CHECK(scheduler::info(run(*gateway, request).end.outcome).kind == scheduler::OutcomeKind::done);
  const End refused = run(*gateway, request).end;
  CHECK(refused.outcome == Outcome::invalid_argument);
  CHECK_THAT(refused.message, Catch::Contains("does not write earlier answers"));
}

TEST_CASE("a template that cannot be used keeps a server from starting only if it was asked for") {
  GatewayOptions options = embedded_model();
  options.model().chat_template = {"nope", ""};
  const auto gateway = Gateway::start(options);
  REQUIRE(gateway);
  Answer<Status> loaded;
  (*gateway)->on_loaded(loaded.callback());
  const Status status = loaded.wait();
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message, Catch::Contains("'nope' is no file"));
}

// As slow as a rendering may be, unless the conversation is the one of a trial.
constexpr const char* kEndless =
    "{% set l = [1] * 10000 %}{% for i in l %}{% for j in l %}{% set x = j %}{% endfor %}{% endfor %}";
const std::string kSlow = std::string("{% if messages[0].content == 'slow' %}") + kEndless +
                          "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}";

TEST_CASE("a drain ends conversations that wait for a slow template or are being rendered by it, and takes no longer") {
  const auto gateway = start(with_template(kSlow));
  CHECK(run(*gateway, chat({{"user", "Once upon a time"}})).end.outcome == Outcome::length);
  std::vector<std::shared_ptr<Recorder>> all;
  for (int i = 0; i < 32; ++i) {
    all.push_back(std::make_shared<Recorder>());
    gateway->submit(chat({{"user", "slow"}}), all.back());
  }
  Answer<Rendered> applied;
  gateway->apply_template(owner(), {{{"user", "slow"}}}, applied.callback());
  std::promise<void> drained;
  gateway->drain([&] { drained.set_value(); });
  drained.get_future().wait();
  const End last = all.back()->wait_for_end();
  CHECK(last.outcome == Outcome::draining);
  CHECK(std::holds_alternative<End>(applied.wait()));
}

TEST_CASE("a client that goes away ends its conversation, wherever the template is") {
  const auto gateway = start(with_template(kSlow));
  const auto slow = std::make_shared<Recorder>();
  const RequestId id = gateway->submit(chat({{"user", "slow"}}), slow);
  gateway->cancel(id);
  CHECK(slow->wait_for_end().outcome == Outcome::cancelled);
  Answer<Rendered> applied;
  *gateway->apply_template(owner(), {{{"user", "slow"}}}, applied.callback()) = true;
  CHECK(std::get<End>(applied.wait()).outcome == Outcome::cancelled);
}

TEST_CASE("a template whose trial takes too long is refused by name if it was asked for") {
  const auto gateway = Gateway::start(with_template(kEndless));
  REQUIRE(gateway);
  Answer<Status> loaded;
  (*gateway)->on_loaded(loaded.callback());
  const Status status = loaded.wait();
  REQUIRE_FALSE(status);
  CHECK_THAT(status.error().message,
             Catch::Contains("chat template 'turns': its trial") && Catch::Contains("takes longer than 100 ms"));
}

TEST_CASE(
    "of a model whose own template takes too long in its trial messages are refused by name, and texts answered") {
  const troupe::test::TempFolder folder;
  GatewayOptions options = embedded_model();
  const auto original = engine::open_gguf(options.model().path);
  REQUIRE(original);
  troupe::test::MetadataFile metadata((*original)->metadata());
  metadata["tokenizer.chat_template"] = std::string(kEndless);
  options.model().path = folder.write("model.gguf", troupe::test::model_with(**original, metadata));
  const auto gateway = start(options);
  const Answered answered = run(*gateway, chat({{"user", "Hi"}}));
  CHECK(answered.end.outcome == Outcome::unsupported);
  CHECK_THAT(answered.end.message, Catch::Contains("chat template 'default': its trial"));
  CHECK(run(*gateway, greedy("Once upon a time", 4)).end.outcome == Outcome::length);
}

}  // namespace
}  // namespace troupe::actors
