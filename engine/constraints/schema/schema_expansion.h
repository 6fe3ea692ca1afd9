// Schemas as alternatives of plain keywords: what $ref, allOf, anyOf, oneOf, not, if and dependencies come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/constraints/schema/schema_document.h"
#include "engine/constraints/schema/schema_values.h"

namespace troupe::engine::constraints {

// A value that meets every leaf and is of one of the types, or one of the values alone.
struct Conjunction {
  std::vector<SchemaId> leaves;  // sources (their own keywords), property, contains, items, not_...; in the order met
  std::uint8_t types = json_type::all;
  std::optional<std::vector<const chat::Json*>> values;  // of enum and const: those that meet all leaves
};

// Of one document. Not thread-safe. Throws SchemaRefused and ConstraintLimit.
class SchemaExpansion {
 public:
  static constexpr std::size_t kMaxAlternatives = 512;      // of one conjunction of schemas
  static constexpr std::size_t kMaxConjunctions = 200'000;  // made for one schema, those that came to nothing included

  SchemaExpansion(SchemaDocument& document, SchemaValues& values) : document_(&document), values_(&values) {}

  // Ascending, each once, without `true`: equal conjunctions of schemas have equal keys.
  using Key = std::vector<SchemaId>;
  [[nodiscard]] static Key key_of(std::vector<SchemaId> parts);

  // The alternatives of a conjunction of schemas. None: no value meets it.
  const std::vector<Conjunction>& of(const Key& parts);

  // What the value of a member must meet.
  [[nodiscard]] std::vector<SchemaId> member(const Conjunction& all, const std::string& name);
  // What an item must meet.
  [[nodiscard]] std::vector<SchemaId> item(const Conjunction& all, std::size_t index);
  // The names that `required` lists, in their order.
  [[nodiscard]] std::vector<std::string> required(const Conjunction& all) const;

  // Whether it is plain that no value meets it. `false` says nothing.
  [[nodiscard]] bool surely_empty(const Key& parts, std::size_t depth);

 private:
  struct Open;
  void expand(Open open, std::vector<Conjunction>& into);
  bool take(Open& open, SchemaId id);
  bool take_source(Open& open, SchemaId id);
  bool surely_empty(const Conjunction& all, std::size_t depth);
  std::vector<SchemaId> exactly_one(const SchemaNode& one_of);

  SchemaDocument* document_;
  SchemaValues* values_;
  std::map<Key, std::vector<Conjunction>> known_;
  std::map<std::pair<Key, std::size_t>, bool> emptiness_;
  std::size_t num_made_ = 0;
};

}  // namespace troupe::engine::constraints
