// A model that drafts for itself proposes what it would have said.
#include "engine/drafting/model_drafter.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/engine/drafting/said.h"

namespace troupe::engine {
using namespace test;

TEST_CASE("what a model drafts for itself is what it says, whatever became of the drafts before") {
  Team team(1);
  const auto model = load("tales-5m-tq2_0.gguf", 32);
  for (const float temperature : {0.f, 0.8f}) {
    const Tokens prompt = model->tokenizer()->encode("Once upon a time", {});
    const Tokens all = said(*model, team, prompt, 120, params(temperature));
    ModelDrafter drafter(*model, team);
    std::mt19937 random(3);
    std::size_t known = prompt.size() + 1, told = 0;
    while (known + 8 < all.size()) {
      DraftAsk ask{.request = 7,
                   .first = static_cast<std::uint32_t>(told),
                   .tokens = part(all, told, known),
                   .num_draft = 1 + static_cast<std::uint32_t>(random() % 6)};
      ask.sampling = params(temperature);
      DraftReply reply;
      drafter.propose({ask}, reply);
      REQUIRE(reply.answers.size() == 1);
      REQUIRE_FALSE(reply.answers[0].is_lost);
      REQUIRE(reply.num_passes == ask.num_draft);
      REQUIRE(reply.answers[0].tokens == part(all, known, known + ask.num_draft));
      told = known;
      known += 1 + random() % 7;  // some of the draft, all of it, or more
    }
  }
}

TEST_CASE("a model of any family drafts for itself what it says: with windows, recurrent state, or both") {
  Team team(1);
  for (const char* name : {"gemma2", "gemma3", "mamba", "mamba2", "rwkv6", "rwkv7", "falcon-h1", "lfm2", "qwen35"}) {
    const auto model = load(std::string(name) + ".gguf", 40, TROUPE_TEST_DATA "/golden");
    for (const float temperature : {0.f, 0.8f}) {
      INFO(name << " at temperature " << temperature);
      std::mt19937 random(5);
      // Several texts in turns, so that blocks and states go from one to the other.
      std::vector<Tokens> texts;
      for (std::size_t length : {70, 40, 101}) {
        Tokens prompt;
        while (prompt.size() < length) prompt.push_back(static_cast<TokenId>(random() % 50));
        texts.push_back(said(*model, team, prompt, 150, params(temperature)));
      }
      ModelDrafter drafter(*model, team);
      std::vector<std::size_t> known{71, 41, 102}, told(3, 0);
      std::size_t num_lost = 0;
      for (int round = 0; round < 90; ++round) {
        const std::size_t i = random() % 3;
        if (known[i] + 8 >= texts[i].size()) continue;
        DraftAsk ask{.request = i,
                     .first = static_cast<std::uint32_t>(told[i]),
                     .tokens = part(texts[i], told[i], known[i]),
                     .num_draft = 1 + static_cast<std::uint32_t>(random() % 6)};
        ask.sampling = params(temperature);
        DraftReply reply;
        drafter.propose({ask}, reply);
        if (reply.answers[0].is_lost) {
          REQUIRE(told[i] > 0);
          told[i] = 0;
          ++num_lost;
          continue;
        }
        REQUIRE(reply.answers[0].tokens == part(texts[i], known[i], known[i] + ask.num_draft));
        told[i] = known[i];
        known[i] += 1 + random() % 7;
      }
      CHECK(num_lost < 30);
    }
  }
}

TEST_CASE("proposals that were wrong leave no trace in a recurrent state") {
  Team team(1);
  for (const char* name : {"mamba", "rwkv7", "falcon-h1", "lfm2", "qwen35", "gemma2", "llama", "gemma3"}) {
    INFO(name);
    // The one that says what is right has blocks of its own.
    const auto model = load(std::string(name) + ".gguf", 40, TROUPE_TEST_DATA "/golden");
    const auto other = load(std::string(name) + ".gguf", 40, TROUPE_TEST_DATA "/golden");
    std::mt19937 random(6);
    Tokens text;
    while (text.size() < 60) text.push_back(static_cast<TokenId>(random() % 50));
    ModelDrafter drafter(*model, team);
    std::size_t told = 0;
    for (int round = 0; round < 20; ++round) {
      DraftReply reply;
      drafter.propose({{.request = 1,
                        .first = static_cast<std::uint32_t>(told),
                        .tokens = part(text, told, text.size()),
                        .num_draft = 4,
                        .sampling = params(0.8f)}},
                      reply);
      const Tokens expected = said(*other, team, text, 4, params(0.8f));
      REQUIRE(reply.answers[0].tokens == part(expected, text.size(), expected.size()));
      told = text.size();
      const std::size_t num_right = random() % 4;
      for (std::size_t i = 0; i < num_right; ++i) text.push_back(reply.answers[0].tokens[i]);
      text.push_back((reply.answers[0].tokens[num_right] + 1) % 50);
    }
  }
}

TEST_CASE("tokens that are not those proposed replace them") {
  Team team(1);
  const auto model = load("tales-5m-tq2_0.gguf", 32);
  const Tokens prompt = model->tokenizer()->encode("The cat sat on the mat and", {});
  ModelDrafter drafter(*model, team);
  DraftReply reply;
  drafter.propose({{.request = 1, .tokens = prompt, .num_draft = 5, .sampling = params(0)}}, reply);
  Tokens other = prompt;
  other.push_back(reply.answers[0].tokens[0]);
  other.push_back(reply.answers[0].tokens[1] == 300 ? 301 : 300);
  drafter.propose({{.request = 1,
                    .first = static_cast<std::uint32_t>(prompt.size()),
                    .tokens = part(other, prompt.size(), other.size()),
                    .num_draft = 5}},
                  reply);
  const Tokens expected = said(*model, team, other, 5, params(0));
  CHECK(reply.answers[0].tokens == part(expected, other.size(), expected.size()));
}

TEST_CASE("with too few blocks the least recently asked sequence is forgotten, and told again") {
  Team team(1);
  const auto model = load("tales-5m-tq2_0.gguf", 32);
  ModelDrafter drafter(*model, team);
  DraftReply reply;
  const auto ask = [&](std::uint64_t request, std::uint32_t first, std::size_t count) {
    drafter.propose(
        {{.request = request, .first = first, .tokens = Tokens(count, 300), .num_draft = 2, .sampling = params(0)}},
        reply);
    return reply.answers[0].is_lost;
  };
  for (std::uint64_t request = 1; request <= 3; ++request) REQUIRE_FALSE(ask(request, 0, 300));  // 10 blocks each
  REQUIRE_FALSE(ask(1, 300, 1));
  REQUIRE_FALSE(ask(4, 0, 300));  // takes those of 2
  REQUIRE(ask(2, 300, 1));
  REQUIRE_FALSE(ask(1, 301, 1));
  REQUIRE_FALSE(ask(2, 0, 301));
  drafter.close(1);
  drafter.close(99);
  REQUIRE(ask(1, 302, 1));
}

TEST_CASE("drafts of unlikely tokens end early") {
  Team team(1);
  const auto model = load("tales-5m-tq2_0.gguf", 32);
  const Tokens prompt = model->tokenizer()->encode("Once upon a time", {});
  std::size_t before = 9;
  for (const float p_min : {0.f, 0.5f, 1.f}) {
    ModelDrafter drafter(*model, team);
    DraftReply reply;
    drafter.propose({{.request = 1, .tokens = prompt, .num_draft = 8, .p_min = p_min, .sampling = params(0)}}, reply);
    CHECK(reply.answers[0].tokens.size() < before);
    before = reply.answers[0].tokens.size();
  }
  CHECK(before == 0);
}

// Equal draws of two models from the same uniform numbers: the part of proposals of one token that are right.
TEST_CASE("of the shipped pair's draws on held-out stories, enough are equal") {
  Team team(2);
  const auto model = load("tales-5m-tq2_0.gguf", 32), draft = load("tales-draft-q8_0.gguf", 32);
  const std::vector<Tokens> prompts = story_beginnings(*model);
  REQUIRE(prompts.size() >= 5);
  for (const auto& [temperature, least] : {std::pair{0.f, 0.64}, std::pair{0.8f, 0.53}}) {
    std::size_t num_equal = 0, num_drawn = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      SamplingParams sampling = params(temperature);
      sampling.seed = i;
      const std::size_t begin = prompts[i].size();
      const Tokens all = said(*model, team, prompts[i], 150, sampling);
      ModelDrafter drafter(*draft, team);
      for (std::size_t known = begin + 1; known < all.size(); ++known) {
        const std::size_t told = known == begin + 1 ? 0 : known - 1;
        DraftAsk ask{.request = 1, .first = static_cast<std::uint32_t>(told), .tokens = part(all, told, known)};
        ask.num_draft = 1;
        ask.sampling = sampling;
        DraftReply reply;
        drafter.propose({ask}, reply);
        REQUIRE(reply.answers[0].tokens.size() == 1);
        num_equal += reply.answers[0].tokens[0] == all[known] ? 1 : 0;
        ++num_drawn;
      }
    }
    INFO("temperature " << temperature << ": " << num_equal << " of " << num_drawn);
    CHECK(static_cast<double>(num_equal) >= least * static_cast<double>(num_drawn));
  }
}

TEST_CASE("a model drafts by ids for one with its vocabulary") {
  const auto target = load("tales-5m-tq2_0.gguf", 8), draft = load("tales-draft-q8_0.gguf", 8);
  const auto how = compare_vocabularies(*draft, *target);
  REQUIRE(how);
  CHECK(*how == Drafting::by_ids);
}

}  // namespace troupe::engine
