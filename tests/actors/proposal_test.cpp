// Requests that propose their own answers: what they are answered is what they get without, in as few steps as a prompt
// of that length takes, and a wrong token costs nothing but the rest of the proposal.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr std::uint32_t kAnswer = 150;  // with a prompt more than two snapshots of recurrent state

std::shared_ptr<engine::LoadedModel> fixture(const std::string& name, std::uint32_t num_blocks = 32) {
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  options.num_snapshots = 16;
  options.snapshot_every = 64;
  return load_model(TROUPE_TEST_DATA "/golden/" + name + ".gguf", options);
}

Request plain_request(const engine::LoadedModel& model, std::size_t prompt_tokens = 20) {
  Request request;
  request.tenant.is_owner = true;
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < prompt_tokens; ++i)
    prompt.push_back(static_cast<TokenId>((i * 37 + 5) % model.info().vocab_size));
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = kAnswer;
  request.sampling.seed = 11;
  request.sampling.ignore_eos = true;
  request.credit = ~std::uint64_t{0};
  request.wants_proof = true;
  return request;
}

// Greedy, seeded, with penalties and biases, and one for the third of several answers.
std::vector<Request> some_requests(const engine::LoadedModel& model) {
  std::vector<Request> requests(4, plain_request(model));
  for (std::size_t i = 1; i < requests.size(); ++i) {
    requests[i].sampling.temperature = 0.8f;
    requests[i].sampling.top_p = 0.95f;
  }
  requests[2].sampling.repeat_penalty = 1.3f;
  requests[2].sampling.frequency_penalty = 0.2f;
  requests[2].sampling.repeat_last_n = 20;
  requests[2].sampling.logit_bias = {{3, 2.0f}, {4, -std::numeric_limits<float>::infinity()}};
  requests[3].first_choice = 2;
  return requests;
}

struct Answered {
  std::shared_ptr<Listener> sink;
  std::uint64_t num_steps = 0;
};

Answered ask(const std::shared_ptr<engine::LoadedModel>& model, Request request, GatewayOptions options = {}) {
  Answered answered{std::make_shared<Listener>()};
  options.on_step = [&](const engine::StepResult&) { ++answered.num_steps; };
  Stage stage(options);
  stage.serve(model);
  stage.submit(std::move(request), answered.sink);
  stage.run_with_time();
  REQUIRE(answered.sink->end_);
  check_all_came_back(stage);
  MetricList metrics;
  stage.counters.append_drafts(metrics, "model");
  const Usage& usage = answered.sink->end_->usage;
  if (usage.drafted_tokens > 0) {
    CHECK(metrics.value("spec_decode_num_draft_tokens_request") == usage.drafted_tokens);
    CHECK(metrics.value("spec_decode_num_accepted_tokens_request") == usage.accepted_tokens);
  }
  return answered;
}

void check_same(const Answered& answered, const Answered& expected) {
  CHECK(answered.sink->ids == expected.sink->ids);
  CHECK(answered.sink->text == expected.sink->text);
  CHECK(answered.sink->end_->outcome == expected.sink->end_->outcome);
  CHECK(answered.sink->end_->stop == expected.sink->end_->stop);
}

TEST_CASE("proposals: a right answer is verified at the speed of a prompt, and a wrong token changes nothing") {
  for (const char* name :
       {"llama", "bitnet", "qwen2", "gemma2", "gemma3", "mamba", "rwkv7", "falcon-h1", "lfm2", "qwen35"}) {
    const auto model = fixture(name);
    const std::vector<Request> requests = some_requests(*model);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      INFO(name << ", request " << i);
      const Answered expected = ask(model, requests[i]);
      const std::vector<TokenId>& right = expected.sink->ids;
      REQUIRE(right.size() == kAnswer);
      REQUIRE(expected.sink->end_->usage.accepted_tokens == 0);

      Request proposing = requests[i];
      proposing.proposal = right;
      const Answered proved = ask(model, proposing);
      check_same(proved, expected);
      // Rows end before each snapshot of recurrent state.
      CHECK(proved.num_steps < 12);
      CHECK(proved.sink->end_->usage.accepted_tokens + proved.num_steps >= kAnswer);

      for (const std::size_t wrong :
           {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{77}, right.size() - 1}) {
        proposing.proposal = right;
        proposing.proposal[wrong] = (right[wrong] + 1) % static_cast<TokenId>(model->info().vocab_size);
        const Answered found = ask(model, proposing);
        INFO("wrong at " << wrong);
        check_same(found, expected);
        CHECK(found.sink->end_->usage.accepted_tokens <= wrong);
        CHECK(found.num_steps + wrong + 12 > right.size() - 12);  // after it token by token
      }
    }
  }
}

TEST_CASE("proposals: the answer goes on after a proposal that ends early, and ends before one that is too long") {
  for (const char* name : {"llama", "mamba"}) {
    const auto model = fixture(name);
    Request request = plain_request(*model);
    const Answered expected = ask(model, request);
    request.proposal = expected.sink->ids;
    request.proposal.resize(100);
    check_same(ask(model, request), expected);
    request.proposal = expected.sink->ids;
    request.proposal.insert(request.proposal.end(), 500, 7);
    check_same(ask(model, request), expected);
    request.sampling.max_tokens = 1;
    CHECK(ask(model, request).sink->ids == std::vector<TokenId>{expected.sink->ids[0]});
  }
}

TEST_CASE("proposals: rows are as long as a step, the credit, the blocks and other streams leave room for") {
  const auto model = fixture("llama", 64);
  Request request = plain_request(*model);
  const Answered expected = ask(model, request);
  request.proposal = expected.sink->ids;
  GatewayOptions options;
  options.max_step_tokens = 40;
  CHECK(ask(model, request, options).num_steps >= kAnswer / 40 + 1);
  CHECK(ask(model, request, options).num_steps <= kAnswer / 40 + 5);  // blocks may come a step late

  // Credit: no token beyond it.
  Stage stage;
  stage.serve(model);
  Request slow = request;
  slow.credit = 10;
  const auto sink = std::make_shared<Listener>();
  const RequestId id = stage.submit(slow, sink);
  for (std::size_t granted = 10; !sink->end_; granted += 30) {
    stage.run();
    REQUIRE(sink->ids.size() == std::min<std::size_t>(granted, kAnswer));
    if (!sink->end_) stage.credit(id, 30);
  }
  CHECK(sink->ids == expected.sink->ids);

  // Many at once, on too few blocks for all: they preempt each other and get their own answers.
  const auto small = fixture("llama", 16);
  Stage crowd;
  crowd.serve(small);
  std::vector<std::shared_ptr<Listener>> sinks;
  for (int i = 0; i < 6; ++i) {
    Request one = request;
    if (i % 2 == 1) one.proposal[60] = (one.proposal[60] + 1) % 200;
    one.cache_scope = std::to_string(i);
    crowd.submit(std::move(one), sinks.emplace_back(std::make_shared<Listener>()));
  }
  crowd.run_with_time();
  for (const auto& each : sinks) CHECK(each->ids == expected.sink->ids);
  check_all_came_back(crowd);
}

TEST_CASE("proposals: killed actors and broken steps cost no token") {
  const auto model = fixture("llama", 64);
  Request request = plain_request(*model);
  const Answered expected = ask(model, request);
  request.proposal = expected.sink->ids;
  request.proposal[90] = (request.proposal[90] + 1) % 200;
  GatewayOptions options;
  options.max_step_tokens = 16;
  for (const Role role : {Role::batcher, Role::worker, Role::keeper}) {
    Stage stage(options);
    stage.serve(model);
    const auto sink = std::make_shared<Listener>();
    stage.submit(request, sink);
    for (int kill = 0; kill < 3; ++kill) {
      const std::size_t before = sink->ids.size();
      while (!sink->end_ && sink->ids.size() < before + 25)
        if (stage.scheduler().run(1) == 0) stage.scheduler().advance_time(std::chrono::milliseconds(100));
      caf::anon_send(stage.supervisor(), msg::Crash{role});
      stage.scheduler().run(40);
      stage.scheduler().advance_time(std::chrono::milliseconds(2000));
    }
    stage.run_with_time();
    CHECK(sink->ids == expected.sink->ids);
    check_all_came_back(stage);
  }
}

TEST_CASE("proposals: a stop string ends an answer at the same place, and its receipt says so") {
  const auto model = load_model(64);
  Request request = plain_request(*model);
  request.prompt = std::string("Once upon a time there was a little dog. The little dog liked to play. The little");
  const std::string whole = ask(model, request).sink->text;
  for (std::size_t at = 30; at + 8 < whole.size(); at += 101) {
    request.stop_strings = {whole.substr(at, 6)};
    request.proposal.clear();
    const Answered expected = ask(model, request);
    REQUIRE(expected.sink->end_->outcome == Outcome::stop_string);
    request.proposal = expected.sink->ids;
    check_same(ask(model, request), expected);
    request.proposal.insert(request.proposal.end(), 40, 300);
    check_same(ask(model, request), expected);
  }
}

TEST_CASE("proofs: they hold what the request asked for and what it was answered, and only if it is wanted") {
  const auto model = load_model(64);
  Request request = plain_request(*model);
  request.prompt = std::string("Once upon a time");
  request.sampling.max_tokens = 12;
  request.sampling.logit_bias = {{300, -2.0f}};
  request.first_choice = 3;
  request.stop_strings = {"zzz"};
  const Answered answered = ask(model, request);
  const auto proof = answered.sink->end_->proof;
  REQUIRE(proof);
  CHECK(proof->numerics_id == model->numerics_id());
  CHECK(parts_of(proof->numerics_id).model_hash.size() == 16);
  CHECK(proof->prompt->size() == 5);
  CHECK(proof->ids == answered.sink->ids);
  CHECK(proof->text == answered.sink->text);
  CHECK(proof->outcome == Outcome::length);
  CHECK(proof->sampling.choice == 3);
  CHECK(proof->sampling.seed == 11);
  CHECK(proof->sampling.max_tokens == 12);
  CHECK(proof->sampling.logit_bias == request.sampling.logit_bias);
  CHECK(proof->stop_strings == request.stop_strings);

  // Without a limit of its own, what the context left.
  const auto narrow = fixture("llama", 4);
  Request open = plain_request(*narrow);
  open.sampling.max_tokens = scheduler::kUnlimitedTokens;
  const Answered full = ask(narrow, open);
  CHECK(full.sink->end_->outcome == Outcome::length);
  CHECK(full.sink->end_->proof->sampling.max_tokens == full.sink->ids.size());

  request.wants_proof = false;
  CHECK_FALSE(ask(model, request).sink->end_->proof);
}

TEST_CASE("proposals: ids outside the vocabulary are refused by name") {
  const auto model = fixture("llama");
  Request request = plain_request(*model);
  request.proposal = {1, 2, static_cast<TokenId>(model->info().vocab_size)};
  const Answered refused = ask(model, request);
  CHECK(refused.sink->end_->outcome == Outcome::invalid_argument);
  CHECK(refused.sink->end_->field == "proposal");
  CHECK(refused.sink->end_->message.find("proposal[2]") != std::string::npos);
}

}  // namespace
}  // namespace troupe::actors
