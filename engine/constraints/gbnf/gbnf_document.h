// Reads grammars in GBNF, the notation of llama.cpp; the EBNF of XGrammar, which vLLM and SGLang take, is near to it.
//
//   root ::= item ("," item)*         # a rule: a name, ::= and alternatives, over any number of lines
//   item ::= [a-z]+ | "\u00e9" .{2,4}
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/constraints/expressions/characters.h"

namespace troupe::engine::constraints {

inline constexpr std::size_t kMaxGbnfParts = 100'000;    // texts, classes, names, groups and repetitions of one grammar
inline constexpr std::size_t kMaxGbnfDepth = 64;         // groups within groups
inline constexpr std::size_t kMaxGbnfRepetitions = 8;    // of one part, as in x?*{2}
inline constexpr std::uint32_t kMaxGbnfCount = 100'000;  // of a repetition

// From 1; columns are characters.
struct GbnfPlace {
  std::size_t line = 1, column = 1;
};

struct GbnfNode {
  enum class Kind : std::uint8_t {
    text,          // `text`, which may be empty
    character,     // one of `characters`
    reference,     // what `rule` stands for
    sequence,      // of `parts`
    alternatives,  // of `parts`
    repetition,    // of parts[0]
  };

  Kind kind = Kind::text;
  std::uint32_t rule = 0;          // of a reference: an index of GbnfDocument::rules
  std::uint32_t min = 0, max = 0;  // of a repetition; max may be kUnbounded
  std::string text = {};           // UTF-8
  CodePoints characters = {};
  std::vector<GbnfNode> parts = {};
};

struct GbnfRule {
  std::string name;
  GbnfPlace place;
  GbnfNode body;
};

// Every rule is defined, once.
struct GbnfDocument {
  std::vector<GbnfRule> rules;
  std::size_t root = 0;  // the index of the rule of that name
};

// Taken is what llama.cpp takes, but for tokens (<[1]>, <think>), empty classes and rules that are defined twice; and
// of XGrammar's notation names with '_', lines that go on without a '|' or parentheses, and a backslash before any
// sign. Errors, with line and column: invalid_argument (no grammar: says what is expected), unsupported (tokens,
// look-ahead, a limit above). O(bytes log bytes)
[[nodiscard]] Result<GbnfDocument> parse_gbnf(std::string_view grammar);

}  // namespace troupe::engine::constraints
