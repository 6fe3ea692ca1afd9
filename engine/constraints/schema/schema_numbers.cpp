#include "engine/constraints/schema/schema_numbers.h"

#include <fmt/format.h>

#include <string>

namespace troupe::engine::constraints {
namespace {

void raise_low(NumberRange& range, const NumberBound& bound) {
  if (!range.low || bound.value > range.low->value || (bound.value == range.low->value && bound.excluded))
    range.low = bound;
}

void lower_high(NumberRange& range, const NumberBound& bound) {
  if (!range.high || bound.value < range.high->value || (bound.value == range.high->value && bound.excluded))
    range.high = bound;
}

}  // namespace

void narrow(NumberRange& range, const SchemaNode& source) {
  const auto number_at = [&](const char* keyword) -> std::optional<Decimal> {
    const chat::Json* const value = source.json->find(keyword);
    if (value == nullptr || std::holds_alternative<bool>(value->value)) return std::nullopt;
    std::optional<Decimal> number = decimal_of(*value);
    if (!number)
      throw SchemaRefused(keyword, source.path, fmt::format("{} is no number, or one with too many digits", keyword));
    return number;
  };
  // In draft 4 exclusiveMinimum is a flag of minimum.
  const auto is_flagged = [&](const char* keyword) { return is_true(source.json->find(keyword)); };
  if (const auto low = number_at("minimum")) raise_low(range, {*low, is_flagged("exclusiveMinimum")});
  if (const auto high = number_at("maximum")) lower_high(range, {*high, is_flagged("exclusiveMaximum")});
  if (const auto low = number_at("exclusiveMinimum")) raise_low(range, {*low, true});
  if (const auto high = number_at("exclusiveMaximum")) lower_high(range, {*high, true});
  if (const auto step = number_at("multipleOf")) {
    if (step->negative || step->digits == "0")
      throw SchemaRefused("multipleOf", source.path, "multipleOf is not above 0");
    range.multiples_of.push_back(*step);
  }
}

}  // namespace troupe::engine::constraints
