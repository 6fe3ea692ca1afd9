#include "actors/requests/answer_form.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <set>
#include <utility>

#include "actors/requests/form_cache.h"
#include "actors/requests/request.h"

namespace troupe::actors {
namespace {

using engine::constraints::CompiledForm;
using engine::constraints::Constraint;

// Without names, which are the client's.
void warn_of_loose_tools(const CompiledForm::Calls& calls) {
  if (calls.loose.empty()) return;
  std::set<std::string> keywords;
  for (const auto& each : calls.loose) keywords.insert(each.why.keyword.empty() ? "too large" : each.why.keyword);
  spdlog::warn(
      "calls of {} of a request's {} tools have any JSON object as arguments, as their schemas cannot be "
      "enforced ({}); `troupe schema check` says why",
      calls.loose.size(), calls.tools->size(), fmt::join(keywords, ", "));
}

// Whether an answer without the form is better than none.
bool is_optional(const Constraint& form) {
  return form.kind == Constraint::Kind::calls && form.calls.strict.empty() && form.calls.format.empty();
}

}  // namespace

Result<AnswerForm::Rule> AnswerForm::made_rule(const FormModel& model, KeptForms& kept, TenantId tenant) const {
  if (!model.trie) return Error{ErrorCode::unsupported, "the model has no vocabulary"};
  std::shared_ptr<const Compiled> compiled;
  {
    const std::scoped_lock lock(kept.mutex);
    compiled = kept.cache.find(tenant, constraint_);
  }
  if (compiled == nullptr) {
    auto made = engine::constraints::compile_form(constraint_, *model.tokenizer, model.tool_format);
    if (!made) return made.error();
    warn_of_loose_tools(made->calls);
    compiled = std::make_shared<const Compiled>(std::move(*made));
    const std::scoped_lock lock(kept.mutex);
    kept.cache.keep(tenant, constraint_, compiled);
  }
  return engine::constraints::make_rule(*compiled, model.trie, model.tokenizer);
}

Status AnswerForm::compile(const FormModel& model, KeptForms& kept, TenantId tenant) {
  if (is_compiled()) return Ok{};
  auto made = made_rule(model, kept, tenant);
  if (!made && !is_optional(constraint_)) return made.error();
  const std::scoped_lock lock(mutex_);
  if (!std::exchange(is_compiled_, true) && made) rule_ = *std::move(made);
  return Ok{};
}

bool AnswerForm::is_compiled() const {
  const std::scoped_lock lock(mutex_);
  return is_compiled_;
}

std::size_t AnswerForm::bytes() const {
  const std::scoped_lock lock(mutex_);
  return engine::constraints::bytes_of(constraint_) + (rule_.tokens ? rule_.tokens->bytes_used() : 0);
}

std::shared_ptr<const engine::AnswerRule> AnswerForm::rule() const {
  const std::scoped_lock lock(mutex_);
  return rule_.rule;
}

std::size_t AnswerForm::least_tokens() const {
  const std::scoped_lock lock(mutex_);
  return rule_.least_tokens;
}

std::shared_ptr<const AnswerForm> AnswerForm::proved(const engine::chat::ToolFormat* tool_format) const {
  if (!rule()) return nullptr;
  Constraint form = constraint_;
  if (form.kind == Constraint::Kind::calls && form.calls.format.empty()) form.calls.format = tool_format->name;
  return std::make_shared<const AnswerForm>(std::move(form), field_);
}

std::shared_ptr<AnswerForm> form_of(const Request& request) {
  if (request.form) return request.form;
  return request.tools ? request.tools->form : nullptr;
}

}  // namespace troupe::actors
