#include "cache/radix_tree.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>

using namespace troupe;
using namespace troupe::cache;

namespace {

const ScopeList kPublicOnly = {kPublicScope};
constexpr ScopeId kAnna = user_scope(TenantId{1}), kBert = user_scope(TenantId{2});

// `name` times kBlockSize for each block, so blocks are equal where names are.
std::vector<TokenId> blocks_of(std::initializer_list<int> names) {
  std::vector<TokenId> tokens;
  for (int name : names) tokens.insert(tokens.end(), kBlockSize, name);
  return tokens;
}

BlockTokens block_at(const std::vector<TokenId>& tokens, std::size_t index) {
  return BlockTokens(tokens.data() + index * kBlockSize, kBlockSize);
}

struct Fixture {
  BlockPool pool{16};
  RadixTree tree{pool};

  // Publishes all blocks of `tokens` that are not cached yet and drops them. Returns the path.
  std::vector<BlockId> publish(const std::vector<TokenId>& tokens, const ScopeList& scopes) {
    std::vector<BlockId> path;
    tree.match(scopes, tokens, 100, path);
    for (BlockId block : path) tree.hold(block);
    while (path.size() < tokens.size() / kBlockSize) {
      const BlockId block = pool.allocate();
      tree.insert(path.empty() ? kRoot : path.back(), scopes.publish(), block_at(tokens, path.size()), block);
      path.push_back(block);
    }
    let_go(path);
    return path;
  }
  void let_go(const std::vector<BlockId>& path) {
    for (std::size_t i = path.size(); i-- > 0;) tree.drop(path[i]);
  }
  std::vector<BlockId> match(const ScopeList& scopes, const std::vector<TokenId>& tokens, std::uint32_t max = 100) {
    std::vector<BlockId> path;
    tree.match(scopes, tokens, max, path);
    return path;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a tree finds the longest cached prefix in whole blocks") {
  const auto path = publish(blocks_of({1, 2, 3}), kPublicOnly);
  REQUIRE(match(kPublicOnly, blocks_of({1, 2, 3, 4})) == path);
  REQUIRE(match(kPublicOnly, blocks_of({1, 2, 9})) == std::vector<BlockId>{path[0], path[1]});
  REQUIRE(match(kPublicOnly, blocks_of({2, 3})).empty());
  REQUIRE(match(kPublicOnly, blocks_of({1, 2, 3}), 2).size() == 2);
  auto almost = blocks_of({1, 2});
  almost.pop_back();
  REQUIRE(match(kPublicOnly, almost).size() == 1);
  REQUIRE(match(kPublicOnly, {}).empty());
}

TEST_CASE_METHOD(Fixture, "one different token anywhere in a block is a different block") {
  publish(blocks_of({1}), kPublicOnly);
  for (std::size_t i = 0; i < kBlockSize; ++i) {
    auto tokens = blocks_of({1});
    tokens[i] = 2;
    REQUIRE(match(kPublicOnly, tokens).empty());
  }
}

TEST_CASE_METHOD(Fixture, "blocks that a user published are not found by others, public ones by all") {
  publish(blocks_of({1, 2}), {kPublicScope, kAnna});
  REQUIRE(match({kPublicScope, kAnna}, blocks_of({1, 2})).size() == 2);
  REQUIRE(match({kPublicScope, kBert}, blocks_of({1, 2})).empty());
  REQUIRE(match(kPublicOnly, blocks_of({1, 2})).empty());
  publish(blocks_of({3}), kPublicOnly);
  publish(blocks_of({3, 4}), {kPublicScope, kBert});  // goes on below the public block
  REQUIRE(match({kPublicScope, kBert}, blocks_of({3, 4})).size() == 2);
  REQUIRE(match({kPublicScope, kAnna}, blocks_of({3, 4})).size() == 1);
}

TEST_CASE_METHOD(Fixture, "a longer path through a later scope beats a shorter one through an earlier") {
  const auto own = publish(blocks_of({1, 2, 3}), {kPublicScope, kAnna});
  const auto public_path = publish(blocks_of({1}), kPublicOnly);
  REQUIRE(match({kPublicScope, kAnna}, blocks_of({1, 2, 3})) == own);
  REQUIRE(match({kPublicScope, kAnna}, blocks_of({1})) ==
          public_path);  // of equally long paths the one in the first scope
}

TEST_CASE_METHOD(Fixture, "find_child tries the scopes in order") {
  const auto own = publish(blocks_of({1}), {kAnna});
  const auto tokens = blocks_of({1});
  REQUIRE(tree.find_child(kRoot, {kPublicScope, kAnna}, block_at(tokens, 0)) == own[0]);
  const auto public_path = publish(blocks_of({1}), kPublicOnly);
  REQUIRE(tree.find_child(kRoot, {kPublicScope, kAnna}, block_at(tokens, 0)) == public_path[0]);
  REQUIRE(tree.find_child(kRoot, {kBert}, block_at(tokens, 0)) == kNoBlock);
}

TEST_CASE_METHOD(Fixture, "leaves are evicted before parents, the least recently used first") {
  const auto a = publish(blocks_of({1, 2}), kPublicOnly);
  const auto b = publish(blocks_of({1, 3}), kPublicOnly);
  REQUIRE(a[0] == b[0]);
  REQUIRE(tree.num_blocks() == 3);
  tree.evict_for();
  REQUIRE_FALSE(tree.contains(a[1]));
  tree.evict_for();
  REQUIRE_FALSE(tree.contains(b[1]));
  REQUIRE(tree.contains(b[0]));
  tree.evict_for();
  REQUIRE(tree.num_blocks() == 0);
  REQUIRE(pool.num_free() == 16);
}

TEST_CASE_METHOD(Fixture, "holding a path makes it the most recently used, a match does not") {
  const auto old = publish(blocks_of({1, 2}), kPublicOnly);
  const auto young = publish(blocks_of({3}), kPublicOnly);
  match(kPublicOnly, blocks_of({1, 2}));
  for (BlockId block : old) tree.hold(block);
  let_go(old);
  tree.evict_for();
  REQUIRE_FALSE(tree.contains(young[0]));
  REQUIRE(tree.contains(old[1]));
}

TEST_CASE_METHOD(Fixture, "a held block is not evicted") {
  const auto path = publish(blocks_of({1, 2}), kPublicOnly);
  publish(blocks_of({3}), kPublicOnly);
  for (BlockId block : path) tree.hold(block);
  REQUIRE(tree.num_unheld() == 1);
  tree.evict_for();
  REQUIRE(tree.num_unheld() == 0);
  REQUIRE(tree.num_blocks() == 2);
  tree.check();
  let_go(path);
}

TEST_CASE("a tree agrees with a map of prefixes over random operations") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    BlockPool pool(12);
    RadixTree tree(pool);
    // Twin: every cached block with the scoped path that leads to it, and when it was last dropped.
    struct Twin {
      std::vector<std::pair<ScopeId, std::vector<TokenId>>> path;
      std::uint32_t holders = 0;
      std::uint64_t dropped = 0;
    };
    std::map<BlockId, Twin> twins;
    std::vector<std::vector<BlockId>> held;
    std::uint64_t now = 0;
    const ScopeList scope_lists[] = {{kPublicScope}, {kPublicScope, kAnna}, {kPublicScope, kBert}};

    for (int i = 0; i < 1500; ++i) {
      const ScopeList& scopes = scope_lists[random() % 3];
      std::vector<TokenId> tokens;
      for (std::uint64_t n = 1 + random() % 3; n > 0; --n)
        tokens.insert(tokens.end(), kBlockSize, static_cast<TokenId>(random() % 2));
      std::vector<BlockId> path;
      tree.match(scopes, tokens, 100, path);

      // The longest visible path in the twin is as long.
      std::size_t longest = 0;
      for (const auto& [block, twin] : twins) {
        bool matches = twin.path.size() <= tokens.size() / kBlockSize;
        for (std::size_t d = 0; matches && d < twin.path.size(); ++d)
          matches = scopes.contains(twin.path[d].first) &&
                    std::equal(twin.path[d].second.begin(), twin.path[d].second.end(),
                               tokens.begin() + static_cast<std::ptrdiff_t>(d * kBlockSize));
        if (matches) longest = std::max(longest, twin.path.size());
      }
      REQUIRE(path.size() == longest);

      if (random() % 2 == 0 && held.size() < 3) {
        for (BlockId block : path) {
          tree.hold(block);
          ++twins[block].holders;
        }
        while (path.size() < tokens.size() / kBlockSize && (pool.num_free() > 0 || tree.num_unheld() > 0)) {
          if (pool.num_free() == 0) {
            // The twin's choice: of the blocks without holders, the one dropped longest ago.
            const auto oldest = std::min_element(twins.begin(), twins.end(), [](const auto& a, const auto& b) {
              return std::pair(a.second.holders, a.second.dropped) < std::pair(b.second.holders, b.second.dropped);
            });
            tree.evict_for();
            REQUIRE_FALSE(tree.contains(oldest->first));
            twins.erase(oldest);
          }
          const BlockId block = pool.allocate();
          const auto bytes = block_at(tokens, path.size());
          tree.insert(path.empty() ? kRoot : path.back(), scopes.publish(), bytes, block);
          Twin twin = path.empty() ? Twin{} : twins.at(path.back());
          twin.path.push_back({scopes.publish(), {bytes.begin(), bytes.end()}});
          twin.holders = 1;
          twins[block] = twin;
          path.push_back(block);
        }
        held.push_back(path);
      } else if (!held.empty()) {
        const std::size_t any = random() % held.size();
        for (std::size_t d = held[any].size(); d-- > 0;) {
          tree.drop(held[any][d]);
          Twin& twin = twins.at(held[any][d]);
          --twin.holders;
          twin.dropped = ++now;
        }
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(any));
      }
      tree.check();
      REQUIRE(tree.num_blocks() == twins.size());
      for (const auto& [block, twin] : twins) REQUIRE(tree.held(block) == (twin.holders > 0));
    }
    for (const auto& path : held)
      for (std::size_t d = path.size(); d-- > 0;) tree.drop(path[d]);
    REQUIRE(tree.num_unheld() == tree.num_blocks());
  }
}
