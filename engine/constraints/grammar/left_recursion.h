// Rules that begin with themselves.
//
// A machine enters a rule as soon as a text may begin with it. One that begins with itself would be entered within
// itself again and again, before anything is read; so it is rewritten to be read from its left corner on: what it
// begins with at last, then whatever may follow a text of it within itself, any number of times (D. Rosenkrantz, P.
// Lewis, "Deterministic left corner parsing", 1970).
#pragma once

#include <optional>

#include "engine/constraints/grammar/grammar.h"

namespace troupe::engine::constraints {

// Rewrites the rules of a finished grammar that begin with themselves, also by way of others; its texts stay the same,
// and it is finished again. Returns a rule that begins with itself behind parts that may be empty, which is not
// rewritten: the grammar is of no use then. Throws ConstraintLimit. O(edges), and where rules begin with one another,
// edges for each of them.
[[nodiscard]] std::optional<RuleId> remove_left_recursion(Grammar& grammar, RuleId root);

}  // namespace troupe::engine::constraints
