// Numbers as JSON writes them, with bounds.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <vector>

#include "engine/chat/values/json.h"
#include "engine/constraints/expressions/regex_pool.h"

namespace troupe::engine::constraints {

// A decimal number, exact: (-1)^negative * digits * 10^-scale.
struct Decimal {
  bool negative = false;  // false for zero
  std::string digits;     // without leading zeros; "0" for zero
  std::size_t scale = 0;  // digits behind the point, the last of which is not 0

  bool is_integer() const { return scale == 0; }
  // As JSON writes it without an exponent.
  std::string text() const;
  std::strong_ordering operator<=>(const Decimal& other) const;
  bool operator==(const Decimal& other) const = default;
};

// The exact value of a JSON number (of a double its shortest decimal form). Nothing for other values and for numbers
// with more than 400 digits on either side of the point.
[[nodiscard]] std::optional<Decimal> decimal_of(const chat::Json& number);

struct NumberBound {
  Decimal value;
  bool excluded = false;  // the value itself is not allowed
};

struct NumberRange {
  bool integer = false;  // 2.0 is an integer, too, and written as 2
  std::optional<NumberBound> low = {}, high = {};
  std::vector<Decimal> multiples_of = {};  // of all of them; above 0
};

// States of the automata that tell multiples: of all prime powers of all multiples_of of a range together; 1 KiB each.
inline constexpr std::size_t kMaxMultipleStates = 8'192;

// The texts of the numbers in the range. Without bounds and multiples: JSON numbers that a double holds, exponents
// included, those without one having at most 300 digits before the point; else numbers without exponent and without
// "-0". Integers are digits alone. Errors: unsupported (multiples whose automata are too large: says their limit).
// Throws ConstraintLimit.
[[nodiscard]] Result<RegexId> number_texts(RegexPool& pool, const NumberRange& range);

// Whether `value` lies in the range.
[[nodiscard]] bool contains(const NumberRange& range, const Decimal& value);

}  // namespace troupe::engine::constraints
