// How LeaseBook gives out, publishes and takes back the blocks of groups above 0 and snapshots; lease_book.h has the
// protocol.
#include "cache/lease_state.h"

namespace troupe::cache {
namespace {

// Two, because a sequence may write a snapshot while the Commit that names the one before is on its way.
constexpr std::size_t kMaxSpares = 2;

}  // namespace

// The index of the first of the group's blocks that positions after the first num_blocks blocks attend to.
std::uint32_t LeaseBook::State::window_begin(GroupId group, std::size_t num_blocks) const {
  return first_window_block(static_cast<std::uint32_t>(num_blocks) * kBlockSize, options.groups[group].window);
}

// The first entry of the group's table that is not kNoBlock.
std::uint32_t LeaseBook::State::held_begin(GroupId group, const Holding& holding) const {
  return std::max(window_begin(group, holding.num_committed),
                  first_window_block(holding.filled, options.groups[group].window));
}

// How many of these cached blocks a sequence can begin after: the last of them has a snapshot (if the model has
// recurrent state), and all blocks in the next position's windows have the block of the window's group.
std::uint32_t LeaseBook::State::served_blocks(std::span<const BlockId> nodes) const {
  if (num_groups() == 1 && !has_state()) return static_cast<std::uint32_t>(nodes.size());
  std::uint32_t served = 0;
  std::array<std::uint32_t, kMaxGroups> first_present{};  // by group: nodes from here to i all have its block
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    bool can_begin = !has_state() || snapshots.of(nodes[i]) != kNoSnapshot;
    for (GroupId group = 1; group < num_groups(); ++group) {
      if (block_at(group, nodes[i]) == kNoBlock) first_present[group] = i + 1;
      can_begin = can_begin && first_present[group] <= window_begin(group, i + 1);
    }
    if (can_begin) served = i + 1;
  }
  return served;
}

// How many leading blocks of `tokens` can be served once the sequence with tokens `leader` has computed them. With
// recurrent state only the blocks up to a snapshot position can be; if there is no memory for snapshots, none.
std::uint32_t LeaseBook::State::shared_blocks(std::span<const TokenId> tokens, std::span<const TokenId> leader) const {
  const auto equal = static_cast<std::uint32_t>(common_tokens(tokens, leader) / kBlockSize);
  const std::uint32_t shared = std::min(servable_blocks(tokens), equal);
  if (!has_state()) return shared;
  if (options.num_snapshots == 0) return 0;
  return options.snapshot_rule.last_up_to(shared * kBlockSize, static_cast<std::uint32_t>(leader.size())) / kBlockSize;
}

// Holds the blocks and the snapshot that a sequence beginning after these nodes of the tree reads.
void LeaseBook::State::hold_prefix(std::span<const BlockId> nodes, Lease& lease) {
  Holding& holding = lease.holding;
  const TenantId tenant = lease.owner.tenant;
  holding.tables.assign(num_groups(), BlockTable(nodes.size(), kNoBlock));
  for (GroupId group = 0; group < num_groups(); ++group) {
    for (std::size_t i = held_begin(group, holding); i < nodes.size(); ++i) {
      holding.tables[group][i] = block_at(group, nodes[i]);
      hold(group, holding.tables[group][i], tenant);
    }
  }
  if (has_state() && !nodes.empty()) {
    holding.restore = snapshots.of(nodes.back());
    snapshots.hold(holding.restore, tenant);
  }
}

// Publishes a group's blocks at the nodes committed from first_block on, or swaps them for equal ones, and drops those
// that no later position attends to: a step that is planned already does not read them either.
void LeaseBook::State::commit_attached(GroupId group, Lease& lease, std::uint32_t first_block, std::uint32_t number) {
  Holding& holding = lease.holding;
  BlockTable& table = holding.tables[group];
  const auto begin = std::min(held_begin(group, holding), static_cast<std::uint32_t>(table.size()));
  for (std::uint32_t i = first_block; i < holding.num_committed; ++i) {
    if (table[i] == kNoBlock) continue;  // before what the sender fills
    const BlockId node = holding.tables[0][i];
    const BlockId canonical = block_at(group, node);
    if (canonical == kNoBlock) {
      attached[group].attach(node, table[i]);
    } else if (i >= begin) {
      hold(group, canonical, lease.owner.tenant);
      holding.displaced.push_back({number, group, table[i]});
      table[i] = canonical;
    }
  }
  for (std::uint32_t i = begin; i-- > 0 && table[i] != kNoBlock;) let_go(group, std::exchange(table[i], kNoBlock));
}

// The first step has run, so the snapshot it restored has been read and is dropped. A spare that this or a later step
// wrote is attached to the last committed block, unless that has a snapshot already.
void LeaseBook::State::commit_snapshot(Lease& lease, SnapshotId snapshot) {
  Holding& holding = lease.holding;
  if (holding.restore != kNoSnapshot) snapshots.drop(std::exchange(holding.restore, kNoSnapshot));
  if (snapshot == kNoSnapshot) return;
  const auto spare = std::find(holding.spares.begin(), holding.spares.end(), snapshot);
  const std::uint32_t position = holding.num_committed * kBlockSize;
  const auto num_prompt = static_cast<std::uint32_t>(lease.tokens->size());
  TROUPE_ASSERT(spare != holding.spares.end());
  TROUPE_ASSERT(options.snapshot_rule.last_up_to(position, num_prompt) == position);
  holding.spares.erase(spare);
  const BlockId node = holding.tables[0][holding.num_committed - 1];
  if (snapshots.of(node) == kNoSnapshot) snapshots.attach(node, snapshot);
  snapshots.drop(snapshot);
}

// Tops up the spares: one for each of the next boundaries within the table (at most kMaxSpares), as long as snapshots
// are available. Returns the new ones.
std::vector<SnapshotId> LeaseBook::State::give_spares(Lease& lease) {
  std::vector<SnapshotId> given;
  if (!has_state()) return given;
  Holding& holding = lease.holding;
  const auto num_prompt = static_cast<std::uint32_t>(lease.tokens->size());
  std::uint32_t boundary = holding.num_committed * kBlockSize;
  for (std::size_t num_due = 1; num_due <= kMaxSpares; ++num_due) {
    boundary = options.snapshot_rule.next_after(boundary, num_prompt);
    if (boundary > holding.tables[0].size() * kBlockSize) break;
    if (holding.spares.size() >= num_due) continue;
    if (snapshots.available() == 0) break;
    holding.spares.push_back(snapshots.take(lease.owner));
    given.push_back(holding.spares.back());
  }
  return given;
}

void LeaseBook::State::check_snapshots() const {
  std::vector<std::uint32_t> references(snapshots.num_ids(), 0);
  for (BlockId node = 0; node < pool.num_blocks(); ++node) {
    if (snapshots.of(node) == kNoSnapshot) continue;
    TROUPE_ASSERT(tree.contains(node));
    ++references[snapshots.of(node)];
  }
  for_each_holding([&](const Holding& holding) {
    if (holding.restore != kNoSnapshot) ++references[holding.restore];
    for (SnapshotId spare : holding.spares) ++references[spare];
  });
  for (const auto& [sequence, lease] : leases) TROUPE_ASSERT(lease.holding.spares.size() <= kMaxSpares);
  for (SnapshotId snapshot = 0; snapshot < references.size(); ++snapshot)
    TROUPE_ASSERT(snapshots.references(snapshot) == references[snapshot]);
  snapshots.check();
}

}  // namespace troupe::cache
