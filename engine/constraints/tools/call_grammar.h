// The calls of tools that an answer may have, as a grammar: in the format in which the model writes them, with the
// names of tools that are offered, and arguments that meet their schemas.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/constraint.h"
#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/mark_tokens.h"
#include "engine/constraints/schema/json_schema.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// Expressions that are derived for the schemas of all tools of a request; each may take kMaxMakingWork of them.
inline constexpr std::size_t kMaxToolsWork = 120'000;
// Bytes of the expressions that are made for the schema of one tool, and for those of all tools of a request.
inline constexpr std::size_t kMaxToolMemory = 16u << 20, kMaxToolsMemory = 32u << 20;

// The control tokens of the marks of all formats, with which a vocabulary's TokenTrie is made; and of those of one.
[[nodiscard]] MarkTokens call_marks(const Tokenizer& vocabulary);
[[nodiscard]] MarkTokens call_marks(const chat::ToolFormat& format, const Tokenizer& vocabulary);

// Before a call that stands within another object, {"function": {"name": NAME ...}}, where it may have no marks.
inline constexpr std::string_view kNestedOpening = "{\"function\": ";

// chat::call_beginning() as the grammar writes it: a name that looks as if it had the format's prefix or index (a:1)
// has one more, which the parser leaves out.
[[nodiscard]] std::string call_opening(const chat::ToolFormat& format, const std::string& name);

struct CallGrammar {
  // A tool whose parameters cannot be enforced: its arguments are any JSON object.
  struct LooseTool {
    std::string name;
    SchemaRefusal why;
  };

  // Its texts: with must_call all of an answer; else what begins with the format's opening (openings_of) or, in formats
  // that may be bare, with a call, and ends where the answer is free again.
  Grammar grammar;
  std::vector<std::string> beginnings{};  // its texts up to the arguments of each tool
  std::vector<LooseTool> loose{};
};

// tools: a list in the form of Chat Completions, of which `set` was made. White space that the format's parser skips
// may stand between the parts of a call. Tools without parameters have {} as arguments. Errors: unsupported (a strict
// tool's parameters: names the tool and the keyword's path; no tool but one that has ToolFormat::user_name, which none
// can have there; too many tools). O(list), kMaxToolsWork.
[[nodiscard]] Result<CallGrammar> grammar_of_calls(const chat::Json& tools, const chat::ToolSet& set,
                                                   const chat::ToolFormat& format, const MarkTokens& marks,
                                                   const CallWish& wish);

}  // namespace troupe::engine::constraints
