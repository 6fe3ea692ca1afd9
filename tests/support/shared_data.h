// Where reference data lies that is not part of the project: tests that want it skip without it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

namespace troupe::test {

// The path of `relative` in the folder of shared reference data, or nothing (and a line that says so).
inline std::optional<std::string> shared_file(const std::string& relative) {
  const char* root = std::getenv("TROUPE_SHARED_DIR");
  const std::filesystem::path path = std::filesystem::path(root ? root : "../shared") / relative;
  if (std::filesystem::exists(path)) return path.string();
  WARN("skipped: no " << relative << " (set TROUPE_SHARED_DIR to the folder with reference data)");
  return std::nullopt;
}

}  // namespace troupe::test
