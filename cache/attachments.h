// Ids that a radix node can have beside its block: a block of another cache group, or a snapshot of recurrent state.
//
// A model with sliding-window layers keeps their K and V in groups with pools of their own, and a model with recurrent
// state keeps snapshots of it. Each id belongs to the end of a cached prefix as its block does, but the prefix is worth
// keeping without it: attachments have an LRU order of their own and are evicted while the radix node stays. So no
// block of group 0 is ever evicted to make room for a snapshot or a block of another group.
//
// Which tenant's id is detached goes by the rule of block_accounts.h, with the part of each floor that the pool is of
// the radix nodes. But no request for an id is refused because of a floor.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/ids.h"

namespace troupe::cache {

// A pool of ids, of which each radix node has at most one attached. Not thread-safe. Every call but check() is O(1),
// but for the cost of its pool's accounts.
class Attachments {
 public:
  using Id = std::uint32_t;  // a BlockId of the group's arena, or a SnapshotId
  static constexpr Id kNone = kNoBlock;
  static_assert(kNone == kNoSnapshot);

  // num_ids 0: no memory is used per radix node.
  Attachments(std::uint32_t num_radix_nodes, std::uint32_t num_ids);
  // Detaches all ids; none may be held (asserted).
  ~Attachments();
  Attachments(const Attachments&) = delete;
  Attachments& operator=(const Attachments&) = delete;

  // The id attached to this radix node, or kNone.
  [[nodiscard]] Id of(BlockId radix_node) const { return of_.empty() ? kNone : of_[radix_node]; }

  // Returns a free id, or detaches an unheld one; available() must not be 0 (asserted). The caller, a sequence of
  // `owner` (whose floor counts radix nodes), holds the id.
  [[nodiscard]] Id take(const Owner& owner = {});
  // Attaches `id` to a radix node that has none (asserted). The caller holds `id` and continues to hold it.
  void attach(BlockId radix_node, Id id);
  // The radix node has been evicted: detaches its id, if any. Holders of the id keep it.
  void detach(BlockId radix_node);
  // Adds or removes a holder. An attached id without holders stays attached, as the most recently used; any other id
  // without holders is free.
  void hold(Id id, TenantId tenant = {});
  void drop(Id id);

  [[nodiscard]] bool held(Id id) const { return pool_.references(id) > (attached(id) ? 1u : 0u); }
  [[nodiscard]] bool attached(Id id) const { return radix_node_[id] != kNoBlock; }
  [[nodiscard]] std::uint32_t references(Id id) const { return pool_.references(id); }
  [[nodiscard]] std::uint32_t num_ids() const { return pool_.num_blocks(); }
  [[nodiscard]] std::uint32_t num_free() const { return pool_.num_free(); }
  [[nodiscard]] std::uint32_t num_attached() const { return num_attached_; }
  [[nodiscard]] std::uint32_t available() const { return pool_.num_free() + pool_.accounts().num_unused(); }
  [[nodiscard]] std::uint64_t num_evictions() const { return num_evictions_; }
  // Checks links and counts (asserted). O(radix nodes + ids).
  void check() const;

 private:
  BlockPool pool_;                   // one reference for each holder, and one for being attached
  std::vector<Id> of_;               // by radix node
  std::vector<BlockId> radix_node_;  // by id; kNoBlock: not attached
  const std::uint32_t num_radix_nodes_;
  std::uint32_t num_attached_ = 0;
  std::uint64_t num_evictions_ = 0;
};

}  // namespace troupe::cache
