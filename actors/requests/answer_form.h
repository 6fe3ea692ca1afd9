// The form that a request asks of its answer, and the rule that it becomes for the model that serves it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/constraints/answer_grammar.h"
#include "engine/constraints/constraint.h"

namespace troupe::actors {

struct KeptForms;  // form_cache.h

// Part of a request, which its choices share. Any thread.
class AnswerForm {
 public:
  // field: of the request, as its client wrote it, for refusals.
  AnswerForm(engine::constraints::Constraint constraint, std::string field)
      : constraint_(std::move(constraint)), field_(std::move(field)) {}

  const engine::constraints::Constraint& constraint() const { return constraint_; }
  const std::string& field() const { return field_; }

  // Makes the rule, which may take 100 ms, or less of a form that is kept for the tenant; once made, it stays. The rule
  // is the same whether the form was kept or not. Errors: those of grammar_of() and AnswerGrammar::make().
  [[nodiscard]] Status compile(std::shared_ptr<const engine::constraints::TokenTrie> trie,
                               std::shared_ptr<const engine::Tokenizer> tokenizer, KeptForms& kept, TenantId tenant);
  // Of memory, with what was read with the rule so far. Waits for nothing.
  [[nodiscard]] std::size_t bytes() const;
  // Null: not made yet.
  [[nodiscard]] std::shared_ptr<const engine::constraints::AnswerGrammar> rule() const;

 private:
  const engine::constraints::Constraint constraint_;
  const std::string field_;
  mutable std::mutex mutex_;
  std::shared_ptr<const engine::constraints::AnswerGrammar> rule_;
};

}  // namespace troupe::actors
