// Patterns as JSON Schema has them: regular expressions of ECMA-262 in Unicode mode.
#pragma once

#include <string_view>

#include "config/result.h"
#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {

inline constexpr std::size_t kMaxPatternBytes = 16'384;
inline constexpr std::size_t kMaxPatternDepth = 64;         // groups within groups
inline constexpr std::uint32_t kMaxPatternCount = 100'000;  // of a quantifier

enum class PatternExtent {
  somewhere,  // texts of which a part matches, as JSON Schema and RegExp.test() mean it
  whole,      // texts that match from the first to the last character
};

// The texts that match `pattern`, written as `writing` says. ^ and $ may stand anywhere; \b, \B and look-ahead too,
// except in what repeats without end (*, +, {n,}), where they are supported if each repetition is one character and $
// follows, as in ^((?!a|b).)*$. What Unicode mode refuses but is written all the same: any character that is no letter
// or digit behind a backslash, braces and ] as characters, [\w-.]. Errors: invalid_argument (no pattern; says where),
// unsupported (look-behind, references back to groups, flags, properties that are no general categories; says what).
// Throws ConstraintLimit.
[[nodiscard]] Result<RegexId> parse_pattern(RegexPool& pool, std::string_view pattern, Writing writing,
                                            PatternExtent extent);

}  // namespace troupe::engine::constraints
