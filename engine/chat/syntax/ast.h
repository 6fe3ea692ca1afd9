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
  Expression(ExpressionKind kind, int line) : kind(kind), line(line) {}
  virtual ~Expression() = default;
  ExpressionKind kind;
  int line;
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
  Literal(Value value, int line) : Expression(ExpressionKind::literal, line), value(std::move(value)) {}
  Value value;
};
struct Name : Expression {
  Name(std::string name, int line) : Expression(ExpressionKind::name, line), name(std::move(name)) {}
  std::string name;
};
// list, tuple; logical_and, logical_or, concatenation of two or more.
struct Items : Expression {
  using Expression::Expression;
  std::vector<ExpressionPtr> items;
};
struct Dictionary : Expression {
  explicit Dictionary(int line) : Expression(ExpressionKind::dictionary, line) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
// negate, plus, logical_not
struct Unary : Expression {
  Unary(ExpressionKind kind, ExpressionPtr operand, int line) : Expression(kind, line), operand(std::move(operand)) {}
  ExpressionPtr operand;
};
// first op1 operand1 op2 operand2 ...: from the left, or all must hold (comparison)
struct Chain : Expression {
  Chain(ExpressionKind kind, ExpressionPtr first, int line) : Expression(kind, line), first(std::move(first)) {}
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Conditional : Expression {
  explicit Conditional(int line) : Expression(ExpressionKind::conditional, line) {}
  ExpressionPtr condition, then, otherwise;  // otherwise: may be null
};
struct Attribute : Expression {
  Attribute(ExpressionPtr object, std::string name, int line)
      : Expression(ExpressionKind::attribute, line), object(std::move(object)), name(std::move(name)) {}
  ExpressionPtr object;
  std::string name;
};
struct Subscript : Expression {
  Subscript(ExpressionPtr object, ExpressionPtr index, int line)
      : Expression(ExpressionKind::subscript, line), object(std::move(object)), index(std::move(index)) {}
  ExpressionPtr object, index;
};
struct Slice : Expression {
  explicit Slice(int line) : Expression(ExpressionKind::slice, line) {}
  ExpressionPtr object, start, stop, step;  // the last three: may be null
};
struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};
struct Call : Expression {
  explicit Call(int line) : Expression(ExpressionKind::call, line) {}
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
  Statement(StatementKind kind, int line) : kind(kind), line(line) {}
  virtual ~Statement() = default;
  StatementKind kind;
  int line;
};
using Body = std::vector<std::unique_ptr<const Statement>>;

struct TextOutput : Statement {
  TextOutput(std::string text, int line) : Statement(StatementKind::text, line), text(std::move(text)) {}
  Text text;
};
struct Output : Statement {
  Output(ExpressionPtr expression, int line)
      : Statement(StatementKind::output, line), expression(std::move(expression)) {}
  ExpressionPtr expression;
};
struct Condition : Statement {
  explicit Condition(int line) : Statement(StatementKind::condition, line) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct Loop : Statement {
  explicit Loop(int line) : Statement(StatementKind::loop, line) {}
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
  explicit CallBlock(int line) : Statement(StatementKind::call_block, line) {}
  ExpressionPtr call;  // a Call
  std::unique_ptr<const Macro> body;
};
struct FilterBlock : Statement {
  explicit FilterBlock(int line) : Statement(StatementKind::filter_block, line) {}
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
