// The longest draft: for options and protocols, planner and engine alike.
#pragma once

#include <cstdint>

namespace troupe {

inline constexpr std::uint32_t kMaxDraftTokens = 16;

}  // namespace troupe
