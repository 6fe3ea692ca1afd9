// Grammars as rules of answers: what readers say, with reasoning before the answer, forced tokens and cuts.
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/constraint.h"
#include "engine/constraints/forms/form_rule.h"
#include "engine/formats/model_file.h"
#include "tests/engine/constraints/grammar_cases.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::constraints::test {
namespace {

struct Vocabulary {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenTrie> trie;
};

// GPT-2's, or nothing.
std::optional<Vocabulary> vocabulary() {
  const auto path = troupe::test::shared_file("thirdparty/vocab/ggml-vocab-gpt-2.gguf");
  if (!path) return std::nullopt;
  const auto file = open_gguf(*path);
  REQUIRE(file);
  const auto tokenizer = make_tokenizer(**file);
  REQUIRE(tokenizer);
  return Vocabulary{*tokenizer, std::make_shared<const TokenTrie>(TokenTrie::of(**tokenizer))};
}

FormRule rule_of(const Vocabulary& vocabulary, const Constraint& constraint) {
  const auto compiled = compile_form(constraint, *vocabulary.tokenizer, nullptr);
  if (!compiled) FAIL(compiled.error().message);
  auto rule = make_rule(*compiled, vocabulary.trie, vocabulary.tokenizer);
  if (!rule) FAIL(rule.error().message);
  return *std::move(rule);
}

// An answer of tokens drawn at random among those that may follow.
std::string random_answer(const Vocabulary& vocabulary, AnswerReader& reader, std::size_t max_tokens,
                          std::mt19937& random, std::vector<TokenId>& answer) {
  std::string text;
  while (answer.size() < max_tokens) {
    const NextTokens next = reader.next(answer, max_tokens - answer.size());
    if (next.kind == NextTokens::Kind::complete) break;
    REQUIRE(next.kind != NextTokens::Kind::failed);
    TokenId token = next.forced;
    if (next.kind == NextTokens::Kind::some) {
      if (next.may_end && random() % 4 == 0) break;
      std::vector<TokenId> allowed;
      for (std::size_t id = 0; id < vocabulary.trie->num_tokens(); ++id)
        if ((next.allowed[id / 64] >> (id % 64) & 1) != 0) allowed.push_back(static_cast<TokenId>(id));
      REQUIRE_FALSE(allowed.empty());
      token = allowed[random() % allowed.size()];
    }
    answer.push_back(token);
    text += vocabulary.tokenizer->piece(token);
  }
  return text;
}

TEST_CASE("answers at random have their form at any limit from the shortest one on") {
  const auto words = vocabulary();
  if (!words) return;
  const std::vector<Constraint> forms = {
      {.kind = Constraint::Kind::json_object},
      {.kind = Constraint::Kind::json_object, .spaces = true},
      {.kind = Constraint::Kind::json_schema,
       .text =
           R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":150},
                   "tags":{"type":"array","items":{"enum":["red","green","blue"]},"minItems":1}},
                   "required":["name","age","tags"],"additionalProperties":false})"},
      {.kind = Constraint::Kind::regex, .text = "[0-9]{4}-[0-9]{2}(-[0-9]{2})?"},
      {.kind = Constraint::Kind::choice, .choices = {"yes", "no", "not at all"}},
  };
  std::mt19937 random(5);
  for (const Constraint& form : forms) {
    const auto rule = rule_of(*words, form);
    auto grammar = grammar_of(form);
    Machine machine(std::move(*grammar));
    for (int each = 0; each < 25; ++each) {
      const auto reader = rule.rule->read({}, {});
      std::vector<TokenId> answer;
      const std::size_t most = rule.least_tokens + random() % 25;
      const std::string text = random_answer(*words, *reader, most, random, answer);
      INFO(text << " of at most " << most << " tokens");
      CHECK(answer.size() <= most);
      CHECK(accepts(machine, text));
    }
  }
}

TEST_CASE("what may follow depends on the answer alone: a reader that begins in the middle says the same") {
  const auto words = vocabulary();
  if (!words) return;
  const auto rule =
      rule_of(*words, {.kind = Constraint::Kind::json_schema,
                       .text = R"({"type":"array","items":{"type":"object","properties":{"a":{"type":"number"}}}})"});
  std::mt19937 random(6);
  const auto reader = rule.rule->read({}, {});
  std::vector<TokenId> answer;
  (void)random_answer(*words, *reader, 40, random, answer);
  for (std::size_t length = 0; length < answer.size(); ++length) {
    const std::span<const TokenId> part = std::span(answer).first(length);
    const auto other = rule.rule->read({}, {});
    reader->truncate(length);
    const NextTokens again = reader->next(part, 40 - length);
    const std::vector<std::uint64_t> allowed(again.allowed.begin(), again.allowed.end());
    const NextTokens fresh = other->next(part, 40 - length);
    CHECK(again.kind == fresh.kind);
    CHECK(again.forced == fresh.forced);
    CHECK(std::ranges::equal(allowed, fresh.allowed));
  }
}

TEST_CASE("a text that alone can follow comes in the longest tokens, whatever else they could be cut into") {
  const auto words = vocabulary();
  if (!words) return;
  const auto rule = rule_of(*words, {.kind = Constraint::Kind::regex, .text = "The answer is [0-9]+"});
  const auto reader = rule.rule->read({}, {});
  std::vector<TokenId> answer;
  std::string text;
  for (;;) {
    const NextTokens next = reader->next(answer, 100);
    if (next.kind != NextTokens::Kind::forced) break;
    answer.push_back(next.forced);
    text += words->tokenizer->piece(next.forced);
  }
  CHECK(text == "The answer is");  // the space may be one token with what follows
  CHECK(answer.size() == 3);
  CHECK(rule.least_tokens == 4);  // " 0" is one
}

TEST_CASE("what takes too much work fails as often as it is asked for, and leaves what was told before as it was") {
  const auto words = vocabulary();
  if (!words) return;
  // Which of the last letters were among the first is a state of its own.
  const auto rule = rule_of(*words, {.kind = Constraint::Kind::regex, .text = "[\\x01\\x02].*[a-m].{14}"});
  const auto reader = rule.rule->read({}, {});
  const auto token = [&](std::string_view text) {
    return words->tokenizer->encode(text, {.add_special = false}).front();
  };
  const std::vector<TokenId> begun{token("\x01")}, more{token("\x01"), token("b")};
  const NextTokens first = reader->next(begun, 99);
  REQUIRE(first.kind == NextTokens::Kind::some);
  const std::vector<std::uint64_t> before(first.allowed.begin(), first.allowed.end());
  // Each time finds states that the next one need not find.
  for (int i = 0; i < 3; ++i) CHECK(reader->next(more, 98).kind == NextTokens::Kind::failed);
  reader->truncate(1);
  CHECK(std::ranges::equal(reader->next(begun, 99).allowed, before));
}

TEST_CASE("a vocabulary that cannot write every byte, and forms that are none, are refused") {
  const auto words = vocabulary();
  if (!words) return;
  const auto form = compile_form({.kind = Constraint::Kind::choice, .choices = {"a"}}, *words->tokenizer, nullptr);
  REQUIRE(form);
  const auto few = std::make_shared<const TokenTrie>(std::vector<std::string>{"a", "b"});
  const auto made = make_rule(*form, few, words->tokenizer);
  REQUIRE_FALSE(made);
  CHECK(made.error().code == ErrorCode::unsupported);
  const std::vector<std::pair<Constraint, std::string>> wrong = {
      {{.kind = Constraint::Kind::json_schema, .text = "{"}, "no JSON"},
      {{.kind = Constraint::Kind::json_schema, .text = "{\"maxContains\":1,\"contains\":{}}"}, "maxContains"},
      {{.kind = Constraint::Kind::regex, .text = "("}, "pattern"},
      {{.kind = Constraint::Kind::regex, .text = "[^\\s\\S]"}, "no text"},
      {{.kind = Constraint::Kind::choice}, "no choice"},
      {{.kind = Constraint::Kind::choice, .choices = {"a", ""}}, "empty"},
      {{.kind = Constraint::Kind::json_schema, .text = std::string(kMaxConstraintBytes + 1, ' ')}, "bytes"},
  };
  for (const auto& [constraint, message] : wrong) {
    const auto refused = grammar_of(constraint);
    INFO(message);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message.find(message) != std::string::npos);
  }
}

}  // namespace
}  // namespace troupe::engine::constraints::test
