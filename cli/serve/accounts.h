// Looks up users and groups of this system by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/result.h"

namespace troupe::cli {

// nullopt: the system does not know the name. Error: io, if it cannot be asked. May block (NSS).
[[nodiscard]] Result<std::optional<std::uint32_t>> find_user(const std::string& name);
[[nodiscard]] Result<std::optional<std::uint32_t>> find_group(const std::string& name);

}  // namespace troupe::cli
