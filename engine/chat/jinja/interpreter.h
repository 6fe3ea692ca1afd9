// Runs a parsed template over variables. One per rendering, of one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/syntax/ast.h"

namespace troupe::engine::chat {

// Names and values of a part of a template; those around it follow by `parent`. A few are compared one by one, more are
// found by a table.
struct Scope : HeapItem {
  Value* find_here(std::string_view name);
  // A name that is not here yet.
  void add(std::string_view name, const Value& value);
  void clear();

  Scope* parent = nullptr;
  bool is_captured = false;  // a macro refers to it: it is not used again

 private:
  static constexpr std::size_t kMaxUnindexed = 12;
  using Place = std::pair<const std::string_view, std::size_t>;

  ChargedVector<std::pair<std::string_view, Value>> variables_;
  // Of variables, once they are many. Ordered: nobody can choose names that make it slow.
  std::map<std::string_view, std::size_t, std::less<>, Charged<Place>> places_;
};

struct MacroObject : Object {
  MacroObject(const Macro* macro, Scope* scope) : Object(ObjectType::macro), macro(macro), scope(scope) {}
  const Macro* macro;
  Scope* scope;  // where it was defined
};

class Interpreter : public Runtime {
 public:
  Interpreter(const Limits& limits, TimeBudget* time, const std::atomic<bool>* interrupt, FormatNow now);

  // `name` must outlive this.
  void set_variable(std::string_view name, Value value);
  // Throws TemplateError with the line.
  Text render(const Body& body);

  Value call(const Value& callee, const CallArguments& arguments) override;

 private:
  enum class Flow : std::uint8_t { next_statement, next_item, leave_loop };
  class Level;
  class InnerScope;

  // Statements.
  Flow run(const Body& body);
  Flow run_statement(const Statement& statement);
  Flow run_condition(const Condition& condition);
  Flow run_loop(const Loop& loop);
  Flow run_with(const With& with);
  void run_assignment(const Assignment& assignment);
  void run_call_block(const CallBlock& block);
  const Values& loop_items(const Loop& loop);
  Value define(const Macro& macro);
  // The output of a body with names of its own.
  Text capture(const Body& body);
  void assign(const Expression& target, const Value& value);
  void set_here(std::string_view name, const Value& value);
  void write(const Text& text);

  // Expressions.
  Value evaluate(const Expression& expression);
  Value evaluate_kind(const Expression& expression);
  Value lookup(std::string_view name);
  // Null if no variable has this name.
  const Value* find_variable(std::string_view name);
  Value evaluate_attribute(const Attribute& member, const Value& object);
  Value evaluate_items(const Items& items);
  Value evaluate_dictionary(const Dictionary& dictionary);
  Value evaluate_unary(const Unary& unary);
  Value evaluate_logic(const Items& items, bool stops_at);
  Value evaluate_concatenation(const Items& items);
  Value evaluate_arithmetic(const Chain& chain);
  Value evaluate_comparison(const Chain& chain);
  Value evaluate_conditional(const Conditional& conditional);
  Value evaluate_slice(const Slice& slice);
  Value evaluate_call(const Call& call, const Value* caller = nullptr);
  // text: the input of the innermost filter of a block.
  Value evaluate_filter(const Applied& filter, const Value* text = nullptr);
  Value evaluate_test(const Applied& test);
  CallArguments evaluate_arguments(const Arguments& arguments);
  Value call_macro(const MacroObject& object, const CallArguments& arguments);
  void bind_parameters(const Macro& macro, const CallArguments& arguments);
  void bind_extra(const Macro& macro, const CallArguments& arguments, const ChargedVector<bool>& used);

  Limits limits_;
  std::uint32_t depth_ = 0;
  Text output_;
  Text* out_ = &output_;
  Scope* scope_;
  ChargedVector<Scope*> free_scopes_;
};

}  // namespace troupe::engine::chat
