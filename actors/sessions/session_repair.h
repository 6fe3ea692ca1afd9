// What is wrong in a directory of sessions, and what of it can be kept; for `troupe session repair`, without a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/result.h"

namespace troupe::actors {

struct SessionFinding {
  std::string path;        // below the directory: "1000/talk.tokens"
  std::string what;        // is wrong
  std::string remedy;      // what was done, or would be; or what its owner can do
  bool is_mended = false;  // it was done, or would be
};

struct SessionRepair {
  std::uint32_t num_tenants = 0;
  std::uint32_t num_sessions = 0;  // that can be continued, those restored included
  std::vector<SessionFinding> findings;
  [[nodiscard]] bool is_well() const;  // nothing is wrong that was not mended
};

// Reads every file of every session, contents included. What cannot be used is moved to DIRECTORY/damaged/TENANT/,
// never over something there; nothing else is deleted than the rest of a write that was cut off. Tokens that are
// damaged are restored from contents whose header is whole. Folders that others may enter are closed (0700). A token
// beyond the vocabulary is not seen: that takes the model.
//
// dry_run: changes nothing. Errors: as PrivateDirectory::open(); io, if the directory is not there; busy, if a server
// uses it.
[[nodiscard]] Result<SessionRepair> repair_sessions(const std::string& directory, bool dry_run);

}  // namespace troupe::actors
