// A team of pinned threads that run one parallel region at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <vector>

#include "engine/compute/profiler.h"

namespace troupe::engine {

// Thrown by the regions of a stopped team (Team::stop()).
class Stopped final : public std::exception {
 public:
  const char* what() const noexcept override { return "the work was told to stop"; }
};

// `num_threads` includes the calling thread, which works too. The regions are entered by one
// thread at a time (the compute thread). Between regions the threads spin for some microseconds and
// then sleep on a futex: an idle team uses no CPU. Every thread has FTZ and DAZ set, also the caller
// while inside a region.
class Team {
 public:
  // cpus: thread i (from 1 on) is pinned to cpus[i % size]; empty: not pinned.
  explicit Team(std::uint32_t num_threads, std::vector<int> cpus = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::uint32_t num_threads() const { return num_threads_; }

  // Calls fn(chunk, thread) once for each chunk in [0, num_chunks), on any thread, in any order, and returns when all
  // are done. Each thread begins with chunks of its own, adjacent and ascending, and then helps the others: a late
  // thread costs one chunk. fn must not depend on the thread that runs it (except for scratch space by `thread`). An
  // exception from fn is rethrown to the caller once all chunks are done; of several exceptions one.
  template <class Fn>
  void parallel_for(std::size_t num_chunks, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run(
        num_chunks, [](void* f, std::size_t chunk, std::uint32_t thread) { (*static_cast<F*>(f))(chunk, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // Stops the team for good. Any thread. The current region skips the chunks that have not begun, and that region and
  // all later ones throw Stopped; their output is then incomplete.
  void stop();
  // To be polled by long work between two regions.
  [[nodiscard]] bool is_stopped() const;
  void throw_if_stopped() const {
    if (is_stopped()) throw Stopped();
  }

  // Sets the profiler of steps, operations and joins; null (the default) turns profiling off, which costs one pointer
  // check. Called between regions and operations by the thread that enters them. `profiler` must live until it is
  // replaced.
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }
  [[nodiscard]] Profiler* profiler() const { return profiler_; }

 private:
  friend class StepScope;
  friend class OperationScope;
  using Call = void (*)(void* fn, std::size_t chunk, std::uint32_t thread);
  void run(std::size_t num_chunks, Call call, void* fn);
  void report_join(ProfileClock::time_point begin);

  struct Shared;
  std::uint32_t num_threads_;
  Profiler* profiler_ = nullptr;
  Profiler* listener_ = nullptr;              // the profiler, during a step that it measures
  const OperationSpan* operation_ = nullptr;  // the current one, if there is a listener
  std::unique_ptr<Shared> shared_;
};

// Reports a step to the team's profiler, and the operations in this scope if on_step_begin() returned true.
class StepScope {
 public:
  StepScope(Team& team, const StepSpan& span) : team_(team), span_(span) {
    if (team.profiler_ && team.profiler_->on_step_begin(span_)) team.listener_ = team.profiler_;
  }
  ~StepScope() { team_.listener_ = nullptr; }  // if end() was not called, the step threw
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

  void end(ProfileClock::time_point now) {
    span_.end = now;
    if (team_.profiler_) team_.profiler_->on_step_end(span_);
  }

 private:
  Team& team_;
  StepSpan span_;
};

// Marks an operation of a step, until the end of the scope: the regions in it are that operation's joins. Scopes do not
// nest.
class OperationScope {
 public:
  OperationScope(Team& team, Operation operation, std::uint32_t layer = kNoLayer) : team_(team) {
    if (!team.listener_) return;
    span_ = {.operation = operation, .layer = layer, .begin = ProfileClock::now(), .end = {}};
    team.operation_ = &span_;
  }
  ~OperationScope() {
    if (team_.operation_ != &span_) return;
    team_.operation_ = nullptr;
    span_.end = ProfileClock::now();
    team_.listener_->on_operation(span_);
  }
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  Team& team_;
  OperationSpan span_;
};

// The default size of a team: all CPUs that affinity and cgroup quota allow up to 4, one fewer above.
[[nodiscard]] std::uint32_t default_num_threads();
// The CPUs this process may run on, ascending.
[[nodiscard]] std::vector<int> allowed_cpus();

}  // namespace troupe::engine
