// Chooses the kernel variant that a model is computed with: by name, by a rule, or by measuring.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::engine {

// The variant of this name; for an empty name that of TROUPE_KERNELS, else the best that can run, of which `notes` says
// so if AMX is refused. The error names those that can run: invalid_argument for an unknown name, unsupported for one
// that cannot run here.
[[nodiscard]] Result<const kernels::KernelTable*> choose_kernels(std::string name, const LoadNotes& notes = {});
// The variant for a model. Where options.kernels or TROUPE_KERNELS names one, that; else by options.optimize:
//   throughput, automatic  the best that can run: many rows decide
//   latency     one stream decides: where the best would expand weights to tiles, which takes as long for one row as
//   for
//               sixteen, the best variant without tiles
//   measure     the one that took least time for this file's types when it was measured (time_kernels()); measured with
//               `team` and kept beside the machine's probe the first time, read from there afterwards. Without a team
//               nothing is measured
// The same on every start, but for the first measurement. Errors: as above.
[[nodiscard]] Result<const kernels::KernelTable*> choose_kernels(const ModelFile& file, const LoadOptions& options,
                                                                 Team* team);

// Whether products of this file's weights use tiles with these kernels.
[[nodiscard]] bool uses_tiles(const ModelFile& file, const kernels::KernelTable& kernels);

// The time of one row and of eight with all of a file's weights, estimated from a matrix of each of the types that make
// up most of it, for each variant of vectors that can run; the fastest of several rounds. A fraction of a second for
// each.
struct KernelTime {
  const kernels::KernelTable* kernels;
  double seconds;
};
[[nodiscard]] std::vector<KernelTime> time_kernels(const ModelFile& file, Team& team);

// What is kept of measurements, by a file's types and the number of threads: the names of variants. A file that is
// missing or damaged is empty. Error of keep: io.
[[nodiscard]] std::filesystem::path kernel_choices_path(const std::filesystem::path& folder);
[[nodiscard]] std::optional<std::string> kept_kernels(const std::filesystem::path& path, const std::string& key);
[[nodiscard]] Status keep_kernels(const std::filesystem::path& path, const std::string& key, const std::string& name);
// "Q4_K 512 MiB, Q6_K 124 MiB; 2 threads".
[[nodiscard]] std::string kernel_choice_key(const ModelFile& file, std::uint32_t num_threads);

}  // namespace troupe::engine
