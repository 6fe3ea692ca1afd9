// Proposals from a tenant's earlier answers, beside a plain search of them.
#include "engine/drafting/earlier_answers.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

namespace troupe::engine {
namespace {

using Tokens = std::vector<TokenId>;

constexpr TenantId kAnn{1}, kBob{2};
constexpr cache::ScopeId kNotes{7}, kMail{8};

Tokens random_text(std::mt19937& random, std::size_t count, std::uint32_t num_words) {
  Tokens text(count);
  for (TokenId& token : text) token = static_cast<TokenId>(random() % num_words);
  return text;
}

void index(EarlierAnswers& answers, std::size_t room) { answers.index(room); }

// As of a sequence that is seen for the first time.
std::size_t propose(EarlierAnswers& answers, TenantId tenant, cache::ScopeId scope, const Tokens& tokens,
                    std::size_t most, Tokens& out) {
  EarlierAnswers::Reader reader;
  return answers.propose(tenant, scope, tokens, most, reader, out);
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("the same question is proposed the answer that it had, from its first token on") {
  std::mt19937 random(1);
  const Tokens question = random_text(random, 100, 1000), answer = random_text(random, 40, 1000);
  EarlierAnswers answers;
  answers.learn(kAnn, kNotes, joined(question, answer), answer.size());
  Tokens out;
  CHECK(propose(answers, kAnn, kNotes, question, 8, out) == 0);  // not indexed yet
  index(answers, 1000);
  REQUIRE(propose(answers, kAnn, kNotes, question, 8, out) == EarlierAnswers::kMaxBefore);
  CHECK(out == Tokens(answer.begin(), answer.begin() + 8));
  // In the middle, and to its end but not beyond.
  const Tokens middle = joined(question, Tokens(answer.begin(), answer.begin() + 36));
  CHECK(propose(answers, kAnn, kNotes, middle, 8, out) == EarlierAnswers::kMaxMatch);
  CHECK(out == Tokens(answer.begin() + 36, answer.end()));
  CHECK(propose(answers, kAnn, kNotes, joined(question, answer), 8, out) == 0);
  CHECK(out.empty());
}

TEST_CASE("proposals come from the tenant's own answers in the scope, and from no other") {
  std::mt19937 random(2);
  const Tokens question = random_text(random, 20, 1000), answer = random_text(random, 40, 1000);
  EarlierAnswers answers;
  answers.learn(kAnn, kNotes, joined(question, answer), answer.size());
  index(answers, 1000);
  Tokens out;
  CHECK(propose(answers, kAnn, kMail, question, 8, out) == 0);
  CHECK(propose(answers, kBob, kNotes, question, 8, out) == 0);
  CHECK(out.empty());
}

TEST_CASE("a proposal follows the longest end of the text that is in some answer") {
  std::mt19937 random(3);
  EarlierAnswers answers;
  std::vector<Tokens> learned;
  for (int i = 0; i < 30; ++i) {
    learned.push_back(random_text(random, 30, 12));
    answers.learn(kAnn, kNotes, learned.back(), learned.back().size());
  }
  index(answers, 10'000);
  Tokens out;
  for (int i = 0; i < 2000; ++i) {
    const Tokens text = random_text(random, 20, 12);
    std::size_t longest = 0;
    for (const Tokens& answer : learned)
      for (std::size_t end = 1; end <= answer.size(); ++end) {
        std::size_t length = 0;
        while (length < end && length < text.size() && answer[end - 1 - length] == text[text.size() - 1 - length])
          ++length;
        longest = std::max(longest, length);
      }
    const std::size_t length = propose(answers, kAnn, kNotes, text, 3, out);
    if (length == 0) {
      // None that is long enough, or the answer ends there.
      if (longest >= EarlierAnswers::kMinMatch) CHECK(out.empty());
      continue;
    }
    REQUIRE(length == longest);
    const bool is_there = std::ranges::any_of(learned, [&](const Tokens& answer) {
      const Tokens whole = joined(Tokens(text.end() - static_cast<std::ptrdiff_t>(length), text.end()), out);
      return std::search(answer.begin(), answer.end(), whole.begin(), whole.end()) != answer.end();
    });
    REQUIRE(is_there);
  }
}

TEST_CASE("a sequence that is read token by token gets what it would get if it were seen for the first time") {
  std::mt19937 random(5);
  EarlierAnswers answers;
  EarlierAnswers::Reader reader;
  Tokens sequence, out, expected;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 50 == 0) {
      // Now and then another sequence has just said the same.
      const Tokens more =
          sequence.size() < 40 ? random_text(random, 30, 6) : Tokens(sequence.end() - 20, sequence.end());
      answers.learn(kAnn, kNotes, joined(more, {0, 1, 2}), more.size() + 3);
    }
    index(answers, random() % 40);
    sequence.push_back(static_cast<TokenId>(random() % 6));
    if (random() % 4 == 0) continue;  // no draft was wanted
    const std::size_t length = answers.propose(kAnn, kNotes, sequence, 4, reader, out);
    const std::size_t fresh = propose(answers, kAnn, kNotes, sequence, 4, expected);
    REQUIRE(out == expected);
    REQUIRE(length == fresh);
  }
  // A text that is found whole is longer than the first look goes back.
  const Tokens whole = random_text(random, 100, 1000);
  answers.learn(kAnn, kMail, whole, whole.size());
  index(answers, 10'000);
  EarlierAnswers::Reader of_whole;
  for (std::size_t i = 1; i < 90; ++i) {
    const Tokens begun(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i));
    const std::size_t length = answers.propose(kAnn, kMail, begun, 4, of_whole, out);
    if (i >= EarlierAnswers::kMinMatch) REQUIRE(length == i);
  }
}

TEST_CASE("its memory is bounded, each tenant's part by that of the one with most") {
  std::mt19937 random(4);
  EarlierAnswers answers;
  const Tokens question = random_text(random, 20, 1000), answer = random_text(random, 40, 1000);
  answers.learn(kBob, kNotes, joined(question, answer), answer.size());
  for (std::uint64_t scope = 100; scope < 140; ++scope) {
    const Tokens text = random_text(random, 3 * EarlierAnswers::kMaxTokens, 50'000);
    for (int i = 0; i < 3; ++i) answers.learn(kAnn, cache::ScopeId{scope}, text, text.size());
    index(answers, 1'000'000);
    REQUIRE(answers.num_indices() <= EarlierAnswers::kMaxIndices);
    REQUIRE(answers.memory_bytes() <= 400 * EarlierAnswers::kMaxTokens * EarlierAnswers::kMaxIndices);
  }
  REQUIRE(answers.num_indices() == EarlierAnswers::kMaxIndices);
  Tokens out;
  CHECK(propose(answers, kBob, kNotes, question, 8, out) > 0);
}

TEST_CASE("what is oldest in an index is forgotten first") {
  Tokens all(3 * EarlierAnswers::kMaxTokens);
  std::iota(all.begin(), all.end(), 0);
  EarlierAnswers answers;
  constexpr std::ptrdiff_t kPart = 1000;
  for (auto from = all.begin(); all.end() - from >= kPart; from += kPart) {
    answers.learn(kAnn, kNotes, Tokens(from, from + kPart), kPart);
    index(answers, 300);  // not all
  }
  index(answers, 1'000'000);
  Tokens out;
  const Tokens first(all.begin() + 10, all.begin() + 40);
  CHECK(propose(answers, kAnn, kNotes, first, 4, out) == 0);
  const auto last = all.begin() + 48 * kPart;
  CHECK(propose(answers, kAnn, kNotes, Tokens(last, last + 40), 4, out) == EarlierAnswers::kMaxMatch);
  CHECK(out == Tokens(last + 40, last + 44));
}

}  // namespace troupe::engine
