// Sets of characters that regular expressions have names for.
#pragma once

#include <optional>
#include <string_view>

#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {

const CodePoints& ascii_digits();     // \d
const CodePoints& word_characters();  // \w
const CodePoints& white_space();      // \s, as ECMA-262 has it
const CodePoints& within_lines();     // . : all but \n, \r, U+2028 and U+2029

// What \p{...} names: a general category by its short or long name (Lu, Uppercase_Letter, L, LC, ...), also as
// General_Category=Lu and gc=Lu, or Any, ASCII, ASCII_Hex_Digit, Assigned, White_Space. Nothing for others: scripts and
// further properties have no tables here. The first call makes the tables of all categories (about 10 ms).
[[nodiscard]] std::optional<CodePoints> property_characters(std::string_view property);

}  // namespace troupe::engine::constraints
