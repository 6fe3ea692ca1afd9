// A row's logits depend on its own sequence alone: bit for bit the same in every batch and chunking, after every
// history and on every number of threads. For each weight type, variant and KV type.
#include <array>
#include <cstring>
#include <functional>

#include "engine/evaluation/eval.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"
#include "tests/engine/plain_decoder.h"

namespace troupe::test {
namespace {

using engine::Executor;
using engine::LoadedModel;
using engine::Team;

constexpr std::uint32_t kNumTokens = 75;  // two full blocks and a part of a third
constexpr std::uint32_t kNumBlocks = 256;
const std::vector<std::uint32_t> kChunks = {1, 7, 31, 32, 33};
const std::vector<std::uint32_t> kThreads = {1, 2, 3, 5};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<BlockId> blocks_from(BlockId first, std::uint64_t seed) {
  return some_blocks(blocks_for(kNumTokens), first, seed);
}

// The logits that every other way to compute the same tokens must equal.
std::vector<float> alone(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens) {
  const auto logits = engine::evaluate(model, team, tokens);
  REQUIRE(logits);
  return *logits;
}

// The sequence in chunks, each step shared with 31 other sequences that begin, decode and prefill.
std::vector<float> in_company(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens,
                              std::uint32_t chunk) {
  Executor executor(model, team);
  std::vector<SequenceRunner> strangers;
  BlockId next_block = 16;
  for (SequenceId id = 1; id <= 31; ++id) {
    auto theirs = random_tokens(4 + id % 16, model.info().vocab_size, id);
    const std::uint32_t count = blocks_for(static_cast<std::uint32_t>(theirs.size()));
    strangers.emplace_back(executor, id, std::move(theirs), some_blocks(count, next_block, id));
    next_block += count;
  }
  SequenceRunner ours(executor, 77, tokens, blocks_from(0, 5));
  std::vector<float> logits;
  engine::StepBatch batch;
  engine::StepResult result;
  while (ours.left() != 0) {
    batch.items.clear();
    std::size_t our_item = 0;
    for (std::size_t i = 0; i < strangers.size(); ++i) {
      if (i == strangers.size() / 2) {
        our_item = batch.items.size();
        batch.items.push_back(ours.next(chunk));
      }
      if (strangers[i].left() == 0) continue;
      batch.items.push_back(strangers[i].next(static_cast<std::uint32_t>(i) % 4 + 1));
      if (i % 2 == 0) batch.items.back().output = engine::Output::none;
    }
    executor.step(batch, result);
    const std::vector<float>& rows = result.items[our_item].logits;
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

// A second sequence begins after two blocks that the first one computed, and from its state.
std::vector<float> after_prefix_hit(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens) {
  Executor executor(model, team);
  auto first_tokens = tokens;
  first_tokens.back() = (first_tokens.back() + 1) % static_cast<TokenId>(model.info().vocab_size);
  const auto first_blocks = blocks_from(0, 6);
  SequenceRunner first(executor, 1, first_tokens, first_blocks);
  SnapshotId snapshot = kNoSnapshot;
  if (model.snapshots()) {
    snapshot = 1;
    engine::StepBatch batch{.items = {first.next(2 * kBlockSize)}};
    batch.items[0].save = snapshot;
    engine::StepResult result;
    executor.step(batch, result);
  }
  (void)first.run(kNumTokens);
  std::vector<BlockId> shared = first_blocks;
  shared.back() = 40;
  SequenceRunner second(executor, 2, tokens, shared, 2 * kBlockSize, snapshot);
  return second.run(4);
}

// Computed in part, thrown away, and replayed in other blocks with other chunks.
std::vector<float> after_preemption(const LoadedModel& model, Team& team, const std::vector<TokenId>& tokens) {
  Executor executor(model, team);
  engine::StepResult result;
  {
    SequenceRunner runner(executor, 1, tokens, blocks_from(0, 7));
    executor.step({.items = {runner.next(50)}}, result);
  }
  executor.close(1);
  SequenceRunner stranger(executor, 2, random_tokens(kNumTokens, model.info().vocab_size, 3), blocks_from(0, 8));
  (void)stranger.run(20);
  SequenceRunner replay(executor, 3, tokens, blocks_from(1, 9));
  return replay.run(13);
}

void check_model(const std::string& path, const std::string& kernels, kernels::KvType kv_type) {
  const auto model = load_model(path, kernels, kv_type, kNumBlocks, 512);
  INFO(model->numerics_id() << ", " << model->info().weight_types);
  const auto tokens = random_tokens(kNumTokens, model->info().vocab_size, 11);
  Team two(2);
  const std::vector<float> expected = alone(*model, two, tokens);
  const std::span<const float> tail = std::span(expected).subspan(2 * kBlockSize * model->info().vocab_size);
  for (const std::uint32_t chunk : kChunks) {
    INFO("in chunks of " << chunk);
    CHECK(same_bits(*engine::evaluate(*model, two, tokens, chunk), expected));
  }
  CHECK(same_bits(in_company(*model, two, tokens, 3), expected));
  CHECK(same_bits(in_company(*model, two, tokens, 33), expected));
  CHECK(same_bits(after_prefix_hit(*model, two, tokens), tail));
  CHECK(same_bits(after_preemption(*model, two, tokens), expected));
  for (const std::uint32_t num_threads : kThreads) {
    INFO("on " << num_threads << " threads");
    Team team(num_threads);
    CHECK(same_bits(alone(*model, team, tokens), expected));
    if (num_threads > 2) CHECK(same_bits(in_company(*model, team, tokens, 7), expected));
  }
}

// `every_kv_type`: with each variant. Attention does not depend on the type of the weights, so for most files the best
// variant alone is tested with all KV types. Nor do the reference kernels, which no server uses: they multiply every
// type in one loop.
void check_all_variants(const std::string& path, bool every_kv_type) {
  const kernels::KernelTable* before = nullptr;
  for (const kernels::KernelTable* table : variants_to_try()) {
    // A variant that takes attention from the variant before it needs no test of each KV type.
    const bool same_attention = before != nullptr && table->attend_split == before->attend_split;
    before = table;
    if (!every_kv_type && table->name == "reference") continue;
    for (const auto kv_type : {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8}) {
      if (same_attention && kv_type != kernels::KvType::f16) continue;
      if (!every_kv_type && kv_type != kernels::KvType::f16 && table != &kernels::best_table()) continue;
      check_model(path, std::string(table->name), kv_type);
    }
  }
}

TEST_CASE("the embedded models give the same bits in any batch, after any history and on any number of threads") {
  check_all_variants(TROUPE_MODELS "/tales-5m-tq2_0.gguf", false);
  check_all_variants(TROUPE_MODELS "/tales-draft-q8_0.gguf", true);
}

TEST_CASE("each weight type gives the same bits in any batch, after any history and on any number of threads") {
  for (const std::string& name : golden_names()) {
    if (const auto path = golden_model(name)) check_all_variants(*path, name == "llama-F32");
  }
}

TEST_CASE("layers that differ give the same bits in any batch, after any history and on any number of threads") {
  for (const char* const name : {"deci-F32", "lfm2-F32", "lfm2moe-F32", "qwen3next-F32", "qwen35-F32"})
    if (const auto path = golden_model(name)) check_all_variants(*path, false);
}

constexpr std::uint32_t kSplit = kernels::kSplitPositions;
constexpr std::uint32_t kTail = 5;  // tokens of each sequence after the shared ones

// Four sequences of 2 splits and a tail: three have both splits' blocks in common, the fourth the first split's only.
struct Crowd {
  explicit Crowd(const LoadedModel& model) {
    const std::uint32_t vocab_size = model.info().vocab_size;
    const auto prefix = random_tokens(2 * kSplit, vocab_size, 21);
    for (std::size_t i = 0; i < 4; ++i) {
      tokens.push_back(prefix);
      const auto tail = random_tokens(kTail, vocab_size, 30 + i);
      tokens[i].insert(tokens[i].end(), tail.begin(), tail.end());
    }
    const auto own = random_tokens(kSplit, vocab_size, 40);
    std::copy(own.begin(), own.end(), tokens[3].begin() + kSplit);
    const auto blocks = some_blocks(2 * kernels::kSplitBlocks, 20, 41);
    for (BlockId i = 0; i < 4; ++i) {
      tables.push_back(blocks);
      tables[i].push_back(100 + i);
    }
    for (BlockId i = 0; i < kernels::kSplitBlocks; ++i) tables[3][kernels::kSplitBlocks + i] = 60 - i;
  }
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<BlockId>> tables;
};

// The logits of all tails, computed in one batch: the sequences begin one after the other, and then go on together
// with another sequence that has just begun. Returns how many blocks the last step read.
std::size_t in_crowd(const LoadedModel& model, Team& team, const Crowd& crowd,
                     std::vector<std::vector<float>>& logits) {
  Executor executor(model, team);
  std::vector<SequenceRunner> runners;
  engine::StepResult result;
  for (SequenceId i = 0; i < 4; ++i) {
    const std::uint32_t cached = i == 0 ? 0 : i == 3 ? kSplit : 2 * kSplit;
    runners.emplace_back(executor, i + 1, crowd.tokens[i], crowd.tables[i], cached);
    while (runners[i].left() > kTail) executor.step({.items = {runners[i].next(runners[i].left() - kTail)}}, result);
  }
  SequenceRunner stranger(executor, 9, random_tokens(kTail, model.info().vocab_size, 9), {120});
  logits.assign(4, {});
  for (const std::uint32_t count : {2u, 1u, 1u, 1u}) {
    engine::StepBatch batch;
    for (const std::size_t i : {1u, 3u, 0u, 2u}) batch.items.push_back(runners[i].next(count));
    batch.items.push_back(stranger.next(count));
    executor.step(batch, result);
    for (std::size_t item = 0; item < 4; ++item) {
      std::vector<float>& to = logits[std::array{1u, 3u, 0u, 2u}[item]];
      to.insert(to.end(), result.items[item].logits.begin(), result.items[item].logits.end());
    }
  }
  const auto& arena = model.arenas().back();
  REQUIRE(result.kv_bytes_read % arena->bytes_per_block() == 0);
  return result.kv_bytes_read / arena->bytes_per_block();
}

const std::vector<kernels::KvType> kAllTypes = {kernels::KvType::f16, kernels::KvType::f32, kernels::KvType::i8};

// `num_blocks` are read by the last step. `types`: with every variant; the best one is tried with all types.
void check_crowd(const std::string& path, std::size_t num_blocks, const std::vector<kernels::KvType>& types) {
  for (const kernels::KernelTable* table : variants_to_try()) {
    for (const kernels::KvType kv_type : table == &kernels::best_table() ? kAllTypes : types) {
      const auto model = load_model(path, std::string(table->name), kv_type, kNumBlocks, 1024);
      INFO(model->numerics_id());
      const Crowd crowd(*model);
      Team one(1);  // splits are not spread over threads then: all other ways are compared with this one
      std::vector<std::vector<float>> expected;
      for (const auto& tokens : crowd.tokens) {
        const std::vector<float> all = alone(*model, one, tokens);
        expected.emplace_back(all.end() - std::ptrdiff_t{kTail} * model->info().vocab_size, all.end());
      }
      for (const std::uint32_t num_threads : kThreads) {
        Team team(num_threads);
        std::vector<std::vector<float>> logits;
        CHECK(in_crowd(*model, team, crowd, logits) == num_blocks);
        for (std::size_t i = 0; i < 4; ++i) {
          INFO("sequence " << i << " on " << num_threads << " threads");
          CHECK(same_bits(logits[i], expected[i]));
        }
      }
    }
  }
}

TEST_CASE("sequences that share a prefix's blocks give the same bits as alone, and shared blocks are read once") {
  // The first split once, the second for three and for one, a tail's block for each, and the other sequence's.
  check_crowd(TROUPE_MODELS "/tales-draft-q8_0.gguf", 8 + 8 + 8 + 4 + 1, kAllTypes);
}

// Position 516 attends to 217 and later, in block 6, or to 417 and later, in block 13; earlier blocks are given back.
TEST_CASE("sequences that share a prefix with a window give the same bits as alone, and only the window is read") {
  for (const auto& [window, num_blocks] : {std::pair{300u, 2 + 8 + 8 + 4 + 1}, {100u, 3 + 3 + 4 + 1}}) {
    PlainDecoder plain;
    plain.family = "phi3";
    plain.fused = true;
    plain.context = 1024;
    plain.more_metadata = [window = window](GgufWriter& w, const std::string& prefix) {
      w.add(prefix + "attention.sliding_window", window);
    };
    const TemporaryFile file(plain.bytes());
    check_crowd(file.path(), static_cast<std::size_t>(num_blocks), {kernels::KvType::f16});
  }
}

// Their products with queries are made block by block, from the first block that a row attends to.
TEST_CASE(
    "biases apart from an int8 cache change no bits in any batch, after any history and on any number of threads") {
  for (const auto& [window, num_blocks] : {std::pair{0u, 8 + 8 + 8 + 4 + 1}, {100u, 3 + 3 + 4 + 1}}) {
    PlainDecoder plain;
    plain.layers = 1;
    plain.biases = true;
    plain.key_bias = 10;
    plain.context = 1024;
    plain.more_metadata = [window = window](GgufWriter& w, const std::string& prefix) {
      w.add(prefix + "attention.sliding_window", window);
    };
    const TemporaryFile file(plain.bytes());
    check_crowd(file.path(), static_cast<std::size_t>(num_blocks), {kernels::KvType::i8});
    // Variants that differ from the one before them in products of weights alone need no test of their own.
    const kernels::KernelTable* before = nullptr;
    for (const kernels::KernelTable* table : variants_to_try()) {
      const bool same_attention = before != nullptr && table->attend_split == before->attend_split;
      before = table;
      if (!same_attention) check_model(file.path(), std::string(table->name), kernels::KvType::i8);
    }
  }
}

// 8 sequences after the same 1,000 tokens: int8, read once for all, against float16, read by each.
TEST_CASE("a step over a shared prefix reads at most half the bytes that its sequences would read alone") {
  constexpr std::uint32_t kShared = 992, kOwn = 8, kSequences = 8;
  const auto bytes_read = [&](kernels::KvType kv_type, bool sharing) {
    const auto model = load_model(TROUPE_MODELS "/tales-draft-q8_0.gguf", "", kv_type, 512, 1024);
    Team team(2);
    Executor executor(*model, team);
    engine::StepBatch batch;
    engine::StepResult result;
    std::vector<SequenceRunner> runners;
    for (SequenceId id = 0; id < kSequences; ++id) {
      auto tokens = random_tokens(kShared + kOwn, model->info().vocab_size, 1);
      auto table = some_blocks(32, sharing ? 0 : static_cast<BlockId>(id * 32), 2);
      if (sharing) table.back() = 100 + static_cast<BlockId>(id);
      runners.emplace_back(executor, id + 1, tokens, table, sharing && id > 0 ? kShared : 0);
      executor.step({.items = {runners.back().next(runners.back().left() - 1)}}, result);
    }
    for (SequenceRunner& runner : runners) batch.items.push_back(runner.next(1));
    executor.step(batch, result);
    return static_cast<double>(result.kv_bytes_read);
  };
  const double apart = bytes_read(kernels::KvType::f16, false);
  CHECK(bytes_read(kernels::KvType::f16, true) <= 0.4 * apart);
  CHECK(bytes_read(kernels::KvType::i8, false) <= 0.6 * apart);
  CHECK(bytes_read(kernels::KvType::i8, true) <= 0.22 * apart);
}

// Slots that no token has reached may hold anything: a recycled block, another tenant's infinities.
TEST_CASE("the contents of unused slots of a block change no bits") {
  for (const kernels::KernelTable* table : variants_to_try()) {
    for (const auto kv_type : {kernels::KvType::f32, kernels::KvType::f16, kernels::KvType::i8}) {
      const auto model =
          load_model(TROUPE_MODELS "/tales-draft-q8_0.gguf", std::string(table->name), kv_type, kNumBlocks);
      INFO(model->numerics_id());
      Team team(2);
      const auto tokens = random_tokens(kNumTokens, model->info().vocab_size, 11);
      const std::vector<float> expected = alone(*model, team, tokens);
      for (const int poison : {0xff, 0x7c}) {  // NaN in both types; 1.3e+36 or infinity and more
        for (BlockId block = 0; block < kNumBlocks; ++block) {
          std::memset(model->arena()->block(block), poison, model->arena()->bytes_per_block());
        }
        CHECK(same_bits(alone(*model, team, tokens), expected));
        for (BlockId block = 0; block < 8; ++block) {
          std::memset(model->arena()->block(block), poison, model->arena()->bytes_per_block());
        }
        CHECK(same_bits(*engine::evaluate(*model, team, tokens, 5), expected));
      }
    }
  }
}

}  // namespace
}  // namespace troupe::test
