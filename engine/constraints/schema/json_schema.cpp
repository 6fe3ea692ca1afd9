#include "engine/constraints/schema/json_schema.h"

#include <fmt/format.h>

#include <utility>

#include "engine/constraints/schema/schema_grammar.h"

namespace troupe::engine::constraints {

std::variant<Grammar, SchemaRefusal> grammar_of_schema(const chat::Json& schema, const SchemaOptions& options) {
  try {
    return SchemaGrammar(schema, options).take();
  } catch (const SchemaRefused& refused) {
    const std::string place =
        refused.keyword.empty() && refused.path.empty()
            ? std::string()
            : fmt::format(" (at #{}{}{})", refused.path, refused.keyword.empty() ? "" : "/", refused.keyword);
    return SchemaRefusal{refused.keyword, refused.path,
                         fmt::format("the schema cannot be enforced: {}{}", refused.what(), place)};
  } catch (const ConstraintLimit& limit) {
    return SchemaRefusal{"", "", fmt::format("the schema cannot be enforced: {}", limit.what())};
  }
}

Grammar grammar_of_json(bool object, const SchemaOptions& options) {
  return SchemaGrammar(chat::Json(true), options).take(object ? json_type::object : json_type::all);
}

chat::Json in_schema_order(const chat::Json& schema, const chat::Json& value) {
  try {
    SchemaGrammar grammar(schema, {});
    return grammar.ordered(grammar.root_key(), value, 0);
  } catch (const SchemaRefused&) {
    return value;
  } catch (const ConstraintLimit&) {
    return value;
  }
}

}  // namespace troupe::engine::constraints
