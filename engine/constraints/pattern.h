// Patterns as JSON Schema has them: regular expressions of ECMA-262 in Unicode mode.
#pragma once

#include <string_view>

#include "config/result.h"
#include "engine/constraints/characters.h"

namespace troupe::engine::constraints {

inline constexpr std::size_t kMaxPatternBytes = 16'384;
inline constexpr std::size_t kMaxPatternDepth = 64;         // groups within groups
inline constexpr std::uint32_t kMaxPatternCount = 100'000;  // of a quantifier

enum class PatternExtent {
  somewhere,  // texts of which a part matches, as JSON Schema and RegExp.test() mean it
  whole,      // texts that match from the first to the last character
};

// The texts that match `pattern`, written as `writing` says. Look-ahead is supported where nothing encloses it but
// alternatives (else unsupported, as back references, look-behind and \b within words are). Errors: invalid_argument
// (no pattern; says where), unsupported (says what). Throws ConstraintLimit.
[[nodiscard]] Result<RegexId> parse_pattern(RegexPool& pool, std::string_view pattern, Writing writing,
                                            PatternExtent extent);

}  // namespace troupe::engine::constraints
