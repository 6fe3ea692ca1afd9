// Measures the server's memory for status queries, on a thread of its own: reading /proc, and asking the kernel which
// pages of the cache are resident, would block an actor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "actors/requests/status_snapshot.h"
#include "actors/threads/thread_pool.h"
#include "engine/memory/process_memory.h"

namespace troupe::actors {

// This process's memory by kind, for `troupe status`. The sum is the resident memory that the kernel reports, within
// 5 % (tests/cli/serve_test.cpp). The kinds, in this order:
//   weights, kv_cache, snapshots, step_buffers, vocabulary, forms, streams  as KnownMemory has them
//   heap       other allocated memory: actors, queues, connections, the prefix tree
//   heap_free  free memory of the allocator, at most the resident memory less all other kinds
//   runtime    stacks and relocated data, as measured before the model was loaded
//   code       of the program and its libraries: file-backed pages, as the kernel counts them now
// Thread-safe.
class MemoryLedger {
 public:
  // now: measured before the model is loaded.
  explicit MemoryLedger(const engine::ProcessMemory& now);

  [[nodiscard]] std::vector<MemoryUse> entries(const KnownMemory& known, const engine::ProcessMemory& now);

 private:
  std::uint64_t runtime_bytes_;
  std::mutex mutex_;
  std::vector<MemoryUse> last_;  // for the peaks
};

// The oldest survey that answers a status query.
inline constexpr std::chrono::milliseconds kMaxSurveyAge{100};

// Of each unit, by its id.
using MemoryOfUnits = std::vector<std::pair<UnitId, KnownMemory>>;

struct MemoryReport {
  std::vector<MemoryUse> kinds;  // as MemoryLedger lists them
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  MemoryOfUnits units{};  // what each of them adds to `kinds`
};

// Thread-safe. The thread measures only while it is asked to.
class MemorySurvey {
 public:
  using Clock = std::chrono::steady_clock;

  // cpus: the thread is bound to these; empty: not bound. now: for tests; may be called on any thread.
  explicit MemorySurvey(std::function<MemoryReport()> measure, std::vector<int> cpus = {},
                        std::function<Clock::time_point()> now = Clock::now);
  ~MemorySurvey() { stop(); }

  // Calls `done` as soon as last() is at most kMaxSurveyAge old: at once, or on the survey's thread. One survey is made
  // for all calls that wait.
  void when_fresh(std::function<void()> done);
  [[nodiscard]] MemoryReport last() const;
  // Ends the thread after it has called all waiting `done`. After that no survey is made, and when_fresh() calls at
  // once.
  void stop();

 private:
  void survey();

  const std::function<MemoryReport()> measure_;
  const std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  MemoryReport last_;
  std::optional<Clock::time_point> measured_at_;
  std::vector<std::function<void()>> waiting_;
  bool is_surveying_ = false;  // survey() is posted or running; always true while `waiting_` has any
  bool stopped_ = false;
  std::unique_ptr<ThreadPool> thread_;
};

}  // namespace troupe::actors
