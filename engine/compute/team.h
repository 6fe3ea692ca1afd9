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

// Thrown by the regions of a team that was told to stop.
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
  // cpus: where thread i (from 1 on) is pinned, cpus[i % size]; empty: not pinned.
  explicit Team(std::uint32_t num_threads, std::vector<int> cpus = {});
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  std::uint32_t num_threads() const { return num_threads_; }

  // Calls fn(chunk, thread) once for each chunk in [0, num_chunks), on any thread, in any order, and
  // returns when all are done. Chunks are handed out dynamically: a late thread costs one chunk.
  // fn must not depend on which thread runs it (but for scratch space by `thread`). What it throws reaches the caller
  // once all chunks are done; of several exceptions one.
  template <class Fn>
  void parallel_for(std::size_t num_chunks, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run(
        num_chunks, [](void* f, std::size_t chunk, std::uint32_t thread) { (*static_cast<F*>(f))(chunk, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // From any thread, for good: the region that runs skips the chunks that it has not begun, and that region and all
  // later ones throw Stopped. What they were to write is then incomplete.
  void stop();
  // For long work between two regions.
  [[nodiscard]] bool is_stopped() const;
  void throw_if_stopped() const {
    if (is_stopped()) throw Stopped();
  }

  // Who hears of the operations and their joins; null, as at first: nobody, which costs a look at a pointer. Between
  // regions and operations, by the thread that enters them. Must live until it is replaced.
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }

 private:
  friend class StepScope;
  friend class OperationScope;
  using Call = void (*)(void* fn, std::size_t chunk, std::uint32_t thread);
  void run(std::size_t num_chunks, Call call, void* fn);
  void report_join(ProfileClock::time_point begin);

  struct Shared;
  std::uint32_t num_threads_;
  Profiler* profiler_ = nullptr;
  Profiler* listener_ = nullptr;              // the profiler, within a step that it wants to hear of
  const OperationSpan* operation_ = nullptr;  // the one under way, if there is a profiler
  std::unique_ptr<Shared> shared_;
};

// Tells the team's profiler of a step, and the operations in this scope if it wants them.
class StepScope {
 public:
  StepScope(Team& team, const StepSpan& span) : team_(team), span_(span) {
    if (team.profiler_ && team.profiler_->on_step_begin(span_)) team.listener_ = team.profiler_;
  }
  ~StepScope() { team_.listener_ = nullptr; }  // without end(): the step threw
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

// Within a step, says what is being done until the end of the scope: the regions in it are that operation's joins.
// Scopes do not nest.
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
