// The threads that compute: a team, and the one thread that runs jobs and leads the team; and a thread that loads
// models.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "actors/threads/compute_shares.h"
#include "actors/threads/thread_pool.h"
#include "engine/compute/team.h"
#include "scheduler/job_queue.h"

namespace troupe::actors {

// Runs jobs one at a time, in the order of scheduler::JobQueue: those of one unit in the order they were posted. Steps,
// passes and waiting for the last step of a dead actor are all jobs, so none of them needs a lock. A load runs beside
// the jobs.
class Compute {
 public:
  virtual ~Compute() = default;
  virtual void post(const scheduler::JobSource& source, scheduler::Job job) = 0;  // any thread; the job must not throw
  virtual engine::Team& team() = 0;                                               // for use inside jobs

  // Runs a load, after those that were posted before it. Its team is its own, and gone after it. A load that begins
  // after the first job leaves most of the CPUs' time to jobs. Any thread; the load must not throw.
  virtual void post_load(std::function<void(engine::Team&)> load) = 0;
  // For a load: runs a job of the kind `measuring` and returns once it has run. Throws what the job throws.
  virtual void measure(const scheduler::JobSource& source, const std::function<void()>& job) = 0;

  // What the tenants were served by all units that compute here.
  [[nodiscard]] const std::shared_ptr<ServedAccounts>& accounts() const { return accounts_; }

 private:
  const std::shared_ptr<ServedAccounts> accounts_ = std::make_shared<ServedAccounts>();
};

// The real one: no actor runs on its threads. One pool spans all NUMA nodes of the CPUs that it is given; with CPUs,
// each thread of a team is bound to its own, so what it touches first lies near it: a load's team has the CPUs of the
// steps'. The destructor runs all that is posted.
class ComputePool final : public Compute {
 public:
  // cpus[i]: the CPU of team thread i; empty: no thread is bound.
  ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus);
  ~ComputePool() override;

  void post(const scheduler::JobSource& source, scheduler::Job job) override;
  engine::Team& team() override { return team_; }
  void post_load(std::function<void(engine::Team&)> load) override;
  void measure(const scheduler::JobSource& source, const std::function<void()>& job) override;

  // Stops the teams for good (engine::Team::stop()): a running step, pass or load ends with engine::Stopped, and so do
  // those that begin later. Any thread.
  void stop();

 private:
  void lead();
  void wait_for_job(std::unique_lock<std::mutex>& lock, double until);
  void load(const std::function<void(engine::Team&)>& load);

  const std::vector<int> cpus_;
  engine::Team team_;

  std::mutex mutex_;
  std::condition_variable posted_;
  scheduler::JobQueue jobs_;
  std::atomic<std::uint64_t> num_posted_{0};  // also to be read without the lock
  bool ending_ = false;
  bool stopped_ = false;
  engine::Team* load_team_ = nullptr;  // of the running load

  bool loads_are_nice_ = false;  // used by the loader
  std::thread leader_;
  std::optional<ThreadPool> loader_;  // ends first: a load waits for jobs
};

}  // namespace troupe::actors
