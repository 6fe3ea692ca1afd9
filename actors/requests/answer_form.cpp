#include "actors/requests/answer_form.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "actors/requests/form_cache.h"
#include "actors/requests/request.h"

namespace troupe::actors {
namespace {

using engine::constraints::CompiledForm;
using engine::constraints::Constraint;

std::string note_on(const CompiledForm::Calls& calls) {
  if (calls.loose.empty()) return {};
  std::set<std::string> keywords;
  for (const auto& each : calls.loose) keywords.insert(each.why.keyword.empty() ? "too large" : each.why.keyword);
  return fmt::format(
      "calls of {} of its {} tools have any JSON object as arguments, as their schemas cannot be enforced ({}); "
      "`troupe "
      "schema check` says why",
      calls.loose.size(), calls.tools->size(), fmt::join(keywords, ", "));
}

}  // namespace

Result<AnswerForm::Rule> AnswerForm::make_rule(const FormModel& model, KeptForms& kept, TenantId tenant,
                                               std::string& note) const {
  if (!model.trie) return Error{ErrorCode::unsupported, "the model has no vocabulary"};
  std::shared_ptr<const Compiled> compiled;
  {
    const std::scoped_lock lock(kept.mutex);
    compiled = kept.cache.find(tenant, constraint_);
  }
  if (compiled == nullptr) {
    auto made = engine::constraints::compile_form(constraint_, *model.tokenizer, model.tool_format);
    if (!made) return made.error();
    note = note_on(made->calls);
    compiled = std::make_shared<const Compiled>(std::move(*made));
    const std::scoped_lock lock(kept.mutex);
    kept.cache.keep(tenant, constraint_, compiled);
  }
  return engine::constraints::make_rule(*compiled, model.trie, model.tokenizer);
}

Status AnswerForm::compile(const FormModel& model, KeptForms& kept, TenantId tenant) {
  if (is_compiled()) return Ok{};
  std::string note;
  auto made = make_rule(model, kept, tenant, note);
  if (!made && !may_be_left_out_) return made.error();
  if (!made) note = "its calls are not held to their schemas: " + made.error().message;
  const std::scoped_lock lock(mutex_);
  if (std::exchange(is_compiled_, true)) return Ok{};
  if (made) rule_ = *std::move(made);
  note_ = std::move(note);
  return Ok{};
}

std::string AnswerForm::note() const {
  const std::scoped_lock lock(mutex_);
  return note_;
}

bool AnswerForm::is_compiled() const {
  const std::scoped_lock lock(mutex_);
  return is_compiled_;
}

std::size_t AnswerForm::bytes() const {
  const std::scoped_lock lock(mutex_);
  return engine::constraints::bytes_of(constraint_) + rule_.bytes_used();
}

std::shared_ptr<const engine::AnswerRule> AnswerForm::rule() const {
  const std::scoped_lock lock(mutex_);
  return rule_.rule;
}

std::size_t AnswerForm::least_tokens() const {
  const std::scoped_lock lock(mutex_);
  return rule_.least_tokens;
}

std::shared_ptr<AnswerForm> form_of(const Request& request) {
  if (request.form) return request.form;
  return request.tools ? request.tools->form : nullptr;
}

std::shared_ptr<const AnswerForm> proved_form(const std::shared_ptr<const AnswerForm>& form,
                                              const engine::chat::ToolFormat* tool_format) {
  if (!form || !form->rule()) return nullptr;
  const Constraint& constraint = form->constraint();
  if (constraint.kind != Constraint::Kind::calls || !constraint.calls.format.empty()) return form;
  Constraint named = constraint;
  named.calls.format = tool_format->name;
  return std::make_shared<const AnswerForm>(std::move(named), form->field());
}

}  // namespace troupe::actors
