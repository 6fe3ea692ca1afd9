#include "engine/evaluation/passage_logits.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cache/group.h"
#include "config/assert.h"
#include "engine/sampling/sampler.h"

namespace troupe::engine {
namespace {

// 128 MiB: 220 rows of a vocabulary of 152,000, all rows of a step with 32,000.
constexpr std::size_t kMaxLogits = std::size_t{1} << 25;

// The group's blocks that one sequence of `length` needs to compute `chunk` tokens in a step: all of its blocks, or
// with a window those read and those written.
std::uint32_t blocks_needed(const LoadedModel& model, GroupId group, std::uint32_t length, std::uint32_t chunk) {
  const std::uint32_t window = model.cache_spec().groups[group].window;
  return window == 0 ? blocks_for(length) : std::min(blocks_for(length), cache::most_window_blocks(window, chunk));
}

}  // namespace

std::uint32_t passages_at_once(const LoadedModel& model, std::uint32_t length) {
  std::uint32_t count = passages_at_once(length);
  for (GroupId group = 0; group < model.arenas().size(); ++group) {
    const std::uint32_t needed = std::max(1u, blocks_needed(model, group, length, length));
    count = std::min(count, model.arena(group)->num_blocks() / needed);
  }
  if (model.num_states() > 0) count = std::min(count, model.num_states());
  return std::max(1u, count);
}

SequenceSpec make_spec(const LoadedModel& model, SequenceId id, std::span<const TokenId> tokens,
                       std::uint32_t num_blocks, std::uint32_t index, std::uint32_t num_parts) {
  SequenceSpec spec;
  spec.id = id;
  spec.tokens.assign(tokens.begin(), tokens.end());
  for (const auto& arena : model.arenas()) {
    const std::uint32_t share = arena->num_blocks() / num_parts;
    BlockTable& table = spec.tables.emplace_back();
    for (std::uint32_t i = 0; i < num_blocks; ++i) table.push_back(index * share + i % share);
  }
  spec.sampling.temperature = 0.0f;
  return spec;
}

Status check_ids(const ModelInfo& info, std::span<const TokenId> tokens) {
  const auto unknown = find_unknown_id(tokens, info.vocab_size);
  if (!unknown) return Ok{};
  return Error{ErrorCode::invalid_argument,
               fmt::format("token {} is {}; ids go from 0 to {}", *unknown, tokens[*unknown], info.vocab_size - 1)};
}

Status PassageLogits::open(std::span<const std::vector<TokenId>> passages) {
  for (const SequenceId id : open_) executor_.close(id);
  open_.clear();
  TROUPE_ASSERT(!passages.empty() && !passages[0].empty());
  const auto length = static_cast<std::uint32_t>(passages[0].size());
  const std::uint32_t blocks = blocks_for(length);
  if (length > model_.info().context || blocks * passages.size() > model_.arena()->num_blocks()) {
    const std::uint64_t room = std::min<std::uint64_t>(
        model_.info().context, model_.arena()->num_blocks() / passages.size() * std::uint64_t{kBlockSize});
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} tokens do not fit a context of {}; use a larger -c", length, room)};
  }
  const auto num_passages = static_cast<std::uint32_t>(passages.size());
  num_computed_ = 0;
  most_ = std::max(1u, kPassageStepTokens / num_passages);
  for (GroupId group = 0; group < model_.arenas().size(); ++group) {
    const std::uint32_t share = model_.arena(group)->num_blocks() / num_passages;  // per passage
    if (share < blocks_needed(model_, group, length, 1)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("windows of {} positions in the model need more KV blocks; use more --memory",
                               model_.info().window)};
    }
    while (share < blocks_needed(model_, group, length, most_)) most_ = (most_ + 1) / 2;
  }
  for (const std::vector<TokenId>& tokens : passages) {
    TROUPE_ASSERT(tokens.size() == length);
    const auto index = static_cast<std::uint32_t>(open_.size());
    executor_.open(make_spec(model_, ++last_id_, tokens, blocks, index, num_passages));
    open_.push_back(last_id_);
  }
  return Ok{};
}

void PassageLogits::skip(std::uint32_t count) {
  for (std::uint32_t done = 0; done < count;) {
    const std::uint32_t now = std::min(most_, count - done);
    step(now, Output::none);
    done += now;
  }
}

void PassageLogits::advance(std::uint32_t count) {
  TROUPE_ASSERT(count <= max_advance());
  step(count, Output::all_logits);
}

std::uint32_t PassageLogits::max_advance() const {
  const std::size_t rows = std::min<std::size_t>(kPassageStepTokens, kMaxLogits / model_.info().vocab_size);
  return std::min(most_, static_cast<std::uint32_t>(std::max<std::size_t>(1, rows / open_.size())));
}

void PassageLogits::step(std::uint32_t count, Output output) {
  batch_.items.clear();
  for (const SequenceId id : open_)
    batch_.items.push_back({.sequence = id, .num_tokens = count, .output = output, .rewind_floor = num_computed_});
  executor_.step(batch_, result_);
  num_computed_ += count;
}

}  // namespace troupe::engine
