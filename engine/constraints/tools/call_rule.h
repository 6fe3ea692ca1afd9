// Calls of tools in an answer that may have other text, too.
#pragma once

#include <memory>

#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/constraints/grammar_tokens.h"
#include "engine/sampling/answer_rule.h"

namespace troupe::engine::constraints {

// The rule of an answer that is free up to an opening of the format behind its reasoning; from there the call is one
// that the grammar writes, if the shortest one fits in the tokens that are left, and behind its end it is free again.
// What looks like a call otherwise (an opening before what the grammar does not write, as in a text about the format)
// is left as it is.
//
// tokens: of grammar_of_calls() without CallWish::must_call. format: outlives the rule.
[[nodiscard]] std::shared_ptr<const AnswerRule> calls_in_text(std::shared_ptr<GrammarTokens> tokens,
                                                              const chat::ToolFormat& format,
                                                              std::shared_ptr<const chat::ToolSet> tools);

}  // namespace troupe::engine::constraints
