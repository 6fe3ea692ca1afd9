// The threads that compute steps: a team, and the one thread that runs jobs and leads the team.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "actors/threads/thread_pool.h"
#include "config/assert.h"
#include "engine/compute/team.h"

namespace troupe::actors {

// Runs jobs one at a time, in the order they were posted. Loading, steps and waiting for the last step of a dead actor
// are all jobs, so none of them needs a lock.
class Compute {
 public:
  virtual ~Compute() = default;
  virtual void post(std::function<void()> job) = 0;  // any thread; the job must not throw
  virtual engine::Team& team() = 0;                  // for use inside jobs
};

// The real one: no actor runs on its threads. One pool spans all NUMA nodes of the CPUs that it is given; with CPUs,
// each thread of the team is bound to its own, so what it touches first lies near it.
class ComputePool final : public Compute {
 public:
  // cpus[i]: the CPU of team thread i; empty: no thread is bound.
  ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus)
      : team_(num_threads, cpus),
        leader_("compute", 1, std::numeric_limits<std::size_t>::max(),
                cpus.empty() ? cpus : std::vector<int>{cpus.front()},
                cpus.empty() ? std::chrono::microseconds(0) : kAwake) {}

  void post(std::function<void()> job) override {
    const bool taken = leader_.post(std::move(job));
    TROUPE_ASSERT(taken);
  }
  engine::Team& team() override { return team_; }

 private:
  // The leader spins this long for its next job, if it has a CPU of its own: longer than the actors need between two
  // steps of many sequences.
  static constexpr std::chrono::microseconds kAwake{200};

  engine::Team team_;
  ThreadPool leader_;  // joined before the team is destroyed
};

}  // namespace troupe::actors
