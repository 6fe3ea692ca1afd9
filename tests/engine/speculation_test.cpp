// Steps with drafts: the tokens and the logprobs of an answer are those of decoding token by token, whatever is
// proposed; and what a step leaves behind after proposals were rejected.
#include <cstring>
#include <functional>

#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::Executor;
using engine::Finish;
using engine::LoadedModel;
using engine::Output;
using engine::SampledToken;
using engine::SamplingParams;

constexpr std::uint32_t kAnswer = 70;  // with a prompt more than two blocks, and than the window and a block
constexpr std::uint32_t kBlocksPerSequence = 5;
constexpr std::uint32_t kMaxSequences = 16;

std::string fixture(const std::string& name) { return TROUPE_TEST_DATA "/golden/" + name + ".gguf"; }

std::shared_ptr<LoadedModel> load(const std::string& path, engine::StateType state_type = engine::StateType::f32) {
  engine::LoadOptions options;
  options.num_blocks = kMaxSequences * kBlocksPerSequence;
  options.context = 128;
  options.state_type = state_type;
  options.snapshot_every = kBlockSize;
  options.memory = std::uint64_t{1} << 30;
  auto model = LoadedModel::load(path, options);
  if (!model) FAIL(model.error().message);
  return *model;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = kAnswer;
  return params;
}
SamplingParams penalised() {
  SamplingParams params = greedy();
  params.repeat_penalty = 1.3f;
  params.frequency_penalty = 0.2f;
  params.repeat_last_n = 12;
  params.num_logprobs = 2;
  return params;
}
SamplingParams seeded(std::uint64_t seed) {
  SamplingParams params = penalised();
  params.temperature = 0.8f;
  params.top_p = 0.9f;
  params.presence_penalty = 0.3f;
  params.seed = seed;
  return params;
}

struct Request {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};
struct Answer {
  std::vector<SampledToken> tokens;
  Finish finish = Finish::running;
};

// `count` requests with prompts of 5 to 20 tokens; greedy ones, penalised ones and seeded ones in turn.
std::vector<Request> some_requests(const LoadedModel& model, std::uint32_t count, std::uint64_t seed) {
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t own = seed + i;
    requests.push_back({random_tokens(5 + own * 7 % 16, model.info().vocab_size, own), own % 3 == 0   ? greedy()
                                                                                       : own % 3 == 1 ? penalised()
                                                                                                      : seeded(own)});
  }
  return requests;
}

// Proposals for the sequence of request `index` with `num_answered` tokens of its answer known.
using Propose = std::function<std::vector<TokenId>(std::size_t index, std::size_t num_answered)>;

// What the steps have computed.
struct Counts {
  std::uint32_t steps = 0;
  std::uint32_t drafted = 0;
  std::uint32_t accepted = 0;
};

// Runs all requests to their ends, in one batch, with the proposals; checks the counts of every step.
class Decoding {
 public:
  Decoding(const LoadedModel& model, engine::Team& team, const std::vector<Request>& requests)
      : model_(model), requests_(requests), executor_(model, team), answers_(requests.size()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      engine::SequenceSpec spec;
      spec.id = i + 1;
      spec.tokens = requests[i].prompt;
      const auto blocks = some_blocks(kBlocksPerSequence, static_cast<BlockId>(i) * kBlocksPerSequence, i);
      spec.tables.assign(model.cache_spec().groups.size(), blocks);
      spec.sampling = requests[i].sampling;
      executor_.open(std::move(spec));
    }
  }

  std::vector<Answer> run(const Propose& propose) {
    engine::StepBatch batch;
    engine::StepResult result;
    while (true) {
      batch.items.clear();
      for (std::size_t i = 0; i < requests_.size(); ++i)
        if (answers_[i].finish == Finish::running) batch.items.push_back(next(i, propose));
      if (batch.items.empty()) return answers_;
      executor_.step(batch, result);
      ++counts.steps;
      for (std::size_t item = 0; item < batch.items.size(); ++item) take(batch.items[item], result.items[item]);
    }
  }

  Counts counts;

 private:
  engine::StepItem next(std::size_t i, const Propose& propose) {
    const SequenceId id = i + 1;
    const std::uint32_t known = executor_.num_known(id), computed = executor_.num_computed(id);
    engine::StepItem item{.sequence = id, .num_tokens = known - computed, .output = Output::sample, .new_blocks = {}};
    item.rewind_floor = computed;
    // Prompts of every other sequence are computed in two chunks.
    if (computed == 0 && i % 2 == 1) {
      item.num_tokens = 4;
      item.output = Output::none;
      return item;
    }
    if (propose) item.draft = propose(i, answers_[i].tokens.size());
    item.draft.resize(std::min<std::size_t>(item.draft.size(), model_.info().context - known));
    return item;
  }

  void take(const engine::StepItem& item, const engine::ItemResult& out) {
    Answer& answer = answers_[item.sequence - 1];
    answer.tokens.insert(answer.tokens.end(), out.tokens.begin(), out.tokens.end());
    answer.finish = out.finish;
    counts.drafted += static_cast<std::uint32_t>(item.draft.size());
    counts.accepted += out.num_accepted;
    const std::uint32_t known = executor_.num_known(item.sequence);
    REQUIRE(known == requests_[item.sequence - 1].prompt.size() + answer.tokens.size());
    REQUIRE(out.num_computed == executor_.num_computed(item.sequence));
    REQUIRE(out.num_accepted <= out.tokens.size());
    for (std::size_t i = 0; i < out.num_accepted; ++i) REQUIRE(out.tokens[i].id == item.draft[i]);
    if (item.output != Output::sample || out.finish != Finish::running) return;
    REQUIRE(out.tokens.size() == out.num_accepted + 1);
    const bool is_cut = model_.cache_spec().has_state() && out.num_accepted < item.draft.size();
    REQUIRE(out.num_computed == known - 1 - (is_cut ? out.num_accepted : 0));
  }

  const LoadedModel& model_;
  const std::vector<Request>& requests_;
  Executor executor_;
  std::vector<Answer> answers_;
};

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool same(const Answer& a, const Answer& b) {
  if (a.finish != b.finish || a.tokens.size() != b.tokens.size()) return false;
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    const SampledToken &x = a.tokens[i], &y = b.tokens[i];
    if (x.id != y.id || !same_bits(x.logprob, y.logprob) || x.top.size() != y.top.size()) return false;
    for (std::size_t j = 0; j < x.top.size(); ++j)
      if (x.top[j].id != y.top[j].id || !same_bits(x.top[j].logprob, y.top[j].logprob)) return false;
  }
  return true;
}

// Proposes up to `most` tokens of the answers; each is right with a probability of `right`.
class Drafter {
 public:
  Drafter(const std::vector<Answer>& answers, std::uint32_t vocab_size, std::uint32_t most, double right,
          bool varies = false)
      : answers_(answers), vocab_size_(vocab_size), most_(most), right_(right), varies_(varies) {}

  std::vector<TokenId> operator()(std::size_t index, std::size_t num_answered) {
    const std::vector<SampledToken>& tokens = answers_[index].tokens;
    const std::size_t count = varies_ ? random_() % (most_ + 1) : most_;
    std::vector<TokenId> draft;
    for (std::size_t i = num_answered; i < num_answered + count; ++i) {
      const TokenId truth = i < tokens.size() ? tokens[i].id : 0;
      const bool lies = static_cast<double>(random_() % 1000) >= 1000 * right_;
      const auto other = static_cast<TokenId>((static_cast<std::uint32_t>(truth) + 1) % vocab_size_);
      draft.push_back(lies ? other : truth);
    }
    return draft;
  }

 private:
  const std::vector<Answer>& answers_;
  std::uint32_t vocab_size_, most_;
  double right_;
  bool varies_;
  std::mt19937_64 random_{99};
};

// All drafters and lengths of drafts against decoding token by token.
void check_requests(const LoadedModel& model, engine::Team& team, const std::vector<Request>& requests) {
  Decoding plain(model, team, requests);
  const std::vector<Answer> expected = plain.run(nullptr);
  const auto check = [&](Drafter drafter) {
    Decoding decoding(model, team, requests);
    const std::vector<Answer> answers = decoding.run(drafter);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      INFO("request " << i);
      CHECK(same(answers[i], expected[i]));
    }
    return decoding.counts;
  };
  const std::uint32_t vocab_size = model.info().vocab_size;
  for (const std::uint32_t most : {0u, 1u, 2u, 3u, 5u, 8u, 40u}) {
    INFO("drafts of " << most);
    const Counts oracle = check({expected, vocab_size, most, 1.0});
    CHECK(oracle.steps <= kAnswer / (most + 1) + 3);
    const Counts liar = check({expected, vocab_size, most, 0.0});
    CHECK(liar.accepted == 0);
    CHECK(liar.steps == plain.counts.steps);
    check({expected, vocab_size, most, 0.6});
  }
  const Counts mix = check({expected, vocab_size, 8, 0.75, true});
  CHECK(mix.accepted > 0);
  CHECK(mix.accepted < mix.drafted);
}

void check_model(const LoadedModel& model) {
  INFO(model.info().name << ", " << model.numerics_id());
  engine::Team team(2);
  for (std::uint64_t seed = 0; seed < 3; ++seed) check_requests(model, team, some_requests(model, 1, seed));
  check_requests(model, team, some_requests(model, kMaxSequences, 40));
}

TEST_CASE("an answer with drafts equals the one without: attention, with and without a window, and mixtures") {
  for (const char* name : {"llama", "bitnet", "qwen2", "gemma2", "llama-moe", "deci"})
    check_model(*load(fixture(name)));
}

TEST_CASE("an answer with drafts equals the one without: quantised weights") {
  for (const char* name : {"llama-Q4_K", "llama-Q8_0"}) check_model(*load(fixture(name)));
}

TEST_CASE("an answer with drafts equals the one without: recurrent states, with and without attention beside them") {
  for (const char* name : {"mamba", "mamba2", "rwkv6", "rwkv7", "falcon-h1", "lfm2", "lfm2moe", "qwen3next", "qwen35"})
    check_model(*load(fixture(name)));
}

TEST_CASE("an answer with drafts equals the one without: states that are rounded at fixed positions") {
  for (const char* name : {"mamba", "falcon-h1", "qwen35"}) check_model(*load(fixture(name), engine::StateType::f16));
}

TEST_CASE("an accepted proposal that ends the sequence ends it: what was proposed after it is not taken") {
  for (const char* name : {"llama", "mamba"}) {
    const auto model = load(fixture(name));
    engine::Team team(2);
    std::vector<Request> requests = some_requests(*model, 1, 2);
    const std::vector<Answer> whole = Decoding(*model, team, requests).run(nullptr);
    const TokenId stop = whole[0].tokens[20].id;
    requests[0].sampling.stop_ids = {stop};
    const std::vector<Answer> expected = Decoding(*model, team, requests).run(nullptr);
    REQUIRE(expected[0].finish == Finish::stop_id);
    for (const std::uint32_t most : {1u, 4u, 8u}) {
      Decoding decoding(*model, team, requests);
      // The drafter knows the answer that goes on after the stop id.
      CHECK(same(decoding.run(Drafter(whole, model->info().vocab_size, most, 1.0))[0], expected[0]));
    }
  }
}

TEST_CASE("a draft that goes beyond the longest answer ends with it") {
  for (const char* name : {"llama", "rwkv7"}) {
    const auto model = load(fixture(name));
    engine::Team team(2);
    std::vector<Request> requests = some_requests(*model, 1, 1);
    const std::vector<Answer> whole = Decoding(*model, team, requests).run(nullptr);
    for (const std::uint32_t max_tokens : {1u, 2u, 5u, 6u, 11u}) {
      requests[0].sampling.max_tokens = max_tokens;
      Decoding decoding(*model, team, requests);
      const Answer answer = decoding.run(Drafter(whole, model->info().vocab_size, 8, 1.0))[0];
      CHECK(answer.finish == Finish::length);
      CHECK(answer.tokens.size() == max_tokens);
    }
  }
}

TEST_CASE("an item with a draft takes a second state of recurrent layers") {
  const auto recurrent = load(fixture("mamba"));
  engine::Team team(1);
  Executor executor(*recurrent, team);
  executor.open({.id = 1, .tokens = {1, 2}, .tables = {{0, 1}}});
  const std::uint64_t bytes = executor.workspace_bytes();
  engine::StepResult result;
  executor.step({.items = {{.sequence = 1, .num_tokens = 2, .output = Output::sample, .draft = {3, 4, 5}}}}, result);
  CHECK(executor.workspace_bytes() >= bytes + recurrent->cache_spec().state.bytes());
}

}  // namespace
}  // namespace troupe::test
