// Short ways to load models and to run sequences through an Executor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "cache/group.h"
#include "engine/engine.h"
#include "tests/support/sanitized.h"
#include "tests/support/variants.h"

namespace troupe::test {

// The variants that this machine can run. Under sanitizers without those that differ from a neighbour in the byte
// product alone, which the tests of the kernels cover.
inline std::vector<const kernels::KernelTable*> variants_to_try() {
  std::vector<const kernels::KernelTable*> tables;
  for (const kernels::KernelTable* table : variants_here())
    if (!kSanitized || (table->name != "avxvnni" && table->name != "avx512")) tables.push_back(table);
  return tables;
}

inline std::shared_ptr<engine::LoadedModel> load_model(const std::string& path, const std::string& kernels,
                                                       kernels::KvType kv_type = kernels::KvType::f32,
                                                       std::uint32_t num_blocks = 0, std::uint32_t context = 0) {
  engine::LoadOptions options;
  options.kernels = kernels;
  options.kv_type = kv_type;
  options.num_blocks = num_blocks;
  options.context = context;
  options.memory = std::uint64_t{1} << 30;
  auto model = engine::LoadedModel::load(path, options);
  if (!model) FAIL(model.error().message);
  return *model;
}

inline std::vector<TokenId> random_tokens(std::size_t count, std::uint32_t vocab_size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab_size);
  return tokens;
}

// Runs one sequence with all its logits; the block table is any run of block ids.
class SequenceRunner {
 public:
  SequenceRunner(engine::Executor& executor, SequenceId id, std::vector<TokenId> tokens, const BlockTable& block_table,
                 std::uint32_t num_cached = 0, SnapshotId restore = kNoSnapshot)
      : executor_(executor),
        id_(id),
        computed_(num_cached),
        left_(static_cast<std::uint32_t>(tokens.size()) - num_cached) {
    engine::SequenceSpec spec;
    spec.id = id;
    spec.tokens = std::move(tokens);
    spec.num_cached = num_cached;
    spec.restore = restore;
    // Blocks have the same ids in the arenas of all groups; those before all windows are kNoBlock.
    for (const engine::CacheGroup& group : executor.model().cache_spec().groups)
      cache::leave_window_behind(spec.tables.emplace_back(block_table), computed_, group.window);
    executor.open(std::move(spec));
  }

  std::uint32_t left() const { return left_; }

  // The item that computes the next `count` tokens (at most those left).
  engine::StepItem next(std::uint32_t count) {
    count = std::min(count, left_);
    left_ -= count;
    const std::uint32_t first = std::exchange(computed_, computed_ + count);
    return {.sequence = id_,
            .num_tokens = count,
            .output = engine::Output::all_logits,
            .new_blocks = {},
            .rewind_floor = first};
  }

  // Computes all tokens left, `chunk` at a time: logits [left, vocab].
  std::vector<float> run(std::uint32_t chunk) {
    std::vector<float> logits;
    engine::StepResult result;
    while (left_ != 0) {
      executor_.step({.items = {next(chunk)}}, result);
      logits.insert(logits.end(), result.items[0].logits.begin(), result.items[0].logits.end());
    }
    return logits;
  }

 private:
  engine::Executor& executor_;
  SequenceId id_;
  std::uint32_t computed_;
  std::uint32_t left_;
};

// `count` block ids from `first` on, shuffled.
inline std::vector<BlockId> some_blocks(std::uint32_t count, BlockId first, std::uint64_t seed) {
  std::vector<BlockId> blocks(count);
  std::iota(blocks.begin(), blocks.end(), first);
  std::mt19937_64 random(seed);
  std::shuffle(blocks.begin(), blocks.end(), random);
  return blocks;
}

}  // namespace troupe::test
