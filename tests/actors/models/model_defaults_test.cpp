#include "actors/models/model_defaults.h"

#include <catch2/catch.hpp>

#include "actors/requests/request_shape.h"
#include "engine/chat/values/json.h"
#include "tests/engine/metadata_file.h"

namespace troupe::actors {
namespace {

using Catch::Matchers::Contains;

config::ModelDefaults all() {
  config::ModelDefaults defaults;
  defaults.temperature = 0.5;
  defaults.top_k = 7;
  defaults.reasoning = "low";
  defaults.reasoning_budget = 64;
  defaults.system = "Be brief.";
  return defaults;
}

ChatPrompt hello() { return ChatPrompt{{{"user", "Hello"}}}; }

}  // namespace

TEST_CASE("defaults of a model: a file's sampling numbers are taken, and what cannot be is said") {
  std::vector<std::string> notes;
  const auto defaults = defaults_of(test::MetadataFile({{"general.sampling.temp", 0.7},
                                                        {"general.sampling.top_k", std::int64_t{20}},
                                                        {"general.sampling.min_p", std::int64_t{0}},
                                                        {"general.sampling.penalty_repeat", 1.05},
                                                        {"general.sampling.penalty_last_n", std::int64_t{-1}}}),
                                    notes);
  CHECK(defaults.temperature == 0.7);
  CHECK(defaults.top_k == 20);
  CHECK_FALSE(defaults.top_p);
  CHECK(defaults.min_p == 0);
  CHECK(defaults.repeat_penalty == 1.05);
  CHECK(defaults.repeat_last_n == -1);
  CHECK(notes.empty());

  const auto wrong = defaults_of(test::MetadataFile({{"general.sampling.temp", -1.0},
                                                     {"general.sampling.top_k", 2.5},
                                                     {"general.sampling.top_p", std::string("0.9")},
                                                     {"general.sampling.mirostat", std::int64_t{2}},
                                                     {"general.sampling.xtc_probability", 0.0}}),
                                 notes);
  CHECK(wrong.empty());
  REQUIRE(notes.size() == 4);
  CHECK_THAT(notes[0], Contains("general.sampling.temp is -1, and is not taken"));
  CHECK_THAT(notes[1], Contains("general.sampling.top_k is 2.5"));
  CHECK_THAT(notes[2], Contains("general.sampling.top_p is no number"));
  CHECK_THAT(notes[3], Contains("general.sampling.mirostat is 2"));
}

TEST_CASE("defaults of a model: its table's go before its file's") {
  config::ModelDefaults file = all();
  file.top_k = 1;
  file.min_p = 0.25;
  config::ModelDefaults table;
  table.top_k = 3;
  table.system = "Rhyme.";
  const auto both = config::with_fallback(table, file);
  CHECK(both.top_k == 3);
  CHECK(both.min_p == 0.25);
  CHECK(both.temperature == 0.5);
  CHECK(both.system == "Rhyme.");
  CHECK(both.reasoning == "low");
}

TEST_CASE("defaults of a model: a request's own numbers stay") {
  Request request;
  request.sampling.temperature = 1.5f;
  request.given_numbers.add(config::kTemperature);
  take_numbers(all(), request);
  CHECK(request.sampling.temperature == 1.5f);
  CHECK(request.sampling.top_k == 7);
  CHECK(request.sampling.top_p == engine::SamplingParams{}.top_p);
  REQUIRE(request.sampling.reasoning_budget);
  CHECK(request.sampling.reasoning_budget->num_tokens == 64);

  request.sampling.reasoning_budget->num_tokens = 3;
  take_numbers(all(), request);
  CHECK(request.sampling.reasoning_budget->num_tokens == 3);
}

TEST_CASE("defaults of a model: a conversation gets the system prompt and the reasoning that it lacks") {
  ChatPrompt chat = hello();
  take_conversation(all(), false, chat);
  REQUIRE(chat.messages.size() == 2);
  CHECK(chat.messages[0].role == "system");
  CHECK(chat.messages[0].content == "Be brief.");
  CHECK(chat.variables == R"({"enable_thinking":true,"thinking":true,"reasoning_effort":"low"})");

  const ChatPrompt once = chat;
  take_conversation(all(), false, chat);
  CHECK(chat == once);

  for (const char* const others : {R"({"date": "today"})", R"( { "date" : "today" } )"}) {
    chat = hello();
    chat.variables = others;
    config::ModelDefaults without = all();
    without.reasoning = "none";
    take_conversation(without, false, chat);
    const auto variables = engine::chat::parse_json(chat.variables);
    REQUIRE(variables);
    CHECK(std::get<bool>(variables->find("enable_thinking")->value) == false);
    CHECK(*variables->find("date")->text() == "today");
    CHECK(variables->find("reasoning_effort") == nullptr);
  }
  chat = hello();
  chat.variables = " { } ";
  take_conversation(all(), false, chat);
  CHECK(engine::chat::parse_json(chat.variables));
  chat.variables = "{} garbage";  // is refused where it is rendered
  take_conversation(all(), false, chat);
  CHECK_FALSE(engine::chat::parse_json(chat.variables));
}

TEST_CASE("defaults of a model: what they add does not count against the limits of a client") {
  const auto taken = [](ChatPrompt chat) {
    Request request;
    request.prompt = std::move(chat);
    const bool before = !check_shape(request);
    take_conversation(all(), false, std::get<ChatPrompt>(request.prompt));
    CHECK(check_shape(request).has_value() != before);
    return before;
  };
  ChatPrompt many;
  many.messages.assign(kMaxChatMessages, ChatMessage{"user", "x"});
  CHECK(taken(many));
  many.messages.push_back({"user", "x"});
  CHECK_FALSE(taken(many));
  ChatPrompt large = hello();
  large.messages.front().content.assign(kMaxPromptBytes - std::string("user").size(), 'x');
  CHECK(taken(large));
  large.messages.front().content += 'x';
  CHECK_FALSE(taken(large));
  ChatPrompt with_variables = hello();
  with_variables.variables = R"({"x":")" + std::string(kMaxChatVariableBytes - 8, 'x') + R"("})";
  REQUIRE(with_variables.variables.size() == kMaxChatVariableBytes);
  CHECK(taken(with_variables));
  with_variables.variables += ' ';
  CHECK_FALSE(taken(with_variables));
}

TEST_CASE("defaults of a model: what a conversation says itself stays") {
  for (const char* const role : {"system", "developer"}) {
    ChatPrompt chat{{{role, "Own."}, {"user", "Hello"}}};
    take_conversation(all(), false, chat);
    CHECK(chat.messages.size() == 2);
  }
  for (const char* const own : {R"({"enable_thinking": false})", R"({"reasoning_effort": "max"})", "no object"}) {
    ChatPrompt chat = hello();
    chat.variables = own;
    take_conversation(all(), false, chat);
    CHECK(chat.variables == own);
  }
  ChatPrompt later = hello();  // of a session that there is
  take_conversation(all(), true, later);
  CHECK(later.messages.size() == 1);

  ChatPrompt as_it_is = hello();
  as_it_is.as_it_is = true;
  take_conversation(all(), false, as_it_is);
  CHECK(as_it_is.messages.size() == 1);
  CHECK(as_it_is.variables.empty());
}

}  // namespace troupe::actors
