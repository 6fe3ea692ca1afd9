// Looks up users and groups of this system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/result.h"

namespace troupe::cli {

// nullopt: the system does not know the name. Error: io, if it cannot be asked. May block (NSS).
[[nodiscard]] Result<std::optional<std::uint32_t>> find_user(const std::string& name);
[[nodiscard]] Result<std::optional<std::uint32_t>> find_group(const std::string& name);

struct UserAccount {
  std::string name;
  std::uint32_t gid = 0;  // of the primary group
};
// nullopt: the system does not know the user, or cannot be asked. May block (NSS).
[[nodiscard]] std::optional<UserAccount> find_account(std::uint32_t uid);

// The system's name for a user; if it has none, the number. May block (NSS).
[[nodiscard]] std::string user_name(std::uint32_t uid);

}  // namespace troupe::cli
