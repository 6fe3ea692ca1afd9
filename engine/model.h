// What a model family gives the engine: its description, what it keeps per token, and the forward pass.
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

// Matrices of one type and layout that a row is multiplied with, added up.
struct MatrixWork {
  kernels::WeightType type = kernels::WeightType::f32;
  kernels::Layout layout = kernels::Layout::panels;
  bool outputs_only = false;  // by rows alone whose hidden state is asked for: the head, the end of the last layer
  // Where they are experts', a row meets so many of them; both 1 where it meets all.
  std::uint32_t num_experts = 1;
  std::uint32_t num_experts_used = 1;
  std::uint64_t multiply_adds = 0;  // for one row that meets all
  std::uint64_t bytes = 0;          // packed, as a step reads them that meets all
};

// What a model is; all counts are checked against the file when it is loaded.
struct ModelInfo {
  std::string name;          // general.name, else the file's name; Printable, of at most kMaxModelNameBytes
  std::string family;        // "llama", "bitnet"
  std::string weight_types;  // "Q4_K x 135, Q6_K x 21, F32 x 45": most frequent first
  std::uint64_t num_parameters = 0;
  std::uint32_t num_layers = 0;
  std::uint32_t dim = 0;
  std::uint32_t ffn_dim = 0;
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t trained_context = 0;
  std::uint32_t context = 0;           // the longest sequence served, in tokens
  std::uint32_t num_experts = 0;       // of a layer; 0: the model is dense
  std::uint32_t num_experts_used = 0;  // by a token
  std::uint32_t window = 0;            // positions that layers with a window see; 0: there are none
  std::optional<Pooling> pooling{};    // of vectors of texts, where the file asks for one
  float rms_epsilon = 0;
  float rope_base = 0;
  std::vector<MatrixWork> matrices;  // what a step multiplies, for limits.h
};

// What a group of layers keeps in the cache.
struct CacheGroup {
  enum class Kind {
    full,    // K and V of all positions
    window,  // K and V of the last `window` positions
    state,   // recurrent state: as much for any number of positions
  };
  Kind kind = Kind::full;
  std::uint32_t num_layers = 0;
  std::uint32_t window = 0;           // a row at position p sees p - window + 1 to p
  std::uint64_t bytes_per_block = 0;  // full and window: K and V of all layers of the group for kBlockSize positions
  StateShape state{};                 // of all layers of the group
};
// Group 0 is of kind full, with bytes_per_block 0 where no layer sees everything: its blocks then only name positions.
// After it at most one window and at most one state.
struct CacheSpec {
  kernels::KvType kv_type = kernels::KvType::f16;
  StateType state_type = StateType::f32;
  std::uint32_t snapshot_every = 0;  // with StateType::f16: positions after which states are rounded
  std::vector<CacheGroup> groups;

  // Null where there is none.
  const CacheGroup* find(CacheGroup::Kind kind) const;
  // Of K and V of all groups while they grow.
  std::uint64_t bytes_per_token() const;
};

// One sequence's part of a step, as the forward pass sees it.
struct SequenceRows {
  std::span<const TokenId> tokens;       // the tokens to compute, at least one
  std::uint32_t first_position = 0;      // of tokens[0]
  std::span<const BlockId> block_table;  // covers first_position + tokens.size() positions
  // As long, of the window group: kNoBlock before the first block that tokens[0] sees. Empty without such a group.
  std::span<const BlockId> window_table{};
  // The live state, read and written: of the positions before tokens[0], all zero where that is 0. Null without a
  // state group.
  float* state = nullptr;
  std::uint32_t num_outputs = 0;  // hidden rows wanted: the last num_outputs of `tokens`
};

// Where the blocks of a model lie.
struct CacheMemory {
  KvArena& blocks;
  KvArena* window_blocks = nullptr;  // of the window group, if there is one
};

// What a forward pass did, for who watches costs.
struct PassCounts {
  std::uint64_t kv_bytes_read = 0;  // by attention: what several rows read at once counts once
};

// A loaded model: immutable weights; any number of executors may use it.
class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual const CacheSpec& cache_spec() const = 0;
  virtual std::uint64_t weight_bytes() const = 0;  // memory held by packed weights, vectors and tables
  virtual std::uint64_t matrix_bytes() const = 0;  // the part of it that came from a MemoryPolicy
  virtual std::uint64_t content_hash() const = 0;  // of metadata and weights; part of numerics_id

  // Runs all layers over a ragged batch: writes K and V of every token into its block, and leaves
  // the normed hidden rows that were asked for in `hidden` [sum of num_outputs, dim], in batch order.
  // Rows are independent: a row's bits depend only on its own sequence. Called by one compute thread.
  virtual PassCounts forward(Team& team, std::span<const SequenceRows> batch, const CacheMemory& memory,
                             Workspace& workspace, float* hidden) const = 0;

  // logits [num_rows, vocab_size] = head x hidden [num_rows, dim].
  virtual void head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                    float* logits) const = 0;
  // Of each row the largest logit and the lowest id that has it, as head() and Sampler's greedy draw would find them;
  // the logits themselves are not kept.
  virtual void head_greedy(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                           kernels::MaxAt* best) const = 0;
};

// How ternary weights are multiplied, where the kernels have several ways that give the same bits.
enum class Ternary : std::uint8_t {
  automatic,  // the one that is fastest on this machine
  multiply,   // multiply-adds, 2.1 bits per weight
  lookup,     // lookup tables, 1.75 bits per weight
  trits,      // multiply-adds, 1.6 bits per weight
};
[[nodiscard]] std::string_view name(Ternary ternary);
[[nodiscard]] std::optional<Ternary> find_ternary(std::string_view name);  // "auto", "multiply", "lookup", "trits"

struct ModelOptions {
  const kernels::KernelTable* kernels = nullptr;
  Ternary ternary = Ternary::automatic;
  kernels::KvType kv_type = kernels::KvType::f16;
  StateType state_type = StateType::f32;
  std::uint32_t snapshot_every = 512;  // a multiple of kBlockSize
  std::uint32_t context = 0;           // 0: the trained context
  std::uint64_t memory = 0;            // bytes that tables beside the weights may take; 0: any
  Team* team = nullptr;                // packs weights in parallel
  WeightsCacheOptions weights_cache;
  std::shared_ptr<MemoryPolicy> memory_policy = system_memory();  // of matrices
  std::function<void(double fraction)> progress;                  // may be empty
  LoadNotes notes;                                                // may be empty
};

// What a file's metadata alone say of a model: no tensor is read.
struct ModelOutline {
  ModelInfo info;  // without what is counted over tensors: types, parameters, vocabulary, matrices
  CacheSpec cache;
  std::uint64_t table_bytes = 0;  // of tables that grow with the context, beside the weights
};

// A family is one new file and one line in families.cpp.
struct Family {
  std::string_view name;
  bool (*accepts)(const ModelFile& file);
  // Of the options those that say what is kept of a sequence. Errors as load, as far as metadata tell.
  Result<ModelOutline> (*outline)(const ModelFile& file, const ModelOptions& options);
  Result<std::unique_ptr<Model>> (*load)(const ModelFile& file, const ModelOptions& options);
};

// All families, in the order they are asked.
[[nodiscard]] std::span<const Family> families();

}  // namespace troupe::engine
