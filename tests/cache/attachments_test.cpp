#include "cache/attachments.h"

#include <catch2/catch.hpp>

#include "cache/group.h"
#include "cache/snapshot_rule.h"

using namespace troupe;
using namespace troupe::cache;

TEST_CASE(
    "attached ids without holders are evicted by the order of their last use, and their radix nodes have none then") {
  Attachments attachments(/*num_radix_nodes=*/8, /*num_ids=*/3);
  Attachments::Id ids[3];
  for (BlockId node = 0; node < 3; ++node) {
    ids[node] = attachments.take();
    attachments.attach(node, ids[node]);
    attachments.drop(ids[node]);
  }
  REQUIRE(attachments.num_attached() == 3);
  REQUIRE((attachments.num_free() == 0 && attachments.available() == 3));
  attachments.hold(ids[0]);  // used again
  attachments.drop(ids[0]);
  attachments.check();
  REQUIRE(attachments.take() == ids[1]);
  REQUIRE(attachments.take() == ids[2]);
  REQUIRE((attachments.of(1) == Attachments::kNone && attachments.of(2) == Attachments::kNone));
  REQUIRE(attachments.of(0) == ids[0]);
  REQUIRE(attachments.num_evictions() == 2);
  attachments.check();
  attachments.drop(ids[1]);  // never attached: free at once
  attachments.drop(ids[2]);
  REQUIRE((attachments.num_free() == 2 && attachments.available() == 3));
}

TEST_CASE("a held id is not evicted, and stays held when its radix node is evicted") {
  Attachments attachments(8, 2);
  const Attachments::Id id = attachments.take();
  attachments.attach(5, id);
  REQUIRE(attachments.available() == 1);
  attachments.detach(5);
  REQUIRE(attachments.of(5) == Attachments::kNone);
  REQUIRE((attachments.held(id) && attachments.available() == 1));
  attachments.check();
  attachments.drop(id);
  REQUIRE(attachments.num_free() == 2);
  attachments.detach(5);  // has no id: no effect
}

TEST_CASE("without ids no memory is used per radix node") {
  Attachments attachments(8, 0);
  REQUIRE(attachments.of(7) == Attachments::kNone);
  attachments.detach(7);
  REQUIRE(attachments.available() == 0);
  attachments.check();
}

TEST_CASE("the first block that a window reaches") {
  for (std::uint32_t window : {1u, 2u, 16u, 31u, 32u, 33u, 34u, 64u, 65u, 100u}) {
    std::uint32_t most = 0;
    for (std::uint32_t position = 0; position < 400; ++position) {
      const std::uint32_t oldest_seen = position + 1 < window ? 0 : position + 1 - window;
      INFO("window " << window << ", position " << position);
      REQUIRE(first_window_block(position, window) == oldest_seen / kBlockSize);
      most = std::max(most, position / kBlockSize - oldest_seen / kBlockSize + 1);
    }
    REQUIRE(most_window_blocks(window) == most);
  }
}

TEST_CASE("the blocks that a step of several tokens needs with a window, and how long a step some blocks allow") {
  for (std::uint32_t window : {1u, 2u, 31u, 32u, 33u, 34u, 65u, 100u}) {
    for (std::uint32_t chunk : {1u, 2u, 31u, 32u, 33u, 64u, 100u}) {
      std::uint32_t most = 0;
      for (std::uint32_t position = 0; position < 400; ++position) {
        const std::uint32_t last = (position + chunk - 1) / kBlockSize;
        most = std::max(most, last - first_window_block(position, window) + 1);
      }
      INFO("window " << window << ", " << chunk << " tokens");
      REQUIRE(most_window_blocks(window, chunk) == most);
      REQUIRE(longest_window_chunk(window, most) >= chunk);
    }
    for (std::uint32_t blocks = 1; blocks < 9; ++blocks) {
      const std::uint32_t longest = longest_window_chunk(window, blocks);
      INFO("window " << window << ", " << blocks << " blocks");
      if (longest > 0) REQUIRE(most_window_blocks(window, longest) <= blocks);
      REQUIRE(most_window_blocks(window, longest + 1) > blocks);
    }
  }
}

TEST_CASE("snapshots are taken before the last token of a prompt, and every so many positions") {
  const SnapshotRule rule{.every = 128};
  REQUIRE(rule.next_after(0, 100) == 96);
  REQUIRE(rule.next_after(96, 100) == 128);
  REQUIRE(rule.next_after(128, 100) == 256);
  REQUIRE(rule.next_after(0, 97) == 96);
  REQUIRE(rule.next_after(0, 96) == 64);  // its last token is always computed
  REQUIRE(rule.next_after(0, 32) == 128);
  REQUIRE(rule.next_after(0, 300) == 128);
  REQUIRE(rule.next_after(256, 300) == 288);
  REQUIRE(rule.last_up_to(95, 100) == 0);
  REQUIRE(rule.last_up_to(96, 100) == 96);
  REQUIRE(rule.last_up_to(127, 100) == 96);
  REQUIRE(rule.last_up_to(128, 100) == 128);
  REQUIRE(rule.last_up_to(287, 300) == 256);
}

TEST_CASE("with rounded state snapshots are taken at fixed positions only") {
  const SnapshotRule rule{.every = 64, .at_prompt_end = false};
  REQUIRE(rule.next_after(0, 100) == 64);
  REQUIRE(rule.next_after(64, 100) == 128);
  REQUIRE(rule.last_up_to(127, 100) == 64);
  REQUIRE(rule.last_up_to(63, 60) == 0);
}
