// Whether a value meets a schema: for the values that enum and const list, and for tests.
#pragma once

#include <string>
#include <unordered_map>

#include "engine/constraints/expressions/characters.h"
#include "engine/constraints/schema/schema_document.h"

namespace troupe::engine::constraints {

// Keywords as in JSON Schema 2020-12; formats are assertions. Not thread-safe. Throws SchemaRefused, also of what
// grammars do not support, and ConstraintLimit.
class SchemaValues {
 public:
  SchemaValues(SchemaDocument& document, RegexPool& pool) : document_(&document), pool_(&pool) {}
  [[nodiscard]] bool matches(SchemaId id, const chat::Json& value);

  // The texts that match a pattern (somewhere), or that have a format.
  RegexId pattern(const std::string& text, Writing writing, const std::string& path);
  RegexId format(const std::string& name, Writing writing);
  // What a leaf (pattern, format, their negations, values that are excluded) asks of a string: expressions all of which
  // it must match. Not its length.
  void add_conditions(SchemaId leaf, Writing writing, std::vector<RegexId>& into);
  RegexPool& pool() { return *pool_; }

 private:
  bool matches_source(SchemaId id, const chat::Json& value);
  bool matches_string(const SchemaNode& node, const std::string& text);
  bool matches_array(SchemaId id, const chat::Json::List& list);
  bool matches_object(SchemaId id, const chat::Json::Object& object);

  SchemaDocument* document_;
  RegexPool* pool_;
  std::unordered_map<std::string, RegexId> patterns_;
  std::size_t depth_ = 0;
};

// Equal as JSON Schema means it: 1 is 1.0, and the order of members does not matter.
[[nodiscard]] bool equal_values(const chat::Json& first, const chat::Json& second);

}  // namespace troupe::engine::constraints
