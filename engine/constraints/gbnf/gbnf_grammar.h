// Grammars of GBNF.
#pragma once

#include <string_view>

#include "config/result.h"
#include "engine/constraints/grammar/grammar.h"

namespace troupe::engine::constraints {

// The grammar of the texts of the rule root. A rule that needs no stack (without recursion, or only with that of a
// list, at its begin or its end) becomes one expression within those that use it, as long as it is not large.
//
// A rule may begin with itself, also by way of others. Errors: those of parse_gbnf(), and invalid_argument for a
// grammar that no text has, unsupported for a rule that begins with itself behind parts that may be empty; both name a
// rule and its place. Throws ConstraintLimit.
[[nodiscard]] Result<Grammar> grammar_of_gbnf(std::string_view text);

}  // namespace troupe::engine::constraints
