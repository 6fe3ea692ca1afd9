// The form that a request asks of its answer, and the rule that it becomes for the model that serves it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cache/ids.h"
#include "config/result.h"
#include "engine/constraints/constraint.h"
#include "engine/constraints/forms/form_rule.h"

namespace troupe::actors {

struct KeptForms;  // form_cache.h
struct Request;    // request.h

// What of a model decides how a form is compiled.
struct FormModel {
  std::shared_ptr<const engine::constraints::TokenTrie> trie;  // null: it has no vocabulary
  std::shared_ptr<const engine::Tokenizer> tokenizer;
  const engine::chat::ToolFormat* tool_format = nullptr;  // null: it calls no tools
};

// Part of a request, which its choices share. Any thread.
class AnswerForm {
 public:
  // field: of the request, as its client wrote it, for refusals. may_be_left_out: where the form cannot be had there is
  // no rule, and the request is answered without.
  AnswerForm(engine::constraints::Constraint constraint, std::string field, bool may_be_left_out = false)
      : constraint_(std::move(constraint)), field_(std::move(field)), may_be_left_out_(may_be_left_out) {}

  const engine::constraints::Constraint& constraint() const { return constraint_; }
  const std::string& field() const { return field_; }

  // Makes the rule, which mostly takes less than 100 ms, and less of a form that is kept for the tenant; once made, it
  // stays. The rule is the same whether the form was kept or not. Errors: those of compile_form() and make_rule(),
  // unless it may be left out.
  [[nodiscard]] Status compile(const FormModel& model, KeptForms& kept, TenantId tenant);
  [[nodiscard]] bool is_compiled() const;
  // Of memory, with what was read with the rule so far. Waits for nothing.
  [[nodiscard]] std::size_t bytes() const;
  // Null: not made yet, or there is none.
  [[nodiscard]] std::shared_ptr<const engine::AnswerRule> rule() const;
  // Of the shortest answer that the rule lets through; 0: any, or it is not made yet.
  [[nodiscard]] std::size_t least_tokens() const;
  // For the log, of a form that was compiled anew: what of it is not held. Without names, which are the client's.
  // Empty: all is.
  [[nodiscard]] std::string note() const;

 private:
  using Compiled = engine::constraints::CompiledForm;
  using Rule = engine::constraints::FormRule;

  Result<Rule> make_rule(const FormModel& model, KeptForms& kept, TenantId tenant, std::string& note) const;

  const engine::constraints::Constraint constraint_;
  const std::string field_;
  const bool may_be_left_out_;
  mutable std::mutex mutex_;
  bool is_compiled_ = false;
  Rule rule_;
  std::string note_;
};

// What the answer, or the calls in it, have to be. Null: any.
[[nodiscard]] std::shared_ptr<AnswerForm> form_of(const Request& request);

// As receipts have it: calls with their format, which is the model's where the form names none. Null: there is no rule.
[[nodiscard]] std::shared_ptr<const AnswerForm> proved_form(const std::shared_ptr<const AnswerForm>& form,
                                                            const engine::chat::ToolFormat* tool_format);

}  // namespace troupe::actors
