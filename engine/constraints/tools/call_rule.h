// The calls of tools in an answer as its rule: all of the answer where a call is demanded, else what begins as a call.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/token_trie.h"
#include "engine/constraints/tools/call_grammar.h"
#include "engine/sampling/answer_rule.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

struct CallRule {
  std::shared_ptr<const AnswerRule> rule;
  std::size_t least_tokens = 0;  // of the shortest answer that is a call; without CallWish::must_call 0
  std::vector<CallGrammar::LooseTool> loose{};
};

// Without must_call an answer is free up to an opening of the format behind its reasoning, and from there the call is
// one that the grammar writes, if the shortest one fits in the tokens that are left; behind its end it is free again.
// What looks like a call otherwise (an opening before what the grammar does not write, as in a text about the format)
// is left as it is.
//
// tools, set: as grammar_of_calls(). trie: of the vocabulary, with call_marks(). format: outlives the rule. Errors:
// those of grammar_of_calls(); unsupported (a vocabulary that cannot write every byte, too much work).
[[nodiscard]] Result<CallRule> make_call_rule(const chat::Json& tools, std::shared_ptr<const chat::ToolSet> set,
                                              const chat::ToolFormat& format, const CallWish& wish,
                                              std::shared_ptr<const TokenTrie> trie,
                                              std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace troupe::engine::constraints
