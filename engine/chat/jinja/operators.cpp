// + - * / // % ** and comparisons, as Python has them.
#include <fmt/format.h>

#include <cmath>

#include "engine/chat/jinja/runtime.h"
#include "engine/chat/values/python_text.h"

namespace troupe::engine::chat {
namespace {

constexpr std::string_view kSymbols[] = {"+",  "-",  "*", "/",  "//", "%", "** or pow()",
                                         "==", "!=", "<", "<=", ">",  ">="};
std::string_view symbol_of(Operator op) { return kSymbols[static_cast<std::size_t>(op)]; }

[[noreturn]] void fail_operands(Operator op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (op == Operator::add && a.is(Kind::text))
    throw TemplateError(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  if (op == Operator::add && a.is(Kind::list) && a.list().form <= ListForm::tuple)
    throw TemplateError(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", type_name(a), type_name(b)));
  throw TemplateError(
      fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol_of(op), type_name(a), type_name(b)));
}

// By reference: it is read after the operation that overflows wrote it.
std::int64_t checked(bool overflowed, const std::int64_t& value) {
  if (overflowed) throw TemplateError("an integer does not fit 64 bits");
  return value;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? a : -a);
  return a % b != 0 && (a < 0) != (b < 0) ? a / b - 1 : a / b;
}

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) checked(true, 0);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) checked(true, 0);
  }
  return result;
}

Value of_integers(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::add:
      return Value::integer(checked(__builtin_add_overflow(a, b, &result), result));
    case Operator::subtract:
      return Value::integer(checked(__builtin_sub_overflow(a, b, &result), result));
    case Operator::multiply:
      return Value::integer(checked(__builtin_mul_overflow(a, b, &result), result));
    case Operator::power:
      if (b < 0 && a == 0) throw TemplateError("0.0 cannot be raised to a negative power");
      return b < 0 ? Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)))
                   : Value::integer(power_of(a, b));
    default:
      break;
  }
  if (b == 0) throw TemplateError(op == Operator::divide ? "division by zero" : "integer division or modulo by zero");
  if (op == Operator::divide) return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (op == Operator::floor_divide) return Value::integer(floor_divided(a, b));
  if (b == -1) return Value::integer(0);
  const std::int64_t rest = a % b;
  return Value::integer(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value of_reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value::real(a + b);
    case Operator::subtract:
      return Value::real(a - b);
    case Operator::multiply:
      return Value::real(a * b);
    case Operator::power:
      return Value::real(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) throw TemplateError(op == Operator::divide ? "float division by zero" : "float floor division by zero");
  if (op == Operator::divide) return Value::real(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (rest == 0) rest = std::copysign(0.0, b);  // as in Python
  if (op == Operator::modulo) return Value::real(rest);
  const double quotient = (a - rest) / b;
  return Value::real(quotient == 0 ? std::copysign(0.0, a / b) : std::floor(quotient + 0.5));
}

// So many times a text, in blocks: many times a short one is not many pieces of work.
Text repeated_text(const Text& text, std::uint64_t times, std::size_t size, Meter& meter) {
  constexpr std::size_t kBlock = 4096;
  Text block, whole;
  std::uint64_t per_block = 0;
  while (per_block < times && block.size() < kBlock) {
    block.append(text, meter);
    ++per_block;
  }
  whole.reserve(size);
  for (; times >= per_block; times -= per_block) whole.append(block, meter);
  whole.append(block, 0, size - whole.size(), meter);
  return whole;
}

Value repeated(Runtime& runtime, const Value& value, std::int64_t count) {
  Heap& heap = runtime.heap();
  const bool is_text = value.is(Kind::text);
  const std::size_t size = is_text ? value.text().size() : value.list().items.size();
  const std::uint64_t times = size > 0 ? static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)) : 0;
  std::size_t whole = 0;
  if (__builtin_mul_overflow(size, times, &whole) || whole > SIZE_MAX / 2 / sizeof(Value))
    throw TemplateError("its values take too much memory");
  if (is_text) return runtime.text(times > 0 ? repeated_text(value.text(), times, whole, heap.meter()) : Text());
  Values items;
  items.reserve(whole);
  for (std::uint64_t i = 0; i < times; ++i)
    for (const Value& each : value.list().items) {
      heap.step();
      items.push_back(each);
    }
  return heap.list(std::move(items), value.list().form);
}

bool is_sequence(const Value& value) { return value.is(Kind::list) && value.list().form <= ListForm::tuple; }

Value joined(Runtime& runtime, const Value& a, const Value& b) {
  Heap& heap = runtime.heap();
  if (a.is(Kind::text)) {
    Text text;
    text.reserve(a.text().size() + b.text().size());
    text.append(a.text(), heap.meter());
    text.append(b.text(), heap.meter());
    return runtime.text(std::move(text));
  }
  Values items;
  items.reserve(a.list().items.size() + b.list().items.size());
  for (const List* list : {&a.list(), &b.list()})
    for (const Value& each : list->items) {
      heap.step();
      items.push_back(each);
    }
  const Value made = heap.list(std::move(items), a.list().form);
  made.list().from_input = a.list().from_input || b.list().from_input;
  return made;
}

}  // namespace

Value Runtime::arithmetic(Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return of_integers(op, a.integer(), b.integer());
    return of_reals(op, a.as_real(), b.as_real());
  }
  if (op == Operator::add && a.kind() == b.kind() &&
      (a.is(Kind::text) || (is_sequence(a) && is_sequence(b) && a.list().form == b.list().form)))
    return joined(*this, a, b);
  if (op == Operator::multiply) {
    if ((a.is(Kind::text) || is_sequence(a)) && b.is_whole()) return repeated(*this, a, b.integer());
    if ((b.is(Kind::text) || is_sequence(b)) && a.is_whole()) return repeated(*this, b, a.integer());
  }
  if (op == Operator::modulo && a.is(Kind::text)) {
    require_defined(b);
    return text(format_percent(*this, a.text(), b));
  }
  fail_operands(op, a, b);
}

Value Runtime::negate(const Value& value) {
  if (value.is(Kind::real)) return Value::real(-value.real());
  if (value.is_whole()) return of_integers(Operator::subtract, 0, value.integer());
  require_defined(value);
  throw TemplateError(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

bool Runtime::contains(const Value& container, const Value& item) {
  if (container.is(Kind::text)) {
    if (!item.is(Kind::text))
      throw TemplateError(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    return find_bytes(container.text().bytes(), item.text().bytes(), meter()) != std::string::npos;
  }
  if (container.is(Kind::map)) return container.map().find(item, heap_) != nullptr;
  if (!container.is(Kind::list) && !container.is(Kind::undefined))
    throw TemplateError(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  for (const Value& each : iterate(container))
    if (equals(each, item, heap_)) return true;
  return false;
}

bool Runtime::compare(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::equal:
      return equals(a, b, heap_);
    case Operator::not_equal:
      return !equals(a, b, heap_);
    case Operator::in:
      return contains(b, a);
    case Operator::not_in:
      return !contains(b, a);
    case Operator::less:
      return is_less(a, b, heap_, "<");
    case Operator::greater:
      return is_less(b, a, heap_, ">");
    default:
      break;
  }
  // <= and >=: of numbers that are not ordered (nan) neither holds.
  const bool is_at_most = op == Operator::less_equal;
  const Value& low = is_at_most ? a : b;
  const Value& high = is_at_most ? b : a;
  if (low.is_number() && high.is_number() && !(low.is_whole() && high.is_whole()))
    return low.as_real() <= high.as_real();
  return !is_less(high, low, heap_, symbol_of(op));
}

}  // namespace troupe::engine::chat
