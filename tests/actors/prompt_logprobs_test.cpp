// The logprobs of a prompt's own tokens, beside those of the logits of the whole text at once.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/evaluation/eval.h"
#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;

// Keeps the scores of the prompt.
struct Scores : Listener {
  void tokens(TokenRun run) override {
    if (!run.prompt_logprobs.empty()) {
      CHECK(run.first_index == 0);
      CHECK(scores.empty());
      scores = run.prompt_logprobs;
    }
    Listener::tokens(std::move(run));
  }
  std::vector<engine::SampledToken> scores;
};

Request scored(std::uint32_t prompt_tokens, std::uint32_t max_tokens, bool scores = true) {
  Request request;
  request.tenant.is_owner = true;
  std::vector<TokenId> prompt;
  for (std::uint32_t i = 0; i < prompt_tokens; ++i) prompt.push_back(static_cast<TokenId>(3 + i * 37 % 500));
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.num_logprobs = 3;
  request.sampling.prompt_logprobs = scores;
  request.credit = ~std::uint64_t{0};
  return request;
}

// Log-softmax in double of the logits before each token.
std::vector<double> expected(const std::vector<TokenId>& prompt) {
  engine::Team team(1);
  const auto model = load_model(64);
  const auto logits = engine::evaluate(*model, team, prompt);
  REQUIRE(logits);
  const std::size_t vocab = model->info().vocab_size;
  std::vector<double> result{0};
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const float* row = logits->data() + (i - 1) * vocab;
    double sum = 0;
    for (std::size_t id = 0; id < vocab; ++id) sum += std::exp(double{row[id]});
    result.push_back(double{row[prompt[i]]} - std::log(sum));
  }
  return result;
}

void check(const Scores& sink, const Request& request) {
  const auto& prompt = std::get<std::vector<TokenId>>(request.prompt);
  const std::vector<double> right = expected(prompt);
  REQUIRE(sink.scores.size() == prompt.size());
  CHECK(std::isnan(sink.scores[0].logprob));
  CHECK(sink.scores[0].id == prompt[0]);
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    REQUIRE(sink.scores[i].id == prompt[i]);
    REQUIRE(sink.scores[i].logprob == Approx(right[i]).margin(1e-4));
    REQUIRE(sink.scores[i].top.size() == 3);
    REQUIRE(sink.scores[i].top[0].logprob >= sink.scores[i].logprob);
  }
}

}  // namespace

TEST_CASE("prompt logprobs: those of the whole text at once, cached or not, and the same answer") {
  for (const std::uint32_t max_step_tokens : {512u, 48u}) {
    INFO("steps of " << max_step_tokens);
    GatewayOptions options;
    options.max_step_tokens = max_step_tokens;
    Stage stage(options);
    stage.serve(load_model(64));
    const Request request = scored(150, 8);
    const auto plain = ask<Scores>(stage, scored(150, 8, false));
    CHECK(plain->scores.empty());
    for (int round = 0; round < 2; ++round) {
      const auto sink = ask<Scores>(stage, request);
      check(*sink, request);
      CHECK(sink->ids == plain->ids);
      CHECK(sink->end_->usage.cached_tokens == 0);
    }
    // Others may use what it has computed.
    CHECK(ask<Scores>(stage, scored(150, 8, false))->end_->usage.cached_tokens == 128);
    check_all_came_back(stage);
  }
}

TEST_CASE("prompt logprobs: of prompts of one token, and of a block and its neighbours") {
  Stage stage;
  stage.serve(load_model(64));
  for (const std::uint32_t length : {1u, 2u, 31u, 32u, 33u, 65u}) {
    INFO(length << " tokens");
    const Request request = scored(length, 2);
    check(*ask<Scores>(stage, request), request);
  }
}

TEST_CASE("prompt logprobs: they come once, whatever dies, and several texts that preempt each other have theirs") {
  for (const Role role : {Role::batcher, Role::worker, Role::keeper}) {
    GatewayOptions options;
    options.max_step_tokens = 40;
    Stage stage(options);
    stage.serve(load_model(64));
    const Request request = scored(150, 30);
    const auto sink = std::make_shared<Scores>();
    stage.submit(request, sink);
    for (int kill = 0; kill < 4; ++kill) {
      for (int i = 0; i < 25 && !sink->end_; ++i)
        if (stage.scheduler().run(1) == 0) stage.scheduler().advance_time(std::chrono::milliseconds(100));
      caf::anon_send(stage.supervisor(), msg::Crash{role});
      stage.scheduler().run(40);
      stage.scheduler().advance_time(std::chrono::milliseconds(2000));
    }
    stage.run_with_time();
    REQUIRE(sink->end_);
    check(*sink, request);
    CHECK(sink->ids.size() == 30);
  }
  Stage stage;
  stage.serve(load_model(9));
  std::vector<std::shared_ptr<Scores>> sinks;
  for (int i = 0; i < 3; ++i) {
    sinks.push_back(std::make_shared<Scores>());
    stage.submit(scored(100, 60), sinks.back());
  }
  stage.run_with_time();
  for (const auto& sink : sinks) {
    REQUIRE(sink->end_);
    check(*sink, scored(100, 60));
  }
  check_all_came_back(stage);
}

}  // namespace troupe::actors
