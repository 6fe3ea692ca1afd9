// Where models with real weights lie: tools/real_models.sh brings them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/skip.h"

namespace troupe::test {

// The path of a model; nothing, and skipped, where it is not there.
inline std::optional<std::string> real_file(const std::string& name) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const std::filesystem::path folder =
      cache && *cache ? std::filesystem::path(cache) : std::filesystem::path(home ? home : "/") / ".cache";
  const std::filesystem::path path = folder / "troupe-tests" / name;
  if (std::filesystem::exists(path)) return path.string();
  skip("no real weights (tools/real_models.sh fetches them)", name);
  return std::nullopt;
}

}  // namespace troupe::test
