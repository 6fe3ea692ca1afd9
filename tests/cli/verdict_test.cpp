// What `troupe verify` says of a proved receipt: what it was proved for, and what would be proved with another value.
#include "cli/client/verdict.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace troupe::cli {
namespace {

using scheduler::Outcome;

actors::Proof small_proof(float temperature) {
  actors::Proof proof;
  proof.numerics_id = "7-avx2-f16-92f12d9bef3d2293";
  proof.model = "tales";
  proof.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1, 2});
  proof.ids = {10, 11, 12};
  proof.outcome = Outcome::eos;
  proof.sampling.temperature = temperature;
  proof.sampling.seed = 7;
  proof.sampling.top_k = 40;
  proof.sampling.max_tokens = 9;
  return proof;
}

TEST_CASE("verdict: an answer that was drawn is proved for its seed, a greedy one for any") {
  CHECK(proved_for(small_proof(0.5f)) ==
        "the model 92f12d9bef3d2293, a prompt of 2 tokens, temperature 0.5, seed 7, top_k 40");
  CHECK(not_proved(small_proof(0.5f), "tales") == "max_tokens 9 (it was not reached)");
  CHECK(proved_for(small_proof(0)) == "the model 92f12d9bef3d2293, a prompt of 2 tokens, temperature 0");
  CHECK(not_proved(small_proof(0), "tales") ==
        "max_tokens 9 (it was not reached); seed and choice (at temperature 0 nothing is drawn)");
}

TEST_CASE("verdict: what shaped an answer is said, and a bias entry by entry") {
  actors::Proof proof = small_proof(1);
  proof.sampling.choice = 2;
  proof.sampling.repeat_penalty = 1.5f;
  proof.sampling.ignore_eos = true;
  proof.sampling.min_tokens = 2;
  proof.sampling.reasoning_budget = engine::ReasoningBudget{.num_tokens = 64};
  proof.begins_with = "{\"name\": ";
  proof.sampling.logit_bias = {{300, -std::numeric_limits<float>::infinity()}, {337, 3.5f}};
  proof.outcome = Outcome::length;
  proof.sampling.max_tokens = 3;
  CHECK(proved_for(proof) ==
        "the model 92f12d9bef3d2293, a prompt of 2 tokens, temperature 1, seed 7, choice 2, top_k 40, repeat_penalty "
        "1.5, ignore_eos, min_tokens 2, begins_with \"{\"name\": \", reasoning_budget 64, logit_bias of 2 ids (300: "
        "-inf, 337: 3.5), max_tokens 3");
  CHECK(not_proved(proof, "tales") == "that each entry of logit_bias changed the answer");
  for (TokenId id = 400; id < 420; ++id) proof.sampling.logit_bias.emplace_back(id, 1.0f);
  const std::string many = proved_for(proof);
  CHECK(many.find("of 22 ids (300: -inf, ") != std::string::npos);
  CHECK(many.find("405: 1 and 14 more)") != std::string::npos);
}

TEST_CASE("verdict: stops are part of the proof where they ended the answer") {
  actors::Proof proof = small_proof(1);
  proof.sampling.max_tokens = std::numeric_limits<std::uint32_t>::max();
  proof.sampling.stop_ids = {5, 6};
  proof.stop_strings = {"The end"};
  CHECK(proved_for(proof).find("stop") == std::string::npos);
  CHECK(not_proved(proof, "tales") == "stop_ids (5, 6) and stop (\"The end\") (the answer meets none)");
  for (const Outcome outcome : {Outcome::stop_id, Outcome::stop_string}) {
    proof.outcome = outcome;
    CHECK(proved_for(proof).find("top_k 40, stop_ids (5, 6) and stop (\"The end\")") != std::string::npos);
    CHECK(not_proved(proof, "tales") == "those of the stops that the answer does not meet");
  }
}

TEST_CASE("verdict: what a session was computed under before it was recomputed is not proved") {
  actors::Proof proof = small_proof(1);
  const std::string before = not_proved(proof, "tales");
  proof.recomputed_from = "6-avx2-f16-1234567812345678";
  CHECK(proved_for(proof).find("avx2") == std::string::npos);
  CHECK(not_proved(proof, "tales")
            .find("that the conversation in the prompt was computed under numerics "
                  "6-avx2-f16-1234567812345678 before") != std::string::npos);
  CHECK(before.find("the conversation") == std::string::npos);
}

TEST_CASE("verdict: an end from outside and another name are not proved") {
  actors::Proof proof = small_proof(1);
  for (const Outcome outcome : {Outcome::cancelled, Outcome::deadline}) {
    proof.outcome = outcome;
    CHECK(not_proved(proof, "other") == "the name \"tales\" (here the model with this hash is \"other\"); the end by " +
                                            std::string(scheduler::info(outcome).name) +
                                            " (it came from outside; the answer goes on)");
  }
  proof.outcome = Outcome::tool_call;
  CHECK(not_proved(proof, "tales") ==
        "the end by tool_call (behind the last call that its request allowed; the answer goes on)");
}

}  // namespace
}  // namespace troupe::cli
