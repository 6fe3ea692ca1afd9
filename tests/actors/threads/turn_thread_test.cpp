#include "actors/threads/turn_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

namespace troupe::actors {
namespace {

using namespace std::chrono_literals;

constexpr TenantId kAnna{1}, kBernd{2}, kCat{3};

// A thread whose jobs take as long as they say, by a clock that they move; it stands still until go().
class Turns {
 public:
  Turns() {
    thread_.post(kCat, [this] { begun_.get_future().wait(); });
  }
  void post(TenantId tenant, std::chrono::milliseconds time = 0ms) {
    thread_.post(tenant, [this, tenant, time] {
      now_ += time;
      order_.push_back(tenant);
    });
  }
  std::vector<TenantId> go() {
    begun_.set_value();
    thread_.wait();
    return order_;
  }

 private:
  std::chrono::steady_clock::time_point now_{};  // used by the thread alone
  std::vector<TenantId> order_;
  std::promise<void> begun_;
  TurnThread thread_{"turns", {}, [this] { return now_; }};
};

}  // namespace

TEST_CASE("turn thread: one job of another tenant waits for one of a crowd, not for all") {
  Turns turns;
  for (int i = 0; i < 60; ++i) turns.post(kAnna);
  turns.post(kBernd);
  const auto order = turns.go();
  REQUIRE(order.size() == 61);
  CHECK(order[1] == kBernd);
}

TEST_CASE("turn thread: tenants have equal time, not equal numbers of jobs") {
  Turns turns;
  for (int i = 0; i < 10; ++i) turns.post(kAnna, 10ms);
  for (int i = 0; i < 30; ++i) turns.post(kBernd, 1ms);
  const auto order = turns.go();
  // Until Ben's are all run, one of Ann's has the time of ten of his.
  const auto last = std::find(order.rbegin(), order.rend(), kBernd).base();
  CHECK(std::count(order.begin(), last, kAnna) <= 4);
}

TEST_CASE("turn thread: the jobs of one tenant keep their order") {
  std::vector<int> order;
  TurnThread thread("turns", {}, [] { return std::chrono::steady_clock::time_point{}; });
  for (int i = 0; i < 20; ++i) thread.post(kAnna, [&order, i] { order.push_back(i); });
  thread.wait();
  CHECK(std::is_sorted(order.begin(), order.end()));
  CHECK(order.size() == 20);
}

}  // namespace troupe::actors
