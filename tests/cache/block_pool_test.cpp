#include "cache/block_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <map>
#include <optional>
#include <random>

using namespace troupe;
using namespace troupe::cache;

namespace {

// Whether `action` ends its process by an assertion.
template <class Action>
bool asserts(Action action) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);  // not Catch's handler, which would print a report
    action();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

TEST_CASE("a block pool hands out each block once") {
  BlockPool pool(3);
  REQUIRE(pool.num_blocks() == 3);
  const BlockId a = pool.allocate(), b = pool.allocate(), c = pool.allocate();
  REQUIRE(pool.num_free() == 0);
  REQUIRE((a != b && b != c && a != c));
  REQUIRE((a < 3 && b < 3 && c < 3));
  for (BlockId block : {a, b, c}) pool.release(block);
  REQUIRE(pool.num_free() == 3);
}

TEST_CASE("a block is free when its last reference is released") {
  BlockPool pool(1);
  const BlockId block = pool.allocate();
  pool.retain(block);
  REQUIRE(pool.references(block) == 2);
  pool.release(block);
  REQUIRE(pool.num_free() == 0);
  pool.release(block);
  REQUIRE(pool.num_free() == 1);
  REQUIRE(pool.references(block) == 0);
}

TEST_CASE("a block pool that is never full touches the low blocks only") {
  BlockPool pool(100);
  for (int i = 0; i < 50; ++i) {
    const BlockId a = pool.allocate(), b = pool.allocate();
    REQUIRE((a < 2 && b < 2));
    pool.release(a);
    pool.release(b);
  }
}

TEST_CASE("a block pool asserts that every block is released, and none twice") {
  REQUIRE(asserts([] { static_cast<void>(BlockPool(1).allocate()); }));
  REQUIRE(asserts([] { BlockPool(1).release(0); }));
  REQUIRE(asserts([] { BlockPool(1).retain(0); }));
  REQUIRE(asserts([] { static_cast<void>(BlockPool(0).allocate()); }));
  REQUIRE_FALSE(asserts([] {
    BlockPool pool(1);
    pool.release(pool.allocate());
  }));
}

TEST_CASE("a block pool agrees with a map over random operations") {
  std::mt19937_64 random(17);
  BlockPool pool(20);
  std::map<BlockId, std::uint32_t> twin;  // references of the blocks in use
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t dice = random() % 3;
    if (dice == 0 && twin.size() < 20) {
      const BlockId block = pool.allocate();
      REQUIRE(twin.emplace(block, 1).second);
    } else if (!twin.empty()) {
      auto any = std::next(twin.begin(), static_cast<std::ptrdiff_t>(random() % twin.size()));
      if (dice == 1) {
        pool.retain(any->first);
        ++any->second;
      } else {
        pool.release(any->first);
        if (--any->second == 0) twin.erase(any);
      }
    }
    REQUIRE(pool.num_free() == 20 - twin.size());
    for (const auto& [block, references] : twin) REQUIRE(pool.references(block) == references);
  }
  for (const auto& [block, references] : twin)
    for (std::uint32_t i = 0; i < references; ++i) pool.release(block);
}
