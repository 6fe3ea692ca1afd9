#include "engine/model/cache_plan.h"

#include <algorithm>
#include <string>

#include "cache/window.h"
#include "engine/model/load_choices.h"

namespace troupe::engine {
namespace {

// The most rows of one sequence in a step that the plan allows for; a larger chunk waits for window blocks.
constexpr std::uint32_t kChunk = 1024;
// A block without bytes is only an id, which costs some 200 bytes in the prefix tree.
constexpr std::uint64_t kMaxNames = 1u << 16;
constexpr std::uint64_t kNameBytes = 200;
constexpr std::uint64_t kSnapshotsPerSequence = 4;
constexpr std::uint64_t kMinSnapshots = 64;

}  // namespace

std::uint32_t window_blocks_needed(std::uint32_t window, std::uint32_t context) {
  return std::min(blocks_for(context), cache::most_window_blocks(window, kChunk));
}

Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                             std::uint64_t left) {
  const CacheGroup* window = spec.find(CacheGroup::Kind::window);
  const CacheGroup* state = spec.find(CacheGroup::Kind::state);
  const std::uint64_t block_bytes = spec.groups[0].bytes_per_block;
  const std::uint64_t window_bytes = window ? window->bytes_per_block : 0;
  const std::uint64_t per_context = blocks_for(context);
  const std::uint64_t window_per_context = window ? window_blocks_needed(window->window, context) : 0;
  const std::uint64_t max_sequences = std::max(1u, options.max_sequences);
  CachePlan plan;

  std::uint64_t for_blocks = left;
  if (state) {
    const std::uint64_t room = left / 4 / std::max<std::uint64_t>(1, state->state.bytes());
    plan.num_states = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, max_sequences));
    const std::uint64_t live = plan.num_states * state->state.bytes();
    for_blocks -= std::min(for_blocks, live);
    const std::uint64_t share = for_blocks / (block_bytes + window_bytes == 0 ? 2 : 4);
    const std::uint64_t each = std::max<std::uint64_t>(1, state->state.snapshot_bytes(options.state_type));
    plan.num_snapshots = options.num_snapshots;
    if (plan.num_snapshots == 0)
      plan.num_snapshots = static_cast<std::uint32_t>(
          std::min(share / each, std::max(kMinSnapshots, kSnapshotsPerSequence * max_sequences)));
    if (live > left) {
      return Error{ErrorCode::out_of_memory, "the state of one sequence takes " + mebibytes(state->state.bytes()) +
                                                 "; use a larger --memory or a smaller model"};
    }
    if (plan.num_snapshots > for_blocks / each) {
      return Error{ErrorCode::out_of_memory, std::to_string(plan.num_snapshots) + " snapshots of " + mebibytes(each) +
                                                 " each do not fit; use fewer, or a larger --memory"};
    }
    for_blocks -= plan.num_snapshots * each;
  }

  // For one whole context, or the number in the options.
  const std::uint64_t needed_blocks = options.num_blocks ? options.num_blocks : per_context;
  const std::uint64_t needed_window = window ? (options.num_blocks ? options.num_blocks : window_per_context) : 0;
  const std::uint64_t needed = needed_blocks * block_bytes + needed_window * window_bytes;
  if (needed > for_blocks) {
    const std::uint64_t fixed = needed_window * window_bytes;
    const std::uint64_t longest =
        fixed > for_blocks || block_bytes == 0 ? 0 : (for_blocks - fixed) / block_bytes * kBlockSize;
    return Error{ErrorCode::out_of_memory,
                 "the KV cache of " + std::to_string(needed_blocks * kBlockSize) + " tokens takes " +
                     mebibytes(needed) +
                     (longest > 0 ? "; use -c " + std::to_string(longest) + " or less, or a larger --memory"
                                  : "; use a larger --memory or a smaller model")};
  }
  const bool names_only = block_bytes + window_bytes == 0;
  if (names_only && options.num_blocks > for_blocks / kNameBytes) {
    return Error{ErrorCode::out_of_memory, "the names of " + std::to_string(options.num_blocks) + " KV blocks take " +
                                               mebibytes(options.num_blocks * kNameBytes) +
                                               "; use fewer, or a larger --memory"};
  }
  if (options.num_blocks) {
    plan.num_blocks = options.num_blocks;
    plan.num_window_blocks = static_cast<std::uint32_t>(needed_window);
    return plan;
  }
  if (names_only) {
    plan.num_blocks =
        static_cast<std::uint32_t>(std::max(per_context, std::min(per_context * max_sequences, kMaxNames)));
    return plan;
  }
  // With a window group, both kinds of blocks get room for the same number of sequences of the whole context.
  const auto scaled = [&](std::uint64_t of_one) {
    const double sequences =
        std::min(static_cast<double>(for_blocks) / static_cast<double>(needed), static_cast<double>(max_sequences));
    return static_cast<std::uint32_t>(
        std::min<double>(sequences * static_cast<double>(of_one), static_cast<double>(kNoBlock - 1)));
  };
  plan.num_window_blocks = scaled(window_per_context);
  plan.num_blocks = window ? scaled(per_context)
                           : static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                 {for_blocks / block_bytes, per_context * max_sequences, kNoBlock - 1}));
  return plan;
}

}  // namespace troupe::engine
