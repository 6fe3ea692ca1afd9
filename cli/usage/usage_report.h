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

// What a row with a uid is of: a user, or after by_group() a group, whose gid it is.
enum class UsageOf { user, group };

// The rows of users as one row for each group, whose gid is in `uid`; those without a group together as a tenant of the
// name "(no group)". Rows of other tenants stay, behind them. For rows of one period.
//   group_of  returns the group of a user
[[nodiscard]] client::UsageReport by_group(
    const client::UsageReport& report, const std::function<std::optional<std::uint32_t>(std::uint32_t uid)>& group_of);

// A table with a line for each row, and their sums as the last one if there are several tenants or periods.
//   name_of  returns the name of a user, or a group; called for each line of one
[[nodiscard]] std::string usage_text(const client::UsageReport& report, client::UsagePeriod by,
                                     const std::function<std::string(std::uint32_t)>& name_of,
                                     UsageOf of = UsageOf::user);
[[nodiscard]] nlohmann::ordered_json usage_json(const client::UsageReport& report, client::UsagePeriod by,
                                                const std::function<std::string(std::uint32_t)>& name_of,
                                                UsageOf of = UsageOf::user);

}  // namespace troupe::cli
