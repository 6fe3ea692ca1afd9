#include "actors/threads/compute_pool.h"

#include <chrono>
#include <exception>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {
namespace {

// The leader spins this long for its next job, if it has a CPU of its own: longer than the actors need between two
// steps of many sequences.
constexpr std::chrono::microseconds kAwake{200};
// A load beside steps. Each level of niceness is a factor of 1.25 of the CPU's time: 12 is 1 : 15. Measured on two
// cores that a stream of a model of 1.1 B parameters used (10 ms a token), beside the load of one of 0.7 GB: at 12 the
// gaps' 99th percentile rose by 0 to 20 %, and the load took 8 to 9 s instead of 0.6 to 1.4; at 10 by 50 to 65 %, and 6
// to 9 s; at 15 by 13 %, and 14 s; at 0 by 160 %, and 2 s. Where no step runs, the load has the cores, nice or not.
constexpr int kLoadNiceness = 12;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// The CPU of the thread that leads a team.
std::vector<int> first_of(const std::vector<int>& cpus) { return cpus.empty() ? cpus : std::vector<int>{cpus.front()}; }

}  // namespace

ComputePool::ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus)
    : cpus_(cpus),
      team_(num_threads, cpus),
      leader_("compute", 1, kNoLimit, first_of(cpus), cpus.empty() ? std::chrono::microseconds(0) : kAwake),
      loader_("loader", 1, kNoLimit, first_of(cpus)) {}

void ComputePool::post(std::function<void()> job) {
  has_jobs_.store(true, std::memory_order_relaxed);
  const bool taken = leader_.post(std::move(job));
  TROUPE_ASSERT(taken);
}

void ComputePool::run(const std::function<void()>& job) {
  const auto task = std::make_shared<std::packaged_task<void()>>(job);
  std::future<void> ended = task->get_future();
  post([task] { (*task)(); });
  ended.get();
}

void ComputePool::post_load(std::function<void(engine::Team&)> load) {
  const bool taken = loader_.post([this, load = std::move(load)] { this->load(load); });
  TROUPE_ASSERT(taken);
}

void ComputePool::load(const std::function<void(engine::Team&)>& load) {
  if (!loads_are_nice_ && has_jobs_.load(std::memory_order_relaxed)) {
    loads_are_nice_ = true;
    add_to_niceness(kLoadNiceness);
  }
  std::optional<engine::Team> team;  // of threads as nice as this one
  try {
    team.emplace(team_.num_threads(), cpus_);
  } catch (const std::exception&) {  // there are no more threads
    team.emplace(1);
  }
  const auto set_team = [this](engine::Team* running) {
    const std::lock_guard lock(mutex_);
    load_team_ = running;
    if (running && stopped_) running->stop();
  };
  set_team(&*team);
  load(*team);
  set_team(nullptr);
}

void ComputePool::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  team_.stop();
  if (load_team_) load_team_->stop();
}

}  // namespace troupe::actors
