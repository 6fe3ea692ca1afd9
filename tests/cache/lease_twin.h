// A twin of LeaseBook, kept in maps: it follows every message and checks the book's answers against the rules.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "cache/lease_book.h"

namespace troupe::cache::test {

using Message = std::variant<Acquire, Extend, Commit, Yield, Release>;

inline const LeaseKey& key_of(const Message& message) {
  return std::visit([](const auto& m) -> const LeaseKey& { return m.key; }, message);
}

// One sequence, as the book must know it.
struct Twin {
  std::uint32_t last = 0;
  std::map<std::uint32_t, LeaseAnswer> answers;  // not seen yet
  bool waiting = false, held = false, yielded = false;
  Acquire asked;
  BlockTables tables;
  std::uint32_t num_committed = 0;
  SnapshotId restore = kNoSnapshot;
  std::vector<SnapshotId> spares;
  struct Displaced {
    std::uint32_t number;
    GroupId group;
    BlockId block;
  };
  std::vector<Displaced> displaced;  // swapped, or copied from; by the number of the message
};

// Ids that are held, so the book must not give them out.
struct Held {
  std::array<std::set<BlockId>, kMaxGroups> blocks;
  std::set<SnapshotId> snapshots;
};

// A cached block: its tokens and scope, and its parent.
struct Content {
  BlockId parent;
  ScopeId scope;
  std::vector<TokenId> tokens;
};

class BookTwin {
 public:
  explicit BookTwin(const LeaseBookOptions& options) : options_(options) {}

  // How often each case occurred, to check that all of them did.
  mutable std::map<std::string, std::uint64_t> seen;

  // `effects`: those of the book for the message.
  void follow(const Message& message, const LeaseEffects& effects);
  void step_done(std::uint64_t step);
  void begin_epoch(std::uint64_t epoch);  // all leases of the old epoch are lost
  void quiesced(std::uint64_t epoch);

  GroupId num_groups() const { return static_cast<GroupId>(options_.groups.size()); }
  bool has_state() const { return options_.snapshot_rule.every > 0; }
  bool is_anyone_there() const { return !twins_.empty(); }
  bool is_boundary(std::uint32_t position, std::uint32_t num_prompt) const;
  std::uint32_t cached_tokens(const ScopeList& scopes, const std::vector<TokenId>& tokens) const;

  void require_same_counts(const LeaseBook& book) const;
  // Compares find_recyclable_range() for every anchor so far and these scopes with all prefixes by their tokens.
  void require_same_ranges(LeaseBook& book, const ScopeList& scopes);

 private:
  // The answer to a fork, if it is served.
  struct Forked {
    bool is_served = false;
    std::uint32_t num_shared = 0;
    std::uint32_t num_copied = 0;
    std::vector<BlockId> copy_from{};
  };

  void follow(const Acquire& m, Twin& twin, const LeaseAnswer& answer);
  void follow(const Extend& m, Twin& twin, const LeaseAnswer& answer);
  void follow(const Commit& m, Twin& twin, const LeaseAnswer& answer);
  void follow(const Yield& m, Twin& twin, const LeaseAnswer& answer);
  void follow(const Release& m, Twin& twin, const LeaseAnswer& answer);
  void settle(Twin& twin, const LeaseAnswer& answer);  // of an Acquire, at once or after waiting
  Forked fork_of(const Acquire& m) const;
  void commit_attached(GroupId group, const Commit& m, Twin& twin, const Committed& committed);
  void commit_snapshot(const Commit& m, Twin& twin);

  // Checks an id that the book gave out: it must not be held, and may be evicted only when none was free.
  void take_fresh(Twin& twin, const BlockTables& tables, std::size_t index);
  void take_fresh_node(const Owner& owner, BlockId block);
  void evict_node(const Owner& owner, BlockId block, const std::set<BlockId>& held);
  void take_spares(Twin& twin, const std::vector<SnapshotId>& spares);
  bool evict(std::map<BlockId, std::uint32_t>& attached, const std::set<std::uint32_t>& held, std::uint32_t num_ids,
             std::uint32_t id);
  static void add_held(const Twin& twin, Held& held);
  Held all_held() const;
  std::uint32_t pool_room(const Twin& twin, const std::vector<BlockId>& nodes) const;
  std::uint32_t room_without_floors(const std::vector<BlockId>& nodes) const;
  std::uint32_t ceiling_room(const Owner& owner, const std::vector<BlockId>& nodes) const;

  // Tenants: the blocks of group 0 of each, held or cached, and those of them that are not held.
  struct Count {
    std::uint32_t blocks = 0, unused = 0;
  };
  void use_node(BlockId block, TenantId tenant);
  std::map<TenantId, Count> counts() const;
  std::uint32_t floor_of(TenantId tenant) const { return floors_.contains(tenant) ? floors_.at(tenant) : 0; }

  std::uint32_t window_begin(GroupId group, std::uint32_t num_blocks) const;
  std::uint32_t served(const std::vector<BlockId>& nodes) const;
  bool leaves_useful_snapshot(const std::vector<TokenId>& theirs, const std::vector<TokenId>& mine,
                              std::uint32_t position) const;
  std::optional<BlockId> find_child(BlockId parent, const ScopeList& scopes, const std::vector<TokenId>& tokens) const;
  std::vector<BlockId> longest_path(const ScopeList& scopes, const std::vector<TokenId>& tokens) const;

  const LeaseBookOptions options_;
  std::uint64_t epoch_ = 1;
  std::uint64_t done_step_ = 0;
  std::map<SequenceId, Twin> twins_;
  std::set<SequenceId> ended_;
  std::map<BlockId, Content> contents_;
  std::map<BlockId, TenantId> tenants_;  // of blocks that are held or cached; of others anything
  std::map<TenantId, std::uint32_t> floors_;
  // By the block of the radix node. attached_[0] stays empty: those blocks are the nodes.
  std::array<std::map<BlockId, std::uint32_t>, kMaxGroups> attached_;
  std::map<BlockId, std::uint32_t> snapshots_;
  std::set<std::uint64_t> anchors_;  // names of all prefixes seen so far
  std::vector<std::pair<std::uint64_t, Held>> awaiting_step_;
  std::vector<std::pair<std::uint64_t, Held>> orphans_;
};

}  // namespace troupe::cache::test
