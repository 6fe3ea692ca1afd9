// The interface of a model family: its description, its cache layout, and the forward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/formats/model_file.h"
#include "engine/layers/pooling.h"
#include "engine/memory/memory_policy.h"
#include "engine/model/snapshots.h"
#include "engine/weights/weights_cache.h"
#include "kernels/kernels.h"

namespace troupe::engine {

class Team;
class KvArena;
class Workspace;
class WeightVisitor;

// The sum over all weight matrices of one type and layout that a step multiplies with.
struct MatrixWork {
  kernels::WeightType type = kernels::WeightType::f32;
  kernels::Layout layout = kernels::Layout::panels;
  bool outputs_only = false;  // multiplied with output rows only: the head, the end of the last layer
  // For matrices of experts: each row uses num_experts_used of num_experts. Both 1 for other matrices.
  std::uint32_t num_experts = 1;
  std::uint32_t num_experts_used = 1;
  std::uint64_t multiply_adds = 0;  // of one row with all of these matrices
  std::uint64_t bytes = 0;          // packed size of all of these matrices
};

// The description of a model; all counts are checked against the file when it is loaded.
struct ModelInfo {
  std::string name;          // general.name, else the file's name; Printable, of at most kMaxModelNameBytes
  std::string family;        // "llama", "bitnet"
  std::string weight_types;  // "Q4_K x 135, Q6_K x 21, F32 x 45": most frequent first
  std::uint64_t num_parameters = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t dim = 0;
  // Of the layer with the most; docs/models.md says in which models layers differ.
  std::uint32_t ffn_dim = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t trained_context = 0;
  std::uint32_t context = 0;           // the longest sequence served, in tokens
  std::uint32_t num_experts = 0;       // per layer; 0: the model is dense
  std::uint32_t num_experts_used = 0;  // per token
  std::uint32_t window = 0;            // positions that sliding-window layers attend to; 0: there are no such layers
  std::optional<Pooling> pooling{};    // for embeddings, if the file names one
  float rms_epsilon = 0;
  float rope_base = 0;
  std::vector<MatrixWork> matrices;  // matrices that a step multiplies with, for limits.h
};

// The cache layout of a cache group (cache/group.h).
struct CacheGroup {
  std::vector<kernels::KvShape> layers{};  // that store K and V, in the order of a block's parts
  std::uint32_t window = 0;                // a row at position p attends to p - window + 1 to p; 0: to all up to p
  std::uint64_t bytes_per_block = 0;       // K and V of all layers of the group for kBlockSize positions
};
// Group 0 has no window; if no layer attends to all positions its bytes_per_block is 0 and its blocks only count
// positions. At most cache::kMaxGroups groups.
struct CacheSpec {
  kernels::KvType kv_type = kernels::KvType::f16;
  StateType state_type = StateType::f32;
  std::uint32_t snapshot_every = 0;  // with StateType::f16: positions after which states are rounded
  std::vector<CacheGroup> groups;    // by GroupId
  StateShape state{};                // of all recurrent layers, of the same size for any number of positions

  bool has_state() const { return state.num_floats() != 0; }
  // K and V of one more token in all groups; one with a window counts in full.
  std::uint64_t bytes_per_token() const {
    std::uint64_t bytes = 0;
    for (const CacheGroup& group : groups) bytes += group.bytes_per_block / kBlockSize;
    return bytes;
  }
};

// One sequence's part of a step: the input of the forward pass.
struct SequenceRows {
  std::span<const TokenId> tokens;   // the tokens to compute, at least one
  std::uint32_t first_position = 0;  // of tokens[0]
  // By group, each for first_position + tokens.size() positions; kNoBlock before the first block in the group's window
  // of tokens[0].
  std::span<const BlockTable> tables;
  // The live state, read and written: the state after all positions before tokens[0]; all zero at position 0. Null
  // without recurrent layers.
  float* state = nullptr;
  // If not null: the state after the first kept_after (>= 1) of `tokens` is copied to it, of the same layout as
  // `state`.
  float* kept_state = nullptr;
  std::uint32_t kept_after = 0;
  std::uint32_t num_outputs = 0;  // output rows: the hidden states of the last num_outputs of `tokens` are returned
};

// The memory of a model's blocks, by group.
using KvArenas = std::vector<std::shared_ptr<KvArena>>;

// Counters of a forward pass.
struct PassCounts {
  std::uint64_t kv_bytes_read = 0;  // by attention; K and V read at once for several rows count once
};

// A loaded model: immutable weights; any number of executors may use it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const CacheSpec& cache_spec() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;  // memory held by packed weights, vectors and tables
  virtual std::uint64_t matrix_bytes() const = 0;  // the part of weight_bytes() allocated by a MemoryPolicy
  virtual std::uint64_t content_hash() const = 0;  // of metadata and weights; part of numerics_id

  // Runs all layers over a ragged batch: writes K and V of every token into its block, and the normed hidden states of
  // the output rows to `hidden` [sum of num_outputs, dim], in batch order. Rows are independent: a row's bits depend
  // only on its own sequence. Called by one compute thread.
  virtual PassCounts forward(Team& team, std::span<const SequenceRows> batch, const KvArenas& arenas,
                             Workspace& workspace, float* hidden) const = 0;

  // logits [num_rows, vocab_size] = head x hidden [num_rows, dim].
  virtual void head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                    float* logits) const = 0;
  // Passes every matrix and vector that a pass computes with, and tables made of them, to the visitor: what
  // WeightChecks watches. A model that has no such function has nothing watched.
  virtual void visit_weights(WeightVisitor& /*visitor*/) const {}

  // For each row the largest logit and the lowest id with that logit, equal to the result of head() and Sampler's
  // greedy draw; the logits themselves are not kept.
  virtual void head_greedy(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                           kernels::MaxAt* best) const = 0;
};

// How ternary weights are multiplied; all ways give the same bits.
enum class Ternary : std::uint8_t {
  automatic,  // the fastest on this machine
  multiply,   // multiply-adds, 2.1 bits per weight
  lookup,     // lookup tables, 1.75 bits per weight
  trits,      // multiply-adds, 1.6 bits per weight
};
[[nodiscard]] std::string_view name(Ternary ternary);
[[nodiscard]] std::optional<Ternary> find_ternary(std::string_view name);  // "auto", "multiply", "lookup", "trits"

// How a model is loaded, and what for.
// What the kernel variant is chosen for where none is named (engine/model/kernel_choice.h).
enum class Optimize : std::uint8_t { automatic, latency, throughput, measure };
[[nodiscard]] std::optional<Optimize> find_optimize(std::string_view name);  // "auto", "latency", ...

struct LoadOptions {
  std::string kernels{};  // a variant's name; empty: TROUPE_KERNELS, else by `optimize`
  Optimize optimize = Optimize::automatic;
  std::optional<Ternary> ternary{};  // none: TROUPE_TERNARY, else the fastest one
  kernels::KvType kv_type = kernels::KvType::f16;
  StateType state_type = StateType::f32;
  std::uint32_t snapshot_every = 512;  // positions between snapshots of a recurrent state, a multiple of kBlockSize
  std::uint32_t context = 0;           // longest sequence; 0: the trained context
  // Bytes for weights and cache together (memory_budget.h); 0: 60 % of what is available. For a family: for tables
  // beside the weights; 0: any number.
  std::uint64_t memory = 0;
  std::uint32_t num_blocks = 0;     // KV blocks; 0: as the memory budget allows, at most max_sequences full contexts
  std::uint32_t num_snapshots = 0;  // of states; 0: chosen from the memory budget (memory_budget.h)
  std::uint32_t max_sequences = 64;
  Team* team = nullptr;                 // used for packing; null: a temporary one
  WeightsCacheOptions weights_cache{};  // packed weights on disk; none if its directory is empty
  // Allocates weights, KV cache and step buffers; not null.
  std::shared_ptr<MemoryPolicy> memory_policy = system_memory();
  std::function<void(double fraction)> progress{};
  LoadNotes notes{};  // lines for the log, from the thread that loads
  // Only finds out whether all tensors are there, in their shapes, and in layers no others: no matrix is read.
  bool names_only = false;
};

// The variant that options.kernels names, which is there (asserted); open_model() writes down the one that it chooses.
[[nodiscard]] const kernels::KernelTable& kernels_of(const LoadOptions& options);

// The description of a model from its file's metadata only; no tensor is read.
struct ModelOutline {
  ModelInfo info;  // without the fields counted over tensors: types, parameters, vocabulary, matrices
  CacheSpec cache;
  std::uint64_t table_bytes = 0;  // tables that grow with the context (RoPE), beside the weights
};

// One model architecture; engine/families/families.cpp lists them.
struct Family {
  std::string_view name;
  bool (*accepts)(const ModelFile& file);
  // Uses only the options that affect the cache. Errors: those of load that metadata can show.
  Result<ModelOutline> (*outline)(const ModelFile& file, const LoadOptions& options);
  Result<std::unique_ptr<Model>> (*load)(const ModelFile& file, const LoadOptions& options);
  // The errors of load that the directory of tensors can show; reads vectors, and no matrix.
  Status (*check)(const ModelFile& file, const LoadOptions& options);
};

// All families, in the order in which accepts() is called.
[[nodiscard]] std::span<const Family> families();
// The first family that accepts the file. Error: bad_model without an architecture, or unsupported (with the supported
// families).
[[nodiscard]] Result<const Family*> find_family(const ModelFile& file);
// Loads with that family. Error: as find_family, or from the family's load.
[[nodiscard]] Result<std::unique_ptr<Model>> load_model(const ModelFile& file, const LoadOptions& options);

}  // namespace troupe::engine
