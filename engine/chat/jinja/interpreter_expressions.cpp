// Expressions and calls.
#include <fmt/format.h>

#include <algorithm>

#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/interpreter_levels.h"

namespace troupe::engine::chat {

Value Interpreter::evaluate(const Expression& expression) {
  heap().step();
  if (expression.kind == ExpressionKind::literal) return static_cast<const Literal&>(expression).value;
  const Level level(*this);
  try {
    return evaluate_kind(expression);
  } catch (TemplateError& error) {
    if (error.place().line == 0) error.set_place(expression.place);
    throw;
  }
}

Value Interpreter::evaluate_kind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::literal:
      return static_cast<const Literal&>(expression).value;
    case ExpressionKind::name:
      return lookup(static_cast<const Name&>(expression).name);
    case ExpressionKind::list:
    case ExpressionKind::tuple:
      return evaluate_items(static_cast<const Items&>(expression));
    case ExpressionKind::dictionary:
      return evaluate_dictionary(static_cast<const Dictionary&>(expression));
    case ExpressionKind::negate:
    case ExpressionKind::plus:
    case ExpressionKind::logical_not:
      return evaluate_unary(static_cast<const Unary&>(expression));
    case ExpressionKind::arithmetic:
      return evaluate_arithmetic(static_cast<const Chain&>(expression));
    case ExpressionKind::concatenation:
      return evaluate_concatenation(static_cast<const Items&>(expression));
    case ExpressionKind::comparison:
      return evaluate_comparison(static_cast<const Chain&>(expression));
    case ExpressionKind::logical_and:
      return evaluate_logic(static_cast<const Items&>(expression), false);
    case ExpressionKind::logical_or:
      return evaluate_logic(static_cast<const Items&>(expression), true);
    case ExpressionKind::conditional:
      return evaluate_conditional(static_cast<const Conditional&>(expression));
    case ExpressionKind::attribute: {
      const auto& member = static_cast<const Attribute&>(expression);
      return evaluate_attribute(member, evaluate(*member.object));
    }
    case ExpressionKind::subscript: {
      const auto& subscript = static_cast<const Subscript&>(expression);
      const Value object = evaluate(*subscript.object);
      return item(object, evaluate(*subscript.index));
    }
    case ExpressionKind::slice:
      return evaluate_slice(static_cast<const Slice&>(expression));
    case ExpressionKind::call:
      return evaluate_call(static_cast<const Call&>(expression));
    case ExpressionKind::filter:
      return evaluate_filter(static_cast<const Applied&>(expression));
    case ExpressionKind::test:
      return evaluate_test(static_cast<const Applied&>(expression));
  }
  return {};
}

const Value* Interpreter::find_variable(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    heap().step();
    if (const Value* const found = scope->find_here(name)) return found;
  }
  return nullptr;
}

Value Interpreter::lookup(std::string_view name) {
  if (const Value* const found = find_variable(name)) return *found;
  if (const Function function = find_global_function(name))
    return Value::of(heap().own(std::unique_ptr<FunctionObject>(new FunctionObject(name, function))));
  return heap().undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate_attribute(const Attribute& member, const Value& object) {
  try {
    return attribute(object, member.name);
  } catch (TemplateError& error) {
    if (error.place().line == 0) error.set_place(member.place);
    throw;
  }
}

Value Interpreter::evaluate_items(const Items& items) {
  Values values;
  values.reserve(items.items.size());
  for (const auto& each : items.items) values.push_back(evaluate(*each));
  return heap().list(std::move(values), items.kind == ExpressionKind::tuple ? ListForm::tuple : ListForm::list);
}

Value Interpreter::evaluate_dictionary(const Dictionary& dictionary) {
  const Value made = heap().map();
  for (const auto& [key, value] : dictionary.items) {
    const Value name = evaluate(*key);
    if (name.is(Kind::map) || (name.is(Kind::list) && name.list().form == ListForm::list))
      throw TemplateError(fmt::format("unhashable type: '{}'", type_name(name)));
    heap().set(made.map(), name, evaluate(*value));
  }
  return made;
}

Value Interpreter::evaluate_unary(const Unary& unary) {
  const Value value = evaluate(*unary.operand);
  if (unary.kind == ExpressionKind::logical_not) return Value::boolean(!is_true(value));
  if (unary.kind == ExpressionKind::negate) return negate(value);
  return negate(negate(value));
}

Value Interpreter::evaluate_logic(const Items& items, bool stops_at) {
  Value value;
  for (const auto& each : items.items) {
    value = evaluate(*each);
    if (is_true(value) == stops_at) break;
  }
  return value;
}

Value Interpreter::evaluate_concatenation(const Items& items) {
  Text joined;
  for (const auto& each : items.items) append_text(evaluate(*each), heap(), joined);
  return heap().text(std::move(joined));
}

Value Interpreter::evaluate_arithmetic(const Chain& chain) {
  Value value = evaluate(*chain.first);
  for (const auto& [op, operand] : chain.rest) value = arithmetic(op, value, evaluate(*operand));
  return value;
}

Value Interpreter::evaluate_comparison(const Chain& chain) {
  Value left = evaluate(*chain.first);
  for (const auto& [op, operand] : chain.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const Conditional& conditional) {
  if (is_true(evaluate(*conditional.condition))) return evaluate(*conditional.then);
  if (conditional.otherwise) return evaluate(*conditional.otherwise);
  return heap().undefined(
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.",
                  conditional.place.line));
}

Value Interpreter::evaluate_slice(const Slice& part) {
  const Value object = evaluate(*part.object);
  Value bounds[3];
  const ExpressionPtr* const given[3] = {&part.start, &part.stop, &part.step};
  for (int i = 0; i < 3; ++i)
    if (*given[i]) bounds[i] = evaluate(**given[i]);
  return slice(object, &bounds[0], &bounds[1], &bounds[2]);
}

CallArguments Interpreter::evaluate_arguments(const Arguments& arguments) {
  CallArguments values;
  for (const auto& each : arguments.positional) values.positional.push_back(evaluate(*each));
  for (const auto& [name, each] : arguments.named) values.named.emplace_back(name, evaluate(*each));
  return values;
}

// Methods and global functions are called without an object for them, which would take memory until the end.
Value Interpreter::evaluate_call(const Call& made, const Value* caller) {
  const Expression& callee = *made.callee;
  const auto arguments = [&] {
    CallArguments given = evaluate_arguments(made.arguments);
    if (caller != nullptr) given.named.emplace_back("caller", *caller);
    return given;
  };
  if (callee.kind == ExpressionKind::attribute) {
    const auto& member = static_cast<const Attribute&>(callee);
    const Value object = evaluate(*member.object);
    if (const Function method = method_of(object, member.name)) return method(*this, object, arguments());
    const Value found = evaluate_attribute(member, object);
    return call(found, arguments());
  }
  if (callee.kind == ExpressionKind::name) {
    const std::string_view name = static_cast<const Name&>(callee).name;
    if (const Value* const variable = find_variable(name)) {
      const Value found = *variable;
      return call(found, arguments());
    }
    if (const Function function = find_global_function(name)) return function(*this, Value(), arguments());
  }
  const Value found = evaluate(callee);
  return call(found, arguments());
}

Value Interpreter::evaluate_filter(const Applied& applied, const Value* block_text) {
  const Level level(*this);
  Value input;
  if (!applied.input)
    input = *block_text;
  else if (block_text != nullptr && applied.input->kind == ExpressionKind::filter)
    input = evaluate_filter(static_cast<const Applied&>(*applied.input), block_text);
  else
    input = evaluate(*applied.input);
  return filter(applied.name, input, evaluate_arguments(applied.arguments));
}

Value Interpreter::evaluate_test(const Applied& applied) {
  const Value input = evaluate(*applied.input);
  return Value::boolean(test(applied.name, input, evaluate_arguments(applied.arguments)) != applied.is_negated);
}

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
  require_defined(callee);
  heap().step();
  if (!callee.is(Kind::object)) throw TemplateError(fmt::format("'{}' object is not callable", type_name(callee)));
  if (callee.object().type == ObjectType::macro)
    return call_macro(static_cast<const MacroObject&>(callee.object()), arguments);
  return call_object(callee.object(), arguments);
}

Value Interpreter::call_macro(const MacroObject& object, const CallArguments& arguments) {
  const Level level(*this);
  const InnerScope scope(*this, object.scope);
  bind_parameters(*object.macro, arguments);
  return heap().text(capture(object.macro->body));
}

void Interpreter::bind_parameters(const Macro& macro, const CallArguments& arguments) {
  ChargedVector<bool> used(arguments.named.size(), false);
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    heap().step(1 + arguments.named.size() / 8);
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& each) { return each.first == parameter.name; });
    const bool is_named = named != arguments.named.end();
    if (is_named) used[static_cast<std::size_t>(named - arguments.named.begin())] = true;
    if (i < arguments.positional.size() && is_named)
      throw TemplateError(fmt::format("macro '{}' got multiple values for argument '{}'", macro.name, parameter.name));
    if (i < arguments.positional.size())
      set_here(parameter.name, arguments.positional[i]);
    else if (is_named)
      set_here(parameter.name, named->second);
    else if (parameter.fallback)
      set_here(parameter.name, evaluate(*parameter.fallback));
    else
      set_here(parameter.name, heap().undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
  }
  bind_extra(macro, arguments, used);
}

// varargs, kwargs and caller, for macros that mention them; for others there must be none of it.
void Interpreter::bind_extra(const Macro& macro, const CallArguments& arguments, const ChargedVector<bool>& used) {
  const std::size_t num_parameters = macro.parameters.size();
  if (arguments.positional.size() > num_parameters && !macro.uses_varargs)
    throw TemplateError(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, num_parameters));
  if (macro.uses_varargs) {
    Values rest;
    for (std::size_t i = num_parameters; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    set_here("varargs", heap().list(std::move(rest), ListForm::tuple));
  }
  const Value rest = macro.uses_kwargs ? heap().map() : Value();
  bool has_caller = false;
  for (std::size_t i = 0; i < arguments.named.size(); ++i) {
    const auto& [name, value] = arguments.named[i];
    if (used[i]) continue;
    if (name == "caller" && macro.uses_caller) {
      has_caller = true;
      set_here("caller", value);
    } else if (macro.uses_kwargs) {
      heap().set(rest.map(), text(name), value);
    } else {
      throw TemplateError(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, name));
    }
  }
  if (macro.uses_kwargs) set_here("kwargs", rest);
  if (macro.uses_caller && !has_caller) set_here("caller", heap().undefined("No caller defined"));
}

}  // namespace troupe::engine::chat
