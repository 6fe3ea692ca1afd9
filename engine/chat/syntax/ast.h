// A parsed template. Made once, constant afterwards; shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/values/value.h"

namespace troupe::engine::chat {

enum class ExpressionKind : std::uint8_t {
  literal,
  name,
  list,
  tuple,
  dictionary,
  negate,
  plus,
  logical_not,
  arithmetic,
  concatenation,
  comparison,
  logical_and,
  logical_or,
  conditional,
  attribute,
  subscript,
  slice,
  call,
  filter,
  test,
};

struct Expression {
  Expression(ExpressionKind kind, Place place) : kind(kind), place(place) {}
  virtual ~Expression() = default;
  ExpressionKind kind;
  Place place;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class Operator : std::uint8_t {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

struct Literal : Expression {
  Literal(Value value, Place place) : Expression(ExpressionKind::literal, place), value(std::move(value)) {}
  Value value;
};
struct Name : Expression {
  Name(std::string name, Place place) : Expression(ExpressionKind::name, place), name(std::move(name)) {}
  std::string name;
};
// list, tuple; logical_and, logical_or, concatenation of two or more.
struct Items : Expression {
  using Expression::Expression;
  std::vector<ExpressionPtr> items;
};
struct Dictionary : Expression {
  explicit Dictionary(Place place) : Expression(ExpressionKind::dictionary, place) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
// negate, plus, logical_not
struct Unary : Expression {
  Unary(ExpressionKind kind, ExpressionPtr operand, Place place)
      : Expression(kind, place), operand(std::move(operand)) {}
  ExpressionPtr operand;
};
// first op1 operand1 op2 operand2 ...: from the left, or all must hold (comparison)
struct Chain : Expression {
  Chain(ExpressionKind kind, ExpressionPtr first, Place place) : Expression(kind, place), first(std::move(first)) {}
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Conditional : Expression {
  explicit Conditional(Place place) : Expression(ExpressionKind::conditional, place) {}
  ExpressionPtr condition, then, otherwise;  // otherwise: may be null
};
struct Attribute : Expression {
  Attribute(ExpressionPtr object, std::string name, Place place)
      : Expression(ExpressionKind::attribute, place), object(std::move(object)), name(std::move(name)) {}
  ExpressionPtr object;
  std::string name;
};
struct Subscript : Expression {
  Subscript(ExpressionPtr object, ExpressionPtr index, Place place)
      : Expression(ExpressionKind::subscript, place), object(std::move(object)), index(std::move(index)) {}
  ExpressionPtr object, index;
};
struct Slice : Expression {
  explicit Slice(Place place) : Expression(ExpressionKind::slice, place) {}
  ExpressionPtr object, start, stop, step;  // the last three: may be null
};
struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Call : Expression {
  explicit Call(Place place) : Expression(ExpressionKind::call, place) {}
  ExpressionPtr callee;
  Arguments arguments;
};
// filter, test
struct Applied : Expression {
  using Expression::Expression;
  ExpressionPtr input;  // null: the text of a filter block
  std::string name;
  Arguments arguments;
  bool is_negated = false;
};

enum class StatementKind : std::uint8_t {
  text,
  output,
  condition,
  loop,
  assignment,
  block_assignment,
  macro,
  call_block,
  filter_block,
  with,
  scope,
  leave_loop,
  next_item,
};

struct Statement {
  Statement(StatementKind kind, Place place) : kind(kind), place(place) {}
  virtual ~Statement() = default;
  StatementKind kind;
  Place place;
};
using Body = std::vector<std::unique_ptr<const Statement>>;

struct TextOutput : Statement {
  TextOutput(std::string text, Place place) : Statement(StatementKind::text, place), text(std::move(text)) {}
  Text text;
};
struct Output : Statement {
  Output(ExpressionPtr expression, Place place)
      : Statement(StatementKind::output, place), expression(std::move(expression)) {}
  ExpressionPtr expression;
};
struct Condition : Statement {
  explicit Condition(Place place) : Statement(StatementKind::condition, place) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct Loop : Statement {
  explicit Loop(Place place) : Statement(StatementKind::loop, place) {}
  ExpressionPtr target;  // Name, or a tuple of targets
  ExpressionPtr items;
  ExpressionPtr filter;  // may be null
  Body body, otherwise;
};
// assignment; block_assignment
struct Assignment : Statement {
  using Statement::Statement;
  ExpressionPtr target;  // Name, Attribute of a Name, or a tuple of targets
  ExpressionPtr value;   // of a block: filters of its text, or null
  Body body;
};
struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: must be given, else it is undefined
};
// macro; the body of a call block is one without a name
struct Macro : Statement {
  using Statement::Statement;
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};
struct CallBlock : Statement {
  explicit CallBlock(Place place) : Statement(StatementKind::call_block, place) {}
  ExpressionPtr call;  // a Call
  std::unique_ptr<const Macro> body;
};
struct FilterBlock : Statement {
  explicit FilterBlock(Place place) : Statement(StatementKind::filter_block, place) {}
  ExpressionPtr filter;
  Body body;
};
// with (values are evaluated outside); scope (a generation block: only names of its own)
struct With : Statement {
  using Statement::Statement;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> assignments;
  Body body;
};
// leave_loop, next_item
struct Jump : Statement {
  using Statement::Statement;
};

}  // namespace troupe::engine::chat
