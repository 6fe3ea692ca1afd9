// A sender of lease messages for tests: numbers them, and hands out the answers.
#pragma once

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <vector>

#include "cache/lease_book.h"

namespace troupe::cache {

// Blocks whose tokens are all equal: `name` times kBlockSize for each.
inline std::vector<TokenId> blocks_of(std::initializer_list<int> names) {
  std::vector<TokenId> tokens;
  for (int name : names) tokens.insert(tokens.end(), kBlockSize, name);
  return tokens;
}

// The same, and one token more, so that all the blocks may be served from the cache.
inline std::vector<TokenId> prompt_of(std::initializer_list<int> names, TokenId last = 99) {
  std::vector<TokenId> tokens = blocks_of(names);
  tokens.push_back(last);
  return tokens;
}

struct LeaseFixture {
  explicit LeaseFixture(std::uint32_t num_blocks = 16) : book({.groups = {{.num_blocks = num_blocks}}}) {}
  explicit LeaseFixture(const LeaseBookOptions& options) : book(options) {}

  LeaseBook book;
  LeaseEffects effects;
  std::uint64_t epoch = 1;
  std::map<SequenceId, std::uint32_t> numbers;

  LeaseKey key(SequenceId sequence) {
    const std::uint32_t number = ++numbers[sequence];
    return {epoch, sequence, number, number - 1};
  }
  // Each sends a message with all answers before it seen, and checks the book.
  LeaseEffects& acquire(SequenceId sequence, const std::vector<TokenId>& tokens, std::uint32_t want, Rank rank = {},
                        ScopeList scopes = {kPublicScope}, std::uint32_t headroom = 0) {
    if (rank.arrival == 0) rank.arrival = sequence;
    effects.clear();
    book.acquire({key(sequence), rank, scopes, std::make_shared<const std::vector<TokenId>>(tokens), want, headroom,
                  std::nullopt},
                 effects);
    book.check();
    return effects;
  }
  LeaseEffects& fork(SequenceId sequence, Fork from, const std::vector<TokenId>& tokens, std::uint32_t want = 0) {
    effects.clear();
    book.acquire({key(sequence),
                  Rank{0, sequence},
                  {kPublicScope},
                  std::make_shared<const std::vector<TokenId>>(tokens),
                  want,
                  0,
                  from},
                 effects);
    book.check();
    return effects;
  }
  LeaseEffects& extend(SequenceId sequence, std::uint32_t num_blocks) {
    effects.clear();
    book.extend({key(sequence), num_blocks}, effects);
    book.check();
    return effects;
  }
  LeaseEffects& commit(SequenceId sequence, std::uint32_t first_block, const std::vector<TokenId>& tokens,
                       SnapshotId snapshot = kNoSnapshot) {
    effects.clear();
    book.commit({key(sequence), first_block, tokens, snapshot}, effects);
    book.check();
    return effects;
  }
  LeaseEffects& yield(SequenceId sequence) {
    effects.clear();
    book.yield({key(sequence)}, effects);
    book.check();
    return effects;
  }
  LeaseEffects& release(SequenceId sequence, std::uint64_t after_step = 0) {
    effects.clear();
    book.release({key(sequence), after_step}, effects);
    book.check();
    return effects;
  }

  // The answer of the last call to this sequence, which must be a Body.
  template <class Body>
  const Body& answer(SequenceId sequence) {
    for (const LeaseAnswer& given : effects.answers) {
      if (given.sequence != sequence) continue;
      REQUIRE(std::holds_alternative<Body>(given.body));
      return std::get<Body>(given.body);
    }
    FAIL("no answer to sequence " << sequence);
    throw 0;
  }
  bool answered(SequenceId sequence) const {
    for (const LeaseAnswer& given : effects.answers)
      if (given.sequence == sequence) return true;
    return false;
  }
  void require_all_came_back() {
    book.check();
    const CacheCounters counters = book.counters();
    REQUIRE(counters.waiting == 0);
    std::vector<PoolCounters> pools(counters.groups.begin(), counters.groups.end());
    pools.push_back(counters.snapshots);
    for (const PoolCounters& pool : pools) {
      REQUIRE(pool.referenced() == 0);
      REQUIRE(pool.free + pool.cached == pool.total);
    }
  }
};

}  // namespace troupe::cache
