#include "engine/model/canary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "cache/group.h"
#include "engine/memory/workspace.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {
namespace {

std::vector<TokenId> canary_tokens(std::uint32_t count, std::uint32_t vocab_size) {
  std::vector<TokenId> tokens(count);
  for (std::uint64_t i = 0; i < count; ++i) tokens[i] = static_cast<TokenId>((i * 104729 + 1) % vocab_size);
  return tokens;
}

// Tokens of a canary.
std::uint32_t length_in(std::uint32_t context) { return std::clamp(context, 1u, kCanaryPrompt + kCanarySteps); }

std::uint64_t hash_of(std::span<const float> numbers) { return checksum(std::as_bytes(numbers)); }

class ModelCanary final : public Canary {
 public:
  explicit ModelCanary(const LoadedModel& loaded)
      : Canary(loaded.numerics_id(), length_in(loaded.info().context)),
        model_(loaded.model()),
        workspace_(loaded.memory_policy()),
        tokens_(canary_tokens(length_in(loaded.info().context), loaded.info().vocab_size)) {
    const CacheSpec& spec = model_.cache_spec();
    BlockTable table(blocks_for(static_cast<std::uint32_t>(tokens_.size())));
    std::iota(table.begin(), table.end(), 0u);
    for (const CacheGroup& group : spec.groups) {
      auto arena =
          KvArena::create(static_cast<std::uint32_t>(table.size()), group.bytes_per_block, loaded.memory_policy());
      if (!arena) throw std::bad_alloc();
      arenas_.push_back(std::move(*arena));
      tables_.push_back(table);
    }
    state_.resize(spec.state.num_floats());
  }

  bool advance(Team& team) override {
    const auto num_tokens = static_cast<std::uint32_t>(tokens_.size());
    const std::uint32_t prompt = num_tokens > kCanarySteps ? num_tokens - kCanarySteps : 1;
    const std::uint32_t count = done_ == 0 ? prompt : 1;
    const CacheSpec& spec = model_.cache_spec();
    for (GroupId group = 0; group < tables_.size(); ++group)
      cache::leave_window_behind(tables_[group], done_, spec.groups[group].window);
    const SequenceRows rows{.tokens = std::span(tokens_).subspan(done_, count),
                            .first_position = done_,
                            .tables = tables_,
                            .state = state_.empty() ? nullptr : state_.data(),
                            .num_outputs = count};
    std::vector<float> hidden(std::size_t{count} * model_.info().dim);
    std::vector<float> logits(std::size_t{count} * model_.info().vocab_size);
    model_.forward(team, {&rows, 1}, arenas_, workspace_, hidden.data());
    model_.head(team, hidden.data(), count, workspace_, logits.data());
    value_ = combine_hashes(value_, hash_of(logits));
    done_ += count;
    if (done_ < num_tokens) return false;
    kernels::MaxAt best;
    model_.head_greedy(team, hidden.data() + std::size_t{count - 1} * model_.info().dim, 1, workspace_, &best);
    value_ = combine_hashes(combine_hashes(value_, hash_of({&best.value, 1})), best.index);
    return true;
  }

 private:
  const Model& model_;
  Workspace workspace_;
  const std::vector<TokenId> tokens_;
  std::uint32_t done_ = 0;
  KvArenas arenas_;
  BlockTables tables_;
  std::vector<float> state_;
};

class EncoderCanary final : public Canary {
 public:
  explicit EncoderCanary(const Encoder& encoder)
      : Canary(encoder.numerics_id(), length_in(encoder.max_tokens())),
        tokens_(canary_tokens(length_in(encoder.max_tokens()), encoder.info().vocab_size)),
        vector_(encoder.info().dim),
        texts_{tokens_},
        reading_(encoder.read(texts_, {.pooling = encoder.pooling()}, vector_.data())) {}

  bool advance(Team& team) override {
    if (!reading_->advance(team, workspace_, tokens_.size())) return false;
    value_ = hash_of(vector_);
    return true;
  }

 private:
  Workspace workspace_;
  const std::vector<TokenId> tokens_;
  std::vector<float> vector_;
  const std::array<std::span<const TokenId>, 1> texts_;
  const std::unique_ptr<TextVectors::Reading> reading_;
};

}  // namespace

Canary::Canary(const std::string& numerics_id, std::size_t num_tokens)
    : key_(num_tokens == kCanaryPrompt + kCanarySteps ? numerics_id : fmt::format("{}/{}", numerics_id, num_tokens)) {}

std::unique_ptr<Canary> make_canary(const LoadedModel& model) { return std::make_unique<ModelCanary>(model); }
std::unique_ptr<Canary> make_canary(const Encoder& encoder) { return std::make_unique<EncoderCanary>(encoder); }

}  // namespace troupe::engine
