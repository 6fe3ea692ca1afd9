#include "actors/status/memory_survey.h"

#include <new>
#include <utility>

namespace troupe::actors {

using Clock = std::chrono::steady_clock;

MemorySurvey::MemorySurvey(std::function<MemoryReport()> measure, std::vector<int> cpus)
    : measure_(std::move(measure)), thread_(std::make_unique<ThreadPool>("survey", 1, 1, std::move(cpus))) {}

void MemorySurvey::when_fresh(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    const bool is_fresh = measured_at_ && Clock::now() - *measured_at_ <= kMaxSurveyAge;
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
    const Clock::time_point begin = Clock::now();
    std::optional<MemoryReport> report;
    try {
      report = measure_();
    } catch (const std::bad_alloc&) {
      // The last one has to do.
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
