// No text of a user or an assistant is lost between a client and the prompt: over published templates, those by name
// and some that read content in odd ways, in every shape that a message may have.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "actors/serving/encoding.h"
#include "actors/serving/message_rewrites.h"
#include "engine/chat/builtin_templates.h"
#include "engine/chat/tools/call_id.h"
#include "engine/chat/tools/tool_form.h"
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

// Those by name, and published ones.
std::vector<Source> models_sources() {
  std::vector<Source> all;
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
  const std::vector<Source> of_models = models_sources();
  all.insert(all.end(), of_models.begin(), of_models.end());
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
    R"([{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": )"
    R"({"type": "object", "properties": {"at": {"type": "integer", "description": "Where."}}, "required": ["at"]}}}])";
const std::string kToolVariables = std::string(R"({"tools": )") + kTools + "}";

TEST_CASE("no text of a user or an assistant is missing from a prompt, whatever the template and the shape") {
  const auto vocabulary = tokenizer();
  const std::vector<Shape> all = shapes();
  for (const Source& source : sources()) {
    const auto chat_template = parsed(source);
    std::size_t num_rendered = 0;
    for (const Shape& shape : all) {
      for (const std::string& variables : {std::string(), kToolVariables}) {
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
  CHECK_THAT(applied("{% for m in messages %}{{ '!' if m.tool_calls else m.content }}{% endfor %}",
                     {{"user", "a"}, calling({"assistant", "b"}), tool_result()}),
             Catch::Contains("messages[1]") && Catch::Contains("with tool_calls"));
  // White space, and an answer that has nothing but reasoning, may go.
  CHECK(applied("{% for m in messages %}{{ m.content.split('</think>')[-1] | trim }}{% endfor %}",
                {{"user", "a"}, {"assistant", "<think>b</think>\n"}, {"user", " \n"}, {"user", "c"}}) == "ac");
}

// The first requests of Claude Code and of Codex, and what opencode asks for a title, as tests/programs/shapes has
// them.
std::vector<std::vector<ChatMessage>> agents_requests() {
  return {
      {in_parts("system", {"word 1", "word 2"}), in_parts("user", {"word 3", "word 4"}), {"system", "word 5"}},
      {{"developer", "word 1"}, in_parts("developer", {"word 2", "word 3"}), {"user", "word 4"}, {"user", "word 5"}},
      {{"system", "word 1"}, {"user", "word 2"}, {"user", "word 3"}}};
}

engine::chat::ToolForm tool_form_of(const engine::chat::ChatTemplate& chat_template) {
  engine::chat::TimeBudget time = engine::chat::trial_time();
  return engine::chat::find_tool_form(chat_template, nullptr, nullptr, time);
}

// What a prompt has of the words 1, 2, ..., in order: "12345".
std::string words_in(std::string_view prompt) {
  std::string words;
  for (std::size_t at = prompt.find("word "); at != std::string_view::npos; at = prompt.find("word ", at + 1))
    if (at + 5 < prompt.size() && prompt[at + 5] >= '1' && prompt[at + 5] <= '9') words += prompt[at + 5];
  return words;
}

TEST_CASE("every template of a model writes all that coding agents say, in order") {
  const auto vocabulary = tokenizer();
  for (const Source& source : models_sources()) {
    const auto chat_template = parsed(source);
    const engine::chat::ToolForm tool_form = tool_form_of(*chat_template);
    for (const auto& messages : agents_requests()) {
      std::string said;
      for (const ChatMessage& each : messages) said += each.content + "\n";
      for (const char* tools : {"", kTools}) {
        const auto prompt =
            render({.messages = messages, .tools = tools}, *chat_template, *vocabulary, nullptr, nullptr, tool_form);
        INFO(source.name << ", " << messages.size() << " messages " << tools);
        REQUIRE((prompt ? "" : prompt.error().message) == "");
        std::string words = words_in(prompt->text());
        // These gather what the system says at the beginning.
        if (source.name.starts_with("deepseek-ai-DeepSeek-V3")) std::ranges::sort(words);
        CHECK(words == words_in(said));
      }
    }
  }
}

// Writes calls and results with their ids, and refuses ids of other lengths than nine.
constexpr const char* kShortIds =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('ids') }}"
    "{% endif %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}</tool_call>"
    "[{{ c.id }}]{% endfor %}{% if m.tool_call_id %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids') }}"
    "{% endif %}[{{ m.tool_call_id }}]{% endif %}{{ m.content }};{% endfor %}";

std::vector<ChatMessage> two_calls(const std::string& first, const std::string& second) {
  ChatMessage calls = null_answer();
  calls.members = R"({"tool_calls": [{"id": ")" + first +
                  R"(", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}, {"id": ")" + second +
                  R"(", "type": "function", "function": {"name": "look", "arguments": {"at": 2}}}]})";
  ChatMessage one = tool_result(), other = tool_result();
  one.members = R"({"tool_call_id": ")" + first + "\"}";
  other.members = R"({"tool_call_id": ")" + second + "\"}";
  return {{"user", "alpha words"}, calls, one, other};
}

TEST_CASE("a template that refuses ids of another length gets ids of nine characters, the others ids as they are") {
  const auto vocabulary = tokenizer();
  std::vector<Source> all = models_sources();
  all.push_back({"ids", kShortIds});
  const std::string first = "call_Zk3vB2mY8s", second = "functions.look:1";
  for (const Source& source : all) {
    INFO(source.name);
    const auto chat_template = parsed(source);
    const engine::chat::ToolForm tool_form = tool_form_of(*chat_template);
    const bool wants_short = source.name == "ids" || source.name == "mistralai-Mistral-Nemo-Instruct-2407.jinja";
    CHECK(tool_form.wants_short_ids == wants_short);
    if (!tool_form.reads_several_calls) continue;
    const auto rendered = [&](const std::string& one, const std::string& two) {
      const auto prompt = render({.messages = two_calls(one, two), .tools = kTools}, *chat_template, *vocabulary,
                                 nullptr, nullptr, tool_form);
      REQUIRE((prompt ? "" : prompt.error().message) == "");
      return prompt->text();
    };
    const std::string text = rendered(first, second);
    const std::string first_short = engine::chat::call_id_for(first);
    CHECK((text.find(first_short) != std::string::npos) == wants_short);
    if (!wants_short) continue;
    CHECK(text.find(first) == std::string::npos);
    const auto count = [&](const std::string& word) {
      std::size_t found = 0;
      for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
      return found;
    };
    CHECK(engine::chat::call_id_for(first) != engine::chat::call_id_for(second));
    for (const std::string& id : {first, second}) CHECK(count(engine::chat::call_id_for(id)) == 2);
    CHECK(rendered("abcDEF123", second).find("abcDEF123") != std::string::npos);
  }
}

TEST_CASE("a conversation's messages begin like those of its earlier turns, whatever the template") {
  const ChatMessage late{"system", "late"}, user{"user", "more"}, answer{"assistant", "said"};
  for (const Source& source : models_sources()) {
    const auto chat_template = parsed(source);
    const engine::chat::ToolForm tool_form = tool_form_of(*chat_template);
    for (std::vector<ChatMessage> messages : agents_requests()) {
      const auto read = [&] {
        const auto made = as_template_reads(messages, {}, chat_template->form(), tool_form);
        REQUIRE(made);
        CHECK(made->messages.size() == made->origins.size());
        return made->messages;
      };
      for (const std::vector<ChatMessage>& turn : {std::vector{calling(null_answer()), tool_result(), tool_result()},
                                                   {calling(null_answer()), tool_result(), late},
                                                   {answer, late, user},
                                                   {answer, user, late}}) {
        const auto before = read();
        messages.insert(messages.end(), turn.begin(), turn.end());
        const auto after = read();
        INFO(source.name << ", " << messages.size() << " messages");
        REQUIRE(after.size() > before.size());
        CHECK(std::equal(before.begin(), before.end(), after.begin()));
      }
    }
  }
}

// The prompt of a template that gets the messages as they are; nothing, where it refuses or leaves out any of them.
std::optional<std::string> as_it_is(const engine::chat::ChatTemplate& chat_template,
                                    const engine::Tokenizer& vocabulary, const std::vector<ChatMessage>& messages) {
  const engine::chat::MessageForm& form = chat_template.form();
  engine::chat::Json::List list;
  for (const ChatMessage& each : messages) {
    const bool is_known = each.role != "developer" || (chat_template.knows_developer() && form.reads("developer"));
    const std::string role = is_known ? each.role : "system";
    engine::chat::Json content = each.content;
    if (form.reads_parts(role)) content = engine::chat::Json::List{engine::chat::text_part(each.content)};
    engine::chat::Json::Object message = {{"role", role}, {"content", std::move(content)}};
    if (!each.name.empty()) message.emplace_back("name", each.name);
    if (!each.members.empty()) {
      const auto members = engine::chat::parse_json(each.members);
      message.insert(message.end(), members->object()->begin(), members->object()->end());
    }
    list.emplace_back(std::move(message));
  }
  engine::chat::ChatInput input;
  input.messages = std::move(list);
  if (const auto bos = vocabulary.bos()) input.bos_token = vocabulary.raw_piece(*bos);
  if (const auto eos = vocabulary.eos()) input.eos_token = vocabulary.raw_piece(*eos);
  input.now = [](std::string_view format) {
    return engine::chat::format_time(format,
                                     std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  };
  const auto prompt = chat_template.render(input);
  if (!prompt || !prompt->left_out.empty() || prompt->writes_whole_parts) return std::nullopt;
  return prompt->text();
}

TEST_CASE("what a template takes as it is stays as it is") {
  const auto vocabulary = tokenizer();
  std::vector<std::vector<ChatMessage>> conversations = agents_requests();
  for (const Shape& shape : shapes()) conversations.push_back(shape.messages);
  std::size_t num_taken = 0;
  for (const Source& source : models_sources()) {
    const auto chat_template = parsed(source);
    for (auto messages : conversations) {
      for (ChatMessage& each : messages) each.part_bytes.clear();
      if (!std::ranges::all_of(messages, &ChatMessage::has_content)) continue;
      const auto expected = as_it_is(*chat_template, *vocabulary, messages);
      if (!expected) continue;
      ++num_taken;
      const auto prompt = render({.messages = messages}, *chat_template, *vocabulary, nullptr);
      INFO(source.name << ", " << messages.size() << " messages");
      CHECK((prompt ? prompt->text() : prompt.error().message) == *expected);
    }
  }
  CHECK(num_taken >= 200);
}

// Takes one message of the system, at the beginning, and no two of the user or of the assistant in a row.
const std::string kStrict =
    "{% set ns = namespace(last='') %}{% for m in messages %}{% if m.role == 'system' and not loop.first or "
    "m.role == ns.last and m.role != 'tool' and not m.tool_calls %}{{ raise_exception('not here') }}{% endif %}"
    "{% set ns.last = m.role %}{{ m.role }}:{{ '(' + m.reasoning_content + ')' if m.reasoning_content }}"
    "{{ m.content if 'gone' not in m.content }};{% endfor %}";
const std::string kStrictParts =
    "{% for m in messages %}{% if not loop.first and (m.role == 'system' or m.role == loop.previtem.role) %}"
    "{{ raise_exception('not here') }}{% endif %}{{ m.role }}:{% for p in m.content %}[{{ p.text }}]{% endfor %};"
    "{% endfor %}";
// Takes none of the system.
const std::string kNoSystem =
    "{% for m in messages %}{{ raise_exception('not here') if m.role == 'system' }}{{ m.role }}:{{ m.content }};"
    "{% endfor %}";

TEST_CASE("messages in places that a template refuses become a part of others") {
  const ChatMessage a{"system", "a"}, b{"developer", "b"}, c{"user", "c"}, d{"user", "d"}, e{"assistant", "e"},
      f{"assistant", "f"}, s{"system", "s"};
  CHECK(applied(kStrict, {a, b, c}) == "system:a\n\nb;user:c;");
  CHECK(applied(kStrict, {c, s}) == "user:c\n\ns;");
  CHECK(applied(kStrict, {a, c, s, e, s, d}) == "system:a;user:c\n\ns;assistant:e;user:s\n\nd;");
  CHECK(applied(kStrict, {a, c, s, d}) == "system:a;user:c\n\ns\n\nd;");
  CHECK(applied(kStrict, {c, e, s, s}) == "user:c;assistant:e;user:s\n\ns;");
  CHECK(applied(kStrict, {c, d, e, f, c}) == "user:c\n\nd;assistant:e\n\nf;user:c;");
  CHECK(applied(kStrict, {c, calling({"assistant", "e"}), tool_result(), tool_result(), s, d}) ==
        "user:c;assistant:e;tool:result words;tool:result words;user:s\n\nd;");
  CHECK(applied(kNoSystem, {a, b, c, d}) == "user:a\n\nb\n\nc;user:d;");
  CHECK(applied(kNoSystem, {a, e, c}) == "user:a;assistant:e;user:c;");
  CHECK(applied(kTexts, {a, b, c, d, s, e, f}) == "system:a;system:b;user:c;user:d;system:s;assistant:e;assistant:f;");
  // Contents of null, of nothing, of parts; reasoning.
  CHECK(applied(kStrict, {c, null_answer(), f}) == "user:c;assistant:f;");
  CHECK(applied(kStrict, {c, {"user", ""}}) == "user:c;");
  CHECK(applied(kStrict, {in_parts("user", {"1", "2"}), in_parts("user", {"3", "4"})}) == "user:1\n2\n\n3\n4;");
  CHECK(applied(kStrictParts, {in_parts("user", {"1", "2"}), in_parts("user", {"3", "4"})}) == "user:[1\n2\n\n3\n4];");
  CHECK(applied(kStrictParts, {a, in_parts("user", {"1", "2"})}) == "system:[a];user:[1][2];");
  const ChatMessage thought{.role = "assistant", .content = "g", .reasoning = "h"};
  CHECK(applied(kStrict, {c, e, thought, thought}) == "user:c;assistant:(h\n\nh)e\n\ng\n\ng;");
  // Users of two names are two, and an answer with a call stays one of its own.
  CHECK_THAT(applied(kStrict, {c, {.role = "user", .content = "d", .name = "Eve"}}), Catch::Contains("not here"));
  CHECK(applied(kStrict, {{.role = "user", .content = "d", .name = "Eve"}, s}) == "user:d\n\ns;");
  CHECK(applied(kStrict, {c, e, calling({"assistant", "f"}), tool_result()}) ==
        "user:c;assistant:e;assistant:f;tool:result words;");
}

TEST_CASE("a text that is left out is named by the client's own index, whatever became one message before it") {
  const ChatMessage gone{"user", "gone"};
  CHECK_THAT(applied(kStrict, {{"system", "a"}, {"system", "b"}, {"user", "c"}, {"assistant", "e"}, gone}),
             Catch::Contains("leaves out what messages[4] says, of the role 'user'"));
  CHECK_THAT(applied(kStrict, {{"user", "c"}, {"assistant", "e"}, {"system", "gone"}}),
             Catch::Contains("leaves out what messages[2] says, of the role 'system'"));
  engine::chat::ToolForm knows_no_tools;
  knows_no_tools.reads_tools = false;
  const auto prompt = render({.messages = {{"user", "c"}, {"assistant", "e"}, gone}, .tools = kTools},
                             *parsed({"t", kStrict}), *tokenizer(), nullptr, nullptr, knows_no_tools);
  REQUIRE_FALSE(prompt);
  CHECK_THAT(prompt.error().message, Catch::Contains("leaves out what messages[2] says, of the role 'user'"));
}

TEST_CASE("the last message is continued, and a session's next turn begins, behind what became one message") {
  const auto chat_template = parsed({"t", kStrict});
  const auto continued = render({.messages = {{"user", "c"}, {"assistant", "e"}, {"assistant", "f"}},
                                 .add_generation_prompt = false,
                                 .continue_final_message = true},
                                *chat_template, *tokenizer(), nullptr);
  CHECK((continued ? continued->text() : continued.error().message) == "user:c;assistant:e\n\nf");
  const auto next = [&](std::vector<ChatMessage> messages) {
    const auto prompt = render_next_turn({.messages = std::move(messages)}, *chat_template, *tokenizer(), nullptr);
    return prompt ? prompt->text() : prompt.error().message;
  };
  CHECK(next({{"system", "s"}, {"user", "c"}}) == ";user:s\n\nc;");
  CHECK(next({{"assistant", "f"}, {"user", "c"}}) == "\n\nf;user:c;");
  CHECK_THAT(next({{"user", "c"}, {"assistant", "e"}, {"user", "gone"}}), Catch::Contains("messages[2]"));
}

}  // namespace
}  // namespace troupe::actors
