// One thread for the jobs of several tenants, which take turns by the time that their jobs took.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "actors/threads/thread_pool.h"
#include "scheduler/shares/turn_list.h"

namespace troupe::actors {

// scheduler::TurnList decides the order, with microseconds as cost: a tenant that had less of the thread goes first, so
// one without jobs lately waits for the running job and for at most one of each other tenant. The jobs of one tenant
// run in the order in which they were posted. Without a bound: the callers have one. Thread-safe.
class TurnThread {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  // name, cpus: as for ThreadPool. clock: measures the jobs.
  TurnThread(std::string name, const std::vector<int>& cpus, Clock clock);
  // Runs all posted jobs, then joins.
  ~TurnThread() = default;

  void post(TenantId tenant, std::function<void()> job);
  // Returns once all jobs have run that were posted before.
  void wait();

 private:
  using Job = std::pair<TenantId, std::function<void()>>;
  void run_next();

  const Clock clock_;
  std::mutex mutex_;
  scheduler::TurnList<Job> jobs_;
  ThreadPool thread_;  // last: it uses the above. As many jobs of it wait as jobs_ has
};

}  // namespace troupe::actors
