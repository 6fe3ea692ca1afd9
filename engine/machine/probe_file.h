// Stores the result of `troupe probe`: one JSON file per machine, read by benchmarks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/result.h"
#include "engine/machine/machine_probe.h"

namespace troupe::engine {

[[nodiscard]] std::string to_json(const MachineProbe& probe);
// Error: invalid_argument, if it is no probe of this version, or holds impossible figures.
[[nodiscard]] Result<MachineProbe> parse_probe(const std::string& json);

// $XDG_CACHE_HOME/troupe, else ~/.cache/troupe; nothing if neither variable is set. An empty or relative value counts
// as not set, as in the XDG specification.
[[nodiscard]] std::optional<std::filesystem::path> probe_folder();

// The file in `folder` for `machine`; one per machine because several machines may share a home directory.
[[nodiscard]] std::filesystem::path probe_path(const std::filesystem::path& folder, const MachineIdentity& machine);

// Nothing if there is no file, or it is damaged, of another machine or of another version of the measurement.
[[nodiscard]] std::optional<MachineProbe> load_probe(const std::filesystem::path& folder,
                                                     const MachineIdentity& machine);
// The stored probe of this machine, from probe_folder().
[[nodiscard]] std::optional<MachineProbe> kept_probe();

// Writes a temporary file and renames it: a reader sees the old or the new file. Creates the folder. Error: io.
[[nodiscard]] Status save_probe(const std::filesystem::path& folder, const MachineProbe& probe);
// The same for any text. What is there and is no plain file (a link, a pipe, a folder) stays: error.
[[nodiscard]] Status replace_file(const std::filesystem::path& path, const std::string& text);

}  // namespace troupe::engine
