// Masks: the tokens that may follow, against trying each of them, and answers that end where they must.
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "config/utf8.h"
#include "tests/engine/constraints/grammar_cases.h"
#include "tests/support/shared_data.h"

namespace troupe::engine::constraints::test {
namespace {

const std::vector<std::string> kWords = {
    "abc",
    "a",
    "hello",
    " world",
    "The",
    "_x",
    "foo-bar",
    "12",
    "3456",
    "!?",
    "\"",
    "\":",
    "\",\"",
    "{\"",
    "\"}",
    "}}",
    "]",
    "\\n",
    "\\u",
    "\xC3",
    "\xA9",
    "\xC3\xA9t\xC3\xA9",
    "\xF0\x9F\x98\x80",
    "\xF0\x9F",
    "abc\"",
    "\" ",
    "\n",
    "true",
    "null",
    "0.5",
    "-1",
    "e5",
    "2026-",
    "-02-",
    "aaaaaaaaaaaaaaaa",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "xyz",
    "abc",
    "zz9",
    ":",
    ",",
};

std::vector<std::string> pieces_of_small_vocabulary() {
  std::vector<std::string> pieces{""};
  for (unsigned byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
  pieces.insert(pieces.end(), kWords.begin(), kWords.end());
  return pieces;
}

const std::vector<std::string_view> kSchemas = {
    "true",
    R"({"type":"string"})",
    R"({"type":"string","maxLength":3})",
    R"({"type":"string","minLength":20,"maxLength":40})",
    R"({"type":"string","pattern":"^[a-z]{2,8}$"})",
    R"({"type":"string","pattern":"^\\w+-\\w+$"})",
    R"({"type":"string","pattern":"a.c"})",
    R"({"type":"string","format":"date"})",
    R"({"type":"string","not":{"enum":["abc","hello"]}})",
    R"({"enum":["abc","abcabc",12,null,{"a":1}]})",
    R"({"type":"number","minimum":-5,"maximum":1234})",
    R"({"type":"object","properties":{"abc":{"type":"integer"},"hello":{"type":"string"},"xyz":{"type":"boolean"}},
        "required":["hello"]})",
    R"({"type":"array","items":{"type":"array","items":{"type":"integer"}},"minItems":1})",
    R"({"anyOf":[{"type":"string","maxLength":4},{"type":"string","pattern":"^a+$"},{"type":"object","maxProperties":1}]})",
};

TEST_CASE("a mask has the tokens that can follow, and no other") {
  const auto trie = small_vocabulary(kWords);
  const std::vector<std::string> pieces = pieces_of_small_vocabulary();
  std::mt19937 random(7);
  for (const std::string_view schema : kSchemas) {
    Machine machine = machine_of(schema);
    TokenFilter filter(machine, trie);
    TokenMask mask(trie->num_tokens());
    for (int answer = 0; answer < 30; ++answer) {
      StateId state = machine.begin();
      std::string text;
      for (int step = 0; step < 40; ++step) {
        filter.fill(state, mask);
        std::vector<TokenId> allowed;
        for (std::size_t id = 0; id < pieces.size(); ++id) {
          const bool can_follow = !pieces[id].empty() && machine.after(state, pieces[id]) != kStuck;
          if (mask.allows(static_cast<TokenId>(id)) != can_follow)
            FAIL(schema << " after " << text << ": token " << pieces[id]
                        << (can_follow ? " is missing" : " is too many"));
          if (can_follow) allowed.push_back(static_cast<TokenId>(id));
        }
        if (allowed.empty()) {
          REQUIRE(machine.may_end(state));
          break;
        }
        const std::string& piece = pieces[static_cast<std::size_t>(allowed[random() % allowed.size()])];
        text += piece;
        state = machine.after(state, piece);
      }
    }
  }
}

TEST_CASE("a mask within a number of tokens has the tokens after which the end still fits, and no other") {
  const auto trie = small_vocabulary(kWords);
  for (const std::string_view schema : kSchemas) {
    Machine machine = machine_of(schema);
    TokenFilter filter(machine, trie);
    TokenMask all(trie->num_tokens()), within(trie->num_tokens());
    std::mt19937 random(11);
    const std::vector<std::string> pieces = pieces_of_small_vocabulary();
    StateId state = machine.begin();
    for (int step = 0; step < 25; ++step) {
      filter.fill(state, all);
      for (const std::size_t left : {0, 1, 2, 3, 5, 9, 30, 100}) {
        filter.fill(state, within, left);
        for (std::size_t id = 0; id < pieces.size(); ++id) {
          const auto token = static_cast<TokenId>(id);
          const bool fits =
              all.allows(token) && left > 0 && filter.tokens_to_end(machine.after(state, pieces[id])) < left;
          if (within.allows(token) != fits)
            FAIL(schema << ", " << left << " left: token " << pieces[id] << (fits ? " is missing" : " is too many"));
        }
      }
      std::vector<TokenId> allowed;
      for (std::size_t id = 0; id < pieces.size(); ++id)
        if (all.allows(static_cast<TokenId>(id))) allowed.push_back(static_cast<TokenId>(id));
      if (allowed.empty()) break;
      state = machine.after(state, pieces[static_cast<std::size_t>(allowed[random() % allowed.size()])]);
    }
  }
}

TEST_CASE("an answer of any length that the shortest end allows is whole at its end") {
  const auto trie = small_vocabulary(kWords);
  const std::vector<std::string> pieces = pieces_of_small_vocabulary();
  std::mt19937 random(13);
  std::size_t cut = 0;
  for (const std::string_view schema : kSchemas) {
    Machine machine = machine_of(schema);
    TokenFilter filter(machine, trie);
    TokenMask mask(trie->num_tokens());
    const std::size_t least = filter.tokens_to_end(machine.begin());
    for (int answer = 0; answer < 40; ++answer) {
      const std::size_t most = least + random() % 30;
      StateId state = machine.begin();
      std::string text;
      std::size_t used = 0;
      for (; used < most; ++used) {
        filter.fill(state, mask, most - used);
        std::vector<TokenId> allowed;
        for (std::size_t id = 0; id < pieces.size(); ++id)
          if (mask.allows(static_cast<TokenId>(id))) allowed.push_back(static_cast<TokenId>(id));
        if (machine.may_end(state) && (allowed.empty() || random() % 8 == 0)) break;
        INFO(schema << ": " << text);
        REQUIRE_FALSE(allowed.empty());
        const std::string& piece = pieces[static_cast<std::size_t>(allowed[random() % allowed.size()])];
        text += piece;
        state = machine.after(state, piece);
      }
      INFO(schema << ": " << text);
      REQUIRE(machine.may_end(state));
      CHECK(accepts(machine, text));
      cut += used == most;
    }
  }
  CHECK(cut > 50);
}

TEST_CASE("the shortest text of a grammar is one of its texts, and as short as any that random walks find") {
  std::mt19937 random(17);
  for (const std::string_view schema : kSchemas) {
    Machine machine = machine_of(schema);
    const std::string shortest = machine.shortest_text(machine.begin());
    INFO(schema << ": " << shortest);
    CHECK(shortest.size() == machine.shortest(machine.begin()));
    CHECK(accepts(machine, shortest));
    for (int walk = 0; walk < 200; ++walk) {
      StateId state = machine.begin();
      for (std::size_t length = 0; length < shortest.size(); ++length) {
        if (machine.may_end(state)) FAIL("it ends sooner");
        std::vector<StateId> targets;
        for (unsigned byte = 0; byte < 256; ++byte)
          if (const StateId target = machine.next(state, static_cast<std::uint8_t>(byte)); target != kStuck)
            targets.push_back(target);
        const StateId next = targets[random() % targets.size()];
        if (machine.shortest(next) + 1 < machine.shortest(state))
          FAIL("a step of one byte brings the end nearer by more");
        state = next;
      }
    }
  }
}

TEST_CASE("a grammar that allows everything allows every token of text of a real vocabulary") {
  const auto path = troupe::test::shared_file("thirdparty/vocab/ggml-vocab-gpt-2.gguf");
  if (!path) return;
  const auto file = open_gguf(*path);
  REQUIRE(file);
  const auto tokenizer = make_tokenizer(**file);
  REQUIRE(tokenizer);
  const auto trie = std::make_shared<const TokenTrie>(TokenTrie::of(**tokenizer));
  CHECK(trie->has_every_byte());
  Grammar grammar;
  const RuleId rule = grammar.add_rule();
  const NodeId end = grammar.add_node();
  grammar.set_end(end);
  grammar.add_text(grammar.begin_of(rule), kAnyText, end);
  REQUIRE(grammar.finish(rule));
  Machine machine(std::move(grammar));
  TokenFilter filter(machine, trie);
  TokenMask mask(trie->num_tokens());
  filter.fill(machine.begin(), mask);
  for (std::uint32_t id = 0; id < (*tokenizer)->size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    CHECK(mask.allows(token) == !(*tokenizer)->piece(token).empty());
  }
}

TEST_CASE("a machine that met a limit goes on where more work is allowed, and says the same as one that met none") {
  const auto trie = small_vocabulary(kWords);
  for (const std::string_view schema : kSchemas) {
    Machine fresh = machine_of(schema), limited = machine_of(schema);
    TokenFilter fresh_filter(fresh, trie), limited_filter(limited, trie);
    TokenMask expected(trie->num_tokens()), mask(trie->num_tokens());
    const std::string text = fresh.shortest_text(fresh.begin());
    std::size_t num_limits = 0;
    for (std::size_t length = 0; length <= text.size(); ++length) {
      fresh_filter.fill(fresh.after(fresh.begin(), std::string_view(text).substr(0, length)), expected);
      for (std::size_t work = 0;; ++work) {
        limited.pool().limit_work(work);
        try {
          limited_filter.fill(limited.after(limited.begin(), std::string_view(text).substr(0, length)), mask);
          break;
        } catch (const ConstraintLimit&) {
          ++num_limits;
        }
      }
      INFO(schema << " after " << length << " bytes");
      REQUIRE(mask == expected);
    }
    CHECK(num_limits > 0);
  }
}

TEST_CASE("kinds of text: the lowest that holds a text, and its characters") {
  const auto kind = [](std::string_view text) { return kind_of_text(text); };
  CHECK(kind("abc")->kind == TextKind::lower);
  CHECK(kind("aB_9")->kind == TextKind::word);
  CHECK(kind("a-b")->kind == TextKind::name);
  CHECK(kind("a!")->kind == TextKind::visible);
  CHECK(kind(" a")->kind == TextKind::printable);
  CHECK(kind("\xC3\xA9t\xC3\xA9")->kind == TextKind::any);
  CHECK(kind("\xC3\xA9t\xC3\xA9")->num_characters == 3);
  for (const char* const none : {"", "a\"", "\\", "\n", "\xC3", "\xA9", "a\xF0\x9F"})
    CHECK_FALSE(kind(none).has_value());
}

}  // namespace
}  // namespace troupe::engine::constraints::test
