// Drafters beside plain searches of all tokens.
#include "engine/drafting/drafter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

namespace troupe::engine {
namespace {

using Tokens = std::vector<TokenId>;

// Text of few words that now and then repeats a part of itself.
Tokens repeating_text(std::uint32_t seed, std::size_t count, TokenId num_words) {
  std::mt19937 random(seed);
  Tokens text;
  while (text.size() < count) {
    if (text.size() > 20 && random() % 3 == 0) {
      const std::size_t from = random() % (text.size() - 10);
      const std::size_t length = 2 + random() % 30;
      for (std::size_t i = 0; i < length; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(num_words)));
    }
  }
  text.resize(count);
  return text;
}

bool extend(Drafter& drafter, const Tokens& text, std::size_t room) { return drafter.extend(text, room); }

// How many tokens before `end` are as those at the end of the text.
std::size_t match_at(const Tokens& text, std::size_t end) {
  std::size_t length = 0;
  while (length < end && text[end - 1 - length] == text[text.size() - 1 - length]) ++length;
  return length;
}

Tokens continuation(const Tokens& text, std::size_t end, std::size_t most) {
  Tokens longer = text, out;
  for (std::size_t i = 0; i < most; ++i) {
    out.push_back(longer[end + i]);
    longer.push_back(out.back());
  }
  return out;
}

Tokens search_ngram(const Tokens& text, std::size_t most) {
  std::size_t best = 0, best_length = 0, num_seen = 0;
  for (std::size_t end = text.size() - 1; end >= NgramDrafter::kLength && num_seen < NgramDrafter::kMaxCandidates;
       --end) {
    const std::size_t length = std::min(match_at(text, end), NgramDrafter::kMaxMatch);
    if (length < NgramDrafter::kLength) continue;
    ++num_seen;
    if (length > best_length) {
      best = end;
      best_length = length;
    }
    if (length == NgramDrafter::kMaxMatch) break;
  }
  return best == 0 ? Tokens{} : continuation(text, best, most);
}

std::size_t longest_match(const Tokens& text) {
  std::size_t longest = 0;
  for (std::size_t end = 1; end < text.size(); ++end) longest = std::max(longest, match_at(text, end));
  return longest;
}

}  // namespace

TEST_CASE("what drafters index is taken from the room that they share") {
  const Tokens text = repeating_text(8, 100, 50);
  NgramDrafter ngram;
  SuffixDrafter suffix;
  std::size_t room = 150;
  CHECK(ngram.extend(text, room));
  CHECK(room == 50);
  CHECK_FALSE(suffix.extend(text, room));
  CHECK(room == 0);
  room = 1000;
  CHECK(suffix.extend(text, room));
  CHECK(room == 950);
}

TEST_CASE("a suffix index keeps as many tokens as it may") {
  const Tokens text = repeating_text(9, 20'000, 5'000);
  SuffixDrafter small(1024);
  REQUIRE(extend(small, text, text.size() + 20'000));
  CHECK(small.memory_bytes() <= 300 * 1024);
  Tokens out;
  CHECK(small.propose(text, 4, out) <= 1024);
}

TEST_CASE("an n-gram drafter proposes what followed the longest of the last matches") {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Tokens all = repeating_text(seed, 700, seed % 2 == 0 ? 40 : 5);
    NgramDrafter drafter;
    Tokens text, proposal;
    for (const TokenId token : all) {
      text.push_back(token);
      REQUIRE(extend(drafter, text, 100));
      drafter.propose(text, 6, proposal);
      INFO("seed " << seed << ", " << text.size() << " tokens");
      REQUIRE(proposal == search_ngram(text, 6));
    }
  }
}

TEST_CASE("a suffix drafter finds the longest suffix that occurred before, and proposes what followed one of them") {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const Tokens all = repeating_text(seed, 500, seed % 2 == 0 ? 40 : 3);
    SuffixDrafter drafter;
    Tokens text, proposal;
    for (const TokenId token : all) {
      text.push_back(token);
      REQUIRE(extend(drafter, text, 100));
      const std::size_t length = longest_match(text);
      INFO("seed " << seed << ", " << text.size() << " tokens");
      REQUIRE(drafter.match_length() == length);
      drafter.propose(text, 4, proposal);
      REQUIRE(proposal.empty() == (length < SuffixDrafter::kMinMatch));
      if (proposal.empty()) continue;
      bool is_continuation = false;
      for (std::size_t end = length; end < text.size(); ++end)
        is_continuation |= match_at(text, end) >= length && proposal == continuation(text, end, 4);
      REQUIRE(is_continuation);
    }
  }
}

TEST_CASE("a text is indexed in parts, with the same proposals as at once") {
  const Tokens text = repeating_text(3, 5000, 30);
  NgramDrafter ngram, ngram_at_once;
  SuffixDrafter suffix, suffix_at_once;
  std::size_t num_calls = 1;
  while (!extend(ngram, text, 64)) ++num_calls;
  REQUIRE(num_calls == 79);  // 5000 / 64
  while (!extend(suffix, text, 64)) {
  }
  REQUIRE(extend(ngram_at_once, text, text.size()));
  REQUIRE(extend(suffix_at_once, text, text.size()));
  Tokens a, b;
  ngram.propose(text, 16, a);
  ngram_at_once.propose(text, 16, b);
  REQUIRE(a == b);
  suffix.propose(text, 16, a);
  suffix_at_once.propose(text, 16, b);
  REQUIRE(a == b);
}

TEST_CASE("a text that repeats with a short period is proposed for as long as asked") {
  const Tokens text{7, 1, 2, 3, 1, 2, 3};
  NgramDrafter ngram;
  SuffixDrafter suffix;
  REQUIRE(extend(ngram, text, 7));
  REQUIRE(extend(suffix, text, 7));
  Tokens out;
  ngram.propose(text, 7, out);
  REQUIRE(out == Tokens{1, 2, 3, 1, 2, 3, 1});
  suffix.propose(text, 7, out);
  REQUIRE(out == Tokens{1, 2, 3, 1, 2, 3, 1});
}

TEST_CASE("a drafter's memory is bounded, and what it forgot is not proposed") {
  const Tokens text = repeating_text(5, 3 * SuffixDrafter::kMaxTokens, 20'000);
  NgramDrafter ngram;
  SuffixDrafter suffix;
  REQUIRE(extend(ngram, text, text.size()));
  while (!extend(suffix, text, 1000)) {
  }
  REQUIRE(ngram.memory_bytes() <= 16 * text.size());
  REQUIRE(suffix.memory_bytes() <= 300 * SuffixDrafter::kMaxTokens);
  Tokens distinct(2 * SuffixDrafter::kMaxTokens);
  std::iota(distinct.begin(), distinct.end(), 0);
  Tokens out;
  for (const std::size_t from : {distinct.size() - 100, std::size_t{0}}) {
    Tokens again = distinct;
    again.insert(again.end(), distinct.begin() + static_cast<std::ptrdiff_t>(from),
                 distinct.begin() + static_cast<std::ptrdiff_t>(from) + 50);
    SuffixDrafter drafter;
    while (!extend(drafter, again, 1000)) {
    }
    drafter.propose(again, 4, out);
    REQUIRE(out.empty() == (from == 0));
  }
}

}  // namespace troupe::engine
