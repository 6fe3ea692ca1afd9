// Builds the rules of a schema in a grammar. Of json_schema.cpp alone.
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
  // grammar: outlives this.
  SchemaGrammar(Grammar& grammar, chat::Json schema, const SchemaOptions& options);

  // The rule of the values of these types, and all rules that it needs.
  RuleId add(std::uint8_t types = json_type::all);
  // The alternatives of an object as members that are written apart (json_schema.h).
  std::vector<SchemaMembers> add_members();

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
  void build_left();
  SchemaMember member_of(const Conjunction& all, const std::string& name, bool is_required);
  RegexId restricted(RegexId text);
  RegexId quoted(RegexId text) { return pool().concat(std::vector{quote_, text, quote_}); }
  // A value, and the name of a member, as they are written.
  std::string text_of(const chat::Json& value) const;
  std::string name_of(const std::string& name) const;
  void build(const Key& parts, RuleId rule);
  void build_values(const Conjunction& all, std::vector<RegexId>& texts);
  RegexId number(const Conjunction& all);
  RegexId string(const Conjunction& all);
  RegexId names_allowed(SchemaId names);
  RegexId characters(const Conjunction& all, Writing writing);
  void build_array(const Conjunction& all, NodeId begin, NodeId end);
  void build_unique(const Conjunction& all, std::uint32_t min, std::uint32_t max, NodeId open, NodeId end);
  void build_object(const Conjunction& all, const std::vector<std::string>& order, NodeId begin, NodeId end);
  std::vector<OtherMembers> other_members(const Conjunction& all, const std::vector<std::string>& names);
  void collect_leaves(const Key& parts, std::vector<SchemaId>& leaves);
  std::string path_of(const Conjunction& all) const;
  RegexPool& pool() { return grammar_.pool(); }

  Grammar& grammar_;
  SchemaDocument document_;
  SchemaValues values_;
  SchemaExpansion expansion_;
  std::map<Key, RuleId> rules_;
  std::deque<std::pair<Key, RuleId>> left_;  // rules that are not built yet
  RegexId space_ = kEmptyText;
  const bool python_;
  const std::string quote_text_;  // SchemaOptions::quote
  const Writing writing_;         // of strings
  RegexId quote_ = kNoText;
  RegexId without_ = kAnyText;                              // texts that SchemaOptions::without is no part of
  RegexId free_string_ = kNoText, plain_string_ = kNoText;  // with any escapes; with those that must be
  RegexId plain_number_ = kNoText;                          // without exponent or needless zeros
};

}  // namespace troupe::engine::constraints
