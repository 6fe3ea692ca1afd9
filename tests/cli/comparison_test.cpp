// What of an answer differs from its receipt first.
#include "cli/client/comparison.h"

#include <catch2/catch.hpp>
#include <vector>

namespace troupe::cli {
namespace {

using scheduler::Outcome;

actors::Proof some_proof() {
  actors::Proof proof;
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1});
  proof.ids = {10, 11, 12};
  proof.text = "abc";
  proof.outcome = Outcome::eos;
  proof.sampling.max_tokens = 9;
  return proof;
}

std::string name_of(TokenId id) { return "t" + std::to_string(id); }

TEST_CASE("comparison: the same tokens, text and end are proved, however they come") {
  const actors::Proof proof = some_proof();
  Comparison same(proof);
  CHECK(same.take(std::vector<TokenId>{10, 11}, "a"));
  CHECK(same.take(std::vector<TokenId>{12}, "b"));
  CHECK_FALSE(same.is_proved());
  CHECK(same.take({}, "c"));
  same.end(Outcome::eos, "");
  CHECK(same.is_proved());
  CHECK_FALSE(same.position());
  CHECK(same.difference(name_of).empty());
}

TEST_CASE("comparison: the first difference is told with what belongs there") {
  const actors::Proof proof = some_proof();
  const auto told = [&](const std::vector<TokenId>& ids, const std::string& text, Outcome outcome,
                        std::string_view stop = {}) {
    Comparison same(proof);
    if (same.take(ids, text)) same.end(outcome, stop);
    CHECK_FALSE(same.is_proved());
    CHECK(same.position());
    return same.difference(name_of);
  };
  CHECK(told({10, 21, 22}, "abc", Outcome::eos) == "token 2 of 3 is 11 (\"t11\"), the model gives 21 (\"t21\")");
  CHECK(told({10, 11, 12, 13}, "abc", Outcome::eos) ==
        "it ends by eos after 3 tokens, where the model gives 13 (\"t13\")");
  CHECK(told({10, 11}, "ab", Outcome::stop_string, "x") ==
        "token 3 of 3 is 12 (\"t12\"), where the model ends the answer by stop_string \"x\"");
  CHECK(told({10, 11, 12}, "abc", Outcome::stop_id) == "its end is eos, the model's stop_id");
  CHECK(told({10, 11, 12}, "abd", Outcome::eos) == "its text is not that of its tokens");
  Comparison bare(proof);
  CHECK_FALSE(bare.take(std::vector<TokenId>{9}, ""));
  CHECK(bare.difference(nullptr) == "token 1 of 3 is 10, the model gives 9");
  CHECK(bare.position() == 0u);
  CHECK_FALSE(bare.take(std::vector<TokenId>{10}, ""));
}

TEST_CASE("comparison: of an answer that was cut the tokens count, and the text as far as it was sent") {
  actors::Proof proof = some_proof();
  proof.outcome = Outcome::cancelled;
  proof.text = "ab";
  CHECK(provable_end(proof) == Outcome::length);
  CHECK(provable_tokens(proof) == 3);
  Comparison same(proof);
  CHECK(same.take(proof.ids, "abc"));
  same.end(Outcome::length, "");
  CHECK(same.is_proved());
  CHECK(provable_tokens(some_proof()) == 9);
}

TEST_CASE("comparison: one of a form that was cut is computed as before it was, and goes on behind it") {
  actors::Proof proof = some_proof();
  proof.form = std::make_shared<const actors::AnswerForm>(engine::constraints::Constraint(), "form");
  proof.outcome = Outcome::deadline;
  proof.text = "ab";
  CHECK(provable_tokens(proof) == 9);
  Comparison same(proof);
  CHECK(same.take(std::vector<TokenId>{10, 11}, "ab"));
  CHECK_FALSE(same.is_over());
  CHECK_FALSE(same.take(std::vector<TokenId>{12, 13}, "cd"));
  CHECK(same.is_over());
  same.end(Outcome::cancelled, "");
  CHECK(same.is_proved());
  Comparison other(proof);
  CHECK_FALSE(other.take(std::vector<TokenId>{10, 11, 13}, "abd"));
  CHECK_FALSE(other.is_over());
  CHECK(other.position() == 2u);
}

}  // namespace
}  // namespace troupe::cli
