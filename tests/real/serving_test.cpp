// Gemma 3 270M served on real text: whatever happens meanwhile, an answer has the bits that it has alone.
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "actors/saboteur.h"
#include "actors/unit/supervisor.h"
#include "tests/actors/clients.h"
#include "tests/real/real_file.h"

namespace troupe::actors {
namespace {

using namespace test;
using engine::DraftSource;

constexpr std::uint32_t kAnswerTokens = 24;

// Prose, a list, code and a text that repeats itself: the last two are drafted for.
const std::vector<std::string> kTexts{
    "The lighthouse keeper had not spoken to another person for eleven weeks. Every evening he climbed the stairs, "
    "lit the lamp and wrote in his book what the sea looked like. On the first of November he wrote:",
    "Things to take to the mountains:\n- a map and a compass\n- a warm jacket\n- bread and cheese\n- a rope\n-",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return a - b\n\ndef multiply(a, b):\n    return a * b"
    "\n\ndef divide(a, b):\n",
    "Alice said: the train to York leaves at nine. Bob said: the train to York leaves at nine. Carol said: the train "
    "to "
    "York leaves at nine. Dave said:",
};

// Keeps the bits of the log probabilities, too.
struct Answer final : Listener {
  void tokens(TokenRun run) override {
    for (const engine::SampledToken& token : run.logprobs) bits.push_back(std::bit_cast<std::uint32_t>(token.logprob));
    Listener::tokens(std::move(run));
  }
  std::vector<std::uint32_t> bits;
};
using Answers = std::vector<std::shared_ptr<Answer>>;

// Half of them greedy, half drawn.
Request request_of(std::size_t text) {
  Request request;
  request.tenant.is_owner = true;
  request.prompt = kTexts[text];
  request.sampling.temperature = text % 2 == 0 ? 0.f : 0.7f;
  request.sampling.seed = text;
  request.sampling.max_tokens = kAnswerTokens;
  request.sampling.ignore_eos = true;
  request.sampling.num_logprobs = 0;
  request.credit = ~std::uint64_t{0};
  return request;
}

Answers ask_one_by_one(Stage& stage) {
  Answers answers;
  for (std::size_t i = 0; i < kTexts.size(); ++i) answers.push_back(ask<Answer>(stage, request_of(i)));
  return answers;
}

Answers submit_all(Stage& stage) {
  Answers answers;
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    answers.push_back(std::make_shared<Answer>());
    stage.submit(request_of(i), answers.back());
  }
  return answers;
}

void check_same(const Answers& answers, const Answers& alone) {
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    INFO(kTexts[i]);
    REQUIRE(answers[i]->end_);
    CHECK(answers[i]->end_->outcome == scheduler::Outcome::length);
    CHECK(answers[i]->ids == alone[i]->ids);
    CHECK(answers[i]->text == alone[i]->text);
    CHECK(answers[i]->bits.size() == kAnswerTokens);
    CHECK(answers[i]->bits == alone[i]->bits);
  }
}

std::shared_ptr<engine::LoadedModel> load(const std::string& path, kernels::KvType kv_type, std::uint32_t num_blocks) {
  engine::LoadOptions options;
  options.kv_type = kv_type;
  options.num_blocks = num_blocks;
  options.context = 512;
  options.memory = std::uint64_t{1} << 30;
  return load_model(path, options);
}

TEST_CASE(
    "real: Gemma's answers have the bits that they have alone in a batch, drafted, preempted, and after crashes") {
  const auto path = troupe::test::real_file("gemma-3-270m-q4_k_m.gguf");
  if (!path) return;
  for (const kernels::KvType kv_type : {kernels::KvType::f16, kernels::KvType::i8}) {
    INFO("K and V: " << kernels::name(kv_type));
    const auto model = load(*path, kv_type, 64);
    Answers alone;
    {
      Stage stage;
      stage.serve(model);
      alone = ask_one_by_one(stage);
    }
    {
      INFO("in a batch, whose actors and steps break");
      bool break_next = false;
      Stage stage({}, {.before_step = [&](const engine::StepBatch&) {
                    if (std::exchange(break_next, false)) throw std::runtime_error("chance");
                  }});
      stage.serve(model);
      const Answers answers = submit_all(stage);
      for (const Role role : {Role::worker, Role::batcher, Role::keeper}) {
        stage.scheduler().run(60);
        caf::anon_send(stage.supervisor(), msg::Crash{role});
        stage.scheduler().run(60);
        break_next = true;
      }
      stage.run_with_time();
      check_same(answers, alone);
      CHECK(stage.status().count("worker_restarts") > 0);
      check_all_came_back(stage);
    }
    {
      INFO("drafted");
      GatewayOptions options;
      options.speculation.source = DraftSource::suffix;
      options.verify_all_drafts = true;
      Stage stage(options);
      stage.serve(model);
      const Answers answers = submit_all(stage);
      stage.run_with_time();
      check_same(answers, alone);
      std::uint64_t accepted = 0;
      for (const auto& answer : answers) accepted += answer->end_->usage.accepted_tokens;
      CHECK(accepted > 0);
    }
    {
      INFO("preempted");
      GatewayOptions options;
      options.max_stall = std::chrono::hours(1);  // whole prompts, however slow the machine
      Stage stage(options);
      stage.serve(load(*path, kv_type, 4));
      Answers answers;
      for (std::size_t i = 0; i < kTexts.size(); ++i) {
        answers.push_back(std::make_shared<Answer>());
        Request request = request_of(i);
        request.priority = -static_cast<std::int32_t>(i);  // the later, the more urgent
        stage.submit(std::move(request), answers.back());
        stage.scheduler().run(60);
      }
      stage.run_with_time();
      check_same(answers, alone);
      CHECK(stage.streams.counts().preemptions > 0);
    }
  }
}

}  // namespace
}  // namespace troupe::actors
