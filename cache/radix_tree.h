// The prefixes whose K and V are in the cache: a radix tree whose edges are full blocks of tokens.
//
// After RadixAttention (Zheng et al., "SGLang", 2024), with two changes: edges are whole blocks, because K and V
// are shared by whole blocks only, so no edge is ever split; and every edge belongs to a scope (cache/scope.h), so
// a request finds only prefixes of its own scopes. A radix node can have children with equal tokens, one per scope.
//
// Each cached block is one radix node and has one edge above it; the id of a radix node is its BlockId.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/ids.h"
#include "cache/prefix_hash.h"
#include "cache/scope.h"

namespace troupe::cache {

inline constexpr BlockId kRoot = kNoBlock;  // the parent of first blocks

// Not thread-safe. Allocates in the constructor only; some 180 bytes per block of the pool.
//
// Holding. A caller that holds a radix node also holds all nodes above it, and drops deeper ones first. So a radix node
// is always dropped after its children: those of one account in the order they were dropped have children before
// parents, and the first is both the least recently used node and a leaf. The pool's accounts say which account gives
// a block up; only of the common one the first may have children, of tenants. Each such node is passed over once until
// its last child is evicted, so eviction is expected O(log accounts).
class RadixTree {
 public:
  // The tree holds one reference on each block in it. The pool must outlive it.
  explicit RadixTree(BlockPool& pool);
  // Releases all blocks; none may be held (asserted).
  ~RadixTree();
  RadixTree(const RadixTree&) = delete;
  RadixTree& operator=(const RadixTree&) = delete;

  // The longest cached prefix of `tokens` in full blocks, at most max_blocks of them: `path` becomes its blocks in
  // order. Among equally long paths the one whose edges have the earlier scopes wins, the first edge counting
  // most. Takes no references and does not change the LRU order. O(tokens).
  void match(const ScopeList& scopes, std::span<const TokenId> tokens, std::uint32_t max_blocks,
             std::vector<BlockId>& path) const;

  // The child of `parent` with these tokens in the first of the scopes that has one; kNoBlock if none has.
  [[nodiscard]] BlockId find_child(BlockId parent, const ScopeList& scopes, BlockTokens tokens) const;

  // The cached prefix with this hash (prefix_hash.h) whose edges all lie in `scopes`: `path` becomes its blocks in
  // order, none if there is no such prefix. Of several that collide, the longest. Only the hash is compared; a caller
  // that has the tokens confirms with match(). Expected O(blocks of the prefix).
  void find_prefix(const ScopeList& scopes, std::uint64_t prefix, std::vector<BlockId>& path) const;

  // Adds `block` below `parent` (kRoot or in the tree). The caller has a reference on the block and on all above it;
  // its reference on the block counts as holding it. The edge must be new (asserted).
  void insert(BlockId parent, ScopeId scope, BlockTokens tokens, BlockId block);

  // Adds a holder, a sequence of this tenant, or removes one; see above for the order.
  void hold(BlockId block, TenantId tenant = {});
  void drop(BlockId block);

  // Frees the unheld block that is to make room for a tenant, and returns its id; there must be one (asserted).
  BlockId evict_for(TenantId tenant = {});
  // Frees this block, an unheld leaf (asserted).
  void evict(BlockId block);

  [[nodiscard]] bool contains(BlockId block) const { return nodes_[block].cached; }
  [[nodiscard]] bool held(BlockId block) const { return pool_.references(block) > 1; }
  [[nodiscard]] std::uint32_t num_blocks() const { return num_blocks_; }
  [[nodiscard]] std::uint32_t num_unheld() const { return pool_.accounts().num_unused(); }  // all can be evicted
  // Checks links and counts (asserted). O(blocks of the pool).
  void check() const;

 private:
  struct RadixNode {
    std::array<TokenId, kBlockSize> tokens;
    std::uint64_t prefix;  // the hash of all tokens from the root to the end of this block
    ScopeId scope;
    BlockId parent;
    BlockId next_in_bucket;
    std::uint32_t num_children;
    bool cached = false;
  };

  [[nodiscard]] std::uint64_t prefix_below(BlockId parent, BlockTokens tokens) const;
  [[nodiscard]] std::size_t bucket_of(std::uint64_t prefix, ScopeId scope) const {
    return scoped_hash(prefix, scope) & (buckets_.size() - 1);
  }
  [[nodiscard]] BlockId find_edge(BlockId parent, ScopeId scope, std::uint64_t prefix, BlockTokens tokens) const;
  [[nodiscard]] std::uint32_t visible_depth(BlockId block, const ScopeList& scopes) const;
  void fill_path(BlockId end, std::uint32_t depth, std::vector<BlockId>& path) const;

  BlockPool& pool_;
  std::vector<RadixNode> nodes_;  // by block id
  std::vector<BlockId> buckets_;  // heads of chains, by prefix and scope; a power of two of them
  std::uint32_t num_blocks_ = 0;
};

}  // namespace troupe::cache
