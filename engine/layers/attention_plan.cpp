#include "engine/layers/attention_plan.h"

#include <algorithm>

#include "cache/ids.h"
#include "config/assert.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;
using kernels::kSplitBlocks;
using kernels::kSplitPositions;

// Sequences with at most this many rows in a step may be split over several items: more rows amortise reading K and V,
// and their partials would take too much memory.
constexpr std::uint32_t kMaxMemberTokens = 8;
// Query rows of a whole item: each block is expanded once for all of them.
constexpr std::uint32_t kWholeRows = 128;
constexpr std::uint32_t kMinWholeRows = 32;
constexpr std::size_t kChunksPerThread = 8;
// Below this many multiply-adds, or merges, waking another thread does not pay.
constexpr std::size_t kMinProducts = 64 * 1024;
constexpr std::size_t kMinMerges = 128;

// The rows come first, in whole cache lines.
std::size_t row_bytes(std::size_t max_rows) { return divide_up(max_rows * sizeof(kernels::AttentionRow), 64) * 64; }

}  // namespace

std::size_t AttentionBuffers::bytes(std::size_t max_rows, std::size_t max_totals, std::uint32_t head_dim,
                                    bool key_biases) {
  const std::size_t partials = 2 * max_totals * kernels::partial_floats(head_dim);
  const std::size_t offsets = key_biases ? max_rows * kSplitPositions + kSplitBlocks * head_dim : 0;
  return row_bytes(max_rows) + (partials + offsets) * sizeof(float) + kernels::attention_scratch_bytes(head_dim);
}

AttentionBuffers::AttentionBuffers(std::byte* memory, std::size_t max_rows, std::size_t max_totals,
                                   std::uint32_t head_dim, bool key_biases)
    : rows(reinterpret_cast<kernels::AttentionRow*>(memory)),
      totals(reinterpret_cast<float*>(memory + row_bytes(max_rows))),
      partials(totals + max_totals * kernels::partial_floats(head_dim)),
      offsets(partials + max_totals * kernels::partial_floats(head_dim)),
      kernel(reinterpret_cast<std::byte*>(offsets + (key_biases ? max_rows * kSplitPositions : 0))),
      turned(reinterpret_cast<float*>(kernel + kernels::attention_scratch_bytes(head_dim))) {}

AttentionPlan::AttentionPlan(const kernels::KernelTable& kernels, const kernels::KvShape& shape,
                             std::uint32_t num_heads, const AttentionRule& rule, Team& team, Workspace& workspace)
    : kernels_(kernels),
      shape_(shape),
      rule_(rule),
      group_(num_heads / shape.num_kv_heads),
      partial_floats_(kernels::partial_floats(shape.head_dim)),
      team_(team),
      workspace_(workspace) {
  static_assert(kernels::kBlockPositions == kBlockSize);
}

void AttentionPlan::make(std::span<const SequencePlace> sequences, std::span<const std::byte* const> blocks) {
  sequences_ = sequences;
  blocks_ = blocks;
  num_items_ = 0;
  products_ = 0;
  num_partials_ = 0;
  max_rows_ = 0;
  max_whole_rows_ = 0;
  gather_members();
  std::size_t total = 0;
  std::size_t whole_rows = 0;
  std::size_t max_items = 0;
  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequencePlace& sequence = sequences_[i];
    if (sequence.num_rows == 0) continue;
    total += cost(num_blocks(i) - first_block(i), std::size_t{sequence.num_rows} * group_);
    products_ += std::size_t{sequence.num_rows} * (end_position(i) - rule_.first_seen(sequence.first_position)) * 2 *
                 shape_.head_dim * group_ * shape_.num_kv_heads;
    if (sequence.num_rows > kMaxMemberTokens) whole_rows += std::size_t{sequence.num_rows} * group_;
    max_items += sequence.num_rows <= kMaxMemberTokens ? num_splits(i) - first_split(i) : sequence.num_rows;
  }
  items_ = workspace_.take<Item>(Slot::attention_items, max_items * shape_.num_kv_heads, rule_.plan);
  const std::size_t num_threads = team_.num_threads();
  plan_members(divide_up(total * shape_.num_kv_heads, num_threads * kChunksPerThread));

  std::uint32_t rows = kWholeRows;
  while (rows > kMinWholeRows && whole_rows * shape_.num_kv_heads < rows * num_threads * kChunksPerThread) rows /= 2;
  for (std::uint32_t i = 0; i < sequences_.size(); ++i)
    if (sequences_[i].num_rows > kMaxMemberTokens) plan_whole(i, std::max(1u, rows / group_));
  count_bytes();
  take_buffers();
}

// Lists the sequences with few rows, sorted so that those that share blocks are neighbours.
void AttentionPlan::gather_members() {
  members_ = workspace_.take<Member>(Slot::attention_members, sequences_.size(), rule_.plan);
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < sequences_.size(); ++i) {
    const SequencePlace& sequence = sequences_[i];
    if (sequence.num_rows == 0 || sequence.num_rows > kMaxMemberTokens) continue;
    members_[count++] = {.sequence = i,
                         .num_full_splits = (sequence.first_position + 1) / kSplitPositions,
                         .first_split = first_split(i)};
  }
  members_ = members_.first(count);
  const auto full_blocks = [&](const Member& member) {
    return blocks_.subspan(sequences_[member.sequence].first_block, std::size_t{member.num_full_splits} * kSplitBlocks);
  };
  std::sort(members_.begin(), members_.end(), [&](const Member& a, const Member& b) {
    const auto x = full_blocks(a), y = full_blocks(b);
    const auto [at, other] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (at == x.end() || other == y.end()) {
      return x.size() != y.size() ? x.size() < y.size() : a.sequence < b.sequence;
    }
    return std::less<>()(*at, *other);
  });
  for (std::size_t i = 1; i < count; ++i) members_[i].common_before = common_splits(members_[i - 1], members_[i]);
}

std::uint32_t AttentionPlan::common_splits(const Member& a, const Member& b) const {
  const std::uint32_t most = std::min(a.num_full_splits, b.num_full_splits) * kSplitBlocks;
  const auto* x = blocks_.data() + sequences_[a.sequence].first_block;
  const auto* y = blocks_.data() + sequences_[b.sequence].first_block;
  const auto common = static_cast<std::uint32_t>(std::mismatch(x, x + most, y).first - x) / kSplitBlocks;
  // Shared splits before both windows do not count.
  return common > std::max(a.first_split, b.first_split) ? common : 0;
}

// Members that share blocks, and members long enough to keep one thread busy while others wait, write partials.
void AttentionPlan::plan_members(std::size_t cost_per_item) {
  const auto has_company = [&](std::size_t i) {
    return members_[i].common_before > 0 || (i + 1 < members_.size() && members_[i + 1].common_before > 0);
  };
  const auto is_long = [&](const Member& member) {
    const std::size_t rows = std::size_t{sequences_[member.sequence].num_rows} * group_;
    return team_.num_threads() > 1 && num_splits(member.sequence) > member.first_split + 1 &&
           cost(num_blocks(member.sequence) - first_block(member.sequence), rows) > cost_per_item;
  };
  // Removes the other members; sharing members stay neighbours.
  std::uint32_t kept = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Member member = members_[i];
    if (has_company(i) || is_long(member)) {
      members_[kept++] = member;
    } else {
      plan_whole(member.sequence, kMaxMemberTokens);
    }
  }
  num_split_members_ = kept;
  std::size_t floats = 0;
  for (Member& member : members_.first(kept)) {
    const std::size_t rows = std::size_t{sequences_[member.sequence].num_rows} * group_ * shape_.num_kv_heads;
    member.partials = floats;
    const std::uint32_t splits = num_splits(member.sequence) - member.first_split;
    floats += rows * splits * partial_floats_;
    num_partials_ += rows * splits;
  }
  all_partials_ = workspace_.take<float>(Slot::attention_partials, floats, rule_.plan);
  for (std::uint32_t begin = 0; begin < kept;) {
    std::uint32_t end = begin + 1;
    while (end < kept && members_[end].common_before > 0) ++end;
    plan_common(begin, end, 0, cost_per_item);
    begin = end;
  }
}

// Plans the splits from first_split on of members [begin, end), which share all splits before it.
void AttentionPlan::plan_common(std::uint32_t begin, std::uint32_t end, std::uint32_t first_split,
                                std::size_t cost_per_item) {
  std::uint32_t common = end - begin == 1 ? num_splits(members_[begin].sequence) : members_[begin + 1].common_before;
  for (std::uint32_t i = begin + 1; i < end; ++i) common = std::min(common, members_[i].common_before);
  plan_splits(begin, end, first_split, common, cost_per_item);
  if (end - begin == 1) return;
  for (std::uint32_t i = begin; i < end;) {
    std::uint32_t next = i + 1;
    while (next < end && members_[next].common_before > common) ++next;
    plan_common(i, next, common, cost_per_item);
    i = next;
  }
}

void AttentionPlan::plan_splits(std::uint32_t begin, std::uint32_t end, std::uint32_t split_begin,
                                std::uint32_t split_end, std::size_t cost_per_item) {
  std::size_t rows = 0;
  std::uint32_t first_seen = split_end;
  for (std::uint32_t i = begin; i < end; ++i) {
    rows += std::size_t{sequences_[members_[i].sequence].num_rows} * group_;
    first_seen = std::min(first_seen, members_[i].first_split);
  }
  split_begin = std::max(split_begin, first_seen);
  const auto splits_per_item =
      static_cast<std::uint32_t>(std::max<std::size_t>(1, cost_per_item / cost(kSplitBlocks, rows)));
  max_rows_ = std::max(max_rows_, rows);
  for (std::uint32_t split = split_begin; split < split_end; split += splits_per_item)
    for (std::uint32_t head = 0; head < shape_.num_kv_heads; ++head)
      add({.kv_head = head,
           .first_member = begin,
           .num_members = end - begin,
           .split_begin = split,
           .split_end = std::min(split + splits_per_item, split_end)});
}

// Last tokens first: they attend to most positions, and the chunks handed out last should be short.
void AttentionPlan::plan_whole(std::uint32_t sequence, std::uint32_t tokens_per_item) {
  const std::uint32_t num_rows = sequences_[sequence].num_rows;
  for (std::size_t i = divide_up(num_rows, tokens_per_item); i-- > 0;) {
    const auto first = static_cast<std::uint32_t>(i * tokens_per_item);
    const std::uint32_t count = std::min(tokens_per_item, num_rows - first);
    max_whole_rows_ = std::max<std::size_t>(max_whole_rows_, std::size_t{count} * group_);
    for (std::uint32_t head = 0; head < shape_.num_kv_heads; ++head)
      add({.kv_head = head,
           .split_begin = rule_.first_seen(sequences_[sequence].first_position + first) / kSplitPositions,
           .split_end = (sequences_[sequence].first_position + first + count + kSplitPositions - 1) / kSplitPositions,
           .sequence = sequence,
           .first_token = first,
           .num_tokens = count});
  }
}

void AttentionPlan::add(const Item& item) {
  TROUPE_ASSERT(num_items_ < items_.size());
  items_[num_items_++] = item;
}

void AttentionPlan::count_bytes() {
  std::size_t blocks = 0;
  for (const Item& item : items_.first(num_items_)) {
    std::uint32_t begin, end;
    if (item.num_members == 0) {
      const std::uint32_t position = sequences_[item.sequence].first_position + item.first_token;
      begin = rule_.first_seen(position) / kBlockSize;
      end = position + item.num_tokens;
    } else {
      begin = item.split_end * kSplitBlocks;
      for (const Member& member : members_.subspan(item.first_member, item.num_members))
        begin = std::min(begin, first_block(member.sequence));
      begin = std::max(begin, item.split_begin * kSplitBlocks);
      end = std::min(end_position(members_[item.first_member].sequence), item.split_end * kSplitPositions);
    }
    blocks += blocks_for(end) - begin;
  }
  bytes_per_layer_ = blocks * 2 * shape_.head_bytes();
}

void AttentionPlan::take_buffers() {
  max_rows_ = std::max(max_rows_, max_whole_rows_);
  const std::size_t bytes = AttentionBuffers::bytes(max_rows_, max_whole_rows_, shape_.head_dim, rule_.key_biases);
  buffer_bytes_ = divide_up(bytes, 64) * 64;
  all_buffers_ = workspace_.take<std::byte>(Slot::attention_buffers, team_.num_threads() * buffer_bytes_, rule_.plan);
}

void AttentionPlan::attend(const float* q, float* out, std::size_t stride, const KvBiases& biases,
                           std::span<const float> sinks) {
  sinks_ = sinks;
  TROUPE_ASSERT(!biases.keys || rule_.key_biases);
  biases_ = biases;
  q_ = q;
  out_ = out;
  stride_ = stride;
  kv_bytes_read_ += bytes_per_layer_;
  const std::size_t max_chunks = team_.num_threads() * kChunksPerThread;
  const std::size_t num_chunks = std::min({num_items_, max_chunks, divide_up(products_, kMinProducts)});
  // Item i goes to chunk i % num_chunks, so that each chunk has long and short items.
  team_.parallel_for(num_chunks, [&](std::size_t chunk, std::uint32_t thread) {
    const AttentionBuffers buffers(all_buffers_.data() + thread * buffer_bytes_, max_rows_, max_whole_rows_,
                                   shape_.head_dim, rule_.key_biases);
    for (std::size_t i = chunk; i < num_items_; i += num_chunks) {
      if (items_[i].num_members == 0)
        run_whole(items_[i], buffers);
      else
        run_splits(items_[i], buffers);
    }
  });
  if (num_split_members_ == 0) return;
  const std::size_t num_merges = std::size_t{num_split_members_} * shape_.num_kv_heads;
  const std::size_t merge_chunks = std::min({num_merges, max_chunks, divide_up(num_partials_, kMinMerges)});
  team_.parallel_for(merge_chunks, [&](std::size_t chunk, std::uint32_t) {
    for (std::size_t i = chunk; i < num_merges; i += merge_chunks)
      merge(members_[i / shape_.num_kv_heads], static_cast<std::uint32_t>(i % shape_.num_kv_heads));
  });
}

bool AttentionPlan::set_seen(std::uint32_t split, std::uint32_t position, kernels::AttentionRow& row) const {
  const std::uint32_t begin = split * kSplitPositions;
  const std::uint32_t first = std::max(rule_.first_seen(position), begin) - begin;
  if (position < begin || first >= kSplitPositions) return false;
  row.num_seen = std::min(position + 1 - begin, kSplitPositions);
  row.first_seen = first;
  return true;
}

void AttentionPlan::attend_split(const Item& item, std::uint32_t split, const std::byte* const* blocks,
                                 std::size_t num_rows, const AttentionBuffers& buffers) const {
  if (biases_.keys) set_offsets(item, split, num_rows, buffers);
  kernels_.attend_split({.shape = shape_,
                         .kv_head = item.kv_head,
                         .blocks = blocks + split * kSplitBlocks,
                         .next_block = split + 1 < item.split_end ? blocks[(split + 1) * kSplitBlocks] : nullptr,
                         .rows = {buffers.rows, num_rows},
                         .scale = rule_.scale,
                         .soft_cap = rule_.soft_cap,
                         .scratch = buffers.kernel});
}

void AttentionPlan::set_offsets(const Item& item, std::uint32_t split, std::size_t num_rows,
                                const AttentionBuffers& buffers) const {
  const std::size_t head_dim = shape_.head_dim;
  const float* const keys = biases_.keys + item.kv_head * head_dim * kernels::kBlockPositions;
  const RopeTable& turns = *biases_.turns;
  for (std::size_t i = 0; i < num_rows; ++i) {
    kernels::AttentionRow& row = buffers.rows[i];
    const std::uint32_t begin = row.first_seen / kernels::kBlockPositions, end = blocks_for(row.num_seen);
    for (std::uint32_t block = begin; block < end; ++block) {
      float* const turned = buffers.turned + (block - begin) * head_dim;
      std::copy_n(row.q, head_dim, turned);
      const std::uint32_t turn = split * kSplitBlocks + block;
      kernels_.rope(turned, turns.cos(turn), turns.sin(turn), turns.rotated());
    }
    float* const offsets = buffers.offsets + i * kSplitPositions;
    kernels_.score_offsets(buffers.turned, keys, head_dim, end - begin, offsets + begin * kernels::kBlockPositions);
    row.offsets = offsets;
  }
}

void AttentionPlan::finish(float* total, std::uint32_t row, std::uint32_t head) const {
  float* const out = out_of(row, head);
  float kept = 1;  // the part of the softmax that has values
  if (!sinks_.empty()) {
    float of_sink = 0;
    const float of_values = total[1];
    total[1] += kernels_.exp_tile(&sinks_[head], total[0], 1.0f, &of_sink, 1);
    kept = of_values / total[1];
  }
  kernels_.finish_attention(total, shape_.head_dim, out);
  if (!biases_.values) return;
  const float* const bias = biases_.values + head / group_ * shape_.head_dim;
  if (sinks_.empty()) return kernels_.add(out, bias, shape_.head_dim);
  for (std::uint32_t i = 0; i < shape_.head_dim; ++i) out[i] += kept * bias[i];
}

// Tokens that see nothing of a split are the first ones (the split begins after them) or the last ones (it lies before
// their window), so the others are contiguous.
void AttentionPlan::run_whole(const Item& item, const AttentionBuffers& buffers) {
  const SequencePlace& sequence = sequences_[item.sequence];
  for (std::uint32_t split = item.split_begin; split < item.split_end; ++split) {
    std::size_t count = 0, first_row = 0;
    for (std::uint32_t t = 0; t < item.num_tokens; ++t) {
      const std::uint32_t token = item.first_token + t, position = sequence.first_position + token;
      kernels::AttentionRow row;
      if (!set_seen(split, position, row)) continue;
      if (count == 0) first_row = std::size_t{t} * group_;
      // A row's first partial is written directly to its total.
      float* const into = split == rule_.first_seen(position) / kSplitPositions ? buffers.totals : buffers.partials;
      for (std::uint32_t g = 0; g < group_; ++g, ++count) {
        row.q = q_of(sequence.first_row + token, item.kv_head * group_ + g);
        row.partial = into + (std::size_t{t} * group_ + g) * partial_floats_;
        buffers.rows[count] = row;
      }
    }
    attend_split(item, split, blocks_.data() + sequence.first_block, count, buffers);
    for (std::size_t i = 0; i < count; ++i) {
      float* const total = buffers.totals + (first_row + i) * partial_floats_;
      if (buffers.rows[i].partial != total) kernels_.merge_partial(buffers.rows[i].partial, shape_.head_dim, total);
    }
  }
  for (std::uint32_t i = 0; i < item.num_tokens * group_; ++i)
    finish(buffers.totals + i * partial_floats_, sequence.first_row + item.first_token + i / group_,
           item.kv_head * group_ + i % group_);
}

void AttentionPlan::run_splits(const Item& item, const AttentionBuffers& buffers) {
  const std::span<const Member> members = members_.subspan(item.first_member, item.num_members);
  const std::byte* const* blocks = blocks_.data() + sequences_[members[0].sequence].first_block;
  for (std::uint32_t split = item.split_begin; split < item.split_end; ++split) {
    std::size_t count = 0;
    for (const Member& member : members) {
      const SequencePlace& sequence = sequences_[member.sequence];
      for (std::uint32_t t = 0; t < sequence.num_rows; ++t) {
        kernels::AttentionRow row;
        if (!set_seen(split, sequence.first_position + t, row)) continue;
        for (std::uint32_t g = 0; g < group_; ++g) {
          row.q = q_of(sequence.first_row + t, item.kv_head * group_ + g);
          row.partial = partial(member, item.kv_head, split, t * group_ + g);
          buffers.rows[count++] = row;
        }
      }
    }
    if (count != 0) attend_split(item, split, blocks, count, buffers);
  }
}

void AttentionPlan::merge(const Member& member, std::uint32_t kv_head) {
  const SequencePlace& sequence = sequences_[member.sequence];
  for (std::uint32_t row = 0; row < sequence.num_rows * group_; ++row) {
    const std::uint32_t position = sequence.first_position + row / group_;
    const std::uint32_t first = rule_.first_seen(position) / kSplitPositions;
    float* total = partial(member, kv_head, first, row);
    for (std::uint32_t split = first + 1; split <= position / kSplitPositions; ++split)
      kernels_.merge_partial(partial(member, kv_head, split, row), shape_.head_dim, total);
    finish(total, sequence.first_row + row / group_, kv_head * group_ + row % group_);
  }
}

float* AttentionPlan::partial(const Member& member, std::uint32_t kv_head, std::uint32_t split,
                              std::uint32_t row) const {
  const std::size_t rows = std::size_t{sequences_[member.sequence].num_rows} * group_;
  const std::size_t index = (std::size_t{split - member.first_split} * shape_.num_kv_heads + kv_head) * rows + row;
  return all_partials_.data() + member.partials + index * partial_floats_;
}

}  // namespace troupe::engine
