#include "engine/evaluation/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cache/group.h"
#include "engine/evaluation/passage_logits.h"

namespace troupe::engine {
namespace {

constexpr SequenceId kOnly = 1;

// The most tokens per step for which the blocks that are written differ from those that are read.
std::uint32_t longest_chunk(const LoadedModel& model) {
  std::uint32_t longest = std::numeric_limits<std::uint32_t>::max();
  for (GroupId group = 0; group < model.arenas().size(); ++group) {
    const std::uint32_t window = model.cache_spec().groups[group].window, blocks = model.arena(group)->num_blocks();
    if (window == 0 || blocks >= blocks_for(model.info().context)) continue;
    longest = std::min(longest, cache::longest_window_chunk(window, blocks));
  }
  return longest;
}

// The most tokens that context and blocks hold.
std::uint64_t max_tokens(const LoadedModel& model) {
  return std::min<std::uint64_t>(model.info().context, std::uint64_t{model.arena()->num_blocks()} * kBlockSize);
}

Status check(const LoadedModel& model, std::span<const TokenId> tokens) {
  const auto bad = [](std::string what) { return Error{ErrorCode::invalid_argument, std::move(what)}; };
  if (tokens.empty()) return bad("there are no tokens to evaluate");
  if (auto checked = check_ids(model.info(), tokens); !checked) return checked;
  if (const std::uint64_t room = max_tokens(model); tokens.size() > room)
    return bad(fmt::format("{} tokens do not fit a context of {}; use a larger -c", tokens.size(), room));
  if (longest_chunk(model) == 0)
    return bad(fmt::format("a window of {} positions needs more KV blocks", model.info().window));
  return Ok{};
}

SequenceSpec only_sequence(const LoadedModel& model, std::span<const TokenId> tokens, std::uint32_t num_more) {
  return make_spec(model, kOnly, tokens, blocks_for(static_cast<std::uint32_t>(tokens.size()) + num_more));
}

// The step item of the only sequence.
StepItem next_item(std::uint32_t num_computed, std::uint32_t num_tokens, Output output) {
  return {.sequence = kOnly, .num_tokens = num_tokens, .output = output, .rewind_floor = num_computed};
}

}  // namespace

Result<std::vector<float>> evaluate(const LoadedModel& model, Team& team, std::span<const TokenId> tokens,
                                    std::uint32_t chunk) {
  if (auto checked = check(model, tokens); !checked) return checked.error();
  Executor executor(model, team);
  executor.open(only_sequence(model, tokens, 0));
  std::vector<float> logits;
  logits.reserve(tokens.size() * model.info().vocab_size);
  StepBatch batch;
  StepResult result;
  chunk = std::max(1u, std::min(chunk, longest_chunk(model)));
  for (std::size_t done = 0; done < tokens.size(); done += batch.items[0].num_tokens) {
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(chunk, tokens.size() - done));
    batch.items = {next_item(static_cast<std::uint32_t>(done), count, Output::all_logits)};
    executor.step(batch, result);
    logits.insert(logits.end(), result.items[0].logits.begin(), result.items[0].logits.end());
  }
  return logits;
}

Result<std::vector<TokenId>> greedy(const LoadedModel& model, Team& team, std::span<const TokenId> prompt,
                                    std::uint32_t count, bool ignore_eos) {
  if (auto checked = check(model, prompt); !checked) return checked.error();
  std::vector<TokenId> out;
  if (count == 0) return out;
  const std::uint64_t room = max_tokens(model);
  SequenceSpec spec =
      only_sequence(model, prompt, static_cast<std::uint32_t>(std::min<std::uint64_t>(count, room - prompt.size())));
  spec.sampling.max_tokens = count;
  spec.sampling.ignore_eos = ignore_eos;
  Executor executor(model, team);
  executor.open(std::move(spec));
  StepBatch batch;
  StepResult result;
  const auto num_prompt = static_cast<std::uint32_t>(prompt.size());
  std::uint32_t num_computed = 0;
  while (prompt.size() + out.size() < room) {
    const std::uint32_t left = num_prompt + static_cast<std::uint32_t>(out.size()) - num_computed;
    const std::uint32_t count = std::min(left, longest_chunk(model));
    batch.items = {next_item(num_computed, count, count == left ? Output::sample : Output::none)};
    executor.step(batch, result);
    num_computed += count;
    if (count != left) continue;
    for (const SampledToken& token : result.items[0].tokens) out.push_back(token.id);
    if (result.items[0].finish != Finish::running) break;
  }
  return out;
}

}  // namespace troupe::engine
