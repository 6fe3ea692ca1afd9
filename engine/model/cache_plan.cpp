#include "engine/model/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cache/group.h"
#include "engine/model/load_choices.h"

namespace troupe::engine {
namespace {

// The most rows of one sequence in a step that the plan allows for; a larger chunk waits for blocks of groups with a
// window.
constexpr std::uint32_t kChunk = 1024;
// A block without bytes is only an id, which costs some 200 bytes in the prefix tree.
constexpr std::uint64_t kMaxNames = 1u << 16;
constexpr std::uint64_t kNameBytes = 200;
constexpr std::uint64_t kSnapshotsPerSequence = 4;
constexpr std::uint64_t kMinSnapshots = 64;

template <class... T>
Error no_room(fmt::format_string<T...> message, T&&... values) {
  return {ErrorCode::out_of_memory, fmt::format(message, std::forward<T>(values)...)};
}

}  // namespace

std::uint32_t blocks_needed(const CacheGroup& group, std::uint32_t context) {
  const std::uint32_t all = blocks_for(context);
  return group.window == 0 ? all : std::min(all, cache::most_window_blocks(group.window, kChunk));
}

Result<CachePlan> plan_cache(const CacheSpec& spec, std::uint32_t context, const LoadOptions& options,
                             std::uint64_t left) {
  const std::uint64_t per_context = blocks_for(context);
  const std::uint64_t max_sequences = std::max(1u, options.max_sequences);
  // For one whole context, or the number in the options. Of groups with a window and without: the bytes of a window,
  // and the bytes that each block of positions adds.
  std::uint64_t needed = 0, fixed = 0, growing = 0;
  for (const CacheGroup& group : spec.groups) {
    const std::uint64_t count = options.num_blocks ? options.num_blocks : blocks_needed(group, context);
    needed += count * group.bytes_per_block;
    (group.window ? fixed : growing) += group.bytes_per_block * (group.window ? count : 1);
  }
  const bool names_only = fixed + growing == 0;
  CachePlan plan;

  std::uint64_t for_blocks = left;
  if (spec.has_state()) {
    const std::uint64_t room = left / 4 / spec.state.bytes();
    plan.num_states = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, max_sequences));
    const std::uint64_t live = plan.num_states * spec.state.bytes();
    for_blocks -= std::min(for_blocks, live);
    const std::uint64_t share = for_blocks / (names_only ? 2 : 4);
    const std::uint64_t each = spec.state.snapshot_bytes(options.state_type);
    plan.num_snapshots = options.num_snapshots;
    if (plan.num_snapshots == 0)
      plan.num_snapshots = static_cast<std::uint32_t>(
          std::min(share / each, std::max(kMinSnapshots, kSnapshotsPerSequence * max_sequences)));
    if (live > left)
      return no_room("the state of one sequence takes {}; use a larger --memory or a smaller model",
                     mebibytes(spec.state.bytes()));
    if (plan.num_snapshots > for_blocks / each)
      return no_room("{} snapshots of {} each do not fit; use fewer, or a larger --memory", plan.num_snapshots,
                     mebibytes(each));
    for_blocks -= plan.num_snapshots * each;
  }

  if (needed > for_blocks) {
    const std::uint64_t num_blocks = options.num_blocks ? options.num_blocks : per_context;
    const std::uint64_t longest = fixed > for_blocks || growing == 0 ? 0 : (for_blocks - fixed) / growing * kBlockSize;
    const std::string remedy = longest > 0 ? fmt::format("use -c {} or less, or a larger --memory", longest)
                                           : "use a larger --memory or a smaller model";
    return no_room("the KV cache of {} tokens takes {}; {}", num_blocks * kBlockSize, mebibytes(needed), remedy);
  }
  if (names_only && options.num_blocks > for_blocks / kNameBytes)
    return no_room("the names of {} KV blocks take {}; use fewer, or a larger --memory", options.num_blocks,
                   mebibytes(options.num_blocks * kNameBytes));
  const auto num_blocks_of = [&](const CacheGroup& group) -> std::uint64_t {
    if (options.num_blocks) return options.num_blocks;
    if (names_only) return std::max(per_context, std::min(per_context * max_sequences, kMaxNames));
    if (spec.groups.size() == 1)
      return std::min<std::uint64_t>({for_blocks / growing, per_context * max_sequences, kNoBlock - 1});
    // All groups get room for the same number of sequences of the whole context.
    const double sequences =
        std::min(static_cast<double>(for_blocks) / static_cast<double>(needed), static_cast<double>(max_sequences));
    return static_cast<std::uint64_t>(
        std::min<double>(sequences * blocks_needed(group, context), static_cast<double>(kNoBlock - 1)));
  };
  for (const CacheGroup& group : spec.groups)
    plan.num_blocks.push_back(static_cast<std::uint32_t>(num_blocks_of(group)));
  return plan;
}

}  // namespace troupe::engine
