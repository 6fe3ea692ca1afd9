// What the CPU does at most: loops that only multiply, only add, or only read. `troupe probe` times them, and every
// product is judged by them.
//
// A multiplying loop keeps its operands in registers and runs enough independent chains to hide each instruction's
// latency. The chains begin with different values: equal ones could be computed once by a clever compiler. It does
// what the products of kernels.h do with the same unit, without loading, rounding or storing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/unit.h"

namespace troupe::kernels {

// Does its rounds and returns bits that depend on every result.
using Loop = std::uint64_t(std::uint64_t rounds);

struct PeakLoop {
  Unit unit;
  double ops_per_round;  // a multiply-add counts as two
  Loop* run;
};
// Those that this CPU can run, and this process is allowed to; in the order of Unit.
[[nodiscard]] std::span<const PeakLoop> peak_loops();

// kAddsPerRound additions, each needing the one before: one per clock cycle on every CPU of interest.
inline constexpr std::uint64_t kAddsPerRound = 128;
Loop dependent_adds;
// The same beside multiplying tiles, which keep the matrix unit about three quarters busy: the clock under that load.
// Null where AMX is not allowed. Configures and releases the calling thread's tiles, as the AMX loops do.
[[nodiscard]] Loop* dependent_adds_beside_amx();

// Reads [data, data + bytes) once, in ascending order, with the widest loads that this CPU has. Returns bits that
// depend on all of them. data 64-byte aligned, bytes a multiple of 256.
[[nodiscard]] std::uint64_t read_all(const std::byte* data, std::size_t bytes);

}  // namespace troupe::kernels
