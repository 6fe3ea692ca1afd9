// Surveys of memory: recent, made by another thread, and one for all queries that wait.
#include "actors/status/memory_survey.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

namespace troupe::actors {
namespace {

TEST_CASE("memory ledger: the allocator's free memory counts up to the resident memory, and peaks stay") {
  MemoryLedger ledger({.resident = 100, .file_backed = 60, .heap_used = 30});
  const auto find = [](const std::vector<MemoryUse>& uses, const std::string& kind) {
    for (const MemoryUse& use : uses)
      if (use.kind == kind) return use;
    FAIL("no " << kind);
    return MemoryUse{};
  };
  const auto sum = [](const std::vector<MemoryUse>& uses) {
    std::uint64_t bytes = 0;
    for (const MemoryUse& use : uses) bytes += use.bytes;
    return bytes;
  };
  const KnownMemory known{.weights = 1000, .weights_on_heap = 20, .vocabulary = 50, .kv_cache = 300, .streams = 5};
  const auto busy = ledger.entries(known, {.resident = 1600, .file_backed = 70, .heap_used = 200, .heap_free = 500});
  CHECK(find(busy, "runtime").bytes == 10);
  CHECK(find(busy, "heap").bytes == 125);      // less what other kinds count
  CHECK(find(busy, "heap_free").bytes == 40);  // not 500: RSS has no room for it
  CHECK(sum(busy) == 1600);
  const auto quiet = ledger.entries(known, {.resident = 2000, .file_backed = 70, .heap_used = 100, .heap_free = 300});
  CHECK(find(quiet, "heap").bytes == 25);
  CHECK(find(quiet, "heap").peak_bytes == 125);
  CHECK(find(quiet, "heap_free").bytes == 300);  // 2000 - 1760 are missing: something is not counted, and it shows
  CHECK(sum(quiet) == 1760);
}

// A clock that stands still until the test moves it on.
class TestClock {
 public:
  void advance(std::chrono::milliseconds time) { ms_ += time.count(); }
  std::function<MemorySurvey::Clock::time_point()> now() {
    return [this] { return MemorySurvey::Clock::time_point(std::chrono::milliseconds(ms_.load())); };
  }

 private:
  std::atomic<std::int64_t> ms_{1000};
};

TEST_CASE("memory survey: it is made on a thread of its own, when asked for, and is used until it is too old") {
  TestClock clock;
  std::atomic<int> num_made{0};
  std::thread::id made_by;
  MemorySurvey survey(
      [&] {
        made_by = std::this_thread::get_id();
        return MemoryReport{.kinds = {}, .resident_bytes = static_cast<std::uint64_t>(++num_made)};
      },
      {}, clock.now());
  CHECK(survey.last().resident_bytes == 0);
  const auto ask = [&] {
    std::promise<std::uint64_t> seen;
    survey.when_fresh([&] { seen.set_value(survey.last().resident_bytes); });
    return seen.get_future().get();
  };
  CHECK(ask() == 1);
  CHECK(made_by != std::this_thread::get_id());
  clock.advance(kMaxSurveyAge);
  CHECK(ask() == 1);  // until it is too old
  clock.advance(std::chrono::milliseconds(1));
  CHECK(ask() == 2);
  clock.advance(10 * kMaxSurveyAge);
  survey.stop();         // ends the thread
  CHECK(num_made == 2);  // none is made unasked
}

TEST_CASE("memory survey: while one is made when_fresh() does not block, and all queries that wait share the next") {
  std::promise<void> begun, go_on;
  std::atomic<int> num_made{0};
  MemorySurvey survey([&] {
    if (++num_made == 1) {
      begun.set_value();
      go_on.get_future().wait();
    }
    return MemoryReport{};
  });
  std::atomic<int> num_called{0};
  survey.when_fresh([&] { ++num_called; });
  begun.get_future().wait();
  for (int i = 0; i < 3; ++i) survey.when_fresh([&] { ++num_called; });  // returns at once
  CHECK(survey.last().resident_bytes == 0);
  CHECK(num_called == 0);
  go_on.set_value();
  survey.stop();
  CHECK(num_called == 4);
  CHECK(num_made == 2);
  survey.when_fresh([&] { ++num_called; });
  CHECK(num_called == 5);
  CHECK(num_made == 2);
}

TEST_CASE("memory survey: a callback may read the survey when it is destroyed, as a status query does") {
  MemorySurvey survey([] { return MemoryReport{.kinds = {}, .resident_bytes = 7}; });
  std::promise<std::uint64_t> seen;
  auto looks_at_its_end = std::shared_ptr<int>(new int, [&](int* number) {
    delete number;
    seen.set_value(survey.last().resident_bytes);
  });
  survey.when_fresh([held = std::move(looks_at_its_end)] {});
  CHECK(seen.get_future().get() == 7);
}

TEST_CASE("memory survey: without memory for a new one the last one stays") {
  TestClock clock;
  std::atomic<int> num_made{0};
  MemorySurvey survey(
      [&]() -> MemoryReport {
        if (++num_made == 2) throw std::bad_alloc();
        return {.kinds = {}, .resident_bytes = 7};
      },
      {}, clock.now());
  for (int i = 0; i < 2; ++i) {
    std::promise<void> done;
    survey.when_fresh([&] { done.set_value(); });
    done.get_future().wait();
    CHECK(survey.last().resident_bytes == 7);
    clock.advance(2 * kMaxSurveyAge);
  }
  CHECK(num_made == 2);
}

}  // namespace
}  // namespace troupe::actors
