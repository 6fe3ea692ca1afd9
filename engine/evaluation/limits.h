// The least time that steps can take on a probed machine: the roofline that a benchmark's result is a share of.
//
// Counted are products with weights: their bytes, once per step however many rows there are, and their multiplications
// and additions. Attention, norms and sampling are not, nor is the KV cache: what they take lowers the share.
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

// What steps demand of the machine.
struct StepWork {
  double bytes = 0;                              // of weights, read from memory or a cache
  std::array<double, kernels::kNumUnits> ops{};  // by Unit; a multiply-add is two
  double total_ops() const;
};

// Of one step of `rows` rows, of which `output_rows` are asked for. Matrices that no row meets are not read.
[[nodiscard]] StepWork step_work(std::span<const MatrixWork> matrices, const kernels::KernelTable& kernels,
                                 std::uint64_t rows, std::uint64_t output_rows);

// Adds up the steps of a run, and the least time for them.
class RunLimits {
 public:
  // `probe` may be null; it outlives the RunLimits.
  RunLimits(const MachineProbe* probe, std::uint32_t num_threads) : probe_(probe), num_threads_(num_threads) {}

  void add(const StepWork& step);

  double bytes() const { return bytes_; }
  double ops() const { return ops_; }
  // Nothing without a probe, or where it lacks a unit.
  std::optional<double> read_seconds() const { return read_seconds_; }
  std::optional<double> compute_seconds() const { return compute_seconds_; }
  // The one that most of compute_seconds() is for.
  kernels::Unit unit() const;

  // What is left of the limit: the longer of the two times, of `seconds`.
  struct Share {
    double value = 0;   // 0 to about 1; above 1 the probe was disturbed, or a cache holds what it did not for the probe
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
