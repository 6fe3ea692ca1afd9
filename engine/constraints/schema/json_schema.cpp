#include "engine/constraints/schema/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "engine/constraints/schema/schema_grammar.h"

namespace troupe::engine::constraints {

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

namespace {

// What `make` makes, or why it cannot be had.
template <class Made, class Make>
std::variant<Made, SchemaRefusal> made_or_refused(Make make) {
  try {
    return make();
  } catch (const SchemaRefused& refused) {
    const std::string place =
        refused.keyword.empty() && refused.path.empty()
            ? std::string()
            : fmt::format(" (at #{}{}{})", refused.path, refused.keyword.empty() ? "" : "/", refused.keyword);
    return SchemaRefusal{refused.keyword, refused.path,
                         fmt::format("the schema cannot be enforced: {}{}", refused.what(), place)};
  }
}

}  // namespace

std::variant<Grammar, SchemaRefusal> grammar_of_schema(const chat::Json& schema, const SchemaOptions& options) {
  try {
    return made_or_refused<Grammar>([&] {
      Grammar grammar;
      const RuleId rule = SchemaGrammar(grammar, schema, options).add();
      if (!grammar.finish(rule)) throw SchemaRefused("", "", "no value that ends meets this schema");
      return grammar;
    });
  } catch (const ConstraintLimit& limit) {
    return SchemaRefusal{"", "", fmt::format("the schema cannot be enforced: {}", limit.what())};
  }
}

Grammar grammar_of_json(bool object, const SchemaOptions& options) {
  Grammar grammar;
  const RuleId rule =
      SchemaGrammar(grammar, chat::Json(true), options).add(object ? json_type::object : json_type::all);
  const bool has_text = grammar.finish(rule);
  TROUPE_ASSERT(has_text);
  return grammar;
}

std::variant<RuleId, SchemaRefusal> add_schema(Grammar& grammar, const chat::Json& schema, bool object,
                                               const SchemaOptions& options) {
  return made_or_refused<RuleId>(
      [&] { return SchemaGrammar(grammar, schema, options).add(object ? json_type::object : json_type::all); });
}

std::variant<std::vector<SchemaMembers>, SchemaRefusal> add_members(Grammar& grammar, const chat::Json& schema,
                                                                    const SchemaOptions& options) {
  return made_or_refused<std::vector<SchemaMembers>>(
      [&] { return SchemaGrammar(grammar, schema, options).add_members(); });
}

chat::Json in_schema_order(const chat::Json& schema, const chat::Json& value) {
  try {
    Grammar rules;
    SchemaGrammar grammar(rules, schema, {});
    return grammar.ordered(grammar.root_key(), value, 0);
  } catch (const SchemaRefused&) {
    return value;
  } catch (const ConstraintLimit&) {
    return value;
  }
}

}  // namespace troupe::engine::constraints
