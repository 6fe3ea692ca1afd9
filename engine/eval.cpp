#include "engine/eval.h"

#include <algorithm>
#include <numeric>
#include <string>

namespace troupe::engine {
namespace {

constexpr SequenceId kOnly = 1;

Status check(const LoadedModel& model, std::span<const TokenId> tokens, std::uint32_t num_more) {
  const ModelInfo& info = model.info();
  if (tokens.empty()) return Error{ErrorCode::invalid_argument, "there are no tokens to evaluate"};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<std::uint32_t>(tokens[i]) >= info.vocab_size) {
      return Error{ErrorCode::invalid_argument, "token " + std::to_string(i) + " is " + std::to_string(tokens[i]) +
                                                    "; ids go from 0 to " + std::to_string(info.vocab_size - 1)};
    }
  }
  const std::uint64_t room =
      std::min<std::uint64_t>(info.context, std::uint64_t{model.arena()->num_blocks()} * kBlockSize);
  if (tokens.size() + num_more > room) {
    return Error{ErrorCode::invalid_argument, std::to_string(tokens.size() + num_more) +
                                                  " tokens do not fit a context of " + std::to_string(room) +
                                                  "; use a larger -c"};
  }
  return Ok{};
}

SequenceSpec make_spec(std::span<const TokenId> tokens, std::uint32_t num_more) {
  SequenceSpec spec;
  spec.id = kOnly;
  spec.tokens.assign(tokens.begin(), tokens.end());
  spec.block_table.resize(blocks_for(static_cast<std::uint32_t>(tokens.size()) + num_more));
  std::iota(spec.block_table.begin(), spec.block_table.end(), BlockId{0});
  spec.sampling.temperature = 0.0f;
  return spec;
}

}  // namespace

Result<std::vector<float>> evaluate(const LoadedModel& model, Team& team, std::span<const TokenId> tokens,
                                    std::uint32_t chunk) {
  if (auto checked = check(model, tokens, 0); !checked) return checked.error();
  Executor executor(model, team);
  executor.open(make_spec(tokens, 0));
  std::vector<float> logits;
  logits.reserve(tokens.size() * model.info().vocab_size);
  StepBatch batch;
  StepResult result;
  for (std::size_t done = 0; done < tokens.size(); done += batch.items[0].num_tokens) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(std::max(1u, chunk), tokens.size() - done));
    batch.items = {{.sequence = kOnly, .num_tokens = count, .output = Output::all_logits, .new_blocks = {}}};
    executor.step(batch, result);
    logits.insert(logits.end(), result.items[0].logits.begin(), result.items[0].logits.end());
  }
  return logits;
}

Result<std::vector<TokenId>> greedy(const LoadedModel& model, Team& team, std::span<const TokenId> prompt,
                                    std::uint32_t count, bool ignore_eos) {
  if (auto checked = check(model, prompt, 0); !checked) return checked.error();
  std::vector<TokenId> out;
  if (count == 0) return out;
  const std::uint64_t room =
      std::min<std::uint64_t>(model.info().context, std::uint64_t{model.arena()->num_blocks()} * kBlockSize);
  SequenceSpec spec =
      make_spec(prompt, static_cast<std::uint32_t>(std::min<std::uint64_t>(count, room - prompt.size())));
  spec.sampling.max_tokens = count;
  spec.sampling.ignore_eos = ignore_eos;
  Executor executor(model, team);
  executor.open(std::move(spec));
  StepBatch batch;
  StepResult result;
  auto num_tokens = static_cast<std::uint32_t>(prompt.size());
  while (prompt.size() + out.size() < room) {
    batch.items = {{.sequence = kOnly, .num_tokens = num_tokens, .output = Output::sample, .new_blocks = {}}};
    executor.step(batch, result);
    for (const SampledToken& token : result.items[0].tokens) out.push_back(token.id);
    if (result.items[0].finish != Finish::running) break;
    num_tokens = 1;
  }
  return out;
}

}  // namespace troupe::engine
