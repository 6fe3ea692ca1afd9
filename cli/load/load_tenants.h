// Reads --tenant and --tenants of `troupe load`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/load/drivers/as_user.h"
#include "bench/load/drivers/troupe_driver.h"
#include "bench/load/record.h"
#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

inline constexpr std::size_t kMaxTenants = 64;     // of one run: each has a thread, and one more for each connection
inline constexpr std::size_t kMaxTenantName = 16;  // bytes
inline constexpr std::size_t kMaxTenantsFile = 64u << 10;  // bytes

// A tenant's own keys, and the flags of the whole run with those that it changes.
struct TenantOptions {
  std::string name{};
  double weight = 1;
  std::optional<load::User> user{};
  double start_s = 0;
  std::int32_t priority = 0;
  load::RequestKind kind = load::RequestKind::generate;
  bool compare_alone = false;
  load::Goodput limits{};
  config::LoadOptions options{};
};

// The tenants in the order of the flags, then of the file; empty if there are none. `limits`: those of --goodput. A
// tenant that names no seed has that of the run plus its place, so that no two send the same prompts. Errors:
// invalid_argument, naming the tenant, the key and what it may be; permission, for a user that this process cannot act
// as; io, for a file that cannot be read.
[[nodiscard]] Result<std::vector<TenantOptions>> make_tenants(const config::LoadOptions& options,
                                                              const load::Goodput& limits);

}  // namespace troupe::cli
