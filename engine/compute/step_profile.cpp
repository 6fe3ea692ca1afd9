#include "engine/compute/step_profile.h"

#include <algorithm>
#include <utility>

namespace troupe::engine {
namespace {

// The most layers a model may have (model_info.h); layers beyond count as the last.
constexpr std::uint32_t kMaxLayers = 1024;

// ns per report, including reading the clock (40 ns each on virtual machines of 2025).
constexpr std::int64_t kOperationCost = 120;
constexpr std::int64_t kJoinCost = 200;
// Measuring may take 1 / kShare of the steps' time.
constexpr std::int64_t kShare = 200;

std::uint64_t nanoseconds(ProfileClock::time_point begin, ProfileClock::time_point end) {
  return static_cast<std::uint64_t>(
      std::max<ProfileClock::rep>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(end - begin).count()));
}

double seconds(std::uint64_t ns) { return 1e-9 * static_cast<double>(ns); }

}  // namespace

StepProfile::StepProfile(std::uint32_t num_threads) : num_threads_(num_threads) {
  step_.layers.resize(kMaxLayers * kNumOperations);
  for (Phase& phase : phases_) phase.layers = std::vector<std::atomic<std::uint64_t>>(kMaxLayers * kNumOperations);
}

bool StepProfile::on_step_begin(const StepSpan& step) {
  step_.measured = phases_[phase_of(step)].debt <= 0;
  step_.cost = 0;
  if (!step_.measured) return false;
  // Cleared here and not at the end, because a step that threw leaves incomplete times.
  for (auto& sums : step_.sums) std::fill(std::begin(sums), std::end(sums), 0);
  std::fill_n(step_.layers.begin(), std::size_t{step_.num_layers} * kNumOperations, 0);
  step_.num_layers = 0;
  return true;
}

void StepProfile::on_operation(const OperationSpan& operation) {
  const auto which = static_cast<std::size_t>(operation.operation);
  const std::uint64_t ns = nanoseconds(operation.begin, operation.end);
  ++step_.sums[which][calls];
  step_.cost += kOperationCost;
  step_.sums[which][time] += ns;
  if (operation.layer == kNoLayer) return;
  const std::uint32_t layer = std::min(operation.layer, kMaxLayers - 1);
  step_.num_layers = std::max(step_.num_layers, layer + 1);
  step_.layers[layer * kNumOperations + which] += ns;
}

void StepProfile::on_join(const JoinSpan& join) {
  std::uint64_t(&sums)[kNumSums] = step_.sums[static_cast<std::size_t>(join.operation->operation)];
  ++sums[joins];
  step_.cost += kJoinCost;
  sums[join_time] += nanoseconds(join.begin, join.end);
  for (const ThreadSpan& thread : join.threads) {
    if (thread.num_chunks == 0) {
      sums[absent] += nanoseconds(join.begin, join.end);
      continue;
    }
    sums[wake_up] += nanoseconds(join.begin, thread.begin);
    sums[busy] += nanoseconds(thread.begin, thread.end);
    sums[wait] += nanoseconds(thread.end, join.end);
  }
}

void StepProfile::on_step_end(const StepSpan& step) {
  Phase& phase = phases_[phase_of(step)];
  const std::uint64_t ns = nanoseconds(step.begin, step.end);
  add(phase.rows, step.num_rows);
  add(phase.time, ns);
  add(phase.steps, 1);
  phase.debt = std::max<std::int64_t>(0, phase.debt) + step_.cost - static_cast<std::int64_t>(ns) / kShare;
  if (!step_.measured) return;
  for (std::size_t i = 0; i < kNumOperations; ++i)
    for (std::size_t sum = 0; sum < kNumSums; ++sum) add(phase.sums[i][sum], step_.sums[i][sum]);
  for (std::size_t i = 0; i < step_.num_layers * kNumOperations; ++i) add(phase.layers[i], step_.layers[i]);
  if (step_.num_layers > phase.num_layers.load(std::memory_order_relaxed))
    phase.num_layers.store(step_.num_layers, std::memory_order_relaxed);
  add(phase.measured_time, ns);
  add(phase.measured_steps, 1);
}

PhaseTime StepProfile::read(const Phase& phase, std::string name) {
  const auto value = [](const auto& total) { return total.load(std::memory_order_relaxed); };
  PhaseTime out{.name = std::move(name),
                .steps = value(phase.steps),
                .rows = value(phase.rows),
                .seconds = seconds(value(phase.time)),
                .measured_steps = value(phase.measured_steps),
                .measured_seconds = seconds(value(phase.measured_time)),
                .operations = {}};
  const std::uint32_t num_layers = value(phase.num_layers);
  for (std::size_t i = 0; i < kNumOperations; ++i) {
    const auto& sums = phase.sums[i];
    if (value(sums[calls]) == 0) continue;
    OperationTime operation{.name = std::string(kOperationNames[i]),
                            .calls = value(sums[calls]),
                            .seconds = seconds(value(sums[time])),
                            .joins = value(sums[joins]),
                            .join_seconds = seconds(value(sums[join_time])),
                            .busy_seconds = seconds(value(sums[busy])),
                            .wake_up_seconds = seconds(value(sums[wake_up])),
                            .wait_seconds = seconds(value(sums[wait])),
                            .absent_seconds = seconds(value(sums[absent])),
                            .layer_seconds = {}};
    std::uint64_t in_layers = 0;
    for (std::uint32_t layer = 0; layer < num_layers; ++layer) {
      const std::uint64_t ns = value(phase.layers[layer * kNumOperations + i]);
      operation.layer_seconds.push_back(seconds(ns));
      in_layers += ns;
    }
    if (in_layers == 0) operation.layer_seconds.clear();
    out.operations.push_back(std::move(operation));
  }
  return out;
}

std::optional<ProfileSnapshot> StepProfile::snapshot() const {
  ProfileSnapshot snapshot{.num_threads = num_threads_, .phases = {}};
  for (std::size_t i = 0; i < kNumPhases; ++i)
    if (phases_[i].steps.load(std::memory_order_relaxed) != 0)
      snapshot.phases.push_back(read(phases_[i], i == 0 ? "decode" : "prefill"));
  return snapshot;
}

}  // namespace troupe::engine
