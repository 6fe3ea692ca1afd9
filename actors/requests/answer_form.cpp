#include "actors/requests/answer_form.h"

#include <utility>

namespace troupe::actors {

Status AnswerForm::compile(std::shared_ptr<const engine::constraints::TokenTrie> trie,
                           std::shared_ptr<const engine::Tokenizer> tokenizer) {
  if (rule()) return Ok{};
  auto grammar = engine::constraints::grammar_of(constraint_);
  if (!grammar) return grammar.error();
  auto made = engine::constraints::AnswerGrammar::make(std::move(*grammar), std::move(trie), std::move(tokenizer));
  if (!made) return made.error();
  const std::scoped_lock lock(mutex_);
  if (!rule_) rule_ = std::move(*made);
  return Ok{};
}

std::shared_ptr<const engine::constraints::AnswerGrammar> AnswerForm::rule() const {
  const std::scoped_lock lock(mutex_);
  return rule_;
}

}  // namespace troupe::actors
