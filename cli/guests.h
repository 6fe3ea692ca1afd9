// Who may use the server, from ids and names.
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

// --allow-uid, --allow-gid, and --allow-user and --allow-group as the system knows them now. Error: invalid_argument
// (bad_config where it comes from a variable or a file) for a name that is unknown; io if the system cannot look it up.
[[nodiscard]] Result<GuestIds> guest_ids(const config::Parsed& parsed);

}  // namespace troupe::cli
