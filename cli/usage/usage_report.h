// What `troupe usage` prints, and how it reads its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "config/result.h"
#include "ipc/client/client.h"

namespace troupe::cli {

// The value of --since as seconds since 1970: "24h", "7d" (before `now`), "2026-11-01", "2026-11-01T08:00" (local
// time).
[[nodiscard]] std::optional<std::int64_t> parse_since(const std::string& text, std::int64_t now);

// A table with a line for each row, and their sums as the last one if there are several tenants or periods.
//   user_name  returns the name of a user; called for each line of one
[[nodiscard]] std::string usage_text(const client::UsageReport& report, client::UsagePeriod by,
                                     const std::function<std::string(std::uint32_t uid)>& user_name);
[[nodiscard]] nlohmann::ordered_json usage_json(const client::UsageReport& report, client::UsagePeriod by,
                                                const std::function<std::string(std::uint32_t uid)>& user_name);

}  // namespace troupe::cli
