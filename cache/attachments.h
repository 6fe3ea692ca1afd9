// What radix nodes carry beside their block: of one kind, the window blocks or the snapshots of recurrent state.
//
// A model with layers that see only a window of positions keeps their K and V in blocks of a pool of their own, and a
// model with recurrent state keeps snapshots of it. Both belong to the end of a cached prefix just as its block does,
// but a cached prefix is worth keeping without them: they come and go while the radix node stays, by their own order of
// use. So no block is ever evicted for the sake of a snapshot or a window block.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/ids.h"
#include "cache/lru_list.h"

namespace troupe::cache {

// A pool of ids, and for each radix node at most one of them. Not thread-safe. Every call but check() is O(1) and
// allocates nothing.
class Attachments {
 public:
  using Id = std::uint32_t;  // a BlockId of the windows' arena, or a SnapshotId
  static constexpr Id kNone = LruList::kNone;
  static_assert(kNone == kNoBlock && kNone == kNoSnapshot);

  // num_ids 0: there is no such group of layers, and nothing is kept per radix node.
  Attachments(std::uint32_t num_radix_nodes, std::uint32_t num_ids);
  // Gives up what is attached; nobody may hold one (asserted).
  ~Attachments();
  Attachments(const Attachments&) = delete;
  Attachments& operator=(const Attachments&) = delete;

  // What the radix node carries; kNone if nothing.
  [[nodiscard]] Id of(BlockId radix_node) const { return of_.empty() ? kNone : of_[radix_node]; }

  // A free id, else the least recently used one of those attached that nobody holds; available() must not be 0
  // (asserted). The caller holds it.
  [[nodiscard]] Id take();
  // The radix node carries this from now on; it must carry nothing (asserted). The caller holds `id`, and still does.
  void attach(BlockId radix_node, Id id);
  // The radix node has been evicted: it carries nothing any more. Who holds the id keeps it.
  void detach(BlockId radix_node);
  // One holder more or less. When the last one drops what is attached it stays, as the most recently used; anything
  // else becomes free.
  void hold(Id id);
  void drop(Id id);

  [[nodiscard]] bool held(Id id) const { return pool_.references(id) > (attached(id) ? 1u : 0u); }
  [[nodiscard]] bool attached(Id id) const { return radix_node_[id] != kNoBlock; }
  [[nodiscard]] std::uint32_t references(Id id) const { return pool_.references(id); }
  [[nodiscard]] std::uint32_t num_ids() const { return pool_.num_blocks(); }
  [[nodiscard]] std::uint32_t num_free() const { return pool_.num_free(); }
  [[nodiscard]] std::uint32_t num_attached() const { return num_attached_; }
  [[nodiscard]] std::uint32_t available() const { return pool_.num_free() + unheld_.size(); }
  [[nodiscard]] std::uint64_t num_evictions() const { return num_evictions_; }
  // Checks links and counts (asserted). O(radix nodes + ids).
  void check() const;

 private:
  BlockPool pool_;                   // one reference for each holder, and one for being attached
  std::vector<Id> of_;               // by radix node
  std::vector<BlockId> radix_node_;  // by id; kNoBlock: not attached
  LruList unheld_;                   // attached, held by nobody
  std::uint32_t num_attached_ = 0;
  std::uint64_t num_evictions_ = 0;
};

}  // namespace troupe::cache
