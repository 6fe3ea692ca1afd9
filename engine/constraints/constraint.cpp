#include "engine/constraints/constraint.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "config/utf8.h"
#include "engine/chat/values/json.h"
#include "engine/constraints/expressions/pattern.h"
#include "engine/constraints/gbnf/gbnf_grammar.h"
#include "engine/constraints/schema/json_schema.h"

namespace troupe::engine::constraints {
namespace {

Result<Grammar> grammar_of_schema_text(const Constraint& constraint) {
  const auto json = chat::parse_json(constraint.text);
  if (!json) return Error{ErrorCode::invalid_argument, fmt::format("the schema is no JSON: {}", json.error().message)};
  auto grammar = grammar_of_schema(*json, {.spaces = constraint.spaces});
  if (const auto* const refusal = std::get_if<SchemaRefusal>(&grammar))
    return Error{ErrorCode::unsupported, refusal->message};
  return std::get<Grammar>(std::move(grammar));
}

// The grammar of the texts that an expression of its pool matches.
Result<Grammar> grammar_of_texts(Grammar grammar, RegexId texts) {
  const RuleId rule = grammar.add_rule();
  const NodeId end = grammar.add_node();
  grammar.set_end(end);
  grammar.add_text(grammar.begin_of(rule), texts, end);
  if (!grammar.finish(rule)) return Error{ErrorCode::invalid_argument, "no text matches it"};
  return grammar;
}

Result<Grammar> made_grammar(const Constraint& constraint) {
  switch (constraint.kind) {
    case Constraint::Kind::json_object:
      return grammar_of_json(true, {.spaces = constraint.spaces});
    case Constraint::Kind::json_schema:
      return grammar_of_schema_text(constraint);
    case Constraint::Kind::regex: {
      Grammar grammar;
      const auto texts = parse_pattern(grammar.pool(), constraint.text, Writing::plain, PatternExtent::whole);
      if (!texts) return texts.error();
      return grammar_of_texts(std::move(grammar), *texts);
    }
    case Constraint::Kind::choice: {
      if (constraint.choices.empty()) return Error{ErrorCode::invalid_argument, "there is no choice"};
      Grammar grammar;
      std::vector<RegexId> texts;
      for (const std::string& each : constraint.choices) {
        if (each.empty() || !is_utf8(each))
          return Error{ErrorCode::invalid_argument, "a choice is empty, or not UTF-8"};
        texts.push_back(grammar.pool().literal(each));
      }
      const RegexId any = grammar.pool().either(std::move(texts));
      return grammar_of_texts(std::move(grammar), any);
    }
    case Constraint::Kind::grammar:
      return grammar_of_gbnf(constraint.text);
    case Constraint::Kind::calls:
      break;
  }
  return Error{ErrorCode::unsupported, "a form that is not known"};
}

}  // namespace

std::size_t bytes_of(const Constraint& constraint) {
  std::size_t bytes = constraint.text.size() + constraint.calls.name.size();
  for (const auto* const list : {&constraint.choices, &constraint.calls.strict})
    for (const std::string& each : *list) bytes += each.size() + sizeof(std::string);
  return bytes;
}

Result<Grammar> grammar_of(const Constraint& constraint) {
  if (bytes_of(constraint) > kMaxConstraintBytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("it has {} bytes; at most {} are taken", bytes_of(constraint), kMaxConstraintBytes)};
  try {
    return made_grammar(constraint);
  } catch (const ConstraintLimit& limit) {
    return Error{ErrorCode::unsupported, limit.what()};
  }
}

}  // namespace troupe::engine::constraints
