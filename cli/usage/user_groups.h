// The group that a user's usage is summed up in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/result.h"

namespace troupe::cli {

class UserGroups {
 public:
  // `names`: groups, each text may hold several, separated by commas; none: users' primary groups. Error:
  // invalid_argument for a name that the system does not know; io.
  static Result<UserGroups> of(const std::vector<std::string>& names);

  // The first of the groups that the user is in, or the primary one; nullopt: none of them, or the system does not know
  // the user. May block (NSS).
  [[nodiscard]] std::optional<std::uint32_t> group_of(std::uint32_t uid) const;

 private:
  explicit UserGroups(std::vector<std::uint32_t> gids) : gids_(std::move(gids)) {}

  std::vector<std::uint32_t> gids_;
};

// The system's name for a group; if it has none, the number.
[[nodiscard]] std::string group_name(std::uint32_t gid);

}  // namespace troupe::cli
