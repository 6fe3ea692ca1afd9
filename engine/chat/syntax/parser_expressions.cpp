#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

#include "engine/chat/syntax/parser_base.h"

namespace troupe::engine::chat {
namespace {

constexpr std::uint32_t kMaxChained = 1000;  // members, calls and filters in one tag

ExpressionPtr literal(Value value, Place place) { return std::make_unique<Literal>(std::move(value), place); }
ExpressionPtr text_literal(std::string text, Place place) {
  return literal(Value::text(std::make_shared<const Text>(text)), place);
}

std::optional<Operator> comparison_of(const Token& token) {
  static const std::array<std::pair<std::string_view, Operator>, 6> kSymbols = {{{"==", Operator::equal},
                                                                                 {"!=", Operator::not_equal},
                                                                                 {"<", Operator::less},
                                                                                 {"<=", Operator::less_equal},
                                                                                 {">", Operator::greater},
                                                                                 {">=", Operator::greater_equal}}};
  for (const auto& [symbol, op] : kSymbols)
    if (token.is_op(symbol)) return op;
  if (token.is_name("in")) return Operator::in;
  return std::nullopt;
}

// A + B + C as one node. `first` alone if nothing follows.
template <class Next, class Match>
ExpressionPtr parse_chain(ExpressionKind kind, ExpressionPtr first, Next next, Match match) {
  std::unique_ptr<Chain> chain;
  while (const std::optional<Operator> op = match()) {
    if (!chain) {
      const Place place = first->place;
      chain = std::make_unique<Chain>(kind, std::move(first), place);
    }
    chain->rest.emplace_back(*op, next());
  }
  return chain ? ExpressionPtr(std::move(chain)) : std::move(first);
}

template <class Next, class Match>
ExpressionPtr parse_items(ExpressionKind kind, ExpressionPtr first, Next next, Match match) {
  std::unique_ptr<Items> items;
  while (match()) {
    if (!items) {
      items = std::make_unique<Items>(kind, first->place);
      items->items.push_back(std::move(first));
    }
    items->items.push_back(next());
  }
  return items ? ExpressionPtr(std::move(items)) : std::move(first);
}

bool begins_test_argument(const Token& token) {
  switch (token.type) {
    case TokenType::name:
      return !token.is_name("else") && !token.is_name("or") && !token.is_name("and");
    case TokenType::string:
    case TokenType::integer:
    case TokenType::real:
      return true;
    case TokenType::op:
      return token.text == "[" || token.text == "{";
    default:
      return false;
  }
}

}  // namespace

void ExpressionParser::enter() {
  if (++nesting_ > limits_.max_nesting) {
    --nesting_;
    fail(now().place, fmt::format("nested deeper than {} levels", limits_.max_nesting));
  }
}

void ExpressionParser::count_chained() {
  if (++num_chained_ > kMaxChained)
    fail(now().place, fmt::format("more than {} members, calls and filters in one tag", kMaxChained));
}

void ExpressionParser::fail(Place place, std::string_view what) const { throw TemplateError(std::string(what), place); }

void ExpressionParser::fail_unexpected(std::string_view expected) const {
  const Token& token = now();
  const std::string_view found = token.type == TokenType::end            ? "the end of the template"
                                 : token.type == TokenType::block_end    ? "%}"
                                 : token.type == TokenType::variable_end ? "}}"
                                                                         : std::string_view(token.text);
  fail(token.place, fmt::format("expected {}, got '{}'", expected, found));
}

bool ExpressionParser::take_op(std::string_view symbol) {
  if (!now().is_op(symbol)) return false;
  take();
  return true;
}
bool ExpressionParser::take_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}
void ExpressionParser::expect_op(std::string_view symbol) {
  if (!take_op(symbol)) fail_unexpected(fmt::format("'{}'", symbol));
}
void ExpressionParser::expect_name(std::string_view name) {
  if (!take_name(name)) fail_unexpected(fmt::format("'{}'", name));
}
void ExpressionParser::expect(TokenType type, std::string_view what) {
  if (now().type != type) fail_unexpected(what);
  take();
}
std::string ExpressionParser::expect_identifier() {
  if (now().type != TokenType::name) fail_unexpected("a name");
  return take().text;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_condition) {
  const Level level(*this);
  return with_condition ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  ExpressionPtr node = parse_or();
  while (now().is_name("if")) {
    count_chained();
    auto made = std::make_unique<Conditional>(take().place);
    made->then = std::move(node);
    made->condition = parse_or();
    if (take_name("else")) made->otherwise = parse_expression();
    node = std::move(made);
  }
  return node;
}

ExpressionPtr ExpressionParser::parse_or() {
  return parse_items(
      ExpressionKind::logical_or, parse_and(), [&] { return parse_and(); }, [&] { return take_name("or"); });
}

ExpressionPtr ExpressionParser::parse_and() {
  return parse_items(
      ExpressionKind::logical_and, parse_not(), [&] { return parse_not(); }, [&] { return take_name("and"); });
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!now().is_name("not")) return parse_comparison();
  const Level level(*this);
  const Place place = take().place;
  return std::make_unique<Unary>(ExpressionKind::logical_not, parse_not(), place);
}

ExpressionPtr ExpressionParser::parse_comparison() {
  return parse_chain(
      ExpressionKind::comparison, parse_sum(), [&] { return parse_sum(); },
      [&]() -> std::optional<Operator> {
        if (now().is_name("not") && ahead().is_name("in")) {
          take();
          take();
          return Operator::not_in;
        }
        const auto op = comparison_of(now());
        if (op) take();
        return op;
      });
}

ExpressionPtr ExpressionParser::parse_sum() {
  return parse_chain(
      ExpressionKind::arithmetic, parse_concatenation(), [&] { return parse_concatenation(); },
      [&]() -> std::optional<Operator> {
        if (take_op("+")) return Operator::add;
        if (take_op("-")) return Operator::subtract;
        return std::nullopt;
      });
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  return parse_items(
      ExpressionKind::concatenation, parse_product(), [&] { return parse_product(); }, [&] { return take_op("~"); });
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_chain(
      ExpressionKind::arithmetic, parse_power(), [&] { return parse_power(); },
      [&]() -> std::optional<Operator> {
        if (take_op("*")) return Operator::multiply;
        if (take_op("/")) return Operator::divide;
        if (take_op("//")) return Operator::floor_divide;
        if (take_op("%")) return Operator::modulo;
        return std::nullopt;
      });
}

ExpressionPtr ExpressionParser::parse_power() {
  return parse_chain(
      ExpressionKind::arithmetic, parse_unary(), [&] { return parse_unary(); },
      [&]() -> std::optional<Operator> {
        if (take_op("**")) return Operator::power;
        return std::nullopt;
      });
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const Level level(*this);
  const Place place = now().place;
  ExpressionPtr node;
  if (take_op("-"))
    node = std::make_unique<Unary>(ExpressionKind::negate, parse_unary(false), place);
  else if (take_op("+"))
    node = std::make_unique<Unary>(ExpressionKind::plus, parse_unary(false), place);
  else
    node = parse_primary();
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = now();
  const Place place = token.place;
  if (token.type == TokenType::name) {
    const std::string name = take().text;
    if (name == "true" || name == "True") return literal(Value::boolean(true), place);
    if (name == "false" || name == "False") return literal(Value::boolean(false), place);
    if (name == "none" || name == "None") return literal(Value(), place);
    names_.insert(name);
    return std::make_unique<Name>(name, place);
  }
  if (token.type == TokenType::string) {
    std::string text;
    while (now().type == TokenType::string) text += take().text;
    return text_literal(std::move(text), place);
  }
  if (token.type == TokenType::integer || token.type == TokenType::real) return parse_number();
  if (token.is_op("(")) {
    take();
    ExpressionPtr inner = parse_tuple(true, {}, true);
    expect_op(")");
    return inner;
  }
  if (token.is_op("[")) return parse_list();
  if (token.is_op("{")) return parse_dictionary();
  fail_unexpected("an expression");
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token& token = take();
  const char* const end = token.text.data() + token.text.size();
  if (token.type == TokenType::real) {
    double value = 0;
    std::from_chars(token.text.data(), end, value);
    return literal(Value::real(value), token.place);
  }
  std::int64_t value = 0;
  if (std::from_chars(token.text.data(), end, value).ec != std::errc())
    fail(token.place, "an integer does not fit 64 bits");
  return literal(Value::integer(value), token.place);
}

ExpressionPtr ExpressionParser::parse_list() {
  auto list = std::make_unique<Items>(ExpressionKind::list, take().place);
  while (!now().is_op("]")) {
    if (!list->items.empty()) expect_op(",");
    if (now().is_op("]")) break;
    list->items.push_back(parse_expression());
  }
  take();
  return list;
}

ExpressionPtr ExpressionParser::parse_dictionary() {
  auto made = std::make_unique<Dictionary>(take().place);
  while (!now().is_op("}")) {
    if (!made->items.empty()) expect_op(",");
    if (now().is_op("}")) break;
    ExpressionPtr key = parse_expression();
    expect_op(":");
    made->items.emplace_back(std::move(key), parse_expression());
  }
  take();
  return made;
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition, std::string_view end_name, bool in_parentheses) {
  auto tuple = std::make_unique<Items>(ExpressionKind::tuple, now().place);
  bool has_comma = false;
  const auto at_end = [&] {
    return now().type == TokenType::variable_end || now().type == TokenType::block_end || now().is_op(")") ||
           (!end_name.empty() && now().is_name(end_name));
  };
  while (!at_end()) {
    tuple->items.push_back(parse_expression(with_condition));
    if (!now().is_op(",")) break;
    take();
    has_comma = true;
  }
  if (!has_comma && tuple->items.size() == 1) return std::move(tuple->items[0]);
  if (tuple->items.empty() && !in_parentheses) fail_unexpected("an expression");
  return tuple;
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    const Place place = now().place;
    if (take_op(".")) {
      count_chained();
      if (now().type == TokenType::integer) {
        ExpressionPtr index = parse_number();
        node = std::make_unique<Subscript>(std::move(node), std::move(index), place);
      } else {
        node = std::make_unique<Attribute>(std::move(node), expect_identifier(), place);
      }
    } else if (now().is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (now().is_op("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (now().is_op("|"))
      node = parse_filters(std::move(node), false);
    else if (now().is_name("is"))
      node = parse_test(std::move(node));
    else if (now().is_op("("))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  count_chained();
  const Place place = take().place;
  ExpressionPtr first;
  if (!now().is_op(":")) first = parse_expression();
  if (now().is_op(":")) return parse_slice(std::move(object), std::move(first), place);
  if (now().is_op(",")) {
    auto tuple = std::make_unique<Items>(ExpressionKind::tuple, place);
    tuple->items.push_back(std::move(first));
    while (take_op(",")) tuple->items.push_back(parse_expression());
    first = std::move(tuple);
  }
  expect_op("]");
  return std::make_unique<Subscript>(std::move(object), std::move(first), place);
}

ExpressionPtr ExpressionParser::parse_slice(ExpressionPtr object, ExpressionPtr start, Place place) {
  auto slice = std::make_unique<Slice>(place);
  slice->object = std::move(object);
  slice->start = std::move(start);
  expect_op(":");
  if (!now().is_op(":") && !now().is_op("]")) slice->stop = parse_expression();
  if (take_op(":") && !now().is_op("]")) slice->step = parse_expression();
  expect_op("]");
  return slice;
}

Arguments ExpressionParser::parse_arguments() {
  Arguments arguments;
  expect_op("(");
  bool is_first = true;
  while (!now().is_op(")")) {
    if (!is_first) expect_op(",");
    is_first = false;
    if (now().is_op(")")) break;
    if (now().is_op("*") || now().is_op("**"))
      fail(now().place, "arguments from a list or a dictionary (* and **) are not supported");
    if (now().type == TokenType::name && ahead().is_op("=")) {
      std::string name = take().text;
      take();
      arguments.named.emplace_back(std::move(name), parse_expression());
      continue;
    }
    if (!arguments.named.empty()) fail(now().place, "invalid syntax for function call expression");
    arguments.positional.push_back(parse_expression());
  }
  take();
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  count_chained();
  auto call = std::make_unique<Call>(now().place);
  call->callee = std::move(callee);
  call->arguments = parse_arguments();
  return call;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_identifier();
  while (take_op(".")) (name += '.') += expect_identifier();
  return name;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr input, bool begins_inline) {
  while (now().is_op("|") || begins_inline) {
    count_chained();
    if (!begins_inline) take();
    begins_inline = false;
    auto filter = std::make_unique<Applied>(ExpressionKind::filter, now().place);
    filter->name = parse_dotted_name();
    filter->input = std::move(input);
    if (now().is_op("(")) filter->arguments = parse_arguments();
    input = std::move(filter);
  }
  return input;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  count_chained();
  auto test = std::make_unique<Applied>(ExpressionKind::test, take().place);
  test->is_negated = take_name("not");
  test->name = parse_dotted_name();
  test->input = std::move(input);
  if (now().is_op("(")) {
    test->arguments = parse_arguments();
  } else if (begins_test_argument(now())) {
    if (now().is_name("is")) fail(now().place, "You cannot chain multiple tests with is");
    const Level level(*this);
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return test;
}

ExpressionPtr ExpressionParser::parse_single_target(bool with_member) {
  const Place place = now().place;
  if (take_op("(")) {
    const Level level(*this);
    ExpressionPtr inner = parse_target(with_member);
    expect_op(")");
    return inner;
  }
  std::string name = expect_identifier();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None")
    fail(place, fmt::format("can't assign to '{}'", name));
  ExpressionPtr target = std::make_unique<Name>(std::move(name), place);
  if (with_member && take_op(".")) target = std::make_unique<Attribute>(std::move(target), expect_identifier(), place);
  return target;
}

ExpressionPtr ExpressionParser::parse_target(bool with_member, std::string_view end_name) {
  const Place place = now().place;
  ExpressionPtr first = parse_single_target(with_member);
  if (!now().is_op(",")) return first;
  auto tuple = std::make_unique<Items>(ExpressionKind::tuple, place);
  tuple->items.push_back(std::move(first));
  while (take_op(",")) {
    if (now().type != TokenType::name && !now().is_op("(")) break;
    if (!end_name.empty() && now().is_name(end_name)) break;
    tuple->items.push_back(parse_single_target(with_member));
  }
  return tuple;
}

}  // namespace troupe::engine::chat
