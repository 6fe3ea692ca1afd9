// Where steps are computed: a team of threads, and the one thread that leads it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/threads/thread_pool.h"
#include "engine/compute/team.h"

namespace troupe::actors {

// Runs jobs one at a time, in the order they were posted. Loading, steps and the waiting for a step that a
// dead actor left behind are jobs alike, so none of them needs a lock.
class Compute {
 public:
  virtual ~Compute() = default;
  virtual void post(std::function<void()> job) = 0;  // any thread; the job must not throw
  virtual engine::Team& team() = 0;                  // for use inside jobs
};

// The real one: no actor runs on its threads. One pool spans all NUMA nodes it was given CPUs of; the
// team's threads are bound one by one, so what a thread touches first lies near it.
class ComputePool final : public Compute {
 public:
  // cpus: where thread i of the team goes; empty: nothing is bound.
  ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus);

  void post(std::function<void()> job) override;
  engine::Team& team() override { return team_; }

 private:
  engine::Team team_;
  ThreadPool leader_;  // joined before the team goes
};

}  // namespace troupe::actors
