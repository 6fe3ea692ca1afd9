// The result of `troupe probe` as text.
#pragma once

#include <iosfwd>
#include <set>
#include <string>

#include "engine/machine/machine_probe.h"

namespace troupe::cli {

// Facts, then a table of peaks and one of read bandwidths. Figures from a disturbed measurement are marked with a star.
void print_probe(const engine::MachineProbe& probe, std::ostream& out);

// "read 31.7 GB/s (2.00 GiB), int8-amx 7681 GOP/s": the measured limits of this number of threads, for these units.
[[nodiscard]] std::string limits_line(const engine::MachineProbe& probe, std::uint32_t num_threads,
                                      const std::set<kernels::Unit>& units);

// "64 % of read"
[[nodiscard]] std::string share_text(double share, const std::string& limit);

}  // namespace troupe::cli
