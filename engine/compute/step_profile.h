// A profiler that adds up the time of steps by operation, layer and join.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/compute/profiler.h"

namespace troupe::engine {

// Measures every step, or only one in n so that measuring takes at most half a percent of the steps' time. Allocates
// some 500 KiB at construction and nothing later. One team at a time may report to it.
class StepProfile final : public Profiler {
 public:
  explicit StepProfile(std::uint32_t num_threads);  // of the team

  bool on_step_begin(const StepSpan& step) override;
  void on_operation(const OperationSpan& operation) override;
  void on_join(const JoinSpan& join) override;
  void on_step_end(const StepSpan& step) override;

  // Sums over whole steps; a step that ends during the call may be included in part.
  std::optional<ProfileSnapshot> snapshot() const override;

 private:
  static constexpr std::size_t kNumPhases = 2;
  static std::size_t phase_of(const StepSpan& step) { return step.num_rows == step.num_sequences ? 0 : 1; }
  enum Sum : std::size_t { calls, time, joins, join_time, busy, wake_up, wait, absent, kNumSums };  // times in ns

  // Sums of the current step; used by the leading thread only.
  struct Step {
    std::uint64_t sums[kNumOperations][kNumSums] = {};
    std::vector<std::uint64_t> layers;  // ns, [layer][operation]
    std::uint32_t num_layers = 0;
    bool measured = false;
    std::int64_t cost = 0;  // estimated ns that measuring took
  };
  // Sums of all steps. Only the leading thread writes, so that no lock and no atomic addition is needed.
  struct Phase {
    std::atomic<std::uint64_t> steps{0}, rows{0}, time{0}, measured_steps{0}, measured_time{0};
    std::atomic<std::uint64_t> sums[kNumOperations][kNumSums] = {};
    std::vector<std::atomic<std::uint64_t>> layers;
    std::atomic<std::uint32_t> num_layers{0};
    std::int64_t debt = 0;  // ns that measuring took beyond its share so far; used by the leading thread only
  };

  static void add(std::atomic<std::uint64_t>& total, std::uint64_t value) {
    total.store(total.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
  }
  static PhaseTime read(const Phase& phase, std::string name);

  std::uint32_t num_threads_;
  Step step_;
  Phase phases_[kNumPhases];
};

}  // namespace troupe::engine
