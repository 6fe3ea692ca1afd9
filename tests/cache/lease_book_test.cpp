#include "cache/lease_book.h"

#include <catch2/catch.hpp>

#include "tests/cache/lease_fixture.h"

using namespace troupe;
using namespace troupe::cache;

// --- forks ---

TEST_CASE_METHOD(LeaseFixture, "a fork shares the full blocks and copies the one that is part full") {
  const auto prompt = prompt_of({1, 2});  // 65 tokens; the last one's logits are needed
  acquire(1, prompt, 3);
  const auto table = answer<Acquired>(1).tables[0];
  commit(1, 0, blocks_of({1, 2}));
  auto longer = prompt;
  longer.insert(longer.end(), 5, 7);
  fork(2, {.parent = 1, .num_tokens = 67}, longer);
  const Acquired forked = answer<Acquired>(2);
  REQUIRE(forked.num_cached_tokens == 64);
  REQUIRE(forked.num_copied_tokens == 3);
  REQUIRE(forked.copy_from == std::vector<BlockId>{table[2]});
  REQUIRE(forked.tables[0].size() == 3);  // room for the copy, although none was asked for
  REQUIRE((forked.tables[0][0] == table[0] && forked.tables[0][1] == table[1] && forked.tables[0][2] != table[2]));
  release(2);
  release(1);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "a fork of a prompt leaves its last token to compute, also at the end of a block") {
  acquire(1, blocks_of({1, 2}), 2);
  const auto table = answer<Acquired>(1).tables[0];
  commit(1, 0, blocks_of({1, 2}));
  fork(2, {.parent = 1, .num_tokens = 64}, blocks_of({1, 2}));
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 32);
  REQUIRE(answer<Acquired>(2).num_copied_tokens == 31);
  REQUIRE(answer<Acquired>(2).copy_from ==
          std::vector<BlockId>{table[1]});  // a cached one: it stays until the copy is made
  fork(3, {.parent = 1, .num_tokens = 32}, prompt_of({1}));
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 32);
  REQUIRE(answer<Acquired>(3).num_copied_tokens == 0);
  REQUIRE(answer<Acquired>(3).copy_from.empty());
  for (SequenceId sequence : {1, 3, 2}) release(sequence);
  require_all_came_back();
}

TEST_CASE("the block that a fork copies is not reused before the fork's answer has been seen") {
  LeaseFixture f(3);
  f.acquire(1, {1, 2, 3}, 1);
  const BlockId source = f.answer<Acquired>(1).tables[0][0];
  f.fork(2, {.parent = 1, .num_tokens = 3}, {1, 2, 3});
  REQUIRE(f.answer<Acquired>(2).copy_from == std::vector<BlockId>{source});
  f.release(1);
  f.acquire(3, {9}, 2);
  REQUIRE(f.answer<Short>(3).available == 1);
  f.extend(2, 1);  // its `seen` covers the answer
  REQUIRE(f.answer<Extended>(2).blocks[0] == std::vector<BlockId>{source});
  f.acquire(3, {9}, 1);
  REQUIRE(f.answer<Acquired>(3).tables[0].size() == 1);
  f.release(2);
  f.release(3);
  f.require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "a fork whose parent has ended is served from the cache") {
  acquire(1, prompt_of({1, 2}), 3);
  commit(1, 0, blocks_of({1, 2}));
  release(1);
  fork(2, {.parent = 1, .num_tokens = 65}, prompt_of({1, 2}), 3);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 64);
  REQUIRE(answer<Acquired>(2).num_copied_tokens == 0);
  REQUIRE(answer<Acquired>(2).tables[0].size() == 3);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "a fork whose parent waits for blocks itself waits for the same leader") {
  acquire(1, prompt_of({1, 2}), 3);
  acquire(2, prompt_of({1, 3}), 3);
  REQUIRE(answer<Wait>(2).leader == 1);
  fork(3, {.parent = 2, .num_tokens = 5}, prompt_of({1, 3}), 3);
  REQUIRE(answer<Wait>(3).leader == 1);
  for (SequenceId sequence : {1, 2, 3}) release(sequence);
  require_all_came_back();
}

TEST_CASE("a fork without a free block for its copy gets Short, and holds nothing") {
  LeaseFixture f(1);
  f.acquire(1, {1, 2, 3}, 1);
  f.fork(2, {.parent = 1, .num_tokens = 3}, {1, 2, 3});
  REQUIRE(f.answer<Short>(2).available == 0);
  f.release(1);
  f.fork(2, {.parent = 1, .num_tokens = 3}, {1, 2, 3}, 1);
  REQUIRE(f.answer<Acquired>(2).num_copied_tokens == 0);
  f.release(2);
  f.require_all_came_back();
}

// --- anchors ---

TEST_CASE("an anchor finds its prefix in the cache, in its scope and until it is evicted") {
  LeaseFixture f(3);
  const ScopeList mine = scopes_for(TenantId{1}, ""), other = scopes_for(TenantId{2}, "");
  f.acquire(1, prompt_of({1, 2}), 3, {}, mine);
  const auto anchors = anchors_of(prompt_of({1, 2}));
  REQUIRE(anchors.size() == 2);
  REQUIRE(anchors[1].position == 64);
  REQUIRE_FALSE(f.book.find_recyclable_range(mine, anchors[0].hash));  // leased, not yet published
  f.commit(1, 0, blocks_of({1, 2}));
  REQUIRE(f.book.find_recyclable_range(mine, anchors[0].hash) == CachedRange{0, 32});
  REQUIRE(f.book.find_recyclable_range(mine, anchors[1].hash) == CachedRange{0, 64});
  REQUIRE_FALSE(f.book.find_recyclable_range(other, anchors[1].hash));
  REQUIRE_FALSE(
      f.book.find_recyclable_range(mine, anchors_of(blocks_of({2})).back().hash));  // no prefix: in the middle
  f.release(1);
  f.acquire(2, {5}, 2, {}, other);  // evicts the deeper one
  REQUIRE(f.book.find_recyclable_range(mine, anchors[0].hash) == CachedRange{0, 32});
  REQUIRE_FALSE(f.book.find_recyclable_range(mine, anchors[1].hash));
  f.release(2);
}

// --- holding and giving back ---

TEST_CASE_METHOD(LeaseFixture,
                 "the first Acquire gets empty blocks, the next one the blocks that the first has committed") {
  acquire(1, prompt_of({1, 2}), 3);
  REQUIRE(answer<Acquired>(1).num_cached_tokens == 0);
  const auto table = answer<Acquired>(1).tables[0];
  REQUIRE(table.size() == 3);
  commit(1, 0, blocks_of({1, 2}));
  REQUIRE(answer<Committed>(1) == Committed{0, {{table[0], table[1]}}});

  acquire(2, prompt_of({1, 2}), 3);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 2 * kBlockSize);
  const auto other = answer<Acquired>(2).tables[0];
  REQUIRE((other[0] == table[0] && other[1] == table[1] && other[2] != table[2]));
  release(1);
  release(2);
  require_all_came_back();
  const CacheCounters counters = book.counters();
  REQUIRE(counters.groups[0].cached == 2);
  REQUIRE(counters.published == 2);
}

TEST_CASE_METHOD(LeaseFixture,
                 "an Acquire that computes all gets nothing cached, follows no sequence, and commits equal blocks") {
  acquire(1, prompt_of({1, 2}), 3);
  const auto computes_all = [&](SequenceId sequence) -> LeaseEffects& {
    effects.clear();
    book.acquire({.key = key(sequence),
                  .rank = {0, sequence},
                  .scopes = {kPublicScope},
                  .tokens = std::make_shared<const std::vector<TokenId>>(prompt_of({1, 2})),
                  .want = 3,
                  .computes_all = true},
                 effects);
    book.check();
    return effects;
  };
  // While another one computes the same prompt, and once that is cached.
  const auto beside = std::get<Acquired>(computes_all(2).answers.at(0).body);
  CHECK(beside.num_cached_tokens == 0);
  commit(1, 0, blocks_of({1, 2}));
  const auto after = std::get<Acquired>(computes_all(3).answers.at(0).body);
  CHECK(after.num_cached_tokens == 0);
  const auto canonical = std::get<Committed>(commit(3, 0, blocks_of({1, 2})).answers.at(0).body);
  CHECK(canonical.blocks[0] != BlockTable(after.tables[0].begin(), after.tables[0].begin() + 2));
  const auto other = std::get<Acquired>(acquire(4, prompt_of({1, 2}), 3).answers.at(0).body);
  CHECK(other.num_cached_tokens == 2 * kBlockSize);
  CHECK(BlockTable(other.tables[0].begin(), other.tables[0].begin() + 2) == canonical.blocks[0]);
}

TEST_CASE_METHOD(LeaseFixture, "a prompt's last token is never served from the cache") {
  acquire(1, blocks_of({1, 2}), 2);
  commit(1, 0, blocks_of({1, 2}));
  acquire(2, blocks_of({1, 2}), 2);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == kBlockSize);
  acquire(3, {5}, 1);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 0);
}

TEST_CASE_METHOD(LeaseFixture, "cached blocks count towards `want`, and more of them than wanted are granted") {
  acquire(1, prompt_of({1, 2, 3}), 4);
  commit(1, 0, blocks_of({1, 2, 3}));
  acquire(2, prompt_of({1, 2, 3}), 1);
  REQUIRE(answer<Acquired>(2).tables[0].size() == 3);
  acquire(3, prompt_of({1, 2, 3}), 5);
  REQUIRE(answer<Acquired>(3).tables[0].size() == 5);
}

TEST_CASE("an Acquire that does not fit holds nothing, and may be sent again under the next number") {
  LeaseFixture f(4);
  f.acquire(1, prompt_of({1, 2}), 3);
  f.acquire(2, prompt_of({3, 4}), 3);
  REQUIRE(f.answer<Short>(2).available == 1);
  REQUIRE(f.book.counters().groups[0].referenced() == 3);
  f.release(1);
  f.acquire(2, prompt_of({3, 4}), 3);
  REQUIRE(f.answer<Acquired>(2).tables[0].size() == 3);
  f.release(2);
  f.require_all_came_back();
}

TEST_CASE("an Acquire leaves its headroom free") {
  LeaseFixture f(4);
  f.acquire(1, prompt_of({1}), 2, {}, {kPublicScope}, 3);
  REQUIRE(f.answer<Short>(1).available == 4);
  f.acquire(1, prompt_of({1}), 2, {}, {kPublicScope}, 2);
  REQUIRE(f.answer<Acquired>(1).tables[0].size() == 2);
}

TEST_CASE("a cached prefix without holders is not counted as room for the blocks after it") {
  LeaseFixture f(4);
  f.acquire(1, prompt_of({1, 2}), 3);
  f.commit(1, 0, blocks_of({1, 2}));
  f.release(1);
  f.acquire(2, prompt_of({1, 2}), 5);
  REQUIRE(f.answer<Short>(2).available == 2);  // of 4, the prefix itself needs 2
  f.acquire(2, prompt_of({1, 2}), 4);
  REQUIRE(f.answer<Acquired>(2).num_cached_tokens == 2 * kBlockSize);
}

TEST_CASE("an Extend takes free blocks first, then the least recently used leaves, then is short") {
  LeaseFixture f(5);
  f.acquire(1, prompt_of({1, 2}), 2);
  f.commit(1, 0, blocks_of({1, 2}));
  f.release(1);
  f.acquire(2, {7}, 1);
  f.extend(2, 2);
  REQUIRE(f.answer<Extended>(2).blocks[0].size() == 2);
  REQUIRE(f.book.counters().groups[0].evictions == 0);
  f.extend(2, 1);
  REQUIRE(f.book.counters().groups[0].evictions == 1);
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2})).cached_tokens == kBlockSize);
  f.extend(2, 2);
  REQUIRE(f.answer<Short>(2).available == 1);
  f.release(2);
  f.require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "blocks of a released sequence are freed once its last step is done") {
  acquire(1, {1, 2, 3}, 1);
  release(1, /*after_step=*/7);
  REQUIRE(answered(1));
  REQUIRE(book.counters().groups[0].referenced() == 1);
  book.step_done(1, 6);
  REQUIRE(book.counters().groups[0].referenced() == 1);
  book.step_done(1, 7);
  require_all_came_back();
  acquire(2, {1, 2, 3}, 1);
  release(2, /*after_step=*/7);  // done already
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "generated tokens are published like the prompt's") {
  acquire(1, {1, 1, 1}, 1);
  auto tokens = std::vector<TokenId>(3, 1);
  tokens.resize(kBlockSize, 8);
  commit(1, 0, tokens);
  tokens.push_back(5);
  REQUIRE(book.predict({kPublicScope}, tokens).cached_tokens == kBlockSize);
}

// --- canonical blocks ---

TEST_CASE_METHOD(LeaseFixture, "of two equal blocks the first to be committed is canonical") {
  acquire(1, {1}, 2);
  acquire(2, {1}, 2);  // one token: nothing to wait for
  const auto first = answer<Acquired>(2).tables[0];
  commit(2, 0, blocks_of({1}));
  commit(1, 0, blocks_of({1}));
  REQUIRE(answer<Committed>(1).blocks[0][0] == first[0]);
  REQUIRE(book.counters().published == 1);
  // The block that was replaced may still be read by a step: it stays until the sender has seen the answer.
  REQUIRE(book.counters().groups[0].referenced() == 4);
  extend(1, 1);
  REQUIRE(book.counters().groups[0].referenced() == 4);  // one more and one less
  // Later blocks are inserted below the canonical block.
  commit(1, 1, blocks_of({2}));
  REQUIRE(book.predict({kPublicScope}, prompt_of({1, 2})).cached_tokens == 2 * kBlockSize);
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "a replaced block is freed by a Release, too") {
  acquire(1, {1}, 1);
  acquire(2, {1}, 1);
  commit(1, 0, blocks_of({1}));
  commit(2, 0, blocks_of({1}));
  REQUIRE(book.counters().groups[0].referenced() == 2);
  effects.clear();
  book.release({{1, 2, ++numbers[2], 0}, 3}, effects);  // has seen nothing
  REQUIRE(book.counters().groups[0].referenced() == 2);
  book.step_done(1, 3);
  REQUIRE(book.counters().groups[0].referenced() == 1);
  release(1);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "users share public blocks and no others") {
  const ScopeList anna = scopes_for(TenantId{1}, ""), bert = scopes_for(TenantId{2}, "");
  acquire(1, prompt_of({1}), 2, {}, anna);
  acquire(2, prompt_of({1}), 2, {}, bert);  // does not wait for blocks in a scope that is not its own
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 0);
  commit(1, 0, blocks_of({1}));
  commit(2, 0, blocks_of({1}));
  REQUIRE(book.counters().published == 2);
  REQUIRE(book.predict(anna, prompt_of({1})).cached_tokens == kBlockSize);
  REQUIRE(book.predict({kPublicScope}, prompt_of({1})).cached_tokens == 0);
}

// --- single flight ---

TEST_CASE_METHOD(LeaseFixture, "an Acquire whose next block another sequence computes waits, holding nothing") {
  acquire(1, prompt_of({1, 2}), 3);
  acquire(2, prompt_of({1, 2, 3}), 4);
  REQUIRE(answer<Wait>(2).leader == 1);
  REQUIRE(book.counters().groups[0].referenced() == 3);
  REQUIRE(book.counters().waiting == 1);
  commit(1, 0, blocks_of({1}));
  REQUIRE_FALSE(answered(2));  // the leader still computes a block they share
  commit(1, 1, blocks_of({2}));
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 2 * kBlockSize);
  REQUIRE(book.counters().waiting == 0);
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "many followers of one prefix compute only the blocks after it") {
  acquire(1, prompt_of({1, 2}, 100), 3);
  for (SequenceId id = 2; id <= 5; ++id) {
    acquire(id, prompt_of({1, 2}, static_cast<TokenId>(100 + id)), 3);
    REQUIRE(answer<Wait>(id).leader == 1);
  }
  commit(1, 0, blocks_of({1, 2}));
  for (SequenceId id = 2; id <= 5; ++id) REQUIRE(answer<Acquired>(id).num_cached_tokens == 2 * kBlockSize);
  REQUIRE(book.counters().published == 2);
}

TEST_CASE_METHOD(LeaseFixture, "a follower that shares fewer blocks is answered sooner, and may then lead others") {
  acquire(1, prompt_of({1, 2, 3}), 4);
  acquire(2, prompt_of({1, 5, 6}), 4);
  acquire(3, prompt_of({1, 5, 6}), 4);
  REQUIRE(answer<Wait>(3).leader == 1);
  commit(1, 0, blocks_of({1}));
  REQUIRE(answer<Acquired>(2).num_cached_tokens == kBlockSize);
  REQUIRE_FALSE(answered(3));  // waits on, for 2 now
  effects.clear();
  book.acquire(
      {{1, 3, 1, 0}, {0, 3}, {kPublicScope}, std::make_shared<const std::vector<TokenId>>(prompt_of({1})), 1, 0},
      effects);
  REQUIRE(answer<Wait>(3).leader == 2);  // as the answer to a repeated message shows
  commit(2, 1, blocks_of({5, 6}));
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 3 * kBlockSize);
}

TEST_CASE_METHOD(LeaseFixture, "if a leader ends, the first follower by rank leads the others") {
  acquire(1, prompt_of({1, 2}), 3);
  acquire(4, prompt_of({1, 2}), 3, {0, 40});
  acquire(3, prompt_of({1, 2}), 3, {0, 30});
  acquire(2, prompt_of({1, 2}), 3, {1, 20});
  release(1);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 0);
  REQUIRE_FALSE(answered(4));
  REQUIRE_FALSE(answered(2));
  commit(3, 0, blocks_of({1, 2}));
  REQUIRE(answered(2));
  REQUIRE(answered(4));
}

TEST_CASE_METHOD(LeaseFixture, "if a leader yields, the first follower leads, and the leader may still commit") {
  acquire(1, prompt_of({1}), 2);
  acquire(2, prompt_of({1}), 2);
  yield(1);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 0);
  const BlockId mine = answer<Acquired>(2).tables[0][0];
  acquire(3, prompt_of({1}), 2);
  REQUIRE(answer<Wait>(3).leader == 2);
  commit(2, 0, blocks_of({1}));
  commit(1, 0, blocks_of({1}));
  REQUIRE(answer<Committed>(1).blocks[0][0] == mine);
}

TEST_CASE_METHOD(LeaseFixture, "a follower that ends is not answered and not waited for") {
  acquire(1, prompt_of({1}), 2);
  acquire(2, prompt_of({1}), 2);
  release(2);
  REQUIRE(answer<Acknowledged>(2) == Acknowledged{});
  REQUIRE(book.counters().waiting == 0);
  commit(1, 0, blocks_of({1}));
  REQUIRE_FALSE(answered(2));
}

TEST_CASE("a follower is answered Short if there are no blocks when its leader has ended") {
  LeaseFixture f(4);
  f.acquire(1, prompt_of({1, 2}), 3);
  f.acquire(2, prompt_of({1, 2, 3}), 5);
  f.commit(1, 0, blocks_of({1, 2}));
  REQUIRE(f.answer<Short>(2).available == 1);
  f.release(1);
  f.acquire(2, prompt_of({1, 2, 3}), 4);
  REQUIRE(f.answer<Acquired>(2).num_cached_tokens == 2 * kBlockSize);
}

TEST_CASE_METHOD(LeaseFixture, "a leader inherits the best rank of its followers, for as long as they wait") {
  acquire(1, prompt_of({1, 2}), 3, {5, 1});
  acquire(2, prompt_of({1}), 2, {3, 2});
  REQUIRE(effects.inherited.size() == 1);
  REQUIRE((effects.inherited[0].sequence == 1 && effects.inherited[0].rank == Rank{3, 2}));
  acquire(3, prompt_of({1, 2}), 3, {4, 3});
  REQUIRE(effects.inherited.empty());
  commit(1, 0, blocks_of({1}));
  REQUIRE(effects.inherited.size() == 1);
  REQUIRE(effects.inherited[0].rank == Rank{4, 3});
  release(3);
  REQUIRE(effects.inherited.size() == 1);
  REQUIRE_FALSE(effects.inherited[0].rank.has_value());
}

TEST_CASE_METHOD(LeaseFixture, "predict() counts cached blocks and blocks in flight") {
  acquire(1, prompt_of({1, 2, 3}), 4);
  commit(1, 0, blocks_of({1}));
  const PrefixPrediction same = book.predict({kPublicScope}, prompt_of({1, 2, 3}));
  REQUIRE((same.cached_tokens == kBlockSize && same.in_flight_tokens == 2 * kBlockSize));
  const PrefixPrediction other = book.predict({kPublicScope}, prompt_of({1, 2, 4}));
  REQUIRE((other.cached_tokens == kBlockSize && other.in_flight_tokens == kBlockSize));
  const PrefixPrediction cold = book.predict({kPublicScope}, prompt_of({7}));
  REQUIRE((cold.cached_tokens == 0 && cold.in_flight_tokens == 0));
  release(1);
  REQUIRE(book.predict({kPublicScope}, prompt_of({1, 2, 3})).in_flight_tokens == 0);
}

// --- numbers ---

TEST_CASE_METHOD(LeaseFixture, "a repeated message gets the same answer and changes nothing") {
  const auto tokens = std::make_shared<const std::vector<TokenId>>(prompt_of({1}));
  const auto twice = [&](auto send) {
    effects.clear();
    send();
    const auto first = effects.answers;
    const CacheCounters before = book.counters();
    effects.clear();
    send();
    REQUIRE(first.size() == 1);
    REQUIRE(effects.answers.size() == 1);
    REQUIRE(effects.answers[0].number == first[0].number);
    REQUIRE(effects.answers[0].body == first[0].body);
    REQUIRE(book.counters().groups[0].referenced() == before.groups[0].referenced());
    REQUIRE(book.counters().published == before.published);
    book.check();
  };
  twice([&] { book.acquire({{1, 1, 1, 0}, {0, 1}, {kPublicScope}, tokens, 2, 0}, effects); });
  twice([&] { book.extend({{1, 1, 2, 1}, 2}, effects); });
  twice([&] { book.extend({{1, 1, 3, 1}, 99}, effects); });  // Short
  twice([&] { book.commit({{1, 1, 4, 2}, 0, blocks_of({1})}, effects); });
  twice([&] { book.yield({{1, 1, 5, 2}}, effects); });
  twice([&] { book.release({{1, 1, 6, 2}, 0}, effects); });
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "messages that are late, early, or of an old epoch or ended sequence are dropped") {
  acquire(1, prompt_of({1}), 2);
  extend(1, 1);
  effects.clear();
  book.extend({{1, 1, 9, 2}, 1}, effects);   // skips numbers
  book.extend({{1, 1, 1, 0}, 1}, effects);   // the answer has been seen
  book.extend({{2, 1, 3, 2}, 1}, effects);   // another epoch
  book.extend({{1, 77, 4, 2}, 1}, effects);  // an unknown sequence
  REQUIRE(effects.answers.empty());
  release(1);
  effects.clear();
  book.acquire(
      {{1, 1, 1, 0}, {0, 1}, {kPublicScope}, std::make_shared<const std::vector<TokenId>>(prompt_of({1})), 2, 0},
      effects);
  book.extend({{1, 1, 4, 2}, 1}, effects);
  REQUIRE(effects.answers.empty());
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "a sequence that ends before its first Acquire arrives never holds anything") {
  release(1);
  REQUIRE(answer<Acknowledged>(1) == Acknowledged{});
  acquire(1, prompt_of({1}), 2);
  REQUIRE_FALSE(answered(1));
  require_all_came_back();
}

// --- epochs ---

TEST_CASE_METHOD(LeaseFixture, "the blocks of a replaced batcher are not reused until its steps have ended") {
  acquire(1, prompt_of({1, 2}), 3);
  commit(1, 0, blocks_of({1}));
  acquire(2, prompt_of({1, 2}), 3);  // waits
  acquire(3, {5}, 1);
  release(3, /*after_step=*/4);
  book.begin_epoch(2);
  book.check();
  REQUIRE(book.counters().groups[0].referenced() == 4);
  REQUIRE(book.counters().waiting == 0);
  extend(1, 1);  // of the old epoch
  REQUIRE_FALSE(answered(1));
  book.step_done(1, 4);
  REQUIRE(book.counters().groups[0].referenced() == 4);

  epoch = 2;
  numbers.clear();
  acquire(1, prompt_of({1, 2}), 3);
  REQUIRE(answer<Acquired>(1).num_cached_tokens == kBlockSize);  // published blocks survive
  REQUIRE(book.counters().groups[0].referenced() == 6);
  book.quiesced(1);
  REQUIRE(book.counters().groups[0].referenced() == 3);
  release(1);
  require_all_came_back();
}

TEST_CASE_METHOD(LeaseFixture, "begin_epoch ignores the current epoch and older ones") {
  book.begin_epoch(3);
  REQUIRE(book.epoch() == 3);
  epoch = 3;
  acquire(1, {1}, 1);
  book.begin_epoch(3);
  book.begin_epoch(2);
  REQUIRE(book.epoch() == 3);
  extend(1, 1);
  REQUIRE(answered(1));
}

TEST_CASE("the book of a new keeper gives no block out before the old steps have ended") {
  LeaseBook book({.groups = {{.num_blocks = 4}}, .epoch = 5, .await_quiesce = true});
  LeaseEffects effects;
  const auto tokens = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1});
  book.acquire({{5, 1, 1, 0}, {}, {kPublicScope}, tokens, 1, 0}, effects);
  REQUIRE(std::holds_alternative<Short>(effects.answers.at(0).body));
  book.quiesced(3);
  REQUIRE(book.counters().groups[0].available == 0);
  book.quiesced(4);
  REQUIRE(book.counters().groups[0].available == 4);
}
