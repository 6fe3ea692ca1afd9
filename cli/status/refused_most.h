// Which tenants are refused most, and why, by the metrics that the viewer is told: the owner of the server and root of
// all tenants, others of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/client/client.h"

namespace troupe::cli {

struct RefusedTenant {
  std::string tenant;  // a name by the rules, or a uid
  std::uint64_t refused = 0;
  std::uint64_t received = 0;
  std::vector<std::pair<std::string, std::uint64_t>> reasons{};  // limits and outcomes, the most frequent first
};

// Those that were refused at all, the most refused first.
[[nodiscard]] std::vector<RefusedTenant> refused_most(const client::ServerStatus& s);

// "alice 12 of 40 (max_requests_per_user 10, too_long 2); ci 3 of 9 (queue_full 3)": the first three; "" if there are
// none. user_name: the name of a user.
[[nodiscard]] std::string refused_text(const client::ServerStatus& s,
                                       const std::function<std::string(std::uint32_t uid)>& user_name);

// The name of a tenant: by the rules, or as a user of the system.
[[nodiscard]] std::string tenant_name(const std::string& tenant,
                                      const std::function<std::string(std::uint32_t uid)>& user_name);

}  // namespace troupe::cli
