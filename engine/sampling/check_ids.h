// Checks ids against the size of a vocabulary.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cache/ids.h"

namespace troupe::engine {

// The index of the first id outside a vocabulary of this size; nothing: all are inside.
[[nodiscard]] inline std::optional<std::size_t> find_unknown_id(std::span<const TokenId> ids,
                                                                std::uint32_t vocab_size) {
  const auto found = std::find_if(ids.begin(), ids.end(),
                                  [&](TokenId id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocab_size; });
  if (found == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(found - ids.begin());
}

}  // namespace troupe::engine
