// What `troupe top` shows, as lines of text: no terminal in here.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ipc/client/client.h"

namespace troupe::cli {

struct ScreenSize {
  std::size_t rows = 24;
  std::size_t columns = 80;
};

// At most size.rows lines of at most size.columns characters, the last one in reserve for the keys. Speeds are
// between `before` and `now`; without `before`, since the server's start.
[[nodiscard]] std::vector<std::string> top_screen(const client::ServerStatus& now,
                                                  const std::optional<client::ServerStatus>& before, ScreenSize size);

// The duration below which `share` (0 to 1) of those lie that `now` counts and `before` does not: the upper bound of
// its bucket in seconds. Nothing where none was counted, or it lies above the last bound.
[[nodiscard]] std::optional<double> quantile(const client::ServerStatus& now,
                                             const std::optional<client::ServerStatus>& before,
                                             const std::string& histogram, double share);

}  // namespace troupe::cli
