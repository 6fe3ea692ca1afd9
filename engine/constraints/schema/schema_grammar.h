// Builds the grammar of a schema, rule by rule. Of json_schema.cpp alone.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/schema/json_schema.h"
#include "engine/constraints/schema/schema_document.h"
#include "engine/constraints/schema/schema_expansion.h"
#include "engine/constraints/schema/schema_values.h"

namespace troupe::engine::constraints {

// A rule is what a conjunction of schemas lets through; equal conjunctions share it, so that recursion ends. Throws
// SchemaRefused and ConstraintLimit.
class SchemaGrammar {
 public:
  SchemaGrammar(chat::Json schema, const SchemaOptions& options);

  // To be called once.
  Grammar take(std::uint8_t types = json_type::all);

  // The names that the schemas of a conjunction have in `properties` and `required`, in the order of its members.
  std::vector<std::string> names_of(const SchemaExpansion::Key& parts);
  chat::Json ordered(const SchemaExpansion::Key& parts, const chat::Json& value, std::size_t depth);
  SchemaExpansion::Key root_key() const { return SchemaExpansion::key_of({document_.root()}); }

 private:
  using Key = SchemaExpansion::Key;
  // Members whose names are not listed: of the names that match, each value meets `value`.
  struct OtherMembers {
    RegexId name;
    Key value;
  };
  struct ObjectParts;

  RuleId rule_of(const Key& parts);
  void build(const Key& parts, RuleId rule);
  void build_values(const Conjunction& all, std::vector<RegexId>& texts);
  RegexId number(const Conjunction& all);
  RegexId string(const Conjunction& all);
  RegexId names_allowed(SchemaId names);
  void build_array(const Conjunction& all, NodeId begin, NodeId end);
  void build_unique(const Conjunction& all, std::uint32_t min, std::uint32_t max, NodeId open, NodeId end);
  void build_object(const Conjunction& all, const std::vector<std::string>& order, NodeId begin, NodeId end);
  std::vector<OtherMembers> other_members(const Conjunction& all, const std::vector<std::string>& names);
  void collect_leaves(const Key& parts, std::vector<SchemaId>& leaves);
  std::string path_of(const Conjunction& all) const;
  RegexPool& pool() { return grammar_.pool(); }

  Grammar grammar_;
  SchemaDocument document_;
  SchemaValues values_;
  SchemaExpansion expansion_;
  std::map<Key, RuleId> rules_;
  std::deque<std::pair<Key, RuleId>> left_;  // rules that are not built yet
  RegexId space_ = kEmptyText;
  RegexId free_string_ = kNoText, plain_string_ = kNoText;  // with any escapes; with those that must be
  RegexId plain_number_ = kNoText;                          // without exponent or needless zeros
};

}  // namespace troupe::engine::constraints
