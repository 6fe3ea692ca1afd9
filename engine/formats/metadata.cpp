#include "engine/formats/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "config/printable.h"

namespace troupe::engine {
namespace {

bool is_array(const MetadataValue& value) {
  return std::holds_alternative<std::vector<std::int64_t>>(value) ||
         std::holds_alternative<std::vector<double>>(value) || std::holds_alternative<std::vector<std::string>>(value);
}

std::string text_of(const MetadataValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::to_string(*integer);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* string = std::get_if<std::string>(&value)) return fmt::format("'{}'", Printable(*string));
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:g}", *number);
  return "an array";
}

std::optional<double> number_of(const MetadataValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// 1 equals 1.0: files differ in the type of a number.
bool is_same(const MetadataValue& a, const MetadataValue& b) {
  const auto x = number_of(a), y = number_of(b);
  return x && y ? *x == *y : a == b;
}

bool fits_float(double value) {
  return value >= double{std::numeric_limits<float>::min()} && value <= double{std::numeric_limits<float>::max()};
}

}  // namespace

void Metadata::fail_key(ErrorCode code, const std::string& key, const std::string& what) {
  fail(code, fmt::format("'{}{}' {}", prefix_, key, what));
}

void Metadata::fail_type(const std::string& key, const char* expected) {
  const MetadataValue& value = *file_.find(prefix_ + key);
  if (is_array(value))
    return fail_key(ErrorCode::unsupported, key, "differs from layer to layer, which is not supported");
  fail_key(ErrorCode::bad_model, key, fmt::format("is {}, which is not {}", text_of(value), expected));
}

std::optional<std::int64_t> Metadata::integer(const std::string& key) {
  const auto value = file_.integer(prefix_ + key);
  if (!value && has(key)) fail_type(key, "a whole number");
  return value;
}

bool Metadata::boolean(const std::string& key, bool absent) {
  const auto value = file_.boolean(prefix_ + key);
  if (!value && has(key)) fail_type(key, "true or false");
  return value.value_or(absent);
}

std::string Metadata::string(const std::string& key, const std::string& absent) {
  const std::string* text = file_.string(prefix_ + key);
  if (!text && has(key)) fail_type(key, "a text");
  return text ? *text : absent;
}

std::uint32_t Metadata::count(const std::string& key, std::int64_t max, std::optional<std::int64_t> absent) {
  const auto value = has(key) ? integer(key) : absent;
  if (!value) {
    fail_key(ErrorCode::bad_model, key, "is missing");
    return 1;
  }
  if (*value < 1 || *value > max) {
    fail_key(ErrorCode::bad_model, key, fmt::format("is {}; it must be from 1 to {}", *value, max));
    return 1;
  }
  return static_cast<std::uint32_t>(*value);
}

double Metadata::positive(const std::string& key, std::optional<double> absent) {
  const auto value = has(key) ? file_.number(prefix_ + key) : absent;
  if (!value && has(key)) fail_type(key, "a number");
  if (!value || !fits_float(*value)) {
    fail_key(
        ErrorCode::bad_model, key,
        fmt::format("is {}; it must be a finite number above 0 that float32 has", value ? text_of(*value) : "missing"));
    return 1;
  }
  return *value;
}

double Metadata::not_negative(const std::string& key, double absent) {
  const auto value = has(key) ? file_.number(prefix_ + key) : absent;
  if (!value) fail_type(key, "a number");
  if (!value || (*value != 0 && !fits_float(*value)) || *value > 0xffffffffu) {
    fail_key(ErrorCode::bad_model, key, "must be a number from 0 on that float32 has");
    return absent;
  }
  return *value;
}

void Metadata::refuse_unless(const std::string& key, std::initializer_list<MetadataValue> harmless,
                             const std::string& what_is) {
  const MetadataValue* value = file_.find(prefix_ + key);
  if (!value || std::any_of(harmless.begin(), harmless.end(), [&](const auto& each) { return is_same(each, *value); }))
    return;
  fail_key(ErrorCode::unsupported, key, fmt::format("is {}, which is not supported: {}", text_of(*value), what_is));
}

}  // namespace troupe::engine
