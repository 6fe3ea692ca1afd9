// What a pattern says, as a tree: parts that are texts alone, and conditions between them that depend on what is
// around.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {

struct PatternNode {
  enum class Kind : std::uint8_t {
    texts,          // an expression; no condition is part of it
    sequence,       // of `parts`, none of which is a sequence
    alternatives,   // of `parts`
    repetition,     // of parts[0], which has a condition
    text_begin,     // ^
    text_end,       // $
    word_bound,     // \b
    no_word_bound,  // \B
    look_ahead,     // of parts[0]
    no_look_ahead,  // negative, of parts[0]
  };

  Kind kind = Kind::texts;
  RegexId texts = kEmptyText;
  bool is_character = false;       // of texts: each is one character
  std::uint32_t min = 0, max = 0;  // of a repetition
  std::vector<PatternNode> parts = {};
};

// Reads a pattern; the expressions are made in `pool`. Errors and exceptions: those of parse_pattern().
[[nodiscard]] Result<PatternNode> parse_pattern_tree(RegexPool& pool, std::string_view pattern, Writing writing);

}  // namespace troupe::engine::constraints
