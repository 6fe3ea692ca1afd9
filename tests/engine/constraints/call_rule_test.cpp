// Calls of tools as rules: what the grammar of each format writes is read back by its parser as exactly those calls.
#include <chrono>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "engine/chat/tools/tool_call_parser.h"
#include "engine/constraints/forms/form_rule.h"
#include "engine/constraints/schema/schema_document.h"
#include "engine/constraints/schema/schema_values.h"
#include "engine/constraints/tools/call_grammar.h"
#include "tests/engine/constraints/grammar_cases.h"
#include "tests/engine/constraints/marked_vocabulary.h"

namespace troupe::engine::constraints::test {
namespace {

using chat::AnswerPart;
using chat::Json;
using chat::ToolCallParser;
using chat::ToolFormat;
using chat::ToolSet;

constexpr const char* kCallTools = R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
    "city":{"type":"string","minLength":1,"maxLength":12},"unit":{"enum":["celsius","kelvin"]},
    "days":{"type":"integer","minimum":1,"maximum":14},"note":{"type":["string","null"],"maxLength":9}},
    "required":["city","days"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"get","parameters":{"type":"object","properties":{
    "where":{"type":"object","properties":{"x":{"type":"number"},"label":{"type":"string","maxLength":8}},
      "required":["x"],"additionalProperties":false},
    "tags":{"type":"array","items":{"enum":["a","b",3]},"minItems":1,"maxItems":3},
    "id":{"type":"string","pattern":"^[A-Z]{2}[0-9]{3}$"},"deep":{"type":"boolean"}},
    "required":["where","tags","id"],"additionalProperties":false}}},
  {"type":"function","function":{"name":"now"}}])";

// Tools, their names and their schemas.
struct ToolList {
  explicit ToolList(const char* json_text) : text(json_text), list(json(json_text)) {
    auto made = ToolSet::make(list);
    if (!made) FAIL(made.error().message);
    set = std::make_shared<const ToolSet>(*std::move(made));
  }
  const Json* parameters(std::string_view name) const {
    for (const Json& each : *list.list())
      if (*each.find("function")->find("name")->text() == name) return each.find("function")->find("parameters");
    return nullptr;
  }
  std::string text;
  Json list;
  std::shared_ptr<const ToolSet> set;
};

// A vocabulary of words of calls, and the format's marks as control tokens or as text.
std::shared_ptr<const MarkedVocabulary> vocabulary_for(const ToolFormat& format, bool has_marks,
                                                       std::vector<std::string> words = {}) {
  for (const char* const word : {"get", "_weather", "now", "\": \"", "{\"", "\"}", "name", "arguments", " the", "city",
                                 "st", "></", "para", "meter", "\n", "\n{\"", "</func", "null", "Zürich"})
    words.emplace_back(word);
  std::vector<std::string> marks;
  if (has_marks)
    for (const std::string_view each :
         {format.section_open, format.section_close, format.call_open, format.call_close, format.tags.key_open,
          format.tags.key_close, format.tags.value_open, format.tags.value_close, format.tags.arguments_close})
      if (each.size() > 2 && each.find("=\"") == std::string_view::npos &&
          std::ranges::find(marks, each) == marks.end())
        marks.emplace_back(each);
  if (format.name == "gemma-4" && has_marks) marks.emplace_back("<|\"|>");
  if (format.syntax == chat::CallSyntax::recipients)
    marks = {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"};
  std::vector<std::string> ends;
  if (format.syntax == chat::CallSyntax::recipients) ends = {"<|return|>", "<|call|>"};
  return std::make_shared<const MarkedVocabulary>(std::move(words), std::move(marks), std::move(ends));
}

struct CallRule : FormRule {
  std::vector<CallGrammar::LooseTool> loose{};
};
Result<CallRule> try_call_rule(const ToolList& tools, const ToolFormat& format, const CallWish& wish,
                               const std::shared_ptr<const MarkedVocabulary>& vocabulary) {
  const auto trie = std::make_shared<const TokenTrie>(TokenTrie::of(*vocabulary, call_marks(*vocabulary)));
  const Constraint form{.kind = Constraint::Kind::calls, .text = tools.text, .calls = wish};
  const auto compiled = compile_form(form, *vocabulary, &format);
  if (!compiled) return compiled.error();
  auto rule = make_rule(*compiled, trie, vocabulary);
  if (!rule) return rule.error();
  return CallRule{*std::move(rule), compiled->calls.loose};
}
CallRule call_rule_of(const ToolList& tools, const ToolFormat& format, const CallWish& wish,
                      const std::shared_ptr<const MarkedVocabulary>& vocabulary) {
  auto rule = try_call_rule(tools, format, wish, vocabulary);
  if (!rule) FAIL(format.name << ": " << rule.error().message);
  return *std::move(rule);
}

// The text that a client's parser reads: marks have theirs.
std::string text_with_marks(const MarkedVocabulary& vocabulary, std::span<const TokenId> ids) {
  std::string text;
  for (const TokenId id : ids) text += vocabulary.raw_piece(id);
  return text;
}

struct Call {
  std::string name, arguments;
};
struct Parsed {
  std::string text;
  std::vector<Call> calls;
  std::size_t num_ended = 0;
};
Parsed parse_calls(const ToolFormat& format, const ToolList& tools, std::string_view text) {
  ToolCallParser parser(format, tools.set);
  Parsed parsed;
  std::vector<AnswerPart> parts = parser.push(text);
  parsed.num_ended = parser.num_ended();
  for (AnswerPart& each : parser.finish()) parts.push_back(std::move(each));
  for (const AnswerPart& each : parts) {
    if (each.kind == AnswerPart::Kind::text) parsed.text += each.text;
    if (each.kind == AnswerPart::Kind::call) parsed.calls.push_back({each.text, {}});
    if (each.kind == AnswerPart::Kind::arguments) parsed.calls.back().arguments += each.text;
  }
  return parsed;
}

bool meets_schema(const Json& schema, const Json& value) {
  RegexPool pool;
  SchemaDocument document(schema);
  SchemaValues values(document, pool);
  return value.object() != nullptr && values.matches(document.root(), value);
}

void check_call(const ToolList& tools, const Call& call) {
  INFO(call.name << " " << call.arguments);
  REQUIRE(tools.set->has(call.name));
  const auto arguments = chat::parse_json(call.arguments);
  REQUIRE(arguments);
  const Json* const schema = tools.parameters(call.name);
  if (schema == nullptr)
    CHECK(call.arguments == "{}");
  else
    CHECK(meets_schema(*schema, *arguments));
}

// Draws tokens at random among those that may follow; free: what comes where all may.
std::vector<TokenId> drawn_answer(const MarkedVocabulary& vocabulary, AnswerReader& reader, std::size_t max_tokens,
                                  std::mt19937& random, const std::function<TokenId(std::size_t)>& free = {},
                                  unsigned ends_once_in = 3) {
  std::vector<TokenId> answer;
  while (answer.size() < max_tokens) {
    const NextTokens next = reader.next(answer, max_tokens - answer.size());
    if (next.kind == NextTokens::Kind::complete) break;
    REQUIRE(next.kind != NextTokens::Kind::failed);
    TokenId token = next.forced;
    if (next.kind == NextTokens::Kind::any) {
      REQUIRE(free);
      token = free(answer.size());
      if (token == MarkedVocabulary::kEnd) break;
    } else if (next.kind == NextTokens::Kind::some) {
      if (next.may_end && random() % ends_once_in == 0) break;
      std::vector<TokenId> allowed;
      for (std::size_t id = 0; id < vocabulary.size(); ++id)
        if ((next.allowed[id / 64] >> (id % 64) & 1) != 0) allowed.push_back(static_cast<TokenId>(id));
      REQUIRE_FALSE(allowed.empty());
      token = allowed[random() % allowed.size()];
    }
    answer.push_back(token);
  }
  return answer;
}

TEST_CASE("what is written where a call is demanded is read back as calls that meet their schemas, in every format") {
  const ToolList tools(kCallTools);
  std::mt19937 random(1);
  std::size_t num_calls = 0, num_answers = 0;
  for (const ToolFormat& format : chat::tool_formats())
    for (const bool has_marks : {false, true})
      for (const bool several : {true, false}) {
        const auto vocabulary = vocabulary_for(format, has_marks);
        const CallRule rule = call_rule_of(tools, format, {.must_call = true, .may_call_several = several}, vocabulary);
        CHECK(rule.loose.empty());
        for (int each = 0; each < 12; ++each) {
          const auto reader = rule.rule->read({}, {});
          const std::size_t most = rule.least_tokens + random() % 300;
          const std::vector<TokenId> answer = drawn_answer(*vocabulary, *reader, most, random);
          const std::string text = text_with_marks(*vocabulary, answer);
          INFO(format.name << (has_marks ? " with marks: " : ": ") << text);
          CHECK(answer.size() <= most);
          const Parsed parsed = parse_calls(format, tools, text);
          CHECK(parsed.text.empty());
          REQUIRE_FALSE(parsed.calls.empty());
          CHECK((several || parsed.calls.size() == 1));
          for (const Call& call : parsed.calls) check_call(tools, call);
          num_calls += parsed.calls.size();
          ++num_answers;
        }
      }
  CHECK(num_calls > num_answers * 11 / 10);
}

TEST_CASE("the shortest demanded call is written in as many tokens as it is said to have") {
  const ToolList tools(kCallTools);
  std::mt19937 random(2);
  for (const ToolFormat& format : chat::tool_formats()) {
    const auto vocabulary = vocabulary_for(format, true);
    for (const std::string name : {"", "get", "get_weather", "now"}) {
      const CallRule rule = call_rule_of(tools, format, {.must_call = true, .name = name}, vocabulary);
      const auto reader = rule.rule->read({}, {});
      const std::vector<TokenId> answer = drawn_answer(*vocabulary, *reader, rule.least_tokens, random);
      const Parsed parsed = parse_calls(format, tools, text_with_marks(*vocabulary, answer));
      INFO(format.name << " " << text_with_marks(*vocabulary, answer));
      CHECK(parsed.text.empty());
      REQUIRE(parsed.calls.size() == 1);
      CHECK((name.empty() || parsed.calls[0].name == name));
      check_call(tools, parsed.calls[0]);
    }
  }
}

// A model that writes a few words, then an opening of the format, and goes on when it is free again.
TEST_CASE("behind an opening the call is held to its schema, and behind its end the answer is free again") {
  const ToolList tools(kCallTools);
  std::mt19937 random(3);
  std::size_t num_answers = 0, num_held = 0, num_texts_behind = 0;
  for (const ToolFormat& format : chat::tool_formats())
    for (const bool has_marks : {false, true}) {
      if (chat::openings_of(format).empty()) continue;  // only without marks
      const auto vocabulary = vocabulary_for(format, has_marks);
      const CallRule rule = call_rule_of(tools, format, {}, vocabulary);
      CHECK(rule.least_tokens == 0);
      for (int each = 0; each < 8; ++each) {
        std::string opening = format.syntax == chat::CallSyntax::recipients
                                  ? "<|channel|>commentary to=functions."
                                  : std::string(chat::openings_of(format).front());
        if (opening == "functools") opening += '[';
        if (opening == ">>>" && each % 2 == 0) opening = ">>>all\nWell,>>>";
        const std::string said = "Let me see. ";
        std::vector<TokenId> script = vocabulary->encode(said + opening, {.add_special = false, .parse_special = true});
        const std::size_t begin = script.size();
        for (const TokenId id : vocabulary->encode(" Done.", {.add_special = false})) script.push_back(id);
        script.push_back(MarkedVocabulary::kEnd);
        std::size_t spoken = 0;
        const auto reader = rule.rule->read({}, {});
        const std::vector<TokenId> answer =
            drawn_answer(*vocabulary, *reader, 600, random, [&](std::size_t) { return script[spoken++]; });
        const std::string text = text_with_marks(*vocabulary, answer);
        INFO(format.name << (has_marks ? " with marks: " : ": ") << text);
        CHECK(spoken >= begin);
        const Parsed parsed = parse_calls(format, tools, text);
        if (parsed.calls.empty() && !format.user_name.empty()) continue;  // a text to the user
        REQUIRE(parsed.calls.size() >= 1);
        for (const Call& call : parsed.calls) check_call(tools, call);
        CHECK(parsed.text.starts_with("Let me see."));
        num_texts_behind += parsed.text.ends_with("Done.");
        num_held += parsed.num_ended == parsed.calls.size();
        ++num_answers;
      }
    }
  CHECK(num_held == num_answers);
  CHECK(num_texts_behind > num_answers / 2);
}

TEST_CASE("a call without marks at an answer's beginning is held once its name is one of a tool's") {
  const ToolList tools(kCallTools);
  std::mt19937 random(4);
  struct Begun {
    const char *format, *text;
    bool is_call;
  };
  for (const Begun& begun : {Begun{"llama-3", "{\"name\": \"get\"", true}, Begun{"llama-3", " {\"name\":\"now\"", true},
                             Begun{"llama-3", "{\"name\": \"none\"", false}, Begun{"llama-3", "{\"nome\": 1}", false},
                             Begun{"pythonic", "[get_weather(", true}, Begun{"pythonic", "[none(a=1)]", false},
                             Begun{"functionary-v3.2", "get\n", true}, Begun{"functionary-v3.2", "well\n", false}}) {
    const ToolFormat& format = *chat::find_tool_format(begun.format);
    const auto vocabulary = vocabulary_for(format, false);
    const CallRule rule = call_rule_of(tools, format, {}, vocabulary);
    const std::vector<TokenId> script = vocabulary->encode(begun.text, {.add_special = false});
    std::size_t spoken = 0;
    const auto reader = rule.rule->read({}, {});
    const std::vector<TokenId> answer = drawn_answer(*vocabulary, *reader, 400, random, [&](std::size_t) {
      return spoken < script.size() ? script[spoken++] : MarkedVocabulary::kEnd;
    });
    const std::string text = text_with_marks(*vocabulary, answer);
    INFO(begun.format << ": " << text);
    CHECK((text.size() > std::string_view(begun.text).size()) == begun.is_call);
    if (!begun.is_call) continue;
    const Parsed parsed = parse_calls(format, tools, text);
    REQUIRE_FALSE(parsed.calls.empty());
    for (const Call& call : parsed.calls) check_call(tools, call);
  }
}

TEST_CASE("what the parser takes for a call is held from its name on, however it is written up to there") {
  std::string list = kCallTools;
  list.insert(1, R"({"type":"function","function":{"name":"a:1"}},)");
  const ToolList tools(list.c_str());
  std::mt19937 random(8);
  struct Spelled {
    const char *format, *text;
    bool is_call = true;
  };
  for (const Spelled& each : {
           Spelled{"llama-3", "{\"type\": \"function\", \"name\": \"get\""},
           {"llama-3", "{\"type\": \"function\", \"name\": \"get\" ,"},
           {"llama-3", "{ \"name\" : \"get\""},
           {"llama-3", "{\"name\"  :  \"get_weather\""},
           {"llama-3", "{\n\n\n\n\n\n\n\n\n\"name\": \"get\""},
           {"llama-3", "{\"function\": \"get\""},
           {"llama-3", "{\"function\": {\"name\": \"get\""},
           {"llama-3", "{\"type\": \"function\", \"function\": {\"description\": \"\", \"name\": \"get\""},
           {"llama-3", "{\"parameters\": {\"where\": 5}, \"name\": \"get\"}", false},
           {"llama-3", "{\"arguments\": {}, \"function\": {\"name\": \"get\"}}", false},
           {"functools", "functools [{\"name\": \""},
           {"functools", "functools ["},
           {"functools", "So: functools\n\n ["},
           {"functools", "functools functools["},
           {"functools", "functools {\"name\": \"get\"}", false},
           {"functools", "functools{\"name\": \"evil\", \"arguments\": {}}", false},
           {"gpt-oss", "<|channel|>commentary to=get <|constrain|>json<|message|>"},
           {"gpt-oss", "<|channel|>analysis to=get code<|message|>"},
           {"gpt-oss", "<|channel|>commentary to=functions.get"},
           {"gpt-oss", "Well.<|end|><|start|>assistant to=get_weather<|channel|>commentary<|message|>"},
           {"gpt-oss", "to=now<|message|>"},
           {"gpt-oss", "<|channel|>commentary to=evil.tool code<|message|>{}", false},
           {"gpt-oss", "<|channel|>analysis to=python code<|message|>{}", false},
           {"gpt-oss", "<|channel|>commentary to=user<|message|>{}", false},
           {"gpt-oss", "<|channel|>analysis to=a:1:5 code<|message|>"},
           {"pythonic", "[get ("},
           {"pythonic", " [\n get_weather \n("},
           {"pythonic", "[other (get(", false},
       }) {
    const ToolFormat& format = *chat::find_tool_format(each.format);
    const auto vocabulary = vocabulary_for(format, false, {"\" ,", " {\""});
    const CallRule rule = call_rule_of(tools, format, {}, vocabulary);
    const std::vector<TokenId> script = vocabulary->encode(each.text, {.add_special = false, .parse_special = true});
    std::size_t spoken = 0;
    const auto reader = rule.rule->read({}, {});
    const std::vector<TokenId> answer = drawn_answer(*vocabulary, *reader, 500, random, [&](std::size_t) {
      return spoken < script.size() ? script[spoken++] : MarkedVocabulary::kEnd;
    });
    const std::string text = text_with_marks(*vocabulary, answer);
    INFO(each.format << ": " << text);
    CHECK((text.size() > std::string_view(each.text).size()) == each.is_call);
    CHECK(spoken == script.size());
    const Parsed parsed = parse_calls(format, tools, text);
    CHECK(parsed.calls.empty() != each.is_call);
    CHECK(parsed.num_ended == parsed.calls.size());
    for (const Call& call : parsed.calls) check_call(tools, call);
  }
}

// Texts of pieces that calls are made of, in any order: what a model may write where nothing is held.
TEST_CASE("whatever a model writes, the parser takes nothing for a call that was not held") {
  const ToolList tools(kCallTools);
  std::mt19937 random(10);
  std::size_t num_calls = 0;
  const auto try_texts = [&](const ToolFormat& format, const std::shared_ptr<const MarkedVocabulary>& vocabulary) {
    const CallRule rule = call_rule_of(tools, format, {}, vocabulary);
    std::vector<std::string> pieces;
    for (const char* const each : {"{",
                                   "}",
                                   "[",
                                   "]",
                                   "(",
                                   ")",
                                   " ",
                                   "\n",
                                   ",",
                                   ";",
                                   ": ",
                                   "\"",
                                   "\"name\": ",
                                   "\"function\": ",
                                   "\"arguments\": {",
                                   "\"parameters\": {}",
                                   "\"type\": \"function\", ",
                                   "\"get\"",
                                   "get",
                                   "\"other\"",
                                   "other",
                                   "now",
                                   "to=",
                                   "code",
                                   "all"})
      pieces.emplace_back(each);
    for (const std::string_view each :
         {format.section_open, format.section_close, format.call_open, format.call_close, format.before_name,
          format.after_name, std::string_view("<|message|>"), std::string_view("<|end|>"), format.tags.key_open})
      if (!each.empty()) pieces.emplace_back(each);
    for (int each = 0; each < 50; ++each) {
      std::string script;
      while (script.size() < 150) script += pieces[random() % pieces.size()];
      const std::vector<TokenId> ids = vocabulary->encode(script, {.add_special = false, .parse_special = true});
      std::size_t spoken = 0;
      const auto reader = rule.rule->read({}, {});
      const std::vector<TokenId> answer = drawn_answer(*vocabulary, *reader, 600, random, [&](std::size_t) {
        return spoken < ids.size() ? ids[spoken++] : MarkedVocabulary::kEnd;
      });
      const std::string text = text_with_marks(*vocabulary, answer);
      INFO(format.name << ": " << text);
      const Parsed parsed = parse_calls(format, tools, text);
      for (const Call& call : parsed.calls) check_call(tools, call);
      num_calls += parsed.calls.size();
    }
  };
  for (const ToolFormat& format : chat::tool_formats()) {
    try_texts(format, std::make_shared<const MarkedVocabulary>(std::vector<std::string>{}, std::vector<std::string>{}));
    for (const bool has_marks : {false, true})
      try_texts(format, vocabulary_for(format, has_marks,
                                       {"\" ,", " {\"", "\",", "\":", ": {", "}}", "get (", "\"get\"", "other\""}));
  }
  CHECK(num_calls > 1000);
}

TEST_CASE("what looks like a call in reasoning is none, nor where the shortest call does not fit any more") {
  const ToolList tools(kCallTools);
  const ToolFormat& format = *chat::find_tool_format("hermes");
  const auto vocabulary = vocabulary_for(format, true);
  const CallRule rule = call_rule_of(tools, format, {}, vocabulary);
  const auto kind_behind = [&](const std::string& text, std::size_t tokens_left, const std::string& prompt = "") {
    const auto ids = vocabulary->encode(text, {.add_special = false, .parse_special = true});
    const auto prompt_ids = vocabulary->encode(prompt, {.add_special = false});
    return rule.rule->read(prompt_ids, {})->next(ids, tokens_left).kind;
  };
  using Kind = NextTokens::Kind;
  CHECK(kind_behind("Well. <tool_call>", 100) != Kind::any);
  CHECK(kind_behind("Well. <tool_call>", 5) == Kind::any);
  CHECK(kind_behind("Well. <tool_call>?", 100) == Kind::any);
  CHECK(kind_behind("<think>I say <tool_call>", 100) == Kind::any);
  CHECK(kind_behind("<think>I say <tool_call></think><tool_call>", 100) != Kind::any);
  CHECK(kind_behind("I say <tool_call>", 100, "<think>\n") == Kind::any);
  CHECK(kind_behind("I say.</think>\n\n<tool_call>", 100, "<think>\n") != Kind::any);
  // A word in a text is no mark.
  const ToolFormat& words = *chat::find_tool_format("functools");
  const auto plain = vocabulary_for(words, false);
  const CallRule word_rule = call_rule_of(tools, words, {}, plain);
  const auto spoken = plain->encode("import functools", {.add_special = false});
  CHECK(word_rule.rule->read({}, {})->next(spoken, 100).kind == Kind::any);
}

TEST_CASE("what may follow depends on the answer alone, wherever it is read anew or cut") {
  const ToolList tools(kCallTools);
  for (const char* const name : {"hermes", "qwen3-coder", "deepseek-v3.2", "lfm2", "gemma-4"})
    for (const bool must_call : {true, false}) {
      const ToolFormat& format = *chat::find_tool_format(name);
      const auto vocabulary = vocabulary_for(format, true);
      const CallRule rule = call_rule_of(tools, format, {.must_call = must_call}, vocabulary);
      std::mt19937 random(5);
      const auto reader = rule.rule->read({}, {});
      const auto script = vocabulary->encode("So: " + std::string(chat::openings_of(format).front()),
                                             {.add_special = false, .parse_special = true});
      const std::vector<TokenId> answer = drawn_answer(
          *vocabulary, *reader, 150, random, [&](std::size_t at) { return at < script.size() ? script[at] : 33 + 1; });
      for (std::size_t cut = 0; cut < 2 * answer.size(); ++cut) {
        const std::span<const TokenId> part = std::span(answer).first(random() % (answer.size() + 1));
        if (cut % 2 == 0) reader->truncate(part.size());
        const NextTokens again = reader->next(part, 150 - part.size());
        const std::vector<std::uint64_t> allowed(again.allowed.begin(), again.allowed.end());
        const auto other = rule.rule->read({}, {});
        const NextTokens fresh = other->next(part, 150 - part.size());
        CHECK(again.kind == fresh.kind);
        CHECK(again.forced == fresh.forced);
        CHECK(std::ranges::equal(allowed, fresh.allowed));
      }
    }
}

TEST_CASE("a strict tool whose parameters cannot be enforced is refused, and others have any object as arguments") {
  const ToolList tools(R"([{"type":"function","function":{"name":"a","parameters":{"type":"object","properties":{
      "x":{"unevaluatedItems":false}}}}},
    {"type":"function","function":{"name":"b","parameters":{"type":"object","properties":{"x":{"type":"integer"}},
      "required":["x"]}}},
    {"type":"function","function":{"name":"c","parameters":{"type":"object","properties":{"x":false},"required":["x"]}}}
    ])");
  for (const char* const name : {"hermes", "qwen3-coder", "lfm2", "gemma-4"}) {
    const ToolFormat& format = *chat::find_tool_format(name);
    const auto vocabulary = vocabulary_for(format, false);
    const auto refused = try_call_rule(tools, format, {.must_call = true, .strict = {"b", "a"}}, vocabulary);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find("the tool 'a' is strict") != std::string::npos);
    CHECK(refused.error().message.find("#/properties/x/unevaluatedItems") != std::string::npos);
    const auto no_value = try_call_rule(tools, format, {.must_call = true, .strict = {"c"}}, vocabulary);
    REQUIRE_FALSE(no_value);
    CHECK(no_value.error().message.find("the tool 'c' is strict") != std::string::npos);
    const auto made = try_call_rule(tools, format, {.must_call = true, .strict = {"b"}}, vocabulary);
    REQUIRE(made);
    REQUIRE(made->loose.size() == 2);
    CHECK(made->loose[0].name == "a");
    CHECK(made->loose[0].why.keyword == "unevaluatedItems");
    CHECK(made->loose[1].name == "c");
    std::mt19937 random(6);
    for (int each = 0; each < 20; ++each) {
      const auto answer = drawn_answer(*vocabulary, *made->rule->read({}, {}), made->least_tokens + 80, random);
      const std::string text = text_with_marks(*vocabulary, answer);
      INFO(text);
      for (const Call& call : parse_calls(format, tools, text).calls) {
        const auto arguments = chat::parse_json(call.arguments);
        REQUIRE(arguments);
        CHECK(arguments->object() != nullptr);
        if (call.name == "b") check_call(tools, call);
      }
    }
  }
}

TEST_CASE("a tool whose schema takes too much work is loose alone, and no strict one beside it is refused") {
  constexpr const char* kLong = R"({"type":"object","properties":{"a":{"type":"string","allOf":[
    {"pattern":"^(a|b)*a(a|b){18}$"},{"pattern":"^(a|b)*b(a|b){15}a(a|b)*$"},{"not":{"pattern":"aa.{12}b"}},
    {"not":{"pattern":"ab.{11}b"}}]}},"required":["a"]})";
  for (const char* const name : {"hermes", "qwen3-coder", "lfm2", "gemma-4"}) {
    std::string text = "[";
    for (int i = 0; i < 30; ++i) text += fmt::format(R"({{"type":"function","function":{{"name":"p{}"}}}},)", i);
    text += fmt::format(R"({{"type":"function","function":{{"name":"heavy","parameters":{}}}}},)", kLong);
    text += R"({"type":"function","function":{"name":"last","parameters":{"type":"object","properties":{
      "x":{"type":"integer","minimum":1,"maximum":500}},"required":["x"]}}}])";
    const ToolList tools(text.c_str());
    const ToolFormat& format = *chat::find_tool_format(name);
    const auto vocabulary = vocabulary_for(format, false);
    INFO(name);
    const auto made = try_call_rule(tools, format, {.strict = {"last"}}, vocabulary);
    REQUIRE(made);
    REQUIRE(made->loose.size() == 1);
    CHECK(made->loose[0].name == "heavy");
    CHECK_THAT(made->loose[0].why.message, Catch::Contains("too much"));
    const auto refused = try_call_rule(tools, format, {.strict = {"last", "heavy"}}, vocabulary);
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message, Catch::Contains("the tool 'heavy' is strict"));
  }
}

TEST_CASE("what the schemas of tools take of memory is bounded: those for which none is left are loose") {
  const ToolFormat& format = *chat::find_tool_format("hermes");
  const auto vocabulary = vocabulary_for(format, false);
  // So many numbers of one tool.
  const auto tools_of = [](std::size_t count, std::size_t numbers) {
    std::string text = "[";
    for (std::size_t i = 0; i < count; ++i) {
      std::string members;
      for (std::size_t at = 0; at < numbers; ++at)
        members += fmt::format(R"({}"x{}":{{"type":"number","multipleOf":0.{:03}7}})", at == 0 ? "" : ",", at, i + at);
      text += fmt::format(R"({}{{"type":"function","function":{{"name":"t{}","strict":false,"parameters":{{)"
                          R"("type":"object","properties":{{{}}}}}}}}})",
                          i == 0 ? "" : ",", i, members);
    }
    return ToolList((text + "]").c_str());
  };
  const auto form_of = [&](const ToolList& tools) {
    return compile_form({.kind = Constraint::Kind::calls, .text = tools.text}, *vocabulary, &format);
  };
  const ToolList many = tools_of(60, 3);
  const auto form = form_of(many);
  REQUIRE(form);
  CHECK(form->bytes_used() < kMaxToolsMemory + (4u << 20));
  REQUIRE(form->calls.loose.size() > 20);
  CHECK(form->calls.loose.size() < 60);
  CHECK_THAT(form->calls.loose.back().why.message, Catch::Contains("too much memory"));
  // One tool does not take all of it.
  const auto one = form_of(tools_of(1, 300));
  REQUIRE(one);
  CHECK(one->calls.loose.size() == 1);
  CHECK(one->bytes_used() < kMaxToolMemory + (4u << 20));
  CHECK(form_of(tools_of(5, 1))->calls.loose.empty());
}

TEST_CASE("a tool whose name means something else in a format is written so that it is called, or left out") {
  const ToolList tools(R"([{"type":"function","function":{"name":"a:1"}},{"type":"function","function":{"name":"all"}},
    {"type":"function","function":{"name":"functions.b"}},{"type":"function","function":{"name":"functions.c:20"}}])");
  std::mt19937 random(9);
  for (const ToolFormat& format : chat::tool_formats())
    for (const std::string name : {"a:1", "all", "functions.b", "functions.c:20", ""}) {
      const auto vocabulary = vocabulary_for(format, true);
      const auto rule = try_call_rule(tools, format, {.must_call = true, .name = name}, vocabulary);
      INFO(format.name << " " << name);
      if (!format.user_name.empty() && name == format.user_name) {
        REQUIRE_FALSE(rule);
        CHECK_THAT(rule.error().message, Catch::Contains("no tool named 'all' can be called"));
        CHECK(try_call_rule(tools, format, {.name = name}, vocabulary));
        continue;
      }
      REQUIRE(rule);
      for (int each = 0; each < 6; ++each) {
        const auto answer = drawn_answer(*vocabulary, *rule->rule->read({}, {}), rule->least_tokens + 40, random);
        const std::string text = text_with_marks(*vocabulary, answer);
        INFO(text);
        const Parsed parsed = parse_calls(format, tools, text);
        REQUIRE_FALSE(parsed.calls.empty());
        for (const Call& call : parsed.calls) {
          CHECK((name.empty() || call.name == name));
          CHECK(tools.set->has(call.name));
        }
      }
    }
}

// Tools with descriptions and nested objects, of so many bytes each.
std::string many_tools(std::size_t count, std::size_t bytes) {
  std::string text = "[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    text += fmt::format(R"({{"type":"function","function":{{"name":"tool_{}_of_many","parameters":{{"type":"object",)"
                        R"("properties":{{)",
                        i);
    const std::size_t begin = text.size();
    for (std::size_t at = 0; text.size() - begin < bytes; ++at) {
      if (at > 0) text += ',';
      text += fmt::format(
          R"("field_{0}":{{"type":"object","description":"What field {0} of tool {1} is for, in some words.",)"
          R"("properties":{{"id":{{"type":"string","pattern":"^[a-z]{{2,8}}-[0-9]+$"}},)"
          R"("kind":{{"enum":["one {0}","two {1}","three"]}},"size":{{"type":"integer","minimum":0,"maximum":{2}}},)"
          R"("list":{{"type":"array","items":{{"type":"string","maxLength":40}}}}}},"required":["id"]}})",
          at, i, 100 + at * 7 + i);
    }
    text += R"(},"required":["field_0"],"additionalProperties":false}}})";
  }
  return text + "]";
}

TEST_CASE("many tools become a rule, and no mask of their names takes too much work") {
  const std::string text = many_tools(100, 1500);
  const auto begin = std::chrono::steady_clock::now();
  const ToolList tools(text.c_str());
  const ToolFormat& format = *chat::find_tool_format("hermes");
  const auto vocabulary = vocabulary_for(format, true);
  const CallRule rule = call_rule_of(tools, format, {.must_call = true}, vocabulary);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  WARN("100 tools of " << text.size() << " bytes: a rule in " << took.count() << " ms");
  CHECK(rule.loose.empty());
  const std::string small = many_tools(chat::kMaxTools, 1);
  const ToolList most(small.c_str());
  for (const bool must_call : {true, false}) {
    const CallRule all = call_rule_of(most, format, {.must_call = must_call}, vocabulary);
    std::mt19937 random(7);
    const auto script = vocabulary->encode("<tool_call>", {.add_special = false, .parse_special = true});
    for (int each = 0; each < 5; ++each) {
      const auto answer = drawn_answer(*vocabulary, *all.rule->read({}, {}), 400, random, [&](std::size_t at) {
        return at < script.size() ? script[at] : MarkedVocabulary::kEnd;
      });
      const Parsed parsed = parse_calls(format, most, text_with_marks(*vocabulary, answer));
      REQUIRE_FALSE(parsed.calls.empty());
      for (const Call& call : parsed.calls) CHECK(most.set->has(call.name));
    }
  }
}

TEST_CASE("calls of a form that does not fit the model are refused: another format, no tool of the name, no tools") {
  const ToolList tools(kCallTools);
  const ToolFormat& format = *chat::find_tool_format("hermes");
  const auto vocabulary = vocabulary_for(format, true);
  const Constraint form{.kind = Constraint::Kind::calls, .text = tools.text};
  const auto message_of = [&](const Constraint& each, const ToolFormat* written) {
    const auto compiled = compile_form(each, *vocabulary, written);
    REQUIRE_FALSE(compiled);
    return compiled.error().message;
  };
  CHECK_THAT(message_of(form, nullptr), Catch::Contains("knows no calls"));
  Constraint other = form;
  other.calls.format = "none";
  CHECK_THAT(message_of(other, &format), Catch::Contains("'none' is no format of calls"));
  other.calls.format = "lfm2";  // which a form may name, whatever the model's is
  CHECK(compile_form(other, *vocabulary, &format)->calls.format == chat::find_tool_format("lfm2"));
  other = form;
  other.calls.name = "other";
  CHECK_THAT(message_of(other, &format), Catch::Contains("'other' is none of the tools"));
  for (const char* const text : {"", "{}", "[1]", "[", R"([{"type":"function","function":{}}])"}) {
    other.text = text;
    other.calls.name.clear();
    CHECK_FALSE(message_of(other, &format).empty());
  }
  other.text = "[" + std::string(kMaxConstraintBytes, ' ') + "]";
  CHECK_THAT(message_of(other, &format), Catch::Contains("bytes; at most"));
}

}  // namespace
}  // namespace troupe::engine::constraints::test
