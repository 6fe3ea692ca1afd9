// The only door to a model: load it once, then run steps over many sequences.
//
//   auto model = engine::LoadedModel::load("tales.gguf", {});
//   engine::Team team(2);
//   engine::Executor executor(*model, team);
//   executor.open({.id = 1, .tokens = prompt, .block_table = {0, 1}});
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
#include "engine/memory/aligned_memory.h"
#include "engine/model.h"
#include "engine/sampling/sampler.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine {

// The memory of all KV blocks of a model. Block `id` holds, layer by layer, K then V in the layout
// that kernels/kernels.h describes. Outlives every actor; only the compute thread makes addresses.
class KvArena {
 public:
  // Takes num_blocks x bytes_per_block from `policy` in one piece; blocks are touched on first use.
  static Result<std::shared_ptr<KvArena>> create(std::uint32_t num_blocks, std::uint64_t bytes_per_block,
                                                 const std::shared_ptr<MemoryPolicy>& policy = system_memory());
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;

  std::uint32_t num_blocks() const { return num_blocks_; }
  std::uint64_t bytes_per_block() const { return bytes_per_block_; }
  std::byte* block(BlockId id);  // id < num_blocks (asserted); null where blocks have no bytes
  // Of the blocks that were ever written: the others take address space only. Any thread.
  std::size_t resident_bytes() const { return memory_.resident_bytes(); }

 private:
  KvArena(AlignedMemory memory, std::uint32_t num_blocks, std::uint64_t bytes_per_block)
      : memory_(std::move(memory)), num_blocks_(num_blocks), bytes_per_block_(bytes_per_block) {}
  AlignedMemory memory_;
  std::uint32_t num_blocks_;
  std::uint64_t bytes_per_block_;
};

struct LoadOptions {
  std::string kernels{};             // a variant's name; empty: TROUPE_KERNELS, else the best this CPU has
  std::optional<Ternary> ternary{};  // none: TROUPE_TERNARY, else the fastest one
  kernels::KvType kv_type = kernels::KvType::f16;
  StateType state_type = StateType::f32;
  std::uint32_t snapshot_every = 512;  // positions between snapshots of a recurrent state, a multiple of kBlockSize
  std::uint32_t context = 0;           // longest sequence; 0: the trained context
  std::uint64_t memory = 0;      // bytes for weights and cache together (memory_budget.h); 0: 60 % of what is available
  std::uint32_t num_blocks = 0;  // KV blocks; 0: what the memory budget leaves, at most max_sequences full contexts
  std::uint32_t num_snapshots = 0;  // of states; 0: what the memory budget leaves, within reason
  std::uint32_t max_sequences = 64;
  Team* team = nullptr;                 // used for packing; null: a temporary one
  WeightsCacheOptions weights_cache{};  // packed weights on disk; none where its directory is empty
  // Where weights, KV cache and step buffers lie; not null.
  std::shared_ptr<MemoryPolicy> memory_policy = system_memory();
  std::function<void(double fraction)> progress{};
  LoadNotes notes{};  // lines for the log, from the thread that loads
};

// Weights, vocabulary and KV memory of one model. Immutable but for the arena's contents.
class LoadedModel {
 public:
  // Throws Stopped soon after options.team was told to stop, bad_alloc where there is no memory beside the weights.
  static Result<std::shared_ptr<LoadedModel>> load(const std::string& path, const LoadOptions& options);

  const Model& model() const { return *model_; }
  const ModelInfo& info() const { return model_->info(); }
  const CacheSpec& cache_spec() const { return model_->cache_spec(); }
  const kernels::KernelTable& kernels() const { return *kernels_; }
  // Null where the file has no vocabulary.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  const std::shared_ptr<KvArena>& arena() const { return arena_; }
  // Of the window group, and of snapshots; null where the model has no such group.
  const std::shared_ptr<KvArena>& window_arena() const { return window_arena_; }
  const std::shared_ptr<SnapshotArena>& snapshots() const { return snapshots_; }
  // Positions after whose multiples a snapshot is worth keeping.
  std::uint32_t snapshot_every() const { return snapshot_every_; }
  // Sequences that may be open at once, each with a recurrent state in the memory budget; 0: the model has none.
  std::uint32_t num_states() const { return num_states_; }
  // Equal ids give equal bits: recipe version, variant, KV type, model hash ("4-avx512vnni-f16-9f3c..."); with states
  // kept as f16 also "-s512", the positions after which they are rounded.
  const std::string& numerics_id() const { return numerics_id_; }
  const std::vector<TokenId>& end_ids() const { return end_ids_; }  // end-of-generation tokens
  const std::shared_ptr<MemoryPolicy>& memory_policy() const { return memory_policy_; }
  // What the allocator gave for the vocabulary and for the part of the weights that lies on the heap, in bytes.
  std::uint64_t vocabulary_bytes() const { return vocabulary_bytes_; }
  std::uint64_t weight_heap_bytes() const { return weight_heap_bytes_; }

 private:
  LoadedModel() = default;
  std::unique_ptr<Model> model_;
  const kernels::KernelTable* kernels_ = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<KvArena> arena_, window_arena_;
  std::shared_ptr<SnapshotArena> snapshots_;
  std::uint32_t snapshot_every_ = 0;
  std::uint32_t num_states_ = 0;
  std::string numerics_id_;
  std::vector<TokenId> end_ids_;
  std::shared_ptr<MemoryPolicy> memory_policy_;
  std::uint64_t vocabulary_bytes_ = 0;
  std::uint64_t weight_heap_bytes_ = 0;
};

// How a sequence begins. `tokens` are all ids known so far: the prompt, and after a resume also what
// was emitted before. The first num_cached of them already lie in the blocks of `block_table`.
struct SequenceSpec {
  SequenceId id = 0;
  std::vector<TokenId> tokens;
  std::uint32_t num_prompt_tokens = 0;  // tokens beyond these count as generated; 0: all of `tokens`
  std::uint32_t num_cached = 0;
  std::vector<BlockId> block_table;  // blocks leased so far, in order
  // A fork: the block with the position num_cached, which the sequence will write to, first becomes a copy of this one
  // (cache::Acquired::copy_from). The full blocks before it are shared.
  BlockId copy_from = kNoBlock;
  // With a window group: its blocks, as many as in block_table, kNoBlock before the window of position num_cached; and
  // what copy_from is for them.
  std::vector<BlockId> window_table{};
  BlockId copy_window_from = kNoBlock;
  // With a state group: the snapshot of the state after num_cached positions. It is read now; unless num_cached is 0
  // there must be one, or the state itself, as Executor::state() gave it.
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
  std::uint32_t num_tokens = 0;  // how many known tokens to compute now, from the first uncomputed one on
  Output output = Output::none;
  std::vector<BlockId> new_blocks{};  // appended to the block table before the step
  // With a window group: as many more of its blocks; and entries before this one are given back: no row of this or a
  // later step sees them.
  std::vector<BlockId> new_window_blocks{};
  std::uint32_t first_window_block = 0;
  // With a state group: once these tokens are computed the state is copied here.
  SnapshotId save = kNoSnapshot;
};

struct StepBatch {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<StepItem> items;  // each sequence at most once
};

enum class Finish : std::uint8_t { running, eos, stop_id, length };

struct ItemResult {
  SequenceId sequence = 0;
  std::vector<SampledToken> tokens;  // what was sampled; an eos or stop id that ends is not among them
  Finish finish = Finish::running;
  std::vector<float> logits;  // only for Output::all_logits: [num_tokens, vocab_size]
};

struct StepResult {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::vector<ItemResult> items;  // in the order of the batch
  double compute_seconds = 0;
  // The part that kernels take: from the first layer to the last draw. What lies between two steps is overhead.
  std::chrono::steady_clock::time_point kernels_began, kernels_ended;
  std::uint64_t kv_bytes_read = 0;    // of K and V by attention; blocks that several sequences share are read once
  std::uint64_t workspace_bytes = 0;  // of the executor's buffers; they only grow
};

// Runs steps over the sequences it has open. A step is atomic: every item advances, or an assertion
// stops the process. Called by one compute thread at a time; allocates nothing in a warm step but
// what results need.
class Executor {
 public:
  // Both must outlive the executor.
  Executor(const LoadedModel& model, Team& team);
  ~Executor();

  const LoadedModel& model() const;
  // The id must be new, the spec within the model's context and vocabulary, and with a state group no more sequences
  // open than LoadedModel::num_states() (asserted: callers check). Throws bad_alloc where there is no memory for a
  // state.
  void open(SequenceSpec spec);
  // Forgets the known tokens from num_tokens (>= 1) on, and all that was computed of them. The last token
  // left is computed again by the next step, because its logits are gone. The block table stays. A recurrent state
  // cannot go back: with one all tokens are computed again.
  void truncate(SequenceId id, std::uint32_t num_tokens);
  // Forgets K and V from position num_computed (<= now) on; the tokens stay known and are computed again. A block that
  // others share must be replaced by an own copy first. With a recurrent state num_computed must be what it is, or 0.
  // With a window group what the next token then sees must still be there: no block given back may be among the window
  // of position num_computed (asserted by the next step). That holds for truncate(), too.
  void rewind(SequenceId id, std::uint32_t num_computed);
  // Replaces entry `index` of the block table by an equal block (the canonical one after a commit).
  void swap_block(SequenceId id, std::uint32_t index, BlockId block);
  void swap_window_block(SequenceId id, std::uint32_t index, BlockId block);
  // Unknown ids are ignored.
  void close(SequenceId id);
  bool is_open(SequenceId id) const;
  std::uint32_t num_known(SequenceId id) const;     // tokens known
  std::uint32_t num_computed(SequenceId id) const;  // tokens whose K and V are in the cache
  std::uint32_t num_prompt_tokens(SequenceId id) const;
  // Valid until the next call that is not const.
  std::span<const TokenId> tokens(SequenceId id) const;  // known
  std::span<const BlockId> block_table(SequenceId id) const;
  std::span<const BlockId> window_table(SequenceId id) const;
  std::span<const float> state(SequenceId id) const;  // of the positions computed; empty without a state group
  // Bytes of the step buffers: activations, scratch space, logits, live states. Grows with the largest step and the
  // most sequences so far and never shrinks; after a step of the most rows and tokens there can be it stays. For the
  // memory ledger, on the compute thread like everything here. O(1).
  std::uint64_t workspace_bytes() const;

  // Computes the batch; more than some hundred rows in several passes over the layers. `result` is overwritten; its
  // vectors are reused.
  void step(const StepBatch& batch, StepResult& result);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::engine
