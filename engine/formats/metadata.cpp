#include "engine/formats/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "config/printable.h"

namespace troupe::engine {
namespace {

bool is_array(const MetadataValue& value) {
  return std::holds_alternative<std::vector<std::int64_t>>(value) ||
         std::holds_alternative<std::vector<double>>(value) || std::holds_alternative<std::vector<std::string>>(value);
}

// `place`: what the index of a list's entry is, "at index" or "in layer".
std::string text_of(const MetadataValue& value, const char* place = "at index");

template <class List>
std::string text_of_list(const List& list, const char* place) {
  const auto differs = std::find_if(list.begin(), list.end(), [&](const auto& each) { return each != list.front(); });
  const auto quoted = [](const auto& each) { return text_of(MetadataValue(each)); };
  if (list.empty()) return "an empty list";
  if (differs == list.end()) return fmt::format("a list of {}", quoted(list.front()));
  return fmt::format("a list of values that differ ({}, but {} {} {})", quoted(list.front()), quoted(*differs), place,
                     differs - list.begin());
}

std::string text_of(const MetadataValue& value, const char* place) {
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) return text_of_list(*integers, place);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return text_of_list(*numbers, place);
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) return text_of_list(*strings, place);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::to_string(*integer);
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? "true" : "false";
  if (const auto* string = std::get_if<std::string>(&value)) return fmt::format("'{}'", Printable(*string));
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:g}", *number);
  if (const auto* skipped = std::get_if<SkippedValue>(&value)) return skipped->what;
  return {};
}

std::optional<double> number_of(const MetadataValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

// An integer is one only if float32 has it, as the numbers that are not counts are kept as that.
bool float32_has(const MetadataValue& value) {
  const auto* const integer = std::get_if<std::int64_t>(&value);
  if (!integer) return true;
  return static_cast<long double>(static_cast<float>(*integer)) == static_cast<long double>(*integer);
}

// Exactly the same number, as int64.
std::optional<std::int64_t> to_integer(double value) {
  constexpr double kBound = 9223372036854775808.0;  // 2^63
  if (!(value >= -kBound && value < kBound) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::optional<std::int64_t> integer_of(const MetadataValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) return to_integer(*number);
  return std::nullopt;
}

std::optional<bool> boolean_of(const MetadataValue& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  const auto integer = integer_of(value);
  return integer && (*integer == 0 || *integer == 1) ? std::optional(*integer == 1) : std::nullopt;
}

// Whether a value is exactly `wanted`, in whatever type that Metadata takes for it.
bool is_same(const MetadataValue& wanted, const MetadataValue& value) {
  if (std::holds_alternative<bool>(wanted)) return boolean_of(value) == boolean_of(wanted);
  const auto number = number_of(wanted);
  return number ? number_of(value) == number : value == wanted;
}

// The one value of a list whose entries are all the same; else the value itself.
MetadataValue unlisted(const MetadataValue& value) {
  const auto first_of = [&](const auto& list) -> MetadataValue {
    const bool all_same =
        !list.empty() && std::all_of(list.begin(), list.end(), [&](const auto& each) { return each == list.front(); });
    return all_same ? MetadataValue(list.front()) : value;
  };
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) return first_of(*integers);
  if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return first_of(*numbers);
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) return first_of(*strings);
  return value;
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
  // Of layers that differ there are models, so that such a file is not damaged.
  const bool differs = is_array(unlisted(value)) && !std::string_view(expected).starts_with("a list");
  fail_key(differs ? ErrorCode::unsupported : ErrorCode::bad_model, key,
           fmt::format("is {}, which is not {}", text_of(value, place_), expected));
}

template <class Convert>
auto Metadata::one(const std::string& key, const char* expected, Convert convert)
    -> decltype(convert(std::declval<const MetadataValue&>())) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value) return {};
  auto converted = is_array(*value) ? convert(unlisted(*value)) : convert(*value);
  if (!converted) fail_type(key, expected);
  return converted;
}

std::optional<std::int64_t> Metadata::integer(const std::string& key) { return one(key, "a whole number", integer_of); }

bool Metadata::boolean(const std::string& key, bool absent) {
  return one(key, "true or false", boolean_of).value_or(absent);
}

std::string Metadata::string(const std::string& key, const std::string& absent) {
  return one(key, "a text",
             [](const MetadataValue& value) {
               const auto* const text = std::get_if<std::string>(&value);
               return text ? std::optional(*text) : std::nullopt;
             })
      .value_or(absent);
}

std::optional<std::vector<std::int64_t>> Metadata::integers(const std::string& key) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value) return std::nullopt;
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(value)) return *integers;
  std::vector<std::int64_t> converted;
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) {
    for (const double number : *numbers)
      if (const auto integer = to_integer(number)) converted.push_back(*integer);
    if (converted.size() == numbers->size()) return converted;
  } else if (const auto integer = integer_of(*value)) {
    return std::vector{*integer};
  }
  fail_type(key, "a list of whole numbers");
  return std::nullopt;
}

std::optional<std::vector<double>> Metadata::numbers(const std::string& key) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value) return std::nullopt;
  if (const auto* numbers = std::get_if<std::vector<double>>(value)) return *numbers;
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(value))
    return std::vector<double>(integers->begin(), integers->end());
  if (const auto number = number_of(*value)) return std::vector{*number};
  fail_type(key, "a list of numbers");
  return std::nullopt;
}

std::optional<std::vector<double>> Metadata::floats(const std::string& key) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value) return std::nullopt;
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(value)) {
    for (const std::int64_t each : *integers)
      if (!require_float32(key, MetadataValue(each))) return std::nullopt;
  } else if (!require_float32(key, *value)) {
    return std::nullopt;
  }
  return numbers(key);
}

bool Metadata::has_one_for_each(const std::string& key, std::size_t size, std::uint32_t num_layers) {
  if (size != num_layers)
    fail_key(ErrorCode::bad_model, key, fmt::format("is a list of {} for {} layers", size, num_layers));
  return size == num_layers;
}

std::optional<std::vector<double>> Metadata::by_layer(const std::string& key, std::uint32_t num_layers) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value || !is_array(unlisted(*value))) return std::nullopt;
  auto list = numbers(key);
  return list && has_one_for_each(key, list->size(), num_layers) ? list : std::nullopt;
}

std::optional<std::vector<double>> Metadata::floats_by_layer(const std::string& key, std::uint32_t num_layers) {
  if (has(key) && !floats(key)) return std::nullopt;
  return by_layer(key, num_layers);
}

std::vector<std::uint32_t> Metadata::counts_by_layer(const std::string& key, std::uint32_t num_layers, std::int64_t max,
                                                     std::optional<std::int64_t> absent) {
  const auto list = by_layer(key, num_layers);
  if (!list) return std::vector(num_layers, count(key, max, absent));
  std::vector<std::uint32_t> counts(num_layers, 1);
  for (std::size_t layer = 0; layer < num_layers; ++layer) {
    const auto value = to_integer((*list)[layer]);
    if (value && *value >= 0 && *value <= max)
      counts[layer] = static_cast<std::uint32_t>(*value);
    else
      fail_key(
          ErrorCode::bad_model, key,
          fmt::format("is {:.12g} for layer {}; it must be a whole number from 0 to {}", (*list)[layer], layer, max));
  }
  return counts;
}

std::optional<std::vector<bool>> Metadata::flags_by_layer(const std::string& key, std::uint32_t num_layers) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  if (!value || !is_array(*value)) return std::nullopt;
  const MetadataValue all = unlisted(*value);
  if (!is_array(all) && !boolean_of(all)) return std::nullopt;
  const auto list = numbers(key);
  if (!list || !has_one_for_each(key, list->size(), num_layers)) return std::nullopt;
  for (std::size_t layer = 0; layer < list->size(); ++layer)
    if ((*list)[layer] != 0 && (*list)[layer] != 1)
      fail_key(ErrorCode::bad_model, key,
               fmt::format("is {:g} for layer {}, which is neither 0 nor 1", (*list)[layer], layer));
  return std::vector<bool>(list->begin(), list->end());
}

const std::vector<std::string>* Metadata::strings(const std::string& key) {
  const MetadataValue* const value = file_.find(prefix_ + key);
  const auto* const strings = value ? std::get_if<std::vector<std::string>>(value) : nullptr;
  if (value && !strings) fail_type(key, "a list of texts");
  return strings;
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

bool Metadata::require_float32(const std::string& key, const MetadataValue& value) {
  if (float32_has(value)) return true;
  fail_key(ErrorCode::bad_model, key,
           fmt::format("is {}, which float32 cannot hold exactly, and a number that is no count is kept as that",
                       text_of(value, place_)));
  return false;
}

// Of a key that is there.
std::optional<double> Metadata::number(const std::string& key) {
  const MetadataValue value = unlisted(*file_.find(prefix_ + key));
  return require_float32(key, value) ? one(key, "a number", number_of) : std::optional(1.0);
}

double Metadata::positive(const std::string& key, std::optional<double> absent) {
  const auto value = has(key) ? number(key) : absent;
  if (value) return require_positive(key, *value);
  fail_key(ErrorCode::bad_model, key, "is missing; it must be a number above 0");
  return 1;
}

double Metadata::require_positive(const std::string& key, double value) {
  if (fits_float(value)) return value;
  fail_key(ErrorCode::bad_model, key,
           fmt::format("is {:g}; it must be a finite number above 0 that float32 has", value));
  return 1;
}

double Metadata::not_negative(const std::string& key, double absent) {
  const auto value = has(key) ? number(key) : absent;
  if (!value || (*value != 0 && !fits_float(*value)) || *value > 0xffffffffu) {
    fail_key(ErrorCode::bad_model, key, "must be a number from 0 on that float32 has");
    return absent;
  }
  return *value;
}

void Metadata::refuse_unless(const std::string& key, std::initializer_list<MetadataValue> harmless,
                             const std::string& what_is) {
  const MetadataValue* const found = file_.find(prefix_ + key);
  if (!found) return;
  const MetadataValue value = unlisted(*found);
  if (std::any_of(harmless.begin(), harmless.end(), [&](const auto& each) { return is_same(each, value); })) return;
  fail_key(ErrorCode::unsupported, key,
           fmt::format("is {}, which is not supported: {}", text_of(value, place_), what_is));
}

}  // namespace troupe::engine
