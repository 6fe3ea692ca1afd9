// What a server keeps that is to last: the database of usage, the sessions and the file of keys.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "config/options/options.h"
#include "config/result.h"

namespace troupe::cli {

// What a backup calls them: files, and a folder, in its directory.
inline constexpr std::string_view kUsagePart = "usage.db", kSessionsPart = "sessions", kKeysPart = "keys";
inline constexpr const char* kServiceState = "/var/lib/troupe";  // of the machine's server: StateDirectory= of its unit

// Their paths, empty: not kept, or (keys) not asked for. Made by state_places().
struct StatePlaces {
  std::string usage_db;
  std::string sessions;
  std::string keys;
};

// Where `serve` with these options keeps them; the options of backup, which restore has, too. Error: as state_path().
[[nodiscard]] Result<StatePlaces> state_places(const config::BackupOptions& options);

struct Owner {
  uid_t uid = 0;
  gid_t gid = 0;
};

// The error for what this user may not read or write: who may.
[[nodiscard]] Error not_the_owner(const std::string& path, const Owner& owner);

}  // namespace troupe::cli
