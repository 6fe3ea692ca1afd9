#include "engine/constraints/forms/form_rule.h"

#include <fmt/format.h>

#include <utility>

#include "config/printable.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/answer_grammar.h"
#include "engine/constraints/tools/call_rule.h"

namespace troupe::engine::constraints {
namespace {

Result<CompiledForm> compile_calls(const Constraint& constraint, const Tokenizer& tokenizer,
                                   const chat::ToolFormat* format) {
  const CallWish& wish = constraint.calls;
  if (!wish.format.empty()) {
    format = chat::find_tool_format(wish.format);
    if (format == nullptr)
      return Error{ErrorCode::invalid_argument,
                   fmt::format("'{}' is no format of calls", Printable(wish.format).text())};
  }
  if (format == nullptr) return Error{ErrorCode::unsupported, "the model's template knows no calls of tools"};
  if (bytes_of(constraint) > kMaxConstraintBytes)
    return Error{ErrorCode::unsupported, fmt::format("the tools have {} bytes; at most {} can be enforced",
                                                     bytes_of(constraint), kMaxConstraintBytes)};
  const auto list = chat::parse_json(constraint.text);
  if (!list) return Error{ErrorCode::invalid_argument, "the tools are no JSON: " + list.error().message};
  auto set = chat::ToolSet::make(*list);
  if (!set) return set.error();
  if (!wish.name.empty() && !set->has(wish.name))
    return Error{ErrorCode::invalid_argument, fmt::format("'{}' is none of the tools", Printable(wish.name).text())};
  MarkTokens marks = call_marks(*format, tokenizer);
  auto made = grammar_of_calls(*list, *set, *format, marks, wish);
  if (!made) return made.error();
  return CompiledForm{.grammar = std::move(made->grammar),
                      .marks = std::move(marks),
                      .calls = {.format = format,
                                .must_call = wish.must_call,
                                .tools = std::make_shared<const chat::ToolSet>(*std::move(set)),
                                .beginnings = std::move(made->beginnings),
                                .loose = std::move(made->loose)}};
}

}  // namespace

std::size_t CompiledForm::bytes_used() const {
  std::size_t bytes = grammar.bytes_used();
  if (calls.tools) bytes += calls.tools->bytes_used();
  for (const std::string& each : calls.beginnings) bytes += sizeof(std::string) + each.size();
  for (const CallGrammar::LooseTool& each : calls.loose)
    bytes += sizeof each + each.name.size() + each.why.message.size() + each.why.keyword.size();
  return bytes;
}

Result<CompiledForm> compile_form(const Constraint& constraint, const Tokenizer& tokenizer,
                                  const chat::ToolFormat* format) {
  if (constraint.kind == Constraint::Kind::calls) return compile_calls(constraint, tokenizer, format);
  auto grammar = grammar_of(constraint);
  if (!grammar) return grammar.error();
  return CompiledForm{.grammar = std::move(*grammar)};
}

Result<FormRule> make_rule(const CompiledForm& form, std::shared_ptr<const TokenTrie> trie,
                           std::shared_ptr<const Tokenizer> tokenizer) {
  if (!trie->has_every_byte())
    return Error{ErrorCode::unsupported,
                 "the model's vocabulary has no token for some bytes, so that its answers cannot be held to a form"};
  try {
    const auto tokens =
        std::make_shared<GrammarTokens>(form.grammar.copy(), std::move(trie), std::move(tokenizer), form.marks);
    if (!form.calls.beginnings.empty()) {
      // The names of many tools are derived here, where there is time, and not for the first mask.
      tokens->limit_work(kMaxReadingWork);
      for (const std::string& beginning : form.calls.beginnings) (void)tokens->after(tokens->begin(), beginning);
    }
    if (form.calls.format != nullptr && !form.calls.must_call)
      return FormRule{.rule = calls_in_text(tokens, *form.calls.format, form.calls.tools),
                      .tokens = tokens,
                      .tools_bytes = form.calls.tools->bytes_used()};
    const std::size_t least = tokens->tokens_to_end(tokens->begin());
    return FormRule{
        .rule = std::make_shared<const AnswerGrammar>(tokens, least), .least_tokens = least, .tokens = tokens};
  } catch (const ConstraintLimit& limit) {
    return Error{ErrorCode::unsupported, limit.what()};
  }
}

}  // namespace troupe::engine::constraints
