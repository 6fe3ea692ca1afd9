// The effects of steps on sequences: ends, limits, truncation, shared blocks.
#include <algorithm>
#include <cstring>

#include <catch2/catch.hpp>

#include "engine/evaluation/eval.h"
#include "tests/engine/model_harness.h"
#include "tests/support/count_allocations.h"

namespace troupe::test {
namespace {

using engine::Executor;
using engine::Finish;
using engine::ItemResult;
using engine::Output;
using engine::SequenceSpec;
using engine::StepResult;

const std::string kModel = TROUPE_MODELS "/tales-5m-tq2_0.gguf";
const std::vector<TokenId> kPrompt = {1, 424, 437, 261, 399};  // "Once upon a time"

struct Engine {
  explicit Engine(std::uint32_t context = 0, const std::string& variant = "")
      : model(load_model(kModel, variant, kernels::KvType::f16, 128, context)) {}

  std::shared_ptr<engine::LoadedModel> model;
  engine::Team team{2};
  Executor executor{*model, team};
  StepResult result;

  void open(SequenceId id, engine::SamplingParams sampling, std::vector<TokenId> tokens = kPrompt,
            std::uint32_t num_prompt = 0, BlockId first_block = 0) {
    SequenceSpec spec;
    spec.id = id;
    spec.tokens = std::move(tokens);
    spec.num_prompt_tokens = num_prompt;
    spec.tables.emplace_back();
    for (BlockId block = 0; block < 8; ++block) spec.tables[0].push_back(first_block + block);
    spec.sampling = std::move(sampling);
    executor.open(std::move(spec));
  }
  ItemResult sample(SequenceId id) {
    const std::uint32_t left = executor.num_known(id) - executor.num_computed(id);
    executor.step({.items = {{.sequence = id, .num_tokens = left, .output = Output::sample, .new_blocks = {}}}},
                  result);
    return result.items[0];
  }
  // Samples until the sequence ends, at most 200 times.
  std::pair<std::vector<TokenId>, Finish> run(SequenceId id) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < 200; ++i) {
      const ItemResult item = sample(id);
      for (const auto& token : item.tokens) tokens.push_back(token.id);
      if (item.finish != Finish::running) return {tokens, item.finish};
    }
    return {tokens, Finish::running};
  }
};

engine::SamplingParams greedy_params(std::uint32_t max_tokens) {
  engine::SamplingParams params;
  params.temperature = 0;
  params.max_tokens = max_tokens;
  return params;
}

TEST_CASE("a sequence ends at max_tokens, with the last token emitted") {
  Engine e;
  e.open(1, greedy_params(6));
  const auto [tokens, finish] = e.run(1);
  CHECK(tokens.size() == 6);
  CHECK(finish == Finish::length);
  CHECK(e.executor.num_known(1) == kPrompt.size() + 6);
}

TEST_CASE("a greedy token is the same whether the logits are written or only their largest is computed") {
  for (const kernels::KernelTable* table : variants_here()) {
    Engine e(0, std::string(table->name));
    engine::SamplingParams with_logprobs = greedy_params(24);
    with_logprobs.num_logprobs = 0;
    e.open(1, greedy_params(24));
    e.open(2, with_logprobs, kPrompt, 0, 8);
    e.open(3, greedy_params(24), kPrompt, 0, 16);
    e.open(4, greedy_params(24), kPrompt, 0, 24);
    const auto [tokens, finish] = e.run(1);
    INFO(table->name);
    CHECK(tokens.size() == 24);
    CHECK(e.run(2).first == tokens);
    // Two sequences in one step.
    std::vector<TokenId> third, fourth;
    e.sample(4);
    for (int i = 0; i < 24; ++i) {
      const std::uint32_t left = i == 0 ? static_cast<std::uint32_t>(kPrompt.size()) : 1;
      std::vector<engine::StepItem> items = {
          {.sequence = 3, .num_tokens = left, .output = Output::sample, .new_blocks = {}}};
      if (i < 23) items.push_back({.sequence = 4, .num_tokens = 1, .output = Output::sample, .new_blocks = {}});
      e.executor.step({.items = items}, e.result);
      third.push_back(e.result.items[0].tokens.at(0).id);
      if (i < 23) fourth.push_back(e.result.items[1].tokens.at(0).id);
    }
    CHECK(third == tokens);
    CHECK(std::equal(fourth.begin(), fourth.end(), tokens.begin() + 1));
  }
}

TEST_CASE("a sequence ends where the context is full") {
  Engine e(16);
  e.open(1, greedy_params(1000));
  const auto [tokens, finish] = e.run(1);
  CHECK(tokens.size() == 16 - kPrompt.size());
  CHECK(finish == Finish::length);
}

TEST_CASE("a stop id ends a sequence and is not emitted") {
  Engine e;
  e.open(1, greedy_params(6));
  const auto all = e.run(1).first;
  auto params = greedy_params(6);
  params.stop_ids = {all[3]};
  e.open(2, params, kPrompt, 0, 8);
  const auto [tokens, finish] = e.run(2);
  const auto first = std::find(all.begin(), all.end(), all[3]);
  CHECK(tokens == std::vector<TokenId>(all.begin(), first));
  CHECK(finish == Finish::stop_id);
  CHECK(e.executor.num_known(2) == kPrompt.size() + tokens.size());
}

TEST_CASE("an end-of-sequence token ends a sequence unless it is to be ignored") {
  Engine e;
  auto params = greedy_params(20);
  params.logit_bias = {{2, 1000.0f}};  // </s> becomes certain
  e.open(1, params);
  const auto [tokens, finish] = e.run(1);
  CHECK(tokens.empty());
  CHECK(finish == Finish::eos);
  params.ignore_eos = true;
  e.open(2, params, kPrompt, 0, 8);
  const auto ignoring = e.run(2);
  CHECK(ignoring.first.size() == 20);
  CHECK(ignoring.second == Finish::length);
}

TEST_CASE("tokens that a resumed sequence has emitted before count towards max_tokens") {
  Engine e;
  e.open(1, greedy_params(6));
  const auto all = e.run(1).first;
  std::vector<TokenId> known = kPrompt;
  known.insert(known.end(), all.begin(), all.begin() + 4);
  e.open(2, greedy_params(6), known, static_cast<std::uint32_t>(kPrompt.size()), 8);
  const auto [tokens, finish] = e.run(2);
  CHECK(tokens == std::vector<TokenId>(all.begin() + 4, all.end()));
  CHECK(finish == Finish::length);
}

TEST_CASE("a seeded stream resumes with the tokens it would have had") {
  Engine e;
  engine::SamplingParams params;
  params.temperature = 0.9f;
  params.top_p = 0.95f;
  params.repeat_penalty = 1.1f;
  params.seed = 42;
  params.max_tokens = 40;
  e.open(1, params);
  const auto all = e.run(1).first;
  std::vector<TokenId> known = kPrompt;
  known.insert(known.end(), all.begin(), all.begin() + 17);
  e.open(2, params, known, static_cast<std::uint32_t>(kPrompt.size()), 8);
  CHECK(e.run(2).first == std::vector<TokenId>(all.begin() + 17, all.end()));
}

TEST_CASE("a truncated sequence goes on as if it had never had the tokens that were dropped") {
  Engine e;
  auto params = greedy_params(12);
  params.repeat_penalty = 1.5f;  // dropped tokens must not be penalised
  e.open(1, params);
  const auto all = e.run(1).first;
  e.executor.truncate(1, static_cast<std::uint32_t>(kPrompt.size()) + 5);
  CHECK(e.executor.num_known(1) == kPrompt.size() + 5);
  CHECK(e.executor.num_computed(1) == kPrompt.size() + 4);
  CHECK(e.run(1).first == std::vector<TokenId>(all.begin() + 5, all.end()));
}

TEST_CASE("one step prefills, decodes and gives logits for different sequences") {
  Engine e;
  e.open(1, greedy_params(10));
  const auto first = e.sample(1).tokens.at(0).id;
  e.open(2, greedy_params(10), kPrompt, 0, 8);
  e.open(3, greedy_params(10), kPrompt, 0, 16);
  e.open(4, greedy_params(10), kPrompt, 0, 24);
  e.executor.step({.step = 7,
                   .epoch = 3,
                   .items = {{.sequence = 2, .num_tokens = 5, .output = Output::sample, .new_blocks = {}},
                             {.sequence = 3, .num_tokens = 5, .output = Output::all_logits, .new_blocks = {}},
                             {.sequence = 1, .num_tokens = 1, .output = Output::sample, .new_blocks = {}},
                             {.sequence = 4, .num_tokens = 2, .output = Output::none, .new_blocks = {}}}},
                  e.result);
  CHECK(e.result.step == 7);
  CHECK(e.result.epoch == 3);
  CHECK(e.result.compute_seconds > 0);
  REQUIRE(e.result.items.size() == 4);
  CHECK(e.result.items[0].sequence == 2);
  CHECK(e.result.items[0].tokens.at(0).id == first);
  const std::vector<float>& logits = e.result.items[1].logits;
  REQUIRE(logits.size() == 5 * 2048);
  CHECK(std::max_element(logits.end() - 2048, logits.end()) - (logits.end() - 2048) == first);
  CHECK(e.result.items[2].tokens.size() == 1);
  CHECK(e.result.items[3].tokens.empty());
  CHECK(e.result.items[3].logits.empty());
  CHECK(e.executor.num_computed(4) == 2);
}

TEST_CASE("blocks are given with the step that needs them, and may be swapped for equal ones") {
  Engine e;
  SequenceSpec spec;
  spec.id = 1;
  spec.tokens = random_tokens(40, 2048, 1);
  spec.tables = {{5}};
  spec.sampling = greedy_params(8);
  e.executor.open(spec);
  e.executor.step({.items = {{.sequence = 1, .num_tokens = 32, .output = Output::none, .new_blocks = {}}}}, e.result);
  const engine::StepBatch rest{
      .items = {{.sequence = 1, .num_tokens = 8, .output = Output::sample, .new_blocks = {{9}}}}};
  e.executor.step(rest, e.result);
  const auto expected = e.run(1).first;
  // The same again; before the last part the first block moves.
  spec.id = 2;
  e.executor.open(spec);
  e.executor.step({.items = {{.sequence = 2, .num_tokens = 32, .output = Output::none, .new_blocks = {}}}}, e.result);
  std::memcpy(e.model->arena()->block(77), e.model->arena()->block(5), e.model->arena()->bytes_per_block());
  std::memset(e.model->arena()->block(5), 0, e.model->arena()->bytes_per_block());
  e.executor.swap_block(2, 0, 0, 77);
  e.executor.step({.items = {{.sequence = 2, .num_tokens = 8, .output = Output::sample, .new_blocks = {{9}}}}},
                  e.result);
  CHECK(e.run(2).first == expected);
}

TEST_CASE("a token is drawn from the same bits whether its prompt is computed in one step or two") {
  Engine e;
  auto params = greedy_params(4);
  params.num_logprobs = 5;
  const auto prompt = random_tokens(70, 2048, 4);
  e.open(1, params, prompt);
  const auto whole = e.sample(1).tokens.at(0);
  e.open(2, params, prompt, 0, 8);
  e.executor.step({.items = {{.sequence = 2, .num_tokens = 69, .output = Output::none, .new_blocks = {}}}}, e.result);
  const auto split = e.sample(2).tokens.at(0);
  CHECK(split.id == whole.id);
  CHECK(split.logprob == whole.logprob);
  REQUIRE(whole.top.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(split.top[i].id == whole.top[i].id);
    CHECK(split.top[i].logprob == whole.top[i].logprob);
  }
}

TEST_CASE("a closed sequence is not open any more; unknown ids are ignored") {
  Engine e;
  e.open(1, greedy_params(4));
  CHECK(e.executor.is_open(1));
  e.executor.close(1);
  CHECK_FALSE(e.executor.is_open(1));
  e.executor.close(1);
  e.open(1, greedy_params(4));
  CHECK(e.run(1).first.size() == 4);
}

TEST_CASE("a warm step allocates nothing") {
  Engine e;
  engine::StepBatch batch;
  for (SequenceId id = 1; id <= 4; ++id) {
    auto params = greedy_params(100);
    params.ignore_eos = true;
    if (id == 3) {  // a filtered, penalised draw beside the greedy ones
      params.temperature = 0.8f;
      params.top_k = 40;
      params.top_p = 0.9f;
      params.repeat_penalty = 1.1f;
      params.seed = 7;
    }
    e.open(id, params, kPrompt, 0, static_cast<BlockId>(8 * (id - 1)));
    batch.items.push_back({.sequence = id, .num_tokens = 5, .output = Output::sample, .new_blocks = {}});
  }
  e.executor.step(batch, e.result);
  for (engine::StepItem& item : batch.items) item.num_tokens = 1;
  for (int i = 0; i < 3; ++i) e.executor.step(batch, e.result);
  // Past the second block's beginning at position 32, so that tables of blocks grow too.
  const std::size_t before = num_allocations();
  for (int i = 0; i < 60; ++i) e.executor.step(batch, e.result);
  CHECK(num_allocations() - before == 0);
  CHECK(e.executor.num_known(4) == kPrompt.size() + 64);
}

TEST_CASE("a warm step with drafts allocates nothing") {
  Engine e;
  engine::StepBatch batch;
  for (SequenceId id = 1; id <= 2; ++id) {
    auto params = greedy_params(100);
    params.ignore_eos = true;
    params.temperature = id == 2 ? 0.8f : 0.0f;
    e.open(id, params, kPrompt, 0, static_cast<BlockId>(8 * (id - 1)));
    batch.items.push_back({.sequence = id, .num_tokens = 5, .output = Output::sample, .draft = {7, 8, 9, 10}});
  }
  const auto step = [&] {
    for (engine::StepItem& item : batch.items)
      item.num_tokens = e.executor.num_known(item.sequence) - e.executor.num_computed(item.sequence);
    e.executor.step(batch, e.result);
  };
  step();
  for (int i = 0; i < 3; ++i) step();
  for (ItemResult& item : e.result.items) item.tokens.reserve(5);  // the results keep their memory
  const std::size_t before = num_allocations();
  for (int i = 0; i < 15; ++i) step();
  CHECK(num_allocations() - before == 0);
}

TEST_CASE("step buffers grow with the largest step, are counted, and stay") {
  Engine e;
  CHECK(e.executor.workspace_bytes() == 0);
  e.open(1, greedy_params(8));
  e.sample(1);
  const std::uint64_t small = e.executor.workspace_bytes();
  // At least the logits and the residual rows of the prompt.
  CHECK(small >= sizeof(float) * (e.model->info().vocab_size + kPrompt.size() * e.model->info().dim));
  e.open(2, greedy_params(8), random_tokens(200, 2048, 1), 0, 8);
  e.sample(2);
  const std::uint64_t large = e.executor.workspace_bytes();
  CHECK(large >= small + sizeof(float) * 190 * e.model->info().dim);
  e.executor.close(2);
  e.sample(1);
  CHECK(e.executor.workspace_bytes() == large);
}

TEST_CASE("an empty step returns an empty result") {
  Engine e;
  e.executor.step({.step = 1, .epoch = 1, .items = {}}, e.result);
  CHECK(e.result.items.empty());
}

TEST_CASE("evaluate refuses tokens that the model cannot take") {
  Engine e(64);
  CHECK(engine::evaluate(*e.model, e.team, {}).error().code == ErrorCode::invalid_argument);
  const std::vector<TokenId> outside = {1, 2048};
  CHECK(engine::evaluate(*e.model, e.team, outside).error().message == "token 1 is 2048; ids go from 0 to 2047");
  const std::vector<TokenId> negative = {-1};
  CHECK_FALSE(engine::evaluate(*e.model, e.team, negative));
  CHECK_FALSE(engine::evaluate(*e.model, e.team, random_tokens(65, 2048, 1)));
  CHECK(engine::evaluate(*e.model, e.team, random_tokens(64, 2048, 1)));
  CHECK(engine::greedy(*e.model, e.team, kPrompt, 0)->empty());
  CHECK(engine::greedy(*e.model, e.team, random_tokens(60, 2048, 1), 100, true)->size() == 4);
}

}  // namespace
}  // namespace troupe::test
