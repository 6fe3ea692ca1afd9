#include "engine/hidden_states.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include "cache/window.h"
#include "config/assert.h"
#include "engine/aligned_memory.h"
#include "engine/workspace.h"

namespace troupe::engine {
namespace {

constexpr std::uint32_t kTokensPerStep = 512;

std::shared_ptr<KvArena> own_blocks(std::uint32_t count, const CacheGroup& group,
                                    const std::shared_ptr<MemoryPolicy>& policy) {
  auto arena = KvArena::create(count, group.bytes_per_block, policy);
  if (!arena) throw std::bad_alloc();
  return std::move(*arena);
}

}  // namespace

std::uint32_t HiddenStates::max_tokens() const { return std::min(info().context, kMaxHiddenTokens); }

void HiddenStates::encode(Team& team, std::span<const std::span<const TokenId>> texts, const PoolingOptions& pooling,
                          Workspace& workspace, float* rows) const {
  std::size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  TROUPE_ASSERT(longest <= max_tokens());
  const std::size_t dim = info().dim;
  const CacheSpec& spec = model_->cache_spec();
  const auto num_blocks = blocks_for(static_cast<std::uint32_t>(longest));
  const auto blocks = own_blocks(num_blocks, spec.groups[0], model_->memory_policy());
  const CacheGroup* const window = spec.find(CacheGroup::Kind::window);
  const auto window_blocks =
      window ? own_blocks(num_blocks, *window, model_->memory_policy()) : std::shared_ptr<KvArena>();
  const CacheGroup* const state = spec.find(CacheGroup::Kind::state);
  std::vector<BlockId> table(num_blocks), window_table;
  std::iota(table.begin(), table.end(), 0u);
  std::vector<float> hidden(longest * dim);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::span<const TokenId> text = texts[i];
    TROUPE_ASSERT(!text.empty());
    std::vector<float> live(state ? state->state.num_floats() : 0);
    for (std::uint32_t done = 0; done < text.size();) {
      const auto count = std::min(kTokensPerStep, static_cast<std::uint32_t>(text.size()) - done);
      if (window) {
        window_table = table;
        const auto first = cache::first_window_block(done, window->window);
        std::fill(window_table.begin(), window_table.begin() + first, kNoBlock);
      }
      const SequenceRows step{.tokens = text.subspan(done, count),
                              .first_position = done,
                              .block_table = table,
                              .window_table = window_table,
                              .state = live.empty() ? nullptr : live.data(),
                              .num_outputs = count};
      model_->model().forward(team, {&step, 1}, {*blocks, window_blocks.get()}, workspace, hidden.data() + done * dim);
      done += count;
    }
    pool_rows(hidden.data(), text.size(), dim, pooling, rows + i * dim);
  }
}

}  // namespace troupe::engine
