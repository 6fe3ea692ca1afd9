// `is` tests.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

using PlainTest = bool (*)(const Value& value);

bool is_callable(const Value& value) {
  if (!value.is(Kind::object)) return false;
  const ObjectType type = value.object().type;
  return type != ObjectType::name_space && type != ObjectType::loop && type != ObjectType::cycler;
}
bool is_iterable(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::map) || value.is(Kind::undefined) ||
         (value.is(Kind::object) && value.object().type == ObjectType::loop);
}
bool is_sequence(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::map) || value.is(Kind::undefined) ||
         (value.is(Kind::list) && value.list().form <= ListForm::tuple);
}

constexpr std::array<std::pair<std::string_view, PlainTest>, 15> kPlainTests = {{
    {"defined", [](const Value& value) { return !value.is(Kind::undefined); }},
    {"undefined", [](const Value& value) { return value.is(Kind::undefined); }},
    {"none", [](const Value& value) { return value.is(Kind::none); }},
    {"boolean", [](const Value& value) { return value.is(Kind::boolean); }},
    {"true", [](const Value& value) { return value.is(Kind::boolean) && value.boolean(); }},
    {"false", [](const Value& value) { return value.is(Kind::boolean) && !value.boolean(); }},
    {"integer", [](const Value& value) { return value.is(Kind::integer) || value.is_large(); }},
    {"float", [](const Value& value) { return value.is(Kind::real) && !value.is_large(); }},
    {"number", [](const Value& value) { return value.is_number(); }},
    {"string", [](const Value& value) { return value.is(Kind::text); }},
    {"mapping", [](const Value& value) { return value.is(Kind::map); }},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"escaped", [](const Value&) { return false; }},
}};

constexpr std::array<std::pair<std::string_view, Operator>, 16> kComparisons = {{
    {"eq", Operator::equal},
    {"equalto", Operator::equal},
    {"==", Operator::equal},
    {"ne", Operator::not_equal},
    {"!=", Operator::not_equal},
    {"lt", Operator::less},
    {"lessthan", Operator::less},
    {"<", Operator::less},
    {"le", Operator::less_equal},
    {"<=", Operator::less_equal},
    {"gt", Operator::greater},
    {"greaterthan", Operator::greater},
    {">", Operator::greater},
    {"ge", Operator::greater_equal},
    {">=", Operator::greater_equal},
    {"in", Operator::in},
}};

template <class Table>
auto find_row(const Table& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& each) { return each.first == name; });
  return found == table.end() ? nullptr : &found->second;
}

bool is_same(const Value& a, const Value& b, Meter& meter) {
  if (a.kind() != b.kind()) return false;
  if (a.is(Kind::none)) return true;
  if (a.is_whole()) return a.integer() == b.integer();
  if (a.is(Kind::text)) return same_bytes(a.text().bytes(), b.text().bytes(), meter);
  return a.address() != nullptr && a.address() == b.address();
}

bool has_filter(const Value& name) {
  return name.is(Kind::text) &&
         (find_text_filter(name.text().bytes()) != nullptr || find_sequence_filter(name.text().bytes()) != nullptr);
}

bool has_test(std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOthers = {"lower",       "upper",  "odd",    "even",
                                                              "divisibleby", "sameas", "filter", "test"};
  return find_row(kPlainTests, name) != nullptr || find_row(kComparisons, name) != nullptr ||
         std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

}  // namespace

bool Runtime::test(std::string_view name, const Value& input, const CallArguments& arguments) {
  heap_.step();
  if (const auto* const plain = find_row(kPlainTests, name)) {
    const BoundArguments none(name, arguments, {});
    return (*plain)(input);
  }
  if (const auto* const op = find_row(kComparisons, name)) {
    const BoundArguments bound(name, arguments, {"other"});
    return compare(*op, input, bound.required(0));
  }
  if (name == "lower" || name == "upper") {
    const BoundArguments none(name, arguments, {});
    return input.is(Kind::text) && (name == "lower" ? is_lower : is_upper)(input.text().bytes(), meter());
  }
  if (name == "sameas") return is_same(input, BoundArguments(name, arguments, {"other"}).required(0), meter());
  if (name == "odd" || name == "even") {
    const BoundArguments none(name, arguments, {});
    return equals(arithmetic(Operator::modulo, input, Value::integer(2)), Value::integer(name == "odd" ? 1 : 0), heap_);
  }
  if (name == "divisibleby") {
    const BoundArguments bound(name, arguments, {"num"});
    return equals(arithmetic(Operator::modulo, input, bound.required(0)), Value::integer(0), heap_);
  }
  if (name == "filter") return has_filter(input);
  if (name == "test") return input.is(Kind::text) && has_test(input.text().bytes());
  throw TemplateError(fmt::format("No test named '{}'.", shown(name)));
}

}  // namespace troupe::engine::chat
