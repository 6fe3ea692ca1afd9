// The formats of JSON Schema that are enforced.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/constraints/characters.h"

namespace troupe::engine::constraints {

// The names that format_texts() knows, ascending. Others assert nothing, as JSON Schema says of unknown formats.
[[nodiscard]] std::span<const std::string_view> known_formats();

// The texts of a format, written as `writing` says; nothing for a name that is not known.
[[nodiscard]] std::optional<RegexId> format_texts(RegexPool& pool, std::string_view name, Writing writing);

}  // namespace troupe::engine::constraints
