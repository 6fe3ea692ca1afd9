// From the form that a request asks to the rule of its answer: compiled, which is kept and shared, and then made a rule
// for one request.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/constraints/constraint.h"
#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/grammar_tokens.h"
#include "engine/constraints/token_trie.h"
#include "engine/constraints/tools/call_grammar.h"
#include "engine/sampling/answer_rule.h"
#include "engine/tokenizers/tokenizer.h"

namespace troupe::engine::constraints {

// Immutable.
struct CompiledForm {
  struct Calls {
    const chat::ToolFormat* format = nullptr;  // null: it is no form of calls
    bool must_call = false;
    std::shared_ptr<const chat::ToolSet> tools{};
    std::vector<std::string> beginnings{};        // as of CallGrammar
    std::vector<CallGrammar::LooseTool> loose{};  // the same
  };

  Grammar grammar;
  MarkTokens marks{};
  Calls calls{};

  // Of memory, estimated.
  [[nodiscard]] std::size_t bytes_used() const;
};

// format: in which the model writes calls, if the constraint names no other; null: it does not. Errors: those of
// grammar_of(), and of calls those of ToolSet::make() and grammar_of_calls(); invalid_argument (no format of the name,
// the tool that is to be called is none of them), unsupported (no format).
[[nodiscard]] Result<CompiledForm> compile_form(const Constraint& constraint, const Tokenizer& tokenizer,
                                                const chat::ToolFormat* format);

struct FormRule {
  std::shared_ptr<const AnswerRule> rule{};
  std::size_t least_tokens = 0;  // of the shortest answer that it lets through; 0 where calls are not demanded
  std::shared_ptr<const GrammarTokens> tokens{};  // with which it reads
  std::size_t tools_bytes = 0;                    // of memory of CompiledForm::Calls::tools

  // Of memory, which grows while it is read with. Any thread, waits for none.
  [[nodiscard]] std::size_t bytes_used() const { return tools_bytes + (tokens ? tokens->bytes_used() : 0); }
};

// Reads with a copy of what was compiled. trie: of the tokenizer's vocabulary, with call_marks().
// Errors: unsupported (a vocabulary that cannot write every byte, a beginning that takes too much work).
[[nodiscard]] Result<FormRule> make_rule(const CompiledForm& form, std::shared_ptr<const TokenTrie> trie,
                                         std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace troupe::engine::constraints
