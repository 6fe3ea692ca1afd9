// The arguments of calls as rules of a grammar. Of call_grammar.cpp alone.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "engine/chat/tools/tool_format.h"
#include "engine/chat/tools/tool_set.h"
#include "engine/constraints/grammar/grammar.h"
#include "engine/constraints/mark_tokens.h"
#include "engine/constraints/schema/json_schema.h"

namespace troupe::engine::constraints {

// For one grammar. Throws ConstraintLimit.
class CallArguments {
 public:
  // All outlive it.
  CallArguments(Grammar& grammar, const chat::ToolFormat& format, const chat::ToolSet& set, const MarkTokens& marks);

  // Makes the rules that tools share; to be called before the next two.
  void begin();
  // parameters: the tool's schema; null: it has none. What takes more work than that is refused, too, and leaves
  // nothing behind; what it took is missing in the pool's work_left() then.
  [[nodiscard]] std::variant<RuleId, SchemaRefusal> rule_of(const std::string& tool, const chat::Json* parameters,
                                                            std::size_t work);
  // Any arguments.
  RuleId loose_rule() const { return loose_; }
  // White space between the parts of a call.
  RegexId gap() const { return gap_; }

 private:
  std::variant<RuleId, SchemaRefusal> schema_rule(const std::string& tool, const chat::Json& parameters,
                                                  std::size_t work);
  std::variant<RuleId, SchemaRefusal> tagged_rule(const std::string& tool, const chat::Json& parameters,
                                                  const SchemaOptions& options);
  std::variant<RuleId, SchemaRefusal> literals_rule(const chat::Json& parameters, const SchemaOptions& options);
  RuleId loose_tagged_rule();
  RuleId loose_literals_rule();
  SchemaOptions literal_options(std::size_t work) const;
  bool is_python() const { return format_.after_name == "("; }
  NodeId add_member(NodeId from, const std::string& tool, const SchemaMember& member, NodeId target);
  // A tagged argument up to its value.
  RegexId head(RegexId name, bool is_text);
  RegexId tail();
  RegexId beginning_with(RegexId text);
  RegexPool& pool() { return grammar_.pool(); }

  Grammar& grammar_;
  const chat::ToolFormat& format_;
  const chat::ToolSet& set_;
  const MarkTokens& marks_;
  RegexId gap_ = kEmptyText;
  RegexId no_json_ = kAnyText;  // texts that the parser does not take for values of other types
  RuleId empty_ = 0, loose_ = 0;
};

}  // namespace troupe::engine::constraints
