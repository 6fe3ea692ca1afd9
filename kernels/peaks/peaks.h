// Loops that measure the CPU's peak rates: they only multiply, only add, or only read. `troupe probe` times them, and
// the speed of products is compared with them.
//
// A multiplying loop keeps its operands in registers and runs enough independent chains to hide each instruction's
// latency. The chains begin with different values: a compiler could compute equal ones only once. A loop uses the
// instructions of the products of kernels.h on the same unit, without loading, rounding or storing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/unit.h"

namespace troupe::kernels {

// Runs `rounds` rounds and returns bits that depend on every result.
using Loop = std::uint64_t(std::uint64_t rounds);

struct PeakLoop {
  Unit unit;
  double ops_per_round;  // a multiply-add counts as two
  Loop* run;
};
// The loops that this CPU can run and this process may run, in the order of Unit.
[[nodiscard]] std::span<const PeakLoop> peak_loops();

// kAddsPerRound additions per round, each dependent on the one before: one per clock cycle on every CPU of interest.
inline constexpr std::uint64_t kAddsPerRound = 128;
Loop dependent_adds;
// The same together with tile products that keep AMX about three quarters busy: measures the clock under that load.
// Null if AMX is not allowed. Configures and releases the calling thread's tiles, as the AMX loops do.
[[nodiscard]] Loop* dependent_adds_beside_amx();

// Reads [data, data + bytes) once, in ascending order, with the widest loads that this CPU has. Returns bits that
// depend on all of them. data 64-byte aligned, bytes a multiple of 256.
[[nodiscard]] std::uint64_t read_all(const std::byte* data, std::size_t bytes);

}  // namespace troupe::kernels
