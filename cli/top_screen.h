// The screen of `troupe top` as lines of text; uses no terminal.
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

// At most size.rows lines of at most size.columns characters; the table of requests leaves the last line free for the
// keys. Rates are those between `before` and `now`; without `before`, since the server's start.
[[nodiscard]] std::vector<std::string> top_screen(const client::ServerStatus& now,
                                                  const std::optional<client::ServerStatus>& before, ScreenSize size);

// The quantile `share` (0 to 1) of the latencies counted in `now` and not in `before`: the upper bound of its bucket in
// seconds. nullopt if none was counted, or it is above the last bound.
[[nodiscard]] std::optional<double> quantile(const client::ServerStatus& now,
                                             const std::optional<client::ServerStatus>& before,
                                             const std::string& histogram, double share);

}  // namespace troupe::cli
