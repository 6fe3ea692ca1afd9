#include "engine/evaluation/passage_logits.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "cache/window.h"
#include "config/assert.h"
#include "engine/sampling/check_ids.h"

namespace troupe::engine {
namespace {

// 128 MiB: 220 rows of a vocabulary of 152,000, all rows of a step with 32,000.
constexpr std::size_t kMaxLogits = std::size_t{1} << 25;

// Window blocks that one sequence of `length` needs to compute `chunk` tokens in a step: those read and those written.
// At most all of its blocks.
std::uint32_t window_blocks(const LoadedModel& model, std::uint32_t length, std::uint32_t chunk) {
  return std::min(blocks_for(length), cache::most_window_blocks(model.info().window, chunk));
}

}  // namespace

std::uint32_t passages_at_once(const LoadedModel& model, std::uint32_t length) {
  std::uint32_t count =
      std::min(passages_at_once(length), model.arena()->num_blocks() / std::max(1u, blocks_for(length)));
  if (model.window_arena())
    count = std::min(count, model.window_arena()->num_blocks() / std::max(1u, window_blocks(model, length, length)));
  if (model.num_states() > 0) count = std::min(count, model.num_states());
  return std::max(1u, count);
}

Status check_ids(const ModelInfo& info, std::span<const TokenId> tokens) {
  const auto unknown = find_unknown_id(tokens, info.vocab_size);
  if (!unknown) return Ok{};
  return Error{ErrorCode::invalid_argument, "token " + std::to_string(*unknown) + " is " +
                                                std::to_string(tokens[*unknown]) + "; ids go from 0 to " +
                                                std::to_string(info.vocab_size - 1)};
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
    return Error{ErrorCode::invalid_argument, std::to_string(length) + " tokens do not fit a context of " +
                                                  std::to_string(room) + "; use a larger -c"};
  }
  const auto num_passages = static_cast<std::uint32_t>(passages.size());
  num_computed_ = 0;
  most_ = std::max(1u, kPassageStepTokens / num_passages);
  std::uint32_t share = 0;  // window blocks per passage
  if (model_.window_arena()) {
    share = model_.window_arena()->num_blocks() / num_passages;
    if (share < window_blocks(model_, length, 1)) {
      return Error{ErrorCode::invalid_argument, "windows of " + std::to_string(model_.info().window) +
                                                    " positions in the model need more KV blocks; use more --memory"};
    }
    while (share < window_blocks(model_, length, most_)) most_ = (most_ + 1) / 2;
  }
  for (const std::vector<TokenId>& tokens : passages) {
    TROUPE_ASSERT(tokens.size() == length);
    const auto index = static_cast<std::uint32_t>(open_.size());
    SequenceSpec spec;
    spec.id = ++last_id_;
    spec.tokens = tokens;
    spec.block_table.resize(blocks);
    std::iota(spec.block_table.begin(), spec.block_table.end(), BlockId{index * blocks});
    // If they are fewer than the passage's blocks, they are reused in rotation: a block's earlier positions have then
    // left the window.
    for (std::uint32_t i = 0; share != 0 && i < blocks; ++i) spec.window_table.push_back(index * share + i % share);
    spec.sampling.temperature = 0.0f;
    executor_.open(std::move(spec));
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
  const std::uint32_t first_seen =
      model_.window_arena() ? cache::first_window_block(num_computed_, model_.info().window) : 0;
  batch_.items.clear();
  for (const SequenceId id : open_)
    batch_.items.push_back({.sequence = id, .num_tokens = count, .output = output, .first_window_block = first_seen});
  executor_.step(batch_, result_);
  num_computed_ += count;
}

}  // namespace troupe::engine
