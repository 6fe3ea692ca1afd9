// JSON Schema (2020-12, and the spellings of drafts 4 to 7) as a grammar.
//
// Whatever the grammar lets through is valid. Of valid values it lets those through that are written in one way:
// members in the order of `properties` (those of `required` that have no schema of their own behind them, others last),
// numbers with bounds without an exponent, strings with a pattern, format or excluded values without needless escapes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/chat/values/json.h"
#include "engine/constraints/grammar/grammar.h"

namespace troupe::engine::constraints {

struct SchemaOptions {
  // Between the parts of objects and lists: nothing, or what pretty printers write (a space, or a line break and at
  // most 40 spaces or tabs).
  bool spaces = false;
  std::size_t max_work = kMaxMakingWork;  // expressions that are derived for it
  // A text, without quotes of JSON and backslashes, that no string has in it as it is written. Names and values that
  // the schema lists are not looked at. Empty: none.
  std::string without{};
  // As Python writes and reads values: no escapes in strings but those that must be, also True, False and None.
  bool python = false;
  // What stands around strings, in which there are no escapes then; members whose names are identifiers stand without.
  // Empty: JSON's quotes.
  std::string quote{};
};

// Why there is no grammar.
struct SchemaRefusal {
  std::string keyword;  // the keyword that is not supported or wrong; empty: the schema as a whole
  std::string path;     // of the schema that has it: a JSON pointer
  std::string message;  // for the user, keyword and path included
};

// Enforces: type, enum, const; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf; minLength, maxLength,
// pattern, format (formats.h; unknown ones assert nothing); items, prefixItems, additionalItems, minItems, maxItems,
// contains, minContains, uniqueItems of lists whose items have few values; properties, patternProperties,
// additionalProperties, propertyNames, required, minProperties, maxProperties, dependencies, dependentRequired,
// dependentSchemas; allOf, anyOf, oneOf, not, if, $ref within the schema. What cannot be enforced is refused, as is a
// schema that no value meets.
[[nodiscard]] std::variant<Grammar, SchemaRefusal> grammar_of_schema(const chat::Json& schema,
                                                                     const SchemaOptions& options = {});

// Any JSON value, or any object.
[[nodiscard]] Grammar grammar_of_json(bool object, const SchemaOptions& options = {});

// The same for a grammar that is being built: the rule of all values, or of objects alone. Refused schemas may leave
// rules behind that nothing calls. Throws ConstraintLimit.
[[nodiscard]] std::variant<RuleId, SchemaRefusal> add_schema(Grammar& grammar, const chat::Json& schema, bool object,
                                                             const SchemaOptions& options = {});

// Whether a name is letters, digits and _ of ASCII, and begins with no digit.
[[nodiscard]] bool is_identifier(std::string_view name);

// A member of an object whose name and value are written apart, texts without quotes and escapes.
struct SchemaMember {
  std::string name;
  bool is_required = false;
  RegexId text = kNoText;  // the texts that it may have, in UTF-8
  // Its values that are no texts, in JSON (with SchemaOptions::python or quote all of them); nothing: it has none.
  std::optional<RuleId> other{};
};
using SchemaMembers = std::vector<SchemaMember>;  // in the order in which they are written

// The members that `properties` and `required` name, of each alternative of an object that meets the schema. With
// SchemaOptions::without also no text has that text in it. As add_schema().
[[nodiscard]] std::variant<std::vector<SchemaMembers>, SchemaRefusal> add_members(Grammar& grammar,
                                                                                  const chat::Json& schema,
                                                                                  const SchemaOptions& options = {});

// `value` with its members in the order in which the schema's grammar writes them. Errors: nothing; of a schema without
// a grammar the value comes back as it is.
[[nodiscard]] chat::Json in_schema_order(const chat::Json& schema, const chat::Json& value);

}  // namespace troupe::engine::constraints
