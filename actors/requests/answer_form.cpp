#include "actors/requests/answer_form.h"

#include <utility>

#include "actors/requests/form_cache.h"

namespace troupe::actors {

Status AnswerForm::compile(std::shared_ptr<const engine::constraints::TokenTrie> trie,
                           std::shared_ptr<const engine::Tokenizer> tokenizer, KeptForms& kept, TenantId tenant) {
  if (rule()) return Ok{};
  std::shared_ptr<const engine::constraints::Grammar> grammar;
  {
    const std::scoped_lock lock(kept.mutex);
    grammar = kept.cache.find(tenant, constraint_);
  }
  if (grammar == nullptr) {
    auto compiled = engine::constraints::grammar_of(constraint_);
    if (!compiled) return compiled.error();
    grammar = std::make_shared<const engine::constraints::Grammar>(std::move(*compiled));
    const std::scoped_lock lock(kept.mutex);
    kept.cache.keep(tenant, constraint_, grammar);
  }
  // A copy also where it was compiled right now: then both read alike, and meet their limits at the same place.
  auto made = engine::constraints::AnswerGrammar::make(grammar->copy(), std::move(trie), std::move(tokenizer));
  if (!made) return made.error();
  const std::scoped_lock lock(mutex_);
  if (!rule_) rule_ = std::move(*made);
  return Ok{};
}

std::size_t AnswerForm::bytes() const {
  const auto made = rule();
  return engine::constraints::bytes_of(constraint_) + (made ? made->bytes_used() : 0);
}

std::shared_ptr<const engine::constraints::AnswerGrammar> AnswerForm::rule() const {
  const std::scoped_lock lock(mutex_);
  return rule_;
}

}  // namespace troupe::actors
