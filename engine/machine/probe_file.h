// Where the result of `troupe probe` is kept: one JSON file per machine, which benchmarks read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/machine/machine_probe.h"

namespace troupe::engine {

[[nodiscard]] std::string to_json(const MachineProbe& probe);
// Error: invalid_argument, for what is no probe of this version, or holds figures that cannot be.
[[nodiscard]] Result<MachineProbe> parse_probe(const std::string& json);

// $XDG_CACHE_HOME/troupe, else ~/.cache/troupe; nothing where neither variable is set. As XDG's specification says, an
// empty or relative one is not.
[[nodiscard]] std::optional<std::filesystem::path> probe_folder();

// The file in `folder` that belongs to `machine`; a home directory may be shared by many.
[[nodiscard]] std::filesystem::path probe_path(const std::filesystem::path& folder, const MachineIdentity& machine);

// Nothing where there is none, or it is damaged, of another machine or of another version of the measurement.
[[nodiscard]] std::optional<MachineProbe> load_probe(const std::filesystem::path& folder,
                                                     const MachineIdentity& machine);
// What is kept for this machine, where it is kept.
[[nodiscard]] std::optional<MachineProbe> kept_probe();

// Writes beside the file and renames: a reader sees the old one or the new one. Makes the folder. Error: io.
[[nodiscard]] Status save_probe(const std::filesystem::path& folder, const MachineProbe& probe);

}  // namespace troupe::engine
