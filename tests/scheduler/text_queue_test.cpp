#include "scheduler/shares/text_queue.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <vector>

namespace troupe::scheduler {
namespace {

struct Text {
  std::uint32_t uid;
  std::uint64_t bytes;
  int number;
};

TEST_CASE("a thread stays free for small texts, and large ones go before them on the others") {
  TextQueue<Text> queue(2);
  for (int i = 0; i < 40; ++i) queue.push(TenantId{1}, 1 << 20, {1, 1 << 20, i});
  queue.push(TenantId{1}, 5, {1, 5, 100});
  queue.push(TenantId{2}, 5, {2, 5, 101});
  REQUIRE(queue.pop()->is_large);
  REQUIRE(queue.pop()->is_large);
  REQUIRE(queue.pop()->item.number == 100);
  REQUIRE(queue.pop()->item.number == 101);
  REQUIRE_FALSE(queue.pop());
  queue.large_done();
  REQUIRE(queue.pop()->item.number == 2);
  REQUIRE(queue.remove_if([](const Text& text) { return text.uid == 1; }).size() == 37);
  REQUIRE(queue.size() == 0);
}

// One user floods with texts of all sizes; others, each new, send a small one now and then.
TEST_CASE("however much one user sends, another's small text waits for one small text of each other user at most") {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    std::mt19937 random(seed);
    constexpr std::uint32_t kMaxLarge = 2;
    TextQueue<Text> queue(kMaxLarge);
    struct Running {
      std::uint64_t left;
      bool is_large;
    };
    std::vector<Running> running;
    std::map<std::uint32_t, std::map<std::uint32_t, int>>
        overtaken;  // by waiting user: how many texts of each other user went before
    std::uint32_t last_uid = 1;
    int pushed = 0, done = 0;
    const auto start = [&] {
      while (running.size() <= kMaxLarge) {
        const auto next = queue.pop();
        if (!next) return;
        running.push_back({next->item.bytes + 1, next->is_large});
        if (next->is_large) continue;
        overtaken.erase(next->item.uid);
        for (auto& [uid, others] : overtaken) REQUIRE(++others[next->item.uid] <= 1);
      }
    };
    std::uint64_t most_large = 0;
    for (int tick = 0; tick < 30000; ++tick) {
      if (tick < 20000 && random() % 50 == 0) {
        const std::uint64_t bytes = random() % 3 == 0 ? random() % 16000 : 20000 + random() % 100000;
        queue.push(TenantId{1}, bytes, {1, bytes, pushed++});
      }
      if (tick < 20000 && random() % 200 == 0) {
        overtaken[++last_uid] = {};
        queue.push(TenantId{last_uid}, 5, {last_uid, 5, pushed++});
      }
      start();
      std::uint64_t num_large = 0;
      for (Running& text : running) {
        text.left -= std::min<std::uint64_t>(text.left, 1000);
        num_large += text.is_large;
        if (text.left == 0 && text.is_large) queue.large_done();
        if (text.left == 0) ++done;
      }
      most_large = std::max(most_large, num_large);
      std::erase_if(running, [](const Running& text) { return text.left == 0; });
    }
    REQUIRE(most_large == kMaxLarge);
    REQUIRE(queue.size() == 0);
    REQUIRE(done == pushed);
  }
}

}  // namespace
}  // namespace troupe::scheduler
