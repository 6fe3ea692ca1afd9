// Statements.
#include "engine/chat/jinja/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/chat/jinja/interpreter_levels.h"

namespace troupe::engine::chat {

Value* Scope::find_here(std::string_view name) {
  if (!places_.empty()) {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &variables_[found->second].second;
  }
  const auto found =
      std::find_if(variables_.begin(), variables_.end(), [&](const auto& each) { return each.first == name; });
  return found == variables_.end() ? nullptr : &found->second;
}

void Scope::add(std::string_view name, const Value& value) {
  variables_.emplace_back(name, value);
  if (variables_.size() <= kMaxUnindexed) return;
  for (std::size_t i = places_.size(); i < variables_.size(); ++i) places_.emplace(variables_[i].first, i);
}

void Scope::clear() {
  variables_.clear();
  places_.clear();
}

Interpreter::Interpreter(const Limits& limits, TimeBudget* time, const std::atomic<bool>* interrupt, FormatNow now)
    : Runtime(limits, time, interrupt, std::move(now)),
      limits_(limits),
      scope_(heap().own(std::unique_ptr<Scope>(new Scope))) {
  free_scopes_.reserve(limits.max_depth);
}

void Interpreter::set_variable(std::string_view name, Value value) { set_here(name, value); }

Text Interpreter::render(const Body& body) {
  run(body);
  return std::move(output_);
}

void Interpreter::set_here(std::string_view name, const Value& value) {
  heap().step();
  if (Value* const old = scope_->find_here(name))
    *old = value;
  else
    scope_->add(name, value);
}

void Interpreter::write(const Text& text) {
  if (text.size() > limits_.max_output_bytes - out_->size())
    throw TemplateError(fmt::format("its output is longer than {} MiB", limits_.max_output_bytes >> 20));
  out_->append(text, meter());
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& statement : body) {
    try {
      const Flow flow = run_statement(*statement);
      if (flow != Flow::next_statement) return flow;
    } catch (TemplateError& error) {
      if (error.place().line == 0) error.set_place(statement->place);
      throw;
    }
  }
  return Flow::next_statement;
}

Interpreter::Flow Interpreter::run_statement(const Statement& statement) {
  const Level level(*this);
  heap().step();
  switch (statement.kind) {
    case StatementKind::text:
      write(static_cast<const TextOutput&>(statement).text);
      break;
    case StatementKind::output: {
      const Value value = evaluate(*static_cast<const Output&>(statement).expression);
      if (value.is(Kind::text))
        write(value.text());
      else
        write(to_text(value, heap()));
      break;
    }
    case StatementKind::condition:
      return run_condition(static_cast<const Condition&>(statement));
    case StatementKind::loop:
      return run_loop(static_cast<const Loop&>(statement));
    case StatementKind::assignment:
    case StatementKind::block_assignment:
      run_assignment(static_cast<const Assignment&>(statement));
      break;
    case StatementKind::macro: {
      const auto& macro = static_cast<const Macro&>(statement);
      set_here(macro.name, define(macro));
      break;
    }
    case StatementKind::call_block:
      run_call_block(static_cast<const CallBlock&>(statement));
      break;
    case StatementKind::filter_block: {
      const auto& block = static_cast<const FilterBlock&>(statement);
      const Value text = heap().text(capture(block.body));
      const Value filtered = evaluate_filter(static_cast<const Applied&>(*block.filter), &text);
      // Jinja joins the parts of the output, and they have to be str.
      if (!filtered.is(Kind::text)) fail_type("a filter block gives str", filtered);
      write(filtered.text());
      break;
    }
    case StatementKind::with:
    case StatementKind::scope:
      return run_with(static_cast<const With&>(statement));
    case StatementKind::leave_loop:
      return Flow::leave_loop;
    case StatementKind::next_item:
      return Flow::next_item;
  }
  return Flow::next_statement;
}

Interpreter::Flow Interpreter::run_condition(const Condition& condition) {
  for (const auto& [test, body] : condition.branches)
    if (is_true(evaluate(*test))) return run(body);
  return run(condition.otherwise);
}

const Values& Interpreter::loop_items(const Loop& loop) {
  const Values& items = iterate(evaluate(*loop.items));
  if (!loop.filter) return items;
  Values kept;
  for (const Value& each : items) {
    const InnerScope scope(*this);
    assign(*loop.target, each);
    if (is_true(evaluate(*loop.filter))) kept.push_back(each);
  }
  return heap().list(std::move(kept)).list().items;
}

Interpreter::Flow Interpreter::run_loop(const Loop& loop) {
  const Values& items = loop_items(loop);
  if (items.empty()) {
    const InnerScope scope(*this);
    return run(loop.otherwise);
  }
  LoopState* const state = heap().own(std::unique_ptr<LoopState>(new LoopState));
  state->items = &items;
  for (state->index = 0; state->index < items.size(); ++state->index) {
    heap().step();
    const InnerScope scope(*this);
    assign(*loop.target, items[state->index]);
    set_here("loop", Value::of(state));
    if (run(loop.body) == Flow::leave_loop) break;
  }
  return Flow::next_statement;
}

Interpreter::Flow Interpreter::run_with(const With& with) {
  Values values;
  for (const auto& [target, value] : with.assignments) values.push_back(evaluate(*value));
  const InnerScope scope(*this);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*with.assignments[i].first, values[i]);
  return run(with.body);
}

void Interpreter::run_assignment(const Assignment& assignment) {
  if (assignment.kind == StatementKind::assignment) return assign(*assignment.target, evaluate(*assignment.value));
  Value text = heap().text(capture(assignment.body));
  if (assignment.value) text = evaluate_filter(static_cast<const Applied&>(*assignment.value), &text);
  assign(*assignment.target, text);
}

void Interpreter::run_call_block(const CallBlock& block) {
  const Value caller = define(*block.body);
  const Value result = evaluate_call(static_cast<const Call&>(*block.call), &caller);
  if (result.is(Kind::text)) return write(result.text());
  write(to_text(result, heap()));
}

Value Interpreter::define(const Macro& macro) {
  for (Scope* each = scope_; each != nullptr && !each->is_captured; each = each->parent) each->is_captured = true;
  return Value::of(heap().own(std::unique_ptr<MacroObject>(new MacroObject(&macro, scope_))));
}

Text Interpreter::capture(const Body& body) {
  Text captured;
  Text* const outer = std::exchange(out_, &captured);
  try {
    const InnerScope scope(*this);
    run(body);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return captured;
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::name) return set_here(static_cast<const Name&>(target).name, value);
  if (target.kind == ExpressionKind::attribute) {
    const auto& member = static_cast<const Attribute&>(target);
    const Value object = evaluate(*member.object);
    require_defined(object);
    if (!object.is(Kind::object) || object.object().type != ObjectType::name_space)
      throw TemplateError("cannot assign attribute on non-namespace object");
    return heap().set(*static_cast<Namespace&>(object.object()).members, text(member.name), value);
  }
  const auto& targets = static_cast<const Items&>(target).items;
  const Values& values = iterate(value);
  if (values.size() > targets.size())
    throw TemplateError(fmt::format("too many values to unpack (expected {})", targets.size()));
  if (values.size() < targets.size())
    throw TemplateError(
        fmt::format("not enough values to unpack (expected {}, got {})", targets.size(), values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) assign(*targets[i], values[i]);
}

}  // namespace troupe::engine::chat
