// Divides the attention of one step into work items for the threads.
//
// Work items are of two kinds. A whole item takes some query rows of one sequence over one kv head through all splits
// and writes the result. If that would leave threads idle (few rows, a long context), or if several sequences share
// blocks, items take rows through a range of splits instead and write partials, which are merged once all are computed.
// The kind of item, the number of splits and the rows that share an item change no bits: partials are always those of
// kernels.h, merged in ascending order.
#pragma once

#include <cstdint>
#include <span>

#include "cache/ids.h"
#include "engine/compute/team.h"
#include "engine/layers/rope_table.h"
#include "engine/memory/workspace.h"
#include "kernels/kernels.h"

namespace troupe::engine {

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// The place of a sequence's rows and blocks in the lists of a step.
struct SequencePlace {
  std::uint32_t first_row = 0;
  std::uint32_t num_rows = 0;        // tokens; may be 0
  std::uint32_t first_position = 0;  // of the first row
  std::uint32_t num_outputs = 0;     // output rows: the last ones
  std::uint32_t first_block = 0;     // in the list of the step's blocks
};

// The attention parameters of the layers of a plan.
struct AttentionRule {
  float scale = 1.0f;        // of scores
  float soft_cap = 0.0f;     // of scaled scores; 0: none
  std::uint32_t window = 0;  // a row at position p attends to p - window + 1 to p; 0: all up to p
  std::uint32_t plan = 0;    // among the plans of a step, each with its own buffers
  bool key_biases = false;   // whether a layer has KvBiases::keys

  // The first position that a row at `position` attends to.
  std::uint32_t first_seen(std::uint32_t position) const {
    return window == 0 || position < window ? 0 : position - window + 1;
  }
};

// Biases of one layer's K and V that its blocks do not hold: an int8 code has 1/254 of the largest value of a head as
// its error, so that a large bias would cost the digits of all else.
//
// V's bias is added to the result, as the weights of a row add up to 1. K's is rotated with K, so its products with a
// query depend on the position. They are made block by block: the query is turned back by the block's first position
// and multiplied with the bias rotated by 0 to 31, which is the same for all blocks.
struct KvBiases {
  const float* keys = nullptr;       // [kv heads][head_dim][kBlockPositions]; null: none
  const RopeTable* turns = nullptr;  // row b turns back by b blocks
  const float* values = nullptr;     // [kv heads * head_dim]; null: none
};

// The buffers of one thread, in one piece of memory: for work items of at most `max_rows` query rows, of which at most
// `max_totals` have their partials merged at once.
struct AttentionBuffers {
  AttentionBuffers(std::byte* memory, std::size_t max_rows, std::size_t max_totals, std::uint32_t head_dim,
                   bool key_biases = false);
  static std::size_t bytes(std::size_t max_rows, std::size_t max_totals, std::uint32_t head_dim,
                           bool key_biases = false);

  kernels::AttentionRow* rows;  // [max_rows]
  float* totals;                // [max_totals] partials
  float* partials;              // the same
  float* offsets;               // with key_biases: [max_rows][kSplitPositions]
  std::byte* kernel;
  float* turned;  // with key_biases: one query row for each block of a split
};

class AttentionPlan {
 public:
  AttentionPlan(const kernels::KernelTable& kernels, const kernels::KvShape& shape, std::uint32_t num_heads,
                const AttentionRule& rule, Team& team, Workspace& workspace);

  // blocks: the addresses of each sequence's blocks, in order. Equal addresses at the same index of two sequences are
  // read once for both. Blocks that no row attends to may be null. Both spans must stay valid; the addresses may change
  // to another layer's parts of the same blocks.
  void make(std::span<const SequencePlace> sequences, std::span<const std::byte* const> blocks);

  // Computes one layer: q and out of row r begin at r * stride, heads side by side.
  // sinks: a scaled score of each head that takes its share of the softmax and has no value; empty: none.
  void attend(const float* q, float* out, std::size_t stride, const KvBiases& biases,
              std::span<const float> sinks = {});

  // Bytes of K and V read by all attend() calls so far.
  std::uint64_t kv_bytes_read() const { return kv_bytes_read_; }

 private:
  struct Item {
    std::uint32_t kv_head = 0;
    std::uint32_t first_member = 0;  // range of members_ with rows in this item; empty: a whole item
    std::uint32_t num_members = 0;
    std::uint32_t split_begin = 0;
    std::uint32_t split_end = 0;
    std::uint32_t sequence = 0;  // for a whole item: its sequence and tokens
    std::uint32_t first_token = 0;
    std::uint32_t num_tokens = 0;
  };
  // A sequence with at most kMaxMemberTokens rows.
  struct Member {
    std::uint32_t sequence = 0;
    std::uint32_t num_full_splits = 0;  // splits that all rows see to the end, including those before a window
    std::uint32_t first_split = 0;      // the first that a row sees
    std::uint32_t common_before = 0;    // leading splits shared with the previous member
    std::size_t partials = 0;           // offset of its partials, in floats
  };

  std::uint32_t end_position(std::uint32_t sequence) const {
    return sequences_[sequence].first_position + sequences_[sequence].num_rows;
  }
  // The first that a row sees.
  std::uint32_t first_block(std::uint32_t sequence) const {
    return rule_.first_seen(sequences_[sequence].first_position) / kBlockSize;
  }
  std::uint32_t first_split(std::uint32_t sequence) const { return first_block(sequence) / kernels::kSplitBlocks; }
  // Sets the range of a split that the row at `position` sees; false if it sees nothing there.
  bool set_seen(std::uint32_t split, std::uint32_t position, kernels::AttentionRow& row) const;
  // Computes the partials of `num_rows` rows for one split of an item; `blocks` are those of its sequences.
  void attend_split(const Item& item, std::uint32_t split, const std::byte* const* blocks, std::size_t num_rows,
                    const AttentionBuffers& buffers) const;
  // Sets the offsets of an item's rows for one split: their products with K's bias.
  void set_offsets(const Item& item, std::uint32_t split, std::size_t num_rows, const AttentionBuffers& buffers) const;
  // Writes the result of one row and head: V's bias counts as much as V, which is less than 1 where there are sinks.
  void finish(float* total, std::uint32_t row, std::uint32_t head) const;
  std::uint32_t num_splits(std::uint32_t sequence) const {
    return static_cast<std::uint32_t>(divide_up(end_position(sequence), kernels::kSplitPositions));
  }
  std::uint32_t num_blocks(std::uint32_t sequence) const { return blocks_for(end_position(sequence)); }
  std::uint32_t common_splits(const Member& a, const Member& b) const;
  // The cost of some blocks: each counts 1, plus 1 for every 16 query rows or part of them.
  static std::size_t cost(std::size_t num_blocks, std::size_t num_rows) {
    return num_blocks * (1 + divide_up(num_rows, 16));
  }

  void gather_members();
  void plan_members(std::size_t cost_per_item);
  void plan_common(std::uint32_t begin, std::uint32_t end, std::uint32_t first_split, std::size_t cost_per_item);
  void plan_splits(std::uint32_t begin, std::uint32_t end, std::uint32_t split_begin, std::uint32_t split_end,
                   std::size_t cost_per_item);
  void plan_whole(std::uint32_t sequence, std::uint32_t tokens_per_item);
  void add(const Item& item);
  void count_bytes();
  void take_buffers();

  void run_whole(const Item& item, const AttentionBuffers& buffers);
  void run_splits(const Item& item, const AttentionBuffers& buffers);
  void merge(const Member& member, std::uint32_t kv_head);
  float* partial(const Member& member, std::uint32_t kv_head, std::uint32_t split, std::uint32_t row) const;
  const float* q_of(std::uint32_t row, std::uint32_t head) const { return q_ + row * stride_ + head * shape_.head_dim; }
  float* out_of(std::uint32_t row, std::uint32_t head) const { return out_ + row * stride_ + head * shape_.head_dim; }

  const kernels::KernelTable& kernels_;
  const kernels::KvShape shape_;
  const AttentionRule rule_;
  const std::uint32_t group_;  // query heads that share a kv head
  const std::size_t partial_floats_;
  Team& team_;
  Workspace& workspace_;

  std::span<const SequencePlace> sequences_;
  std::span<const std::byte* const> blocks_;
  std::span<Member> members_;  // the first num_split_members_ have items that write partials
  std::uint32_t num_split_members_ = 0;
  std::span<Item> items_;
  std::size_t num_items_ = 0;
  std::size_t products_ = 0;      // multiply-adds of a layer
  std::size_t num_partials_ = 0;  // to merge
  std::size_t bytes_per_layer_ = 0;
  std::span<float> all_partials_;
  std::span<std::byte> all_buffers_;
  std::size_t buffer_bytes_ = 0;
  std::size_t max_rows_ = 0;        // per item
  std::size_t max_whole_rows_ = 0;  // per whole item

  KvBiases biases_;
  std::span<const float> sinks_;
  const float* q_ = nullptr;
  float* out_ = nullptr;
  std::size_t stride_ = 0;
  std::uint64_t kv_bytes_read_ = 0;
};

}  // namespace troupe::engine
