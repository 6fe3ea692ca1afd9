#include "actors/threads/compute_pool.h"

#include <pthread.h>

#include <algorithm>
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

using Clock = std::chrono::steady_clock;

// The leader spins this long for its next job, if it has a CPU of its own: longer than the actors need between two
// steps of many sequences.
constexpr double kAwakeSeconds = 200e-6;
constexpr int kPausesPerLook = 16;
// A load beside steps. Each level of niceness is a factor of 1.25 of the CPU's time: 12 is 1 : 15. Measured on two
// cores that a stream of a model of 1.1 B parameters used (10 ms a token), beside the load of one of 0.7 GB: at 12 the
// gaps' 99th percentile rose by 0 to 20 %, and the load took 8 to 9 s instead of 0.6 to 1.4; at 10 by 50 to 65 %, and 6
// to 9 s; at 15 by 13 %, and 14 s; at 0 by 160 %, and 2 s. Where no step runs, the load has the cores, nice or not.
constexpr int kLoadNiceness = 12;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

double now_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// The CPU of the thread that leads a team.
std::vector<int> first_of(const std::vector<int>& cpus) { return cpus.empty() ? cpus : std::vector<int>{cpus.front()}; }

}  // namespace

ComputePool::ComputePool(std::uint32_t num_threads, const std::vector<int>& cpus)
    : cpus_(cpus),
      team_(num_threads, cpus),
      jobs_([this](std::span<const TenantId> tenants) { return accounts()->least_served(tenants); }),
      leader_([this] { lead(); }),
      loader_(std::in_place, "loader", 1, std::numeric_limits<std::size_t>::max(), first_of(cpus)) {}

ComputePool::~ComputePool() {
  loader_.reset();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  posted_.notify_one();
  leader_.join();
}

void ComputePool::post(const scheduler::JobSource& source, scheduler::Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push(source, std::move(job), now_seconds());
    num_posted_.fetch_add(1, std::memory_order_relaxed);
  }
  posted_.notify_one();
}

void ComputePool::lead() {
  pthread_setname_np(pthread_self(), "compute");
  bind_this_thread(first_of(cpus_));
  std::unique_lock lock(mutex_);
  for (;;) {
    const double began = now_seconds();
    scheduler::JobQueue::Next next = jobs_.next(began);
    if (next.job) {
      lock.unlock();
      next.job->run();
      const double ended = now_seconds();
      next.job.reset();  // destroys what the job captured, without the lock
      lock.lock();
      jobs_.ended(ended - began, ended);
    } else if (ending_ && jobs_.size() == 0) {
      return;
    } else {
      wait_for_job(lock, next.ask_at);
    }
  }
}

// Until a job is posted, or until ask_at. The kernel needs some 20 us to wake a thread on another CPU; the next job is
// often there sooner.
void ComputePool::wait_for_job(std::unique_lock<std::mutex>& lock, double ask_at) {
  const std::uint64_t seen = num_posted_.load(std::memory_order_relaxed);
  const auto has_come = [&] { return num_posted_.load(std::memory_order_relaxed) != seen; };
  if (!cpus_.empty()) {
    lock.unlock();
    const double deadline = std::min(now_seconds() + kAwakeSeconds, ask_at);
    while (!has_come() && now_seconds() < deadline) {
      for (int i = 0; i < kPausesPerLook; ++i) pause_core();
    }
    lock.lock();
  }
  const auto is_over = [&] { return ending_ || has_come(); };
  if (ask_at == std::numeric_limits<double>::infinity()) return posted_.wait(lock, is_over);
  const std::chrono::duration<double> at(ask_at);
  posted_.wait_until(lock, Clock::time_point(std::chrono::duration_cast<Clock::duration>(at)), is_over);
}

void ComputePool::measure(const scheduler::JobSource& source, const std::function<void()>& job) {
  const auto task = std::make_shared<std::packaged_task<void()>>(job);
  std::future<void> ended = task->get_future();
  post(source, {.kind = scheduler::JobKind::measuring, .run = [task] { (*task)(); }});
  ended.get();
}

void ComputePool::post_load(std::function<void(engine::Team&)> load) {
  const bool taken = loader_->post([this, load = std::move(load)] { this->load(load); });
  TROUPE_ASSERT(taken);
}

void ComputePool::load(const std::function<void(engine::Team&)>& load) {
  if (!loads_are_nice_ && num_posted_.load(std::memory_order_relaxed) > 0) {
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
