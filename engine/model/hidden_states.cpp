#include "engine/model/hidden_states.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include "cache/group.h"
#include "config/assert.h"
#include "engine/memory/aligned_memory.h"
#include "engine/memory/workspace.h"

namespace troupe::engine {
namespace {

constexpr std::size_t kTokensPerPass = 512;

std::shared_ptr<KvArena> own_blocks(std::uint32_t count, const CacheGroup& group,
                                    const std::shared_ptr<MemoryPolicy>& policy) {
  auto arena = KvArena::create(count, group.bytes_per_block, policy);
  if (!arena) throw std::bad_alloc();
  return std::move(*arena);
}

// Has memory for the longest text; the texts use it one after the other.
class HiddenReading final : public TextVectors::Reading {
 public:
  HiddenReading(std::shared_ptr<const LoadedModel> model, std::span<const std::span<const TokenId>> texts,
                const PoolingOptions& pooling, float* rows)
      : model_(std::move(model)), texts_(texts.begin(), texts.end()), pooling_(pooling), rows_(rows) {
    std::size_t longest = 0;
    for (const auto& text : texts_) longest = std::max(longest, text.size());
    const CacheSpec& spec = model_->cache_spec();
    const auto num_blocks = blocks_for(static_cast<std::uint32_t>(longest));
    for (const CacheGroup& group : spec.groups)
      arenas_.push_back(own_blocks(num_blocks, group, model_->memory_policy()));
    live_.resize(spec.state.num_floats());
    table_.resize(num_blocks);
    std::iota(table_.begin(), table_.end(), 0u);
    hidden_.resize(longest * model_->info().dim);
  }

  bool advance(Team& team, Workspace& workspace, std::size_t max_tokens) override {
    std::size_t left = std::min(max_tokens, kTokensPerPass);
    while (left > 0 && index_ < texts_.size()) {
      const std::span<const TokenId> text = texts_[index_];
      const auto count = static_cast<std::uint32_t>(std::min(left, text.size() - done_));
      step(team, workspace, text.subspan(done_, count));
      left -= count;
      done_ += count;
      if (done_ < text.size()) continue;
      const std::size_t dim = model_->info().dim;
      pool_rows(hidden_.data(), text.size(), dim, pooling_, rows_ + index_ * dim);
      ++index_;
      done_ = 0;
    }
    return index_ == texts_.size();
  }

  std::uint64_t bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& arena : arenas_) bytes += arena->num_blocks() * arena->bytes_per_block();
    return bytes;
  }

 private:
  void step(Team& team, Workspace& workspace, std::span<const TokenId> tokens) {
    if (done_ == 0) {
      std::fill(live_.begin(), live_.end(), 0.0f);
      tables_.assign(arenas_.size(), table_);
    }
    for (GroupId group = 0; group < tables_.size(); ++group)
      cache::leave_window_behind(tables_[group], done_, model_->cache_spec().groups[group].window);
    const SequenceRows rows{.tokens = tokens,
                            .first_position = done_,
                            .tables = tables_,
                            .state = live_.empty() ? nullptr : live_.data(),
                            .num_outputs = static_cast<std::uint32_t>(tokens.size())};
    model_->model().forward(team, {&rows, 1}, arenas_, workspace, hidden_.data() + done_ * model_->info().dim);
  }

  std::shared_ptr<const LoadedModel> model_;
  std::vector<std::span<const TokenId>> texts_;
  PoolingOptions pooling_;
  float* rows_;
  std::size_t index_ = 0;   // of the current text
  std::uint32_t done_ = 0;  // tokens of it read so far
  KvArenas arenas_;
  BlockTable table_;           // of every group, at the beginning of a text
  BlockTables tables_;         // of the current text
  std::vector<float> live_;    // recurrent state
  std::vector<float> hidden_;  // of the text's tokens so far
};

}  // namespace

std::unique_ptr<TextVectors::Reading> HiddenStates::read(std::span<const std::span<const TokenId>> texts,
                                                         const PoolingOptions& pooling, float* rows) const {
  for (const auto& text : texts) TROUPE_ASSERT(!text.empty() && text.size() <= max_tokens());
  return std::make_unique<HiddenReading>(model_, texts, pooling, rows);
}

}  // namespace troupe::engine
