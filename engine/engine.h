// The public interface to a model: load it once, then run steps over many sequences.
//
//   auto model = engine::LoadedModel::load("tales.gguf", {});
//   engine::Team team(2);
//   engine::Executor executor(*model, team);
//   executor.open({.id = 1, .tokens = prompt, .tables = {{0, 1}}});
//   executor.step({.items = {{.sequence = 1, .num_tokens = prompt.size(), .output = engine::Output::sample}}}, result);
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/compute/team.h"
#include "engine/memory/kv_arena.h"
#include "engine/model.h"
#include "engine/sampling/sampler.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// Weights, vocabulary and KV memory of one model. Immutable except for the arenas' contents.
class LoadedModel {
 public:
  // Throws Stopped soon after options.team is stopped, bad_alloc if memory beside the weights runs out.
  static Result<std::shared_ptr<LoadedModel>> load(const std::string& path, const LoadOptions& options);
  static Result<std::shared_ptr<LoadedModel>> load(std::shared_ptr<const ModelFile> file, const LoadOptions& options);

  const Model& model() const { return *model_; }
  const ModelInfo& info() const { return model_->info(); }
  const CacheSpec& cache_spec() const { return model_->cache_spec(); }
  const kernels::KernelTable& kernels() const { return *kernels_; }
  // Null if the file has no vocabulary.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  std::uint64_t vocabulary_digest() const { return vocabulary_digest_; }  // vocabulary_digest(); 0: it has none
  const KvArenas& arenas() const { return arenas_; }
  const std::shared_ptr<KvArena>& arena(GroupId group = 0) const { return arenas_[group]; }
  // Null if the model has no recurrent layers.
  const std::shared_ptr<SnapshotArena>& snapshots() const { return snapshots_; }
  // Snapshots are taken at multiples of this many positions.
  std::uint32_t snapshot_every() const { return snapshot_every_; }
  // Sequences that may be open at once, each with a recurrent state in the memory budget; 0: the model has none.
  std::uint32_t num_states() const { return num_states_; }
  // Equal ids give equal bits: recipe version, variant, KV type, model hash ("4-avx512vnni-f16-9f3c..."); with states
  // kept as f16 also "-s512", the positions after which they are rounded.
  const std::string& numerics_id() const { return numerics_id_; }
  const std::vector<TokenId>& end_ids() const { return end_ids_; }  // end-of-generation tokens
  // As find_chat_templates().
  const std::vector<std::pair<std::string, std::string>>& chat_templates() const { return chat_templates_; }
  const std::shared_ptr<MemoryPolicy>& memory_policy() const { return memory_policy_; }
  // Heap bytes taken by the vocabulary, and by the weights that are not in a MemoryPolicy's memory.
  std::uint64_t vocabulary_bytes() const { return vocabulary_bytes_; }
  std::uint64_t weight_heap_bytes() const { return weight_heap_bytes_; }

 private:
  LoadedModel() = default;
  std::unique_ptr<Model> model_;
  const kernels::KernelTable* kernels_ = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::uint64_t vocabulary_digest_ = 0;
  KvArenas arenas_;
  std::shared_ptr<SnapshotArena> snapshots_;
  std::uint32_t snapshot_every_ = 0;
  std::uint32_t num_states_ = 0;
  std::string numerics_id_;
  std::vector<TokenId> end_ids_;
  std::vector<std::pair<std::string, std::string>> chat_templates_;
  std::shared_ptr<MemoryPolicy> memory_policy_;
  std::uint64_t vocabulary_bytes_ = 0;
  std::uint64_t weight_heap_bytes_ = 0;
};

// The initial state of a sequence. `tokens` are all ids known so far: the prompt, and after a resume also the tokens
// emitted before. K and V of the first num_cached are already in the blocks of `tables`.
struct SequenceSpec {
  SequenceId id = 0;
  std::vector<TokenId> tokens;
  std::uint32_t num_prompt_tokens = 0;  // tokens beyond these count as generated; 0: all of `tokens`
  std::uint32_t num_cached = 0;
  // Blocks leased so far, by group, all of the same length; kNoBlock before a group's window of position num_cached.
  BlockTables tables;
  // For a fork, else empty: before the sequence writes to a group's block of position num_cached, that block becomes a
  // copy of the group's block here (cache::Acquired::copy_from). The full blocks before it are shared.
  std::vector<BlockId> copy_from{};
  // With recurrent layers and num_cached > 0: the snapshot of the state after num_cached positions, read by open(), or
  // the state itself, as returned by Executor::state().
  SnapshotId restore = kNoSnapshot;
  std::vector<float> state{};
  SamplingParams sampling{};
};

enum class Output : std::uint8_t {
  none,        // only fill the cache (a chunk that does not reach the last known token)
  sample,      // sample after the last token, append it to the sequence
  all_logits,  // raw logits of every token of this item into ItemResult::logits (eval, perplexity)
};

struct StepItem {
  SequenceId sequence = 0;
  std::uint32_t num_tokens = 0;  // known tokens to compute in this step, from the first uncomputed one on
  Output output = Output::none;
  BlockTables new_blocks{};  // by group, appended to the tables before the step; empty: none
  // No row of this or a later step, also after a rewind, is before this position: table entries that no row from it on
  // attends to are set to kNoBlock.
  std::uint32_t rewind_floor = 0;
  // With recurrent layers: once these tokens are computed, the state is copied to this snapshot. Not with a draft.
  SnapshotId save = kNoSnapshot;
  // Proposals for the tokens after the last known one, only with Output::sample; computed as rows like those of
  // num_tokens, within the context and the block tables (asserted). At each row the token is drawn as without a draft;
  // a proposal is accepted if it is the token drawn, else the rows after it are dropped. So the answer is the same.
  // With recurrent layers each item with a draft needs a second state, of the num_states() of the model that no open
  // sequence takes.
  std::vector<TokenId> draft{};
};

struct StepBatch {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<StepItem> items;  // each sequence at most once
};

// eos: also where the form of the answer ends it. no_token: that form lets no token follow, or to tell which takes too
// much work.
enum class Finish : std::uint8_t { running, eos, stop_id, length, no_token };

inline constexpr std::size_t kMaxForcedTokens = 64;

struct ItemResult {
  SequenceId sequence = 0;
  // The sampled tokens, at most draft.size() + 1, without the eos or stop id that ended the sequence.
  std::vector<SampledToken> tokens;
  // Of an answer that has to be of a form: the tokens that follow these whatever is likely, as far as it is known
  // before they are drawn; at most kMaxForcedTokens. As the draft of the next step they all come in one.
  std::vector<TokenId> forced;
  std::uint32_t num_accepted = 0;  // proposals of the draft that are among `tokens`
  // Executor::num_computed() after the step. With recurrent layers and a rejected proposal the accepted ones are not
  // among them, because a state cannot be cut: a later step computes these tokens again.
  std::uint32_t num_computed = 0;
  Finish finish = Finish::running;
  std::vector<float> logits;  // only for Output::all_logits: [num_tokens, vocab_size]
  // Only with SamplingParams::prompt_logprobs: of the prompt's tokens behind those computed, one for each.
  std::vector<SampledToken> scored;
};

struct StepResult {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<ItemResult> items;  // in the order of the batch
  double compute_seconds = 0;
  // From the first layer to the last draw. The time between two steps is overhead.
  std::chrono::steady_clock::time_point kernels_began, kernels_ended;
  std::uint64_t kv_bytes_read = 0;    // K and V read by attention; blocks that several sequences share count once
  std::uint64_t workspace_bytes = 0;  // of the executor's buffers; they only grow
};

// Runs steps over the sequences it has open. A step is atomic: every item advances, or an assertion stops the process.
// Called by one compute thread at a time; a warm step allocates nothing except for its results.
class Executor {
 public:
  // Both must outlive the executor.
  Executor(const LoadedModel& model, Team& team);
  ~Executor();

  const LoadedModel& model() const;
  // The id must be new, the spec within the model's context and vocabulary, and with recurrent layers at most
  // LoadedModel::num_states() sequences open (asserted: callers check). Throws bad_alloc if there is no memory for a
  // state.
  void open(SequenceSpec spec);
  // Drops the known tokens from num_tokens (>= 1) on, with their K and V. The next step computes the last remaining
  // token again, because its logits are gone. The block tables stay. A recurrent state cannot be rolled back: with one,
  // all tokens are computed again.
  void truncate(SequenceId id, std::uint32_t num_tokens);
  // Makes more tokens known, as if they had been sampled: within the context and the vocabulary (asserted). The block
  // tables grow with the steps that compute them.
  void append(SequenceId id, std::span<const TokenId> tokens);
  // Drops K and V from position num_computed (<= the current one) on; the tokens stay known and are computed again. The
  // caller first replaces a block shared with other sequences by a copy. With a recurrent state num_computed must be
  // the current value, or 0. The blocks in the windows of position num_computed must still be in the tables
  // (StepItem::rewind_floor; asserted by the next step). The same holds for truncate().
  void rewind(SequenceId id, std::uint32_t num_computed);
  // Replaces entry `index` of a block table by an equal block (the canonical one after a commit).
  void swap_block(SequenceId id, GroupId group, std::uint32_t index, BlockId block);
  // Unknown ids are ignored.
  void close(SequenceId id);
  bool is_open(SequenceId id) const;
  std::uint32_t num_known(SequenceId id) const;     // tokens known
  std::uint32_t num_computed(SequenceId id) const;  // tokens with K and V in the cache
  std::uint32_t num_prompt_tokens(SequenceId id) const;
  // Valid until the next call that is not const.
  std::span<const TokenId> tokens(SequenceId id) const;  // known
  const BlockTable& block_table(SequenceId id, GroupId group = 0) const;
  std::span<const float> state(SequenceId id) const;  // after the computed positions; empty without recurrent layers
  // Bytes of the step buffers: activations, scratch space, logits, live states. Grows with the largest step and the
  // most open sequences so far and never shrinks; a step with the maximum of rows and tokens takes it to its maximum.
  // For the memory ledger; compute thread only, like all of this class. O(1).
  std::uint64_t workspace_bytes() const;

  // Computes the batch; a batch of more than some hundred rows takes several passes over the layers. `result` is
  // overwritten; its vectors are reused.
  void step(const StepBatch& batch, StepResult& result);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::engine
