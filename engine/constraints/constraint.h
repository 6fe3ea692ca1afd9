// The form that a request asks of its answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/constraints/grammar/grammar.h"

namespace troupe::engine::constraints {

inline constexpr std::size_t kMaxConstraintBytes = 1u << 20;  // of a schema, a pattern, a grammar, all choices
inline constexpr std::size_t kMaxChoiceTexts = 4096;

// What a request wants of the calls of tools in its answer.
struct CallWish {
  bool must_call = false;             // the answer is calls and nothing else
  std::string name{};                 // of the tool that is called; empty: any
  bool may_call_several = true;       // false: one call
  std::vector<std::string> strict{};  // tools whose parameters must be enforced
  std::string format{};               // in which calls are written (chat::ToolFormat::name); empty: the model's own
  bool operator==(const CallWish&) const = default;
};

struct Constraint {
  enum class Kind : std::uint8_t {
    json_object,  // any JSON object
    json_schema,  // `text`: a JSON Schema
    regex,        // `text`: a pattern that the whole answer matches
    choice,       // one of `choices`
    grammar,      // `text`: a grammar of GBNF
    calls,        // what calls it has are of tools: `text`, a JSON list as of Chat Completions
  };
  Kind kind = Kind::json_object;
  std::string text{};
  std::vector<std::string> choices{};
  CallWish calls{};
  bool spaces = false;  // JSON may be written with spaces and line breaks between its parts
  bool operator==(const Constraint&) const = default;
};

// As receipts name them, by kind.
inline constexpr std::array<std::string_view, 6> kConstraintKinds = {"json_object", "json_schema", "regex",
                                                                     "choice",      "grammar",     "calls"};

// The grammar of a constraint that is none of calls (compile_form() has those, too). Errors: invalid_argument (what is
// asked for is none), unsupported (it cannot be enforced: says what, and where). Bounded: kMaxMakingWork,
// kMaxGrammarNodes.
[[nodiscard]] Result<Grammar> grammar_of(const Constraint& constraint);

// The bytes that it takes in a request. O(choices)
[[nodiscard]] std::size_t bytes_of(const Constraint& constraint);

}  // namespace troupe::engine::constraints
