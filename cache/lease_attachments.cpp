// How LeaseBook gives out, publishes and takes back window blocks and snapshots; lease_book.h has the protocol.
#include "cache/lease_state.h"

namespace troupe::cache {
namespace {

// Two, because a sequence may write a snapshot while the Commit that names the one before is on its way.
constexpr std::size_t kMaxSpares = 2;

}  // namespace

// The index of the first window block that positions after the first num_blocks blocks attend to.
std::uint32_t LeaseBook::State::window_begin(std::uint32_t num_blocks) const {
  return has_windows() ? first_window_block(num_blocks * kBlockSize, options.window) : 0;
}

// How many of these cached blocks a sequence can begin after: the last of them has a snapshot (if the model has
// recurrent state), and all blocks in the next position's window have their window block.
std::uint32_t LeaseBook::State::served_blocks(std::span<const BlockId> nodes) const {
  if (!has_windows() && !has_state()) return static_cast<std::uint32_t>(nodes.size());
  std::uint32_t served = 0;
  std::uint32_t first_present = 0;  // blocks from here to i all have their window block
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (has_windows() && windows.of(nodes[i]) == kNoBlock) first_present = i + 1;
    if (has_state() && snapshots.of(nodes[i]) == kNoSnapshot) continue;
    if (first_present <= window_begin(i + 1)) served = i + 1;
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

// room() after these blocks of the tree, and the window blocks at their end, will have been held.
std::uint32_t LeaseBook::State::room_beside(std::span<const BlockId> nodes) const {
  const auto count_unheld = [&](std::span<const BlockId> some, auto&& held) {
    return static_cast<std::uint32_t>(
        std::count_if(some.begin(), some.end(), [&](BlockId node) { return !held(node); }));
  };
  const std::uint32_t room = available() - count_unheld(nodes, [this](BlockId node) { return tree.held(node); });
  if (!has_windows()) return room;
  const auto in_window = nodes.subspan(window_begin(static_cast<std::uint32_t>(nodes.size())));
  return std::min(room, windows.available() -
                            count_unheld(in_window, [this](BlockId node) { return windows.held(windows.of(node)); }));
}

BlockId LeaseBook::State::take_window_block() {
  const std::uint64_t before = windows.num_evictions();
  const BlockId block = windows.take();
  version += windows.num_evictions() - before;
  return block;
}

// Holds the window blocks and the snapshot that a sequence beginning after these blocks of the tree reads.
void LeaseBook::State::take_attachments(std::span<const BlockId> nodes, Holding& holding) {
  if (has_windows()) {
    holding.window_blocks.assign(nodes.size(), kNoBlock);
    for (std::size_t i = window_begin(static_cast<std::uint32_t>(nodes.size())); i < nodes.size(); ++i) {
      holding.window_blocks[i] = windows.of(nodes[i]);
      windows.hold(holding.window_blocks[i]);
    }
  }
  if (has_state() && !nodes.empty()) {
    holding.restore = snapshots.of(nodes.back());
    snapshots.hold(holding.restore);
  }
}

// Publishes the window blocks of the blocks committed from first_block on, or swaps them for equal ones, and drops
// those that no later position attends to: a step that is planned already does not read them either.
void LeaseBook::State::commit_window_blocks(Holding& holding, std::uint32_t first_block, std::uint32_t number) {
  const std::uint32_t begin = window_begin(holding.num_committed);
  for (std::uint32_t i = first_block; i < holding.num_committed; ++i) {
    const BlockId node = holding.blocks[i];
    BlockId& entry = holding.window_blocks[i];
    const BlockId canonical = windows.of(node);
    if (canonical == kNoBlock) {
      windows.attach(node, entry);
    } else if (i >= begin) {
      windows.hold(canonical);
      holding.displaced.push_back({.number = number, .window_block = entry});
      entry = canonical;
    }
  }
  for (std::uint32_t i = begin; i-- > 0 && holding.window_blocks[i] != kNoBlock;) {
    windows.drop(holding.window_blocks[i]);
    holding.window_blocks[i] = kNoBlock;
  }
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
  const BlockId node = holding.blocks[holding.num_committed - 1];
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
    if (boundary > holding.blocks.size() * kBlockSize) break;
    if (holding.spares.size() >= num_due) continue;
    if (snapshots.available() == 0) break;
    const std::uint64_t before = snapshots.num_evictions();
    holding.spares.push_back(snapshots.take());
    version += snapshots.num_evictions() - before;
    given.push_back(holding.spares.back());
  }
  return given;
}

// Deepest first, like the blocks.
void LeaseBook::State::give_back_attachments(const Holding& holding) {
  for (std::size_t i = holding.window_blocks.size(); i-- > 0;)
    if (holding.window_blocks[i] != kNoBlock) windows.drop(holding.window_blocks[i]);
  if (holding.restore != kNoSnapshot) snapshots.drop(holding.restore);
  for (SnapshotId spare : holding.spares) snapshots.drop(spare);
}

void LeaseBook::State::check_attachments() const {
  std::vector<std::uint32_t> window_references(windows.num_ids(), 0), snapshot_references(snapshots.num_ids(), 0);
  for (BlockId node = 0; node < pool.num_blocks(); ++node) {
    if (windows.of(node) != kNoBlock) ++window_references[windows.of(node)];
    if (snapshots.of(node) != kNoSnapshot) ++snapshot_references[snapshots.of(node)];
    TROUPE_ASSERT(tree.contains(node) || (windows.of(node) == kNoBlock && snapshots.of(node) == kNoSnapshot));
  }
  const auto count = [&](const Holding& holding) {
    for (BlockId block : holding.window_blocks)
      if (block != kNoBlock) ++window_references[block];
    for (const Displaced& entry : holding.displaced)
      if (entry.window_block != kNoBlock) ++window_references[entry.window_block];
    if (holding.restore != kNoSnapshot) ++snapshot_references[holding.restore];
    for (SnapshotId spare : holding.spares) ++snapshot_references[spare];
    TROUPE_ASSERT(holding.spares.size() <= kMaxSpares || holding.blocks.size() == pool.num_blocks());
  };
  for (const auto& [sequence, lease] : leases) {
    const Holding& holding = lease.holding;
    count(holding);
    if (!has_windows()) continue;
    TROUPE_ASSERT(holding.window_blocks.size() == holding.blocks.size());
    for (std::uint32_t i = 0; i < holding.blocks.size(); ++i) {
      const BlockId block = holding.window_blocks[i];
      TROUPE_ASSERT((block == kNoBlock) == (i < window_begin(holding.num_committed)));
      TROUPE_ASSERT(block == kNoBlock || i >= holding.num_committed || windows.of(holding.blocks[i]) == block);
    }
  }
  for (const Releasing& entry : releasing) count(entry.holding);
  for (const Orphan& orphan : orphans) count(orphan.holding);
  for (BlockId block = 0; block < window_references.size(); ++block)
    TROUPE_ASSERT(windows.references(block) == window_references[block]);
  for (SnapshotId snapshot = 0; snapshot < snapshot_references.size(); ++snapshot)
    TROUPE_ASSERT(snapshots.references(snapshot) == snapshot_references[snapshot]);
  windows.check();
  snapshots.check();
}

}  // namespace troupe::cache
