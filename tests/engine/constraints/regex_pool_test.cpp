// Expressions over bytes against the sets of texts that they stand for, computed without derivatives.
#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "engine/constraints/expressions/regex_pool.h"

namespace troupe::engine::constraints {
namespace {

constexpr std::size_t kMaxTextLength = 5;
using Texts = std::set<std::string>;  // of 'a' and 'b', with at most kMaxTextLength bytes

const Texts& all_texts() {
  static const Texts texts = [] {
    Texts made{""};
    std::vector<std::string> last{""};
    for (std::size_t length = 0; length < kMaxTextLength; ++length) {
      std::vector<std::string> longer;
      for (const std::string& each : last)
        for (const char next : {'a', 'b'}) longer.push_back(each + next);
      made.insert(longer.begin(), longer.end());
      last = std::move(longer);
    }
    return made;
  }();
  return texts;
}

Texts concatenated(const Texts& first, const Texts& second) {
  Texts texts;
  for (const std::string& a : first)
    for (const std::string& b : second)
      if (a.size() + b.size() <= kMaxTextLength) texts.insert(a + b);
  return texts;
}

struct Language {
  RegexId id;
  Texts texts;
};

class RandomLanguage {
 public:
  RandomLanguage(RegexPool& pool, std::uint32_t seed) : pool_(pool), random_(seed) {}

  Language make(int depth) {
    switch (depth == 0 ? random_() % 4 : 3 + random_() % 7) {
      case 0:
        return {pool_.literal("ab"), {"ab"}};
      case 1:
        return {pool_.bytes(ByteSet::range('a', 'b')), {"a", "b"}};
      case 2:
        return {kEmptyText, {""}};
      case 3: {
        const std::string text(1, random_() % 2 == 0 ? 'a' : 'b');
        return {pool_.literal(text), {text}};
      }
      case 4:
      case 5: {
        const Language first = make(depth - 1), second = make(depth - 1);
        return {pool_.concat(first.id, second.id), concatenated(first.texts, second.texts)};
      }
      case 6: {
        const Language first = make(depth - 1), second = make(depth - 1);
        Texts texts = first.texts;
        texts.insert(second.texts.begin(), second.texts.end());
        return {pool_.either({first.id, second.id}), texts};
      }
      case 7: {
        const Language first = make(depth - 1), second = make(depth - 1);
        Texts texts;
        std::ranges::set_intersection(first.texts, second.texts, std::inserter(texts, texts.end()));
        return {pool_.both({first.id, second.id}), texts};
      }
      case 8: {
        const Language inner = make(depth - 1);
        Texts texts;
        std::ranges::set_difference(all_texts(), inner.texts, std::inserter(texts, texts.end()));
        return {pool_.complement(inner.id), texts};
      }
      default:
        return repeated(make(depth - 1));
    }
  }

 private:
  Language repeated(const Language& inner) {
    const std::uint32_t min = random_() % 3, max = random_() % 2 == 0 ? kUnbounded : min + random_() % 3;
    Texts texts, power{""};
    for (std::uint32_t count = 0; count <= std::min<std::uint32_t>(max, min + kMaxTextLength); ++count) {
      if (count >= min) texts.insert(power.begin(), power.end());
      power = concatenated(power, inner.texts);
    }
    return {pool_.repeat(inner.id, min, max), texts};
  }

  RegexPool& pool_;
  std::mt19937 random_;
};

TEST_CASE("expressions match the texts that they stand for, and know their shortest, at random") {
  std::size_t num_searched = 0;
  for (std::uint32_t seed = 0; seed < 1500; ++seed) {
    RegexPool pool;
    const Language made = RandomLanguage(pool, seed).make(4);
    const RegexId id = pool.both({made.id, pool.repeat(pool.bytes(ByteSet::range('a', 'b')), 0, kUnbounded)});
    std::string shortest;
    bool has_text = false;
    for (const std::string& text : all_texts()) {
      const bool expected = made.texts.contains(text);
      if (pool.matches(made.id, text) != expected) FAIL_CHECK(seed << ": " << text << ", " << expected);
      if (expected && (!has_text || text.size() < shortest.size())) {
        shortest = text;
        has_text = true;
      }
    }
    if (!has_text) continue;  // longer than the texts here, or none
    ++num_searched;
    INFO(seed);
    CHECK(pool.shortest(id) == shortest.size());
    CHECK(pool.shortest_text(id) == shortest);
  }
  CHECK(num_searched > 500);
}

TEST_CASE("the states of a table know their shortest texts, and where none goes on") {
  // Texts of 'a' whose length is 2 more than a multiple of 5; 'b' leads to where nothing ends.
  std::array<std::uint32_t, 256> none;
  none.fill(DigitTable::kNoState);
  DigitTable table{.next = std::vector(6, none), .accepts = std::vector<bool>(6)};
  for (std::uint32_t state = 0; state < 5; ++state) {
    table.next[state]['a'] = (state + 1) % 5;
    table.next[state]['b'] = 5;
  }
  table.next[5]['b'] = 5;
  table.accepts[2] = true;
  RegexPool pool;
  const RegexId id = pool.table(std::move(table));
  for (std::uint32_t length = 0; length < 12; ++length) {
    const std::string text(length, 'a');
    CHECK(pool.matches(id, text) == (length % 5 == 2));
    CHECK(pool.shortest(pool.after(id, text)) == (7 - length % 5) % 5);
  }
  CHECK(pool.next(id, 'b') == kNoText);
  CHECK(pool.shortest_text(id) == "aa");
  CHECK(pool.shortest_text(pool.both({id, pool.repeat(pool.literal("a"), 3, 20)})) == "aaaaaaa");
  CHECK(pool.shortest(pool.both({id, pool.repeat(pool.literal("aaaaa"), 0, 9)})) == RegexPool::kNoLength);
}

TEST_CASE("work and expressions are limited") {
  RegexPool pool;
  const RegexId letters = pool.repeat(pool.bytes(ByteSet::range('a', 'z')), 0, kUnbounded);
  const RegexId id =
      pool.concat(std::array{letters, pool.literal("x"), pool.repeat(pool.bytes(ByteSet::range('a', 'z')), 30, 30)});
  std::mt19937 random(3);
  std::string text;
  for (int at = 0; at < 60'000; ++at) text += random() % 2 == 0 ? 'x' : 'y';
  CHECK_THROWS_AS(pool.matches(id, text), ConstraintLimit);
  std::string pairs;
  for (int at = 0; at < 200; ++at) pairs += "ab";
  pool.limit_work(100);
  CHECK_THROWS_AS(pool.matches(pool.repeat(pool.literal("ab"), 200, 300), pairs), ConstraintLimit);
  pool.limit_work(1000);
  CHECK(pool.matches(pool.repeat(pool.literal("ab"), 200, 300), pairs));
}

}  // namespace
}  // namespace troupe::engine::constraints
