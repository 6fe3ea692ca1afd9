// `troupe serve --print-limits`: how much memory each limit allows, and all of them together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/option_table.h"
#include "config/result.h"

namespace troupe::cli {

struct MemoryLimit {
  std::string what;
  std::uint64_t bytes = 0;
  std::string from;  // the options that determine it
};

// The most memory of each kind that a server with these options uses. context: of one sequence, in tokens.
[[nodiscard]] std::vector<MemoryLimit> memory_limits(const config::ServeOptions& options, std::uint64_t context);

// One line per kind, bytes first; the last line is "total". Error: the model's file cannot be read.
[[nodiscard]] Result<std::string> limits_text(const config::ServeOptions& options);

}  // namespace troupe::cli
