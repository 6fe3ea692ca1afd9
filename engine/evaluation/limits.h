// The least time that steps can take on a probed machine: the roofline that benchmarks compare their results with.
//
// Counts products with weights: their bytes, once per step for any number of rows, and their multiplications and
// additions. Does not count attention, the KV cache, norms and sampling: their time lowers the share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/machine/machine_probe.h"
#include "engine/model.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// Bytes and operations of steps.
struct StepWork {
  double bytes = 0;                              // of weights, read from memory or a cache
  std::array<double, kernels::kNumUnits> ops{};  // by Unit; a multiply-add is two
  double total_ops() const;
};

// The work of one step of `rows` rows, `output_rows` of them with output. Matrices that no row uses are not read.
[[nodiscard]] StepWork step_work(std::span<const MatrixWork> matrices, const kernels::KernelTable& kernels,
                                 std::uint64_t rows, std::uint64_t output_rows);

// Adds up the steps of a benchmark, and the least time for them.
class RunLimits {
 public:
  // `probe` may be null; it must outlive the RunLimits.
  RunLimits(const MachineProbe* probe, std::uint32_t num_threads) : probe_(probe), num_threads_(num_threads) {}

  void add(const StepWork& step);

  double bytes() const { return bytes_; }
  double ops() const { return ops_; }
  // Nothing without a probe, or if it lacks a unit that the steps use.
  std::optional<double> read_seconds() const { return read_seconds_; }
  std::optional<double> compute_seconds() const { return compute_seconds_; }
  // The unit with most of compute_seconds().
  kernels::Unit unit() const;

  // The longer of the two times as a share of `seconds`.
  struct Share {
    double value = 0;   // 0 to about 1; above 1: disturbed probe, or more cache hits than in the probe
    std::string limit;  // "read", or the unit's name
  };
  std::optional<Share> share(double seconds) const;

 private:
  const MachineProbe* probe_;
  std::uint32_t num_threads_;
  double bytes_ = 0, ops_ = 0;
  std::optional<double> read_seconds_, compute_seconds_;
  std::array<double, kernels::kNumUnits> unit_seconds_{};
  bool lacks_read_ = false, lacks_unit_ = false;
};

}  // namespace troupe::engine
