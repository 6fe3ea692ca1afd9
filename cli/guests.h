// The users and groups that may use the server, from ids and names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/options.h"
#include "config/result.h"

namespace troupe::cli {

struct GuestIds {
  std::vector<std::uint32_t> uids;
  std::vector<std::uint32_t> gids;
};

// The ids of --allow-uid and --allow-gid, and those of --allow-user and --allow-group, looked up now. Error:
// invalid_argument (bad_config if it comes from a variable or a file) for an unknown name; io if the lookup fails.
[[nodiscard]] Result<GuestIds> guest_ids(const config::ServerOptions& options, const config::Given& given);

}  // namespace troupe::cli
