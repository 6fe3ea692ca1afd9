// What a model says without drafts, for tests of drafts.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace troupe::test {

using Tokens = std::vector<TokenId>;

inline std::shared_ptr<engine::LoadedModel> load(const std::string& name, std::uint32_t num_blocks,
                                                 const std::string& folder = TROUPE_MODELS) {
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  options.max_sequences = 8;
  auto model = engine::LoadedModel::load(folder.empty() ? name : folder + "/" + name, options);
  if (!model) FAIL(model.error().message);
  return *model;
}

inline engine::SamplingParams params(float temperature) {
  engine::SamplingParams sampling;
  sampling.temperature = temperature;
  sampling.seed = 4;
  sampling.ignore_eos = true;
  return sampling;
}

// The prompt and what the model says after it.
inline Tokens said(const engine::LoadedModel& model, engine::Team& team, Tokens tokens, std::size_t count,
                   const engine::SamplingParams& sampling) {
  engine::Executor executor(model, team);
  BlockTable blocks;
  for (BlockId block = 0; block < blocks_for(static_cast<std::uint32_t>(tokens.size() + count)); ++block)
    blocks.push_back(block);
  executor.open(
      {.id = 1, .tokens = tokens, .tables = BlockTables(model.arenas().size(), blocks), .sampling = sampling});
  engine::StepResult result;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t behind = executor.num_known(1) - executor.num_computed(1);
    executor.step({.items = {{.sequence = 1, .num_tokens = behind, .output = engine::Output::sample}}}, result);
  }
  const auto known = executor.tokens(1);
  return {known.begin(), known.end()};
}

inline Tokens part(const Tokens& tokens, std::size_t from, std::size_t to) {
  return {tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.begin() + static_cast<std::ptrdiff_t>(to)};
}

// The first 32 tokens of each held-out story that is longer, as the model's vocabulary has them.
inline std::vector<Tokens> story_beginnings(const engine::LoadedModel& model) {
  std::ifstream file(std::string(TROUPE_TEST_DATA) + "/stories.txt");
  std::vector<Tokens> prompts;
  for (std::string story; std::getline(file, story);) {
    const Tokens tokens = model.tokenizer()->encode(story, {});
    if (tokens.size() >= 32) prompts.push_back(part(tokens, 0, 32));
  }
  return prompts;
}

}  // namespace troupe::test
