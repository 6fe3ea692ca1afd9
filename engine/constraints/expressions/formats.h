// The formats of JSON Schema that are enforced.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {

// The names that format_texts() knows, ascending. Others assert nothing, as JSON Schema says of unknown formats.
[[nodiscard]] std::span<const std::string_view> known_formats();

// Whether format_texts() has every text of a known format. Of some it leaves out what no expression tells: names in
// Punycode (hostname, email), most internationalised names (idn-email), leap seconds at offsets of odd minutes (time,
// date-time), regular expressions with names, references, properties or groups more than four deep (regex), operators
// that are reserved (uri-template). A text that is not among those may have the format all the same.
[[nodiscard]] bool is_exact_format(std::string_view name);

// Texts of a format, written as `writing` says: none that does not have it. Nothing for a name that is not known.
[[nodiscard]] std::optional<RegexId> format_texts(RegexPool& pool, std::string_view name, Writing writing);

}  // namespace troupe::engine::constraints
