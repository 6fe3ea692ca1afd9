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
  const auto first = queue.pop();
  REQUIRE(first->is_large);
  REQUIRE(queue.pop()->is_large);
  REQUIRE(queue.pop()->item.number == 100);
  REQUIRE(queue.pop()->item.number == 101);
  REQUIRE_FALSE(queue.pop());
  queue.done(*first, 0);
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
      TextQueue<Text>::Next text;
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
        running.push_back({next->item.bytes + 1, next->is_large, *next});
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
        if (text.left == 0) queue.done(text.text, 0);
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

// Three threads, of which two take large texts, and what each does: a user's renderings of a second each, and others'
// texts. Time is a number.
class Replay {
 public:
  using Queue = TextQueue<int>;

  void push(std::uint32_t uid, std::uint64_t bytes, std::uint64_t takes_ms, Queue::Work work = Queue::Work::text) {
    takes_.push_back(takes_ms);
    begun_.push_back(-1);
    queue_.push(TenantId{uid}, bytes, static_cast<int>(takes_.size() - 1), work);
  }
  void run_until(std::int64_t now) {
    while (true) {
      while (running_.size() < 3) {
        auto next = queue_.pop();
        if (!next) break;
        const auto number = static_cast<std::size_t>(next->item);
        begun_[number] = now_;
        running_.emplace(now_ + static_cast<std::int64_t>(takes_[number]), *std::move(next));
      }
      if (running_.empty() || running_.begin()->first > now) break;
      now_ = running_.begin()->first;
      const Queue::Next done = running_.begin()->second;
      running_.erase(running_.begin());
      queue_.done(done, takes_[static_cast<std::size_t>(done.item)] * 1'000'000);
    }
    now_ = now;
  }
  std::int64_t begun(std::size_t number) const { return begun_[number]; }

 private:
  Queue queue_{2};
  std::vector<std::uint64_t> takes_;
  std::vector<std::int64_t> begun_;
  std::multimap<std::int64_t, Queue::Next> running_;  // by their ends
  std::int64_t now_ = 0;
};

TEST_CASE("beside renderings of a second each another user's long text waits for two of them at most") {
  for (const std::int64_t comes_at : {1, 500, 999, 1001, 2500}) {
    for (const std::uint64_t bytes : {60u, 40'000u}) {
      INFO("at " << comes_at << ", of " << bytes << " bytes");
      Replay replay;
      for (int i = 0; i < 16; ++i) replay.push(1, bytes, 1000, Replay::Queue::Work::rendering);
      replay.run_until(comes_at);
      replay.push(2, 40'000, 30);
      replay.push(3, 5, 1);
      replay.run_until(100'000);
      CHECK(replay.begun(16) - comes_at <= 2000);
      CHECK(replay.begun(17) == comes_at);  // a small one has a thread
    }
  }
}

TEST_CASE("a user whose texts take long gets turns by the time that they took, not by their bytes") {
  Replay replay;
  for (int i = 0; i < 20; ++i) replay.push(1, 20'000, 1000, Replay::Queue::Work::rendering);
  for (int i = 0; i < 20; ++i) replay.push(2, 20'000, 10, Replay::Queue::Work::rendering);
  replay.run_until(100'000);
  // All of the quick user's are done beside the first few of the slow one's.
  CHECK(replay.begun(39) < 3000);
}

TEST_CASE("renderings of a user whose last one was quick are small, until one is not") {
  Replay replay;
  using Work = Replay::Queue::Work;
  replay.push(1, 60, 1, Work::rendering);
  replay.run_until(10);
  for (int i = 0; i < 2; ++i) replay.push(2, 40'000, 1000);
  replay.push(1, 60, 1000, Work::rendering);  // beside two long texts of another user
  replay.push(1, 60, 1, Work::rendering);
  replay.push(1, 60, 1, Work::rendering);
  replay.run_until(11);
  CHECK(replay.begun(3) == 10);
  replay.run_until(10'000);
  CHECK(replay.begun(4) >= 1010);
  replay.run_until(20'000);
  for (int i = 0; i < 2; ++i) replay.push(2, 40'000, 1000);
  replay.push(1, 60, 1, Work::rendering);
  replay.run_until(30'000);
  CHECK(replay.begun(8) == 20'000);  // quick again
}

}  // namespace
}  // namespace troupe::scheduler
