#include "actors/threads/turn_thread.h"

#include <cstdint>
#include <future>
#include <limits>

#include "config/assert.h"

namespace troupe::actors {

TurnThread::TurnThread(std::string name, const std::vector<int>& cpus, Clock clock)
    : clock_(std::move(clock)), thread_(std::move(name), 1, std::numeric_limits<std::size_t>::max(), cpus) {}

void TurnThread::post(TenantId tenant, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push(tenant, {tenant, std::move(job)});
  }
  const bool posted = thread_.post([this] { run_next(); });
  TROUPE_ASSERT(posted);
}

void TurnThread::wait() {
  std::promise<void> reached;
  const bool posted = thread_.post([&] { reached.set_value(); });
  TROUPE_ASSERT(posted);
  reached.get_future().wait();
}

void TurnThread::run_next() {
  std::unique_lock lock(mutex_);
  auto next = jobs_.pop();
  TROUPE_ASSERT(next);
  lock.unlock();
  auto& [tenant, job] = *next;
  const auto began = clock_();
  job();
  job = nullptr;
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(clock_() - began).count();
  lock.lock();
  jobs_.charge(tenant, static_cast<std::uint64_t>(took));
}

}  // namespace troupe::actors
