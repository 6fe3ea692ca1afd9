// Window blocks and snapshots in leases, message by message; lease_model_test.cpp has the rest.
#include <catch2/catch.hpp>

#include "tests/cache/lease_fixture.h"

using namespace troupe;
using namespace troupe::cache;

namespace {

// A window of 40 positions: a token attends to its own block and up to two before.
struct WindowFixture : LeaseFixture {
  explicit WindowFixture(std::uint32_t num_window_blocks = 16)
      : LeaseFixture({.groups = {{.num_blocks = 16}, {.num_blocks = num_window_blocks, .window = 40}}}) {}
};

struct StateFixture : LeaseFixture {
  explicit StateFixture(std::uint32_t num_snapshots = 4, SnapshotRule rule = {.every = 128})
      : LeaseFixture({.groups = {{.num_blocks = 16}}, .snapshot_rule = rule, .num_snapshots = num_snapshots}) {}

  // Computes a prompt of `names` and leaves a snapshot at its end.
  SnapshotId leave_snapshot(SequenceId sequence, std::initializer_list<int> names) {
    acquire(sequence, prompt_of(names), static_cast<std::uint32_t>(names.size()) + 1);
    const std::vector<SnapshotId> spares = answer<Acquired>(sequence).spares;
    REQUIRE_FALSE(spares.empty());
    commit(sequence, 0, blocks_of(names), spares[0]);
    release(sequence);
    return spares[0];
  }
};

}  // namespace

// --- windows ---

TEST_CASE_METHOD(WindowFixture, "a Commit gives back the window blocks that no later position attends to") {
  acquire(1, prompt_of({1, 2, 3, 4}), 5);
  const Acquired first = answer<Acquired>(1);
  REQUIRE(first.tables[1].size() == 5);
  REQUIRE(book.counters().groups[1].available == 11);
  commit(1, 0, blocks_of({1, 2, 3, 4}));
  // Position 128 attends to 89 and later: from block 2 on.
  const std::vector<BlockId> left = {kNoBlock, kNoBlock, first.tables[1][2], first.tables[1][3]};
  REQUIRE(answer<Committed>(1).blocks[1] == left);
  REQUIRE(book.counters().groups[1].cached == 4);
  REQUIRE(book.counters().groups[1].available == 13);

  acquire(2, prompt_of({1, 2, 3, 4}), 5);
  const Acquired second = answer<Acquired>(2);
  REQUIRE(second.num_cached_tokens == 128);
  REQUIRE(std::equal(left.begin(), left.end(), second.tables[1].begin()));
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(WindowFixture,
                 "a sequence that its sender fills gets window blocks from the filled position's window on") {
  const std::vector<TokenId> tokens = prompt_of({1, 2, 3, 4, 5});
  const auto acquire_filled = [&](SequenceId sequence, std::uint32_t filled, std::uint32_t want) {
    effects.clear();
    book.acquire({.key = key(sequence),
                  .rank = {0, sequence},
                  .scopes = {kPublicScope},
                  .tokens = std::make_shared<const std::vector<TokenId>>(tokens),
                  .want = want,
                  .filled = filled},
                 effects);
    book.check();
    return answer<Acquired>(sequence);
  };
  // Position 150 attends to 111 and later: from block 3 on.
  const Acquired first = acquire_filled(1, 150, 3);
  REQUIRE(first.tables[0].size() == 3);
  REQUIRE(first.tables[1] == BlockTable{kNoBlock, kNoBlock, kNoBlock});
  REQUIRE(book.counters().groups[1].available == 16);
  extend(1, 3);
  const BlockTable more = answer<Extended>(1).blocks[1];
  REQUIRE(std::count(more.begin(), more.end(), kNoBlock) == 0);
  commit(1, 0, blocks_of({1, 2}));
  REQUIRE(answer<Committed>(1).blocks[1] == BlockTable{kNoBlock, kNoBlock});
  commit(1, 2, blocks_of({3, 4, 5}));
  REQUIRE(answer<Committed>(1).blocks[1] == BlockTable{kNoBlock, more[0], more[1]});
  REQUIRE(book.counters().groups[1].cached == 2);
  release(1);

  // What was not filled is not served: a prefix of three blocks cannot be resumed, one of all five can.
  acquire(2, prompt_of({1, 2, 3}, 7), 4);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 0);
  release(2);
  acquire(3, prompt_of({1, 2, 3, 4, 5}, 8), 6);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 160);
  release(3);
  // More is cached than is filled: nothing is left out but what lies before the window of what is filled.
  const Acquired again = acquire_filled(4, 70, 6);
  REQUIRE(again.num_cached_tokens == 160);
  REQUIRE(again.tables[1][3] == more[0]);
  release(4);
  require_all_came_back();
}

TEST_CASE("a prefix is served up to the last block whose window is still cached") {
  WindowFixture f(6);
  f.acquire(1, prompt_of({1, 2, 3, 4}), 5);
  f.commit(1, 0, blocks_of({1, 2, 3, 4}));
  f.release(1);
  f.acquire(2, {7, 7}, 3);  // two free window blocks, and the one that was dropped first: of block 1
  REQUIRE(f.book.counters().groups[1].evictions == 1);
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2, 3, 4})).cached_tokens == 128);
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2, 3})).cached_tokens ==
          32);  // position 96 attends to 57, in block 1
  f.release(2);
  f.acquire(3, prompt_of({1, 2, 3}), 4);
  REQUIRE(f.answer<Acquired>(3).num_cached_tokens == 32);
  const std::vector<BlockId> table = f.answer<Acquired>(3).tables[1];
  f.commit(3, 1, blocks_of({2, 3}));
  // Block 1 has one again; block 2 has kept its own, to which the sender swaps.
  REQUIRE(f.answer<Committed>(3).blocks[1][0] == table[1]);
  REQUIRE(f.answer<Committed>(3).blocks[1][1] != table[2]);
  REQUIRE(f.answer<Committed>(3).blocks[1][1] != kNoBlock);
  f.release(3);
  f.require_all_came_back();
}

TEST_CASE("an Extend is short when window blocks are short, and a Commit frees some") {
  WindowFixture f(4);
  f.acquire(1, prompt_of({1, 2, 3, 4, 5}), 4);
  f.extend(1, 1);
  REQUIRE(f.answer<Short>(1).available == 0);
  f.commit(1, 0, blocks_of({1, 2, 3, 4}));
  f.extend(1, 3);
  REQUIRE(f.answer<Short>(1).available == 2);
  f.extend(1, 2);
  REQUIRE(f.answer<Extended>(1).blocks[1].size() == 2);
  REQUIRE(f.answer<Extended>(1).blocks[0].size() == 2);
  f.acquire(2, {9}, 1);
  REQUIRE(f.answer<Short>(2).available == 0);
  f.release(1);
  f.require_all_came_back();
}

TEST_CASE_METHOD(WindowFixture, "a window block that was swapped stays leased until the sender has seen the swap") {
  acquire(1, {1, 1}, 1);
  acquire(2, {1, 1}, 1);
  const BlockId own = answer<Acquired>(2).tables[1][0];
  commit(1, 0, blocks_of({1}));
  commit(2, 0, blocks_of({1}));
  const BlockId canonical = answer<Committed>(2).blocks[1][0];
  REQUIRE(canonical != own);
  REQUIRE(book.counters().groups[1].available == 14);
  extend(2, 1);
  REQUIRE(answer<Extended>(2).blocks[1] == std::vector<BlockId>{own});
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(WindowFixture, "a fork copies the part-full window block, and none before its parent's window") {
  auto prompt = prompt_of({1, 2, 3});
  acquire(1, prompt, 4);
  const Acquired parent = answer<Acquired>(1);
  commit(1, 0, blocks_of({1, 2, 3}));
  prompt.push_back(98);
  fork(2, {.parent = 1, .num_tokens = 97}, prompt);
  REQUIRE(answer<Acquired>(2).num_copied_tokens == 1);
  REQUIRE(answer<Acquired>(2).copy_from == std::vector<BlockId>{parent.tables[0][3], parent.tables[1][3]});
  REQUIRE(answer<Acquired>(2).tables[1].size() == 4);
  release(2);

  extend(1, 3);
  std::vector<TokenId> more(prompt.begin() + 96, prompt.begin() + 97);
  more.resize(96, 5);
  commit(1, 3, more);  // position 192 attends to 153 and later: from block 4 on
  fork(3, {.parent = 1, .num_tokens = 97}, prompt);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 96);  // still in the tree
  REQUIRE(answer<Acquired>(3).num_copied_tokens == 0);
  release(3);
  release(1);
  require_all_came_back();
}

TEST_CASE("window blocks of an old epoch, and all blocks of a replaced keeper, are freed once the epoch has quiesced") {
  WindowFixture f;
  f.acquire(1, prompt_of({1}), 2);
  f.book.begin_epoch(2);
  REQUIRE(f.book.counters().groups[1].available == 14);
  f.book.quiesced(1);
  REQUIRE(f.book.counters().groups[1].available == 16);
  LeaseBook next({.groups = {{.num_blocks = 4}, {.num_blocks = 8, .window = 40}},
                  .epoch = 3,
                  .await_quiesce = true,
                  .snapshot_rule = {.every = 32},
                  .num_snapshots = 2});
  REQUIRE((next.counters().groups[1].available == 0 && next.counters().snapshots.available == 0));
  next.quiesced(2);
  REQUIRE((next.counters().groups[1].free == 8 && next.counters().snapshots.free == 2));
}

// --- recurrent state ---

TEST_CASE_METHOD(StateFixture, "a prefix is served up to its last snapshot, and the answer names it") {
  const SnapshotId snapshot = leave_snapshot(1, {1, 2, 3});
  acquire(2, prompt_of({1, 2, 3}), 3);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 96);
  REQUIRE(answer<Acquired>(2).restore == snapshot);
  REQUIRE(answer<Acquired>(2).spares.empty());  // the next boundary is 128, beyond the table
  extend(2, 1);
  REQUIRE(answer<Extended>(2).spares.size() == 1);
  acquire(3, prompt_of({1, 2}), 3);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 0);  // there is no snapshot after 64 positions
  REQUIRE(answer<Acquired>(3).restore == kNoSnapshot);
  REQUIRE(book.counters().snapshot_hits == 1);
  release(2);
  release(3);
  require_all_came_back();
}

TEST_CASE("a snapshot is kept until the sequence that begins from it has run its first step") {
  StateFixture f(1);
  const SnapshotId snapshot = f.leave_snapshot(1, {1, 2});
  f.acquire(2, prompt_of({1, 2}), 3);
  REQUIRE(f.answer<Acquired>(2).restore == snapshot);
  f.acquire(3, prompt_of({5, 6}), 3);
  REQUIRE(f.answer<Acquired>(3).spares.empty());  // the only snapshot is to be read
  f.yield(2);
  f.extend(3, 1);
  REQUIRE(f.answer<Extended>(3).spares.empty());  // and may still be read
  auto text = prompt_of({1, 2});
  text.resize(96, 7);
  f.commit(2, 2, {text.begin() + 64, text.end()});
  f.extend(3, 1);
  REQUIRE(f.answer<Extended>(3).spares == std::vector<SnapshotId>{snapshot});
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2})).cached_tokens == 0);  // evicted; the blocks were not
  REQUIRE(f.book.counters().groups[0].evictions == 0);
  f.release(2);
  f.release(3);
  f.require_all_came_back();
}

TEST_CASE("a sequence gets a spare for each boundary within its table, two at most") {
  StateFixture f(4, {.every = 32, .at_prompt_end = false});
  f.acquire(1, prompt_of({1, 2, 3, 4, 5}), 1);
  const auto first = f.answer<Acquired>(1).spares;
  REQUIRE(first.size() == 1);
  f.extend(1, 3);
  const auto second = f.answer<Extended>(1).spares;
  REQUIRE(second.size() == 1);
  f.commit(1, 0, blocks_of({1}), second[0]);  // in any order
  const auto third = f.answer<Committed>(1).spares;
  REQUIRE(third.size() == 1);
  f.commit(1, 1, blocks_of({2, 3}), first[0]);  // passed position 64 without a snapshot
  REQUIRE(f.answer<Committed>(1).spares.empty());
  REQUIRE(f.book.counters().snapshots.cached == 2);
  f.release(1);
  f.require_all_came_back();
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2})).cached_tokens == 32);
  REQUIRE(f.book.predict({kPublicScope}, prompt_of({1, 2, 3, 4})).cached_tokens == 96);
}

TEST_CASE_METHOD(StateFixture, "a second snapshot of the same position is freed at once") {
  acquire(1, {1, 1}, 1);
  acquire(2, {1, 1}, 1);
  std::vector<TokenId> text = {1, 1};
  for (SequenceId sequence : {1, 2}) {
    text.resize(128, 1);
    extend(sequence, 3);
    const SnapshotId spare = answer<Extended>(sequence).spares.at(0);
    commit(sequence, 0, text, spare);
    REQUIRE(book.counters().snapshots.cached == 1);
    REQUIRE(book.counters().snapshots.available == 4);
  }
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE("a spare is freed once the last step of its sequence is done") {
  StateFixture f(1);
  f.acquire(1, prompt_of({1, 2}), 3);
  REQUIRE(f.answer<Acquired>(1).spares.size() == 1);
  f.release(1, 7);
  f.acquire(2, prompt_of({3, 4}), 3);
  REQUIRE(f.answer<Acquired>(2).spares.empty());
  f.book.step_done(1, 7);
  f.extend(2, 1);
  REQUIRE(f.answer<Extended>(2).spares.size() == 1);
  f.release(2);
  f.require_all_came_back();
}

TEST_CASE_METHOD(StateFixture, "an Acquire waits for a leader only where the leader leaves a snapshot") {
  acquire(1, prompt_of({1, 2, 3, 4, 5, 6}), 7);  // boundaries 128 and 192
  const auto spares = answer<Acquired>(1).spares;
  acquire(2, prompt_of({1, 2, 3}), 4);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 0);
  acquire(3, prompt_of({1, 2, 3, 4, 9}), 6);
  REQUIRE(answer<Wait>(3).leader == 1);
  REQUIRE(book.predict({kPublicScope}, prompt_of({1, 2, 3, 4, 9})).in_flight_tokens == 128);
  commit(1, 0, blocks_of({1, 2, 3, 4}), spares[0]);
  REQUIRE(answer<Acquired>(3).num_cached_tokens == 128);
  REQUIRE(answer<Acquired>(3).restore == spares[0]);
  for (SequenceId sequence : {1, 2, 3}) release(sequence);
  require_all_came_back();
}

TEST_CASE("without memory for snapshots no Acquire waits for a leader") {
  StateFixture book(0);
  const std::vector<TokenId> prompt = prompt_of({1, 2, 3, 4, 5});
  REQUIRE(std::holds_alternative<Acquired>(book.acquire(1, prompt, 6).answers.at(0).body));
  REQUIRE(book.book.predict({kPublicScope}, prompt).in_flight_tokens == 0);
  REQUIRE(std::holds_alternative<Acquired>(book.acquire(2, prompt, 6).answers.at(0).body));
}

TEST_CASE_METHOD(StateFixture, "a fork begins at a snapshot and copies nothing") {
  acquire(1, prompt_of({1, 2}), 3);
  const SnapshotId spare = answer<Acquired>(1).spares.at(0);
  commit(1, 0, blocks_of({1, 2}), spare);
  auto longer = prompt_of({1, 2});
  longer.push_back(5);
  fork(2, {.parent = 1, .num_tokens = 65}, longer, 3);
  REQUIRE(answer<Acquired>(2).num_cached_tokens == 64);
  REQUIRE(answer<Acquired>(2).num_copied_tokens == 0);
  REQUIRE(answer<Acquired>(2).restore == spare);
  release(1);
  release(2);
  require_all_came_back();
}

TEST_CASE_METHOD(StateFixture, "a snapshot is evicted with its block, and its prefix is not served any more") {
  leave_snapshot(1, {1, 2});
  acquire(2, {9}, 16);                           // evicts both blocks
  REQUIRE(book.counters().snapshots.free == 2);  // the other two are spares
  REQUIRE(book.counters().snapshots.cached == 0);
  release(2);
  require_all_came_back();
}
