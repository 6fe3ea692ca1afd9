#include "actors/status/memory_survey.h"

#include <algorithm>
#include <new>
#include <utility>

namespace troupe::actors {

namespace {

std::uint64_t without(std::uint64_t whole, std::uint64_t part) { return whole - std::min(whole, part); }

}  // namespace

MemoryLedger::MemoryLedger(const engine::ProcessMemory& now)
    : runtime_bytes_(without(now.resident, now.file_backed + now.heap_used + now.heap_free)) {}

std::vector<MemoryUse> MemoryLedger::entries(const KnownMemory& known, const engine::ProcessMemory& now) {
  const std::uint64_t heap =
      without(now.heap_used, known.weights_on_heap + known.vocabulary + known.forms + known.streams);
  std::vector<MemoryUse> all{{"weights", known.weights},       {"kv_cache", known.kv_cache},
                             {"snapshots", known.snapshots},   {"step_buffers", known.step_buffers},
                             {"vocabulary", known.vocabulary}, {"forms", known.forms},
                             {"streams", known.streams},       {"heap", heap},
                             {"runtime", runtime_bytes_},      {"code", now.file_backed}};
  std::uint64_t sum = 0;
  for (const MemoryUse& use : all) sum += use.bytes;
  // Most free pages of an allocator arena were never touched: they count only up to the resident memory that no other
  // kind accounts for.
  all.insert(all.end() - 2, {"heap_free", std::min(now.heap_free, without(now.resident, sum))});

  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].peak_bytes = std::max(all[i].bytes, last_.empty() ? 0 : last_[i].peak_bytes);
  }
  last_ = all;
  return all;
}

MemorySurvey::MemorySurvey(std::function<MemoryReport()> measure, std::vector<int> cpus,
                           std::function<Clock::time_point()> now)
    : measure_(std::move(measure)),
      now_(std::move(now)),
      thread_(std::make_unique<ThreadPool>("survey", 1, 1, std::move(cpus))) {}

void MemorySurvey::when_fresh(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    const bool is_fresh = measured_at_ && now_() - *measured_at_ <= kMaxSurveyAge;
    if (!stopped_ && !is_fresh) {
      waiting_.push_back(std::move(done));
      if (!is_surveying_) is_surveying_ = thread_->post([this] { survey(); });
      return;
    }
  }
  done();
}

MemoryReport MemorySurvey::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void MemorySurvey::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  thread_.reset();
}

void MemorySurvey::survey() {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    std::vector<std::function<void()>> waiting = std::exchange(waiting_, {});
    lock.unlock();
    const Clock::time_point begin = now_();
    std::optional<MemoryReport> report;
    try {
      report = measure_();
    } catch (const std::bad_alloc&) {
      // The last report stays.
    }
    lock.lock();
    if (report) last_ = std::move(*report);
    measured_at_ = begin;
    lock.unlock();
    // Destroyed without the lock, too: the end of a query may call last().
    for (auto& done : waiting) std::exchange(done, nullptr)();
    lock.lock();
  }
  is_surveying_ = false;
}

}  // namespace troupe::actors
