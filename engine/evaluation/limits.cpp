#include "engine/evaluation/limits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::engine {

double StepWork::total_ops() const { return std::accumulate(ops.begin(), ops.end(), 0.0); }

StepWork step_work(std::span<const MatrixWork> matrices, const kernels::KernelTable& kernels, std::uint64_t rows,
                   std::uint64_t output_rows) {
  StepWork work;
  for (const MatrixWork& matrix : matrices) {
    const std::uint64_t met = matrix.outputs_only ? output_rows : rows;
    if (met == 0) continue;
    // Bytes of experts: the expected number of different experts if rows chose them at random.
    const double share = static_cast<double>(matrix.num_experts_used) / matrix.num_experts;
    work.bytes += static_cast<double>(matrix.bytes) * (1.0 - std::pow(1.0 - share, static_cast<double>(met)));
    work.ops[static_cast<std::size_t>(kernels.unit(matrix.type, matrix.layout))] +=
        2.0 * static_cast<double>(matrix.multiply_adds) * share * static_cast<double>(met);
  }
  return work;
}

void RunLimits::add(const StepWork& step) {
  bytes_ += step.bytes;
  ops_ += step.total_ops();
  if (!probe_) return;
  if (const auto speed = probe_->read_bytes_per_second(static_cast<std::uint64_t>(step.bytes), num_threads_))
    read_seconds_ = read_seconds_.value_or(0) + step.bytes / *speed;
  else
    lacks_read_ = true;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i] == 0) continue;
    if (const auto speed = probe_->ops_per_second(static_cast<kernels::Unit>(i), num_threads_)) {
      unit_seconds_[i] += step.ops[i] / *speed;
      compute_seconds_ = compute_seconds_.value_or(0) + step.ops[i] / *speed;
    } else {
      lacks_unit_ = true;
    }
  }
  if (lacks_read_) read_seconds_.reset();
  if (lacks_unit_) compute_seconds_.reset();
}

kernels::Unit RunLimits::unit() const {
  const auto most = std::max_element(unit_seconds_.begin(), unit_seconds_.end());
  return *most > 0 ? static_cast<kernels::Unit>(most - unit_seconds_.begin()) : kernels::Unit::none;
}

std::optional<RunLimits::Share> RunLimits::share(double seconds) const {
  if (seconds <= 0 || (!read_seconds_ && !compute_seconds_)) return std::nullopt;
  const double reading = read_seconds_.value_or(0), computing = compute_seconds_.value_or(0);
  if (reading >= computing) return Share{reading / seconds, "read"};
  return Share{computing / seconds, std::string(kernels::name(unit()))};
}

}  // namespace troupe::engine
