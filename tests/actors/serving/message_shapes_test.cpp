// No text of a user or an assistant is lost between a client and the prompt: over published templates, those by name
// and some that read content in odd ways, in every shape that a message may have.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "actors/serving/encoding.h"
#include "engine/chat/builtin_templates.h"
#include "engine/formats/model_file.h"
#include "tests/support/shared_data.h"

namespace troupe::actors {
namespace {

struct Source {
  std::string name, text;
};

constexpr const char* kTexts = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";
constexpr const char* kParts =
    "{% for m in messages %}{{ m.role }}:{% for part in m.content %}{{ part.text if part.type == 'text' }}{% endfor %};"
    "{% endfor %}";

std::vector<Source> sources() {
  std::vector<Source> all = {
      {"texts", kTexts},
      {"parts", kParts},
      {"first part", "{% for m in messages %}{{ m.content[0]['text'] }}{% endfor %}"},
      {"user's parts", "{% for m in messages %}{{ m.content[0].text if m.role == 'user' else m.content }}{% endfor %}"},
      {"parts with tools",
       "{% for m in messages %}{% if tools %}{% for part in m.content %}{{ part.text }}{% endfor %}{% else %}"
       "{{ m.content }}{% endif %}{% endfor %}"},
      {"last one", "{{ messages[-1].content }}"},
      {"no answers", "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}"},
      {"nothing", "Hello"}};
  for (const auto& each : engine::chat::builtin_templates())
    all.push_back({std::string(each.name), std::string(each.source)});
  if (const auto folder = troupe::test::shared_file("thirdparty/templates")) {
    for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
      if (entry.path().extension() != ".jinja") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      all.push_back({entry.path().filename(), {std::istreambuf_iterator<char>(file), {}}});
    }
  }
  return all;
}

std::shared_ptr<const engine::chat::ChatTemplate> parsed(const Source& source) {
  auto made = engine::chat::ChatTemplate::parse(source.text, source.name);
  if (!made) FAIL(made.error().message);
  return *made;
}

std::shared_ptr<const engine::Tokenizer> tokenizer() {
  const auto file = engine::open_gguf(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf");
  REQUIRE(file);
  const auto made = engine::make_tokenizer(**file);
  REQUIRE(made);
  return *made;
}

ChatMessage in_parts(std::string role, const std::vector<std::string>& parts) {
  ChatMessage message{.role = std::move(role), .content = {}};
  for (const std::string& each : parts) {
    if (!message.part_bytes.empty()) message.content += '\n';
    message.content += each;
    message.part_bytes.push_back(static_cast<std::uint32_t>(each.size()));
  }
  return message;
}

ChatMessage null_answer() {
  ChatMessage message{.role = "assistant", .content = {}};
  message.has_content = false;
  return message;
}

ChatMessage calling(ChatMessage message) {
  message.members =
      R"({"tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}]})";
  return message;
}

ChatMessage tool_result() {
  ChatMessage message{.role = "tool", .content = "result words"};
  message.name = "look";
  message.members = R"({"tool_call_id": "call00001"})";
  return message;
}

struct Shape {
  std::vector<ChatMessage> messages;
  std::vector<std::string> words;  // that users and assistants say
};

std::vector<Shape> shapes() {
  const Shape users[] = {{{{"user", "alpha words"}}, {"alpha words"}},
                         {{in_parts("user", {"beta words", "gamma words"})}, {"beta words", "gamma words"}},
                         {{in_parts("user", {"", "delta words"})}, {"delta words"}}};
  const Shape answers[] = {
      {{}, {}},
      {{{"assistant", "epsilon words"}}, {"epsilon words"}},
      {{in_parts("assistant", {"zeta words", "eta words"})}, {"zeta words", "eta words"}},
      {{null_answer()}, {}},
      {{{"assistant", "theta words"}, {"assistant", "iota words"}}, {"theta words", "iota words"}},
      {{calling({"assistant", "kappa words"}), tool_result()}, {"kappa words"}},
      {{calling(null_answer()), tool_result()}, {}},
      {{calling({"assistant", ""}), tool_result(), {"assistant", "lambda words"}}, {"lambda words"}}};
  const std::vector<ChatMessage> systems[] = {{}, {{"system", "mu words"}}, {in_parts("system", {"mu", "nu"})}};
  std::vector<Shape> all;
  for (const auto& system : systems)
    for (const Shape& user : users)
      for (const Shape& answer : answers)
        for (const bool has_last : {false, true}) {
          Shape shape{system, user.words};
          shape.messages.insert(shape.messages.end(), user.messages.begin(), user.messages.end());
          shape.messages.insert(shape.messages.end(), answer.messages.begin(), answer.messages.end());
          shape.words.insert(shape.words.end(), answer.words.begin(), answer.words.end());
          if (has_last) {
            if (answer.messages.empty()) continue;
            shape.messages.push_back({"user", "omega words"});
            shape.words.push_back("omega words");
          }
          all.push_back(std::move(shape));
        }
  return all;
}

constexpr const char* kTools =
    R"({"tools": [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": )"
    R"({"type": "object", "properties": {"at": {"type": "integer", "description": "Where."}}, "required": ["at"]}}}]})";

TEST_CASE("no text of a user or an assistant is missing from a prompt, whatever the template and the shape") {
  const auto vocabulary = tokenizer();
  const std::vector<Shape> all = shapes();
  for (const Source& source : sources()) {
    const auto chat_template = parsed(source);
    std::size_t num_rendered = 0;
    for (const Shape& shape : all) {
      for (const char* variables : {"", kTools}) {
        ChatPrompt chat{.messages = shape.messages, .variables = variables};
        const auto prompt = render(chat, *chat_template, *vocabulary, nullptr);
        if (!prompt) continue;
        ++num_rendered;
        const std::string text = prompt->text();
        for (const std::string& words : shape.words) {
          INFO(source.name << ": " << words << " in " << text);
          REQUIRE(text.find(words) != std::string::npos);
        }
      }
    }
    INFO(source.name << " of " << 2 * all.size());
    const bool writes_little = source.name == "last one" || source.name == "nothing";
    CHECK((num_rendered > 0) == (source.name != "nothing"));
    if (!writes_little && source.name != "no answers") CHECK(num_rendered >= all.size() / 4);
  }
}

std::string applied(const std::string& source, std::vector<ChatMessage> messages) {
  const auto prompt = render(ChatPrompt{std::move(messages)}, *parsed({"t", source}), *tokenizer(), nullptr);
  return prompt ? prompt->text() : prompt.error().message;
}

TEST_CASE("a template gets content in the form that it reads") {
  CHECK(applied(kTexts, {in_parts("user", {"one", "two"})}) == "user:one\ntwo;");
  CHECK(applied(kParts, {{"user", "one"}}) == "user:one;");
  CHECK(applied(kParts, {in_parts("user", {"one", "two"}), {"assistant", "three"}}) == "user:onetwo;assistant:three;");
  // One that reads the first part alone gets all in it.
  CHECK(applied("{% for m in messages %}{{ m.content[0].text }};{% endfor %}",
                {in_parts("user", {"one", "two"}), {"assistant", "three"}}) == "one\ntwo;three;");
  // A content with a newline of its own is one part.
  CHECK(applied("{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
                {{"user", "a\nb"}, in_parts("user", {"c\n", "", "d"})}) == "[a\nb][c\n][][d]");
}

TEST_CASE("a content of null is none for a template that tests for it, and empty for others") {
  const std::vector<ChatMessage> called = {{"user", "a"}, calling(null_answer()), tool_result()};
  CHECK_THAT(applied("{% for m in messages %}[{{ 'none' if m.content is none else m.content }}]{% endfor %}", called),
             Catch::StartsWith("[a][none]["));
  CHECK_THAT(applied(kTexts, called), Catch::StartsWith("user:a;assistant:;tool:"));
  CHECK_THAT(applied(kParts, called), Catch::StartsWith("user:a;assistant:;tool:"));
}

TEST_CASE("what a template leaves out is refused by name") {
  const std::string no_answers = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
  CHECK_THAT(applied(no_answers, {{"user", "a"}, {"assistant", "b"}}),
             Catch::Contains("leaves out what messages[1] says, of the role 'assistant'"));
  CHECK_THAT(applied(no_answers, {{"system", "s"}, {"user", "a"}}),
             Catch::Contains("leaves out what messages[0] says, of the role 'system'"));
  CHECK_THAT(applied("{% for m in messages %}{{ '!' if m.tool_calls else m.content }}{% endfor %}",
                     {{"user", "a"}, calling({"assistant", "b"}), tool_result()}),
             Catch::Contains("messages[1]") && Catch::Contains("with tool_calls"));
  // White space, and an answer that has nothing but reasoning, may go.
  CHECK(applied("{% for m in messages %}{{ m.content.split('</think>')[-1] | trim }}{% endfor %}",
                {{"user", "a"}, {"assistant", "<think>b</think>\n"}, {"user", " \n"}, {"user", "c"}}) == "ac");
}

}  // namespace
}  // namespace troupe::actors
