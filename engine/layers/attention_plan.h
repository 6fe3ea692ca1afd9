// Who multiplies what in the attention of one step.
//
// Work items are of two kinds. A whole item takes some query rows of one sequence over one kv head through all splits
// and writes the answer. Where that would leave threads idle (few rows, a long context), or where several sequences
// have blocks in common, items take rows through a run of splits instead and write partials, which are merged once all
// are there. Which kind, how many splits and whose rows share an item change no bits: partials are those of kernels.h
// either way, merged in ascending order.
#pragma once

#include <cstdint>
#include <span>

#include "engine/compute/team.h"
#include "engine/memory/workspace.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// Where a sequence's rows and blocks lie in a step.
struct SequencePlace {
  std::uint32_t first_row = 0;
  std::uint32_t num_rows = 0;        // tokens; may be 0
  std::uint32_t first_position = 0;  // of the first row
  std::uint32_t num_outputs = 0;     // rows at the end whose hidden state is asked for
  std::uint32_t first_block = 0;     // in the list of the step's blocks
};

// How the layers of a plan attend.
struct AttentionRule {
  float scale = 1.0f;        // of scores
  float soft_cap = 0.0f;     // of scaled scores; 0: none
  std::uint32_t window = 0;  // a row at position p sees p - window + 1 to p; 0: all up to p

  // The first position that a row sees.
  std::uint32_t first_seen(std::uint32_t position) const {
    return window == 0 || position < window ? 0 : position - window + 1;
  }
};

class AttentionPlan {
 public:
  AttentionPlan(const kernels::KernelTable& kernels, const kernels::KvShape& shape, std::uint32_t num_heads,
                const AttentionRule& rule, Team& team, Workspace& workspace);

  // blocks: addresses, each sequence's in order. Equal ones at the same index of two sequences are read once for both.
  // Those that no row sees are not looked at: they may be null. Both spans must stay; what `blocks` holds may change to
  // another layer's parts of the same blocks.
  void make(std::span<const SequencePlace> sequences, std::span<const std::byte* const> blocks);

  // One layer: q and out of row r begin at r * stride; heads side by side.
  void attend(const float* q, float* out, std::size_t stride);

  // Of K and V that attend() calls for so far.
  std::uint64_t kv_bytes_read() const { return kv_bytes_read_; }

 private:
  struct Item {
    std::uint32_t kv_head = 0;
    std::uint32_t first_member = 0;  // of members_, whose rows all take part; none: a whole item
    std::uint32_t num_members = 0;
    std::uint32_t split_begin = 0;
    std::uint32_t split_end = 0;
    std::uint32_t sequence = 0;  // a whole item's, and which of its tokens
    std::uint32_t first_token = 0;
    std::uint32_t num_tokens = 0;
  };
  // A sequence with few rows.
  struct Member {
    std::uint32_t sequence = 0;
    std::uint32_t num_full_splits = 0;  // that all rows see to the end, those before a window among them
    std::uint32_t first_split = 0;      // that a row sees
    std::uint32_t common_before = 0;    // of them, how many are also the previous member's
    std::size_t partials = 0;           // where its partials begin, in floats
  };
  struct Buffers {  // of one thread
    kernels::AttentionRow* rows;
    float* totals;
    float* partials;
    std::byte* kernel;
  };

  std::uint32_t end_position(std::uint32_t sequence) const;
  std::uint32_t first_block(std::uint32_t sequence) const;  // that a row sees, as first_split
  std::uint32_t first_split(std::uint32_t sequence) const { return first_block(sequence) / kernels::kSplitBlocks; }
  // Row `position` in a split: false if it sees nothing there.
  bool place_row(std::uint32_t split, std::uint32_t position, kernels::AttentionRow& row) const;
  kernels::AttentionSplit split_of(std::uint32_t split, std::uint32_t split_end, std::uint32_t kv_head,
                                   const std::byte* const* blocks, std::size_t num_rows, const Buffers& buffers) const;
  std::uint32_t num_splits(std::uint32_t sequence) const;
  std::uint32_t num_blocks(std::uint32_t sequence) const;
  std::uint32_t common_splits(const Member& a, const Member& b) const;
  // What a run of splits costs, in blocks of up to 16 query rows.
  std::size_t cost(std::size_t num_blocks, std::size_t num_rows) const;

  void gather_members();
  void plan_members(std::size_t cost_per_item);
  void plan_common(std::uint32_t begin, std::uint32_t end, std::uint32_t first_split, std::size_t cost_per_item);
  void plan_run(std::uint32_t begin, std::uint32_t end, std::uint32_t split_begin, std::uint32_t split_end,
                std::size_t cost_per_item);
  void plan_whole(std::uint32_t sequence, std::uint32_t tokens_per_item);
  void add(const Item& item);
  void count_bytes();
  void take_buffers();
  Buffers buffers(std::uint32_t thread) const;

  void run_whole(const Item& item, const Buffers& buffers);
  void run_splits(const Item& item, const Buffers& buffers);
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
  std::span<Member> members_;  // the first num_split_members_ are those whose items write partials
  std::uint32_t num_split_members_ = 0;
  std::span<Item> items_;
  std::size_t num_items_ = 0;
  std::size_t products_ = 0;      // multiply-adds of a layer
  std::size_t num_partials_ = 0;  // to merge
  std::size_t bytes_per_layer_ = 0;
  std::span<float> all_partials_;
  std::span<std::byte> all_buffers_;
  std::size_t buffer_bytes_ = 0;
  std::size_t max_rows_ = 0;        // of an item
  std::size_t max_whole_rows_ = 0;  // of a whole item

  const float* q_ = nullptr;
  float* out_ = nullptr;
  std::size_t stride_ = 0;
  std::uint64_t kv_bytes_read_ = 0;
};

}  // namespace troupe::engine
