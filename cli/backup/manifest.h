// What is in a backup: manifest.json in its directory, which names every other file with its size and its SHA-256.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/result.h"

namespace troupe::cli {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr std::uint64_t kMaxManifestBytes = 256 << 20;

struct ManifestFile {
  std::string name;  // "usage.db", "keys", "sessions/1000/tea.tokens"
  std::uint64_t size = 0;
  std::string sha256;         // 64 lower-case digits
  std::int64_t modified = 0;  // seconds since 1970: the order in which sessions were used
};

struct Manifest {
  std::string program;    // the version that made the backup
  std::int64_t made = 0;  // seconds since 1970
  std::vector<ManifestFile> files;
};

[[nodiscard]] std::string manifest_text(const Manifest& manifest);
// Takes names of files of a state alone, each once: none leads out of the directory. Errors: io, if it is none, or
// damaged; unsupported, of a later version.
[[nodiscard]] Result<Manifest> parse_manifest(const std::string& text);

// The part of the state that the file is of: its name up to the first slash.
[[nodiscard]] std::string part_of(const std::string& name);

}  // namespace troupe::cli
