#include "cache/radix_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "config/assert.h"

namespace troupe::cache {
namespace {

// How many equally long paths through different scopes a lookup follows. More than one exists only where a prefix was
// published twice, first in a user's scope and then in public; more than this is not worth a longer search.
constexpr std::size_t kMaxPaths = 8;

BlockTokens block_at(std::span<const TokenId> tokens, std::uint32_t index) {
  return BlockTokens(tokens.data() + std::size_t{index} * kBlockSize, kBlockSize);
}

}  // namespace

RadixTree::RadixTree(BlockPool& pool)
    : pool_(pool), nodes_(pool.num_blocks()), buckets_(std::bit_ceil(pool.num_blocks() + 1u), kNoBlock) {}

RadixTree::~RadixTree() {
  while (num_unheld() > 0) evict_for();
  TROUPE_ASSERT(num_blocks_ == 0);
}

void RadixTree::match(const ScopeList& scopes, std::span<const TokenId> tokens, std::uint32_t max_blocks,
                      std::vector<BlockId>& path) const {
  const auto limit = std::min<std::size_t>(max_blocks, tokens.size() / kBlockSize);
  std::array<BlockId, kMaxPaths> ends{kRoot};
  std::size_t num_ends = 1;
  std::uint32_t depth = 0;
  for (; depth < limit; ++depth) {
    const BlockTokens block = block_at(tokens, depth);
    const std::uint64_t prefix = prefix_below(ends[0], block);  // all ends have the same tokens
    std::array<BlockId, kMaxPaths> next;
    std::size_t num_next = 0;
    for (std::size_t i = 0; i < num_ends; ++i) {
      for (ScopeId scope : scopes) {
        const BlockId child = find_edge(ends[i], scope, prefix, block);
        if (child != kNoBlock && num_next < kMaxPaths) next[num_next++] = child;
      }
    }
    if (num_next == 0) break;
    ends = next;
    num_ends = num_next;
  }
  fill_path(ends[0], depth, path);
}

// `path` becomes the blocks from the root to `end`, `depth` of them.
void RadixTree::fill_path(BlockId end, std::uint32_t depth, std::vector<BlockId>& path) const {
  path.resize(depth);
  for (std::uint32_t i = depth; i-- > 0;) {
    path[i] = end;
    end = nodes_[end].parent;
  }
}

BlockId RadixTree::find_child(BlockId parent, const ScopeList& scopes, BlockTokens tokens) const {
  const std::uint64_t prefix = prefix_below(parent, tokens);
  for (ScopeId scope : scopes) {
    const BlockId child = find_edge(parent, scope, prefix, tokens);
    if (child != kNoBlock) return child;
  }
  return kNoBlock;
}

std::uint64_t RadixTree::prefix_below(BlockId parent, BlockTokens tokens) const {
  return extend_prefix(parent == kRoot ? kEmptyPrefix : nodes_[parent].prefix, tokens);
}

BlockId RadixTree::find_edge(BlockId parent, ScopeId scope, std::uint64_t prefix, BlockTokens tokens) const {
  for (BlockId block = buckets_[bucket_of(prefix, scope)]; block != kNoBlock; block = nodes_[block].next_in_bucket) {
    const RadixNode& node = nodes_[block];
    if (node.prefix == prefix && node.parent == parent && node.scope == scope &&
        std::equal(tokens.begin(), tokens.end(), node.tokens.begin()))
      return block;
  }
  return kNoBlock;
}

void RadixTree::find_prefix(const ScopeList& scopes, std::uint64_t prefix, std::vector<BlockId>& path) const {
  BlockId end = kRoot;
  std::uint32_t longest = 0;
  for (ScopeId scope : scopes) {
    for (BlockId block = buckets_[bucket_of(prefix, scope)]; block != kNoBlock; block = nodes_[block].next_in_bucket) {
      if (nodes_[block].prefix != prefix || nodes_[block].scope != scope) continue;
      const std::uint32_t depth = visible_depth(block, scopes);
      if (depth <= longest) continue;
      longest = depth;
      end = block;
    }
  }
  fill_path(end, longest, path);
}

// The number of blocks from the root to this one, or 0 if an edge on the path has a scope that is not listed.
std::uint32_t RadixTree::visible_depth(BlockId block, const ScopeList& scopes) const {
  std::uint32_t depth = 0;
  for (; block != kRoot; block = nodes_[block].parent) {
    if (!scopes.contains(nodes_[block].scope)) return 0;
    ++depth;
  }
  return depth;
}

void RadixTree::insert(BlockId parent, ScopeId scope, BlockTokens tokens, BlockId block) {
  TROUPE_ASSERT(parent == kRoot || (contains(parent) && held(parent)));
  TROUPE_ASSERT(!contains(block));
  const std::uint64_t prefix = prefix_below(parent, tokens);
  TROUPE_ASSERT(find_edge(parent, scope, prefix, tokens) == kNoBlock);
  RadixNode& node = nodes_[block];
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.prefix = prefix;
  node.scope = scope;
  node.parent = parent;
  node.num_children = 0;
  node.cached = true;
  node.next_in_bucket = std::exchange(buckets_[bucket_of(prefix, scope)], block);
  if (parent != kRoot) ++nodes_[parent].num_children;
  ++num_blocks_;
  pool_.retain(block);  // the tree's own reference, beside the caller's
}

void RadixTree::hold(BlockId block, TenantId tenant) {
  TROUPE_ASSERT(contains(block));
  pool_.accounts().use(block, tenant);
  pool_.retain(block);
}

void RadixTree::drop(BlockId block) {
  TROUPE_ASSERT(contains(block) && held(block));
  pool_.release(block);
  if (!held(block)) pool_.accounts().leave(block);
}

BlockId RadixTree::evict_for(TenantId tenant) {
  BlockAccounts& accounts = pool_.accounts();
  BlockId block = accounts.victim_for(tenant);
  while (nodes_[block].num_children > 0) {  // of the common account
    accounts.set_aside(block);
    block = accounts.victim_for(tenant);
  }
  evict(block);
  return block;
}

void RadixTree::evict(BlockId block) {
  RadixNode& node = nodes_[block];
  TROUPE_ASSERT(contains(block) && !held(block) && node.num_children == 0);
  BlockId* link = &buckets_[bucket_of(node.prefix, node.scope)];
  while (*link != block) link = &nodes_[*link].next_in_bucket;
  *link = node.next_in_bucket;
  if (node.parent != kRoot && --nodes_[node.parent].num_children == 0) pool_.accounts().put_back(node.parent);
  node.cached = false;
  --num_blocks_;
  pool_.release(block);
}

void RadixTree::check() const {
  std::uint32_t cached = 0, unheld = 0, children = 0, edges = 0;
  for (BlockId block = 0; block < nodes_.size(); ++block) {
    const RadixNode& node = nodes_[block];
    if (!node.cached) continue;
    ++cached;
    children += node.num_children;
    TROUPE_ASSERT(pool_.references(block) >= 1);
    if (!held(block)) ++unheld;
    if (node.parent == kRoot) continue;
    ++edges;
    TROUPE_ASSERT(contains(node.parent));
    TROUPE_ASSERT(held(node.parent) || !held(block));
  }
  TROUPE_ASSERT(cached == num_blocks_ && unheld == num_unheld() && children == edges);
  pool_.accounts().check();
}

}  // namespace troupe::cache
