// Where reference data lies that is not part of the project: tests that want it skip without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/skip.h"

namespace troupe::test {

inline std::filesystem::path shared_folder() {
  const char* root = std::getenv("TROUPE_SHARED_DIR");
  return root ? root : "../shared";
}

// The path of `relative` in the folder of shared reference data; nothing, and skipped, where it is not there.
inline std::optional<std::string> shared_file(const std::string& relative) {
  const std::filesystem::path folder = shared_folder();
  if (std::filesystem::exists(folder / relative)) return (folder / relative).string();
  skip("no reference data in " + folder.string() + " (TROUPE_SHARED_DIR)", relative);
  return std::nullopt;
}

}  // namespace troupe::test
