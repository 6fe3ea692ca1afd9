#include "ipc/http/api/field_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "config/normal_float.h"
#include "ipc/http/json/json_writer.h"
#include "scheduler/outcome.h"

namespace troupe::ipc::api {

void FieldReader::refuse(std::string_view name, std::string message) {
  if (refusal_) return;
  refusal_ = api_error(scheduler::invalid(path(name), std::move(message)));
}

void FieldReader::read(std::string_view name, bool& out) {
  const JsonValue* const value = find(name);
  if (!value) return;
  if (const bool* const yes = value->as<bool>()) out = *yes;
}

void FieldReader::read(std::string_view name, float& out) {
  const JsonValue* const value = find(name);
  if (!value) return;
  const double number = value->number().value_or(0);
  if (std::abs(number) > static_cast<double>(std::numeric_limits<float>::max()))
    return refuse(name, fmt::format("{} is {}; that is too large", path(name), number));
  out = config::to_normal_float(number);
}

std::optional<std::int64_t> FieldReader::integer(std::string_view name, std::int64_t low, std::int64_t high,
                                                 std::string_view range) {
  const JsonValue* const value = find(name);
  if (!value) return std::nullopt;
  const auto number = value->integer();
  if (number && *number >= low && *number <= high) return number;
  refuse(name, fmt::format("{} is {}; it must be an integer, {}", path(name), to_json(*value), range));
  return std::nullopt;
}

void FieldReader::read(std::string_view name, std::int32_t& out) {
  using Limits = std::numeric_limits<std::int32_t>;
  const auto value =
      integer(name, Limits::min(), Limits::max(), fmt::format("from {} to {}", Limits::min(), Limits::max()));
  if (value) out = static_cast<std::int32_t>(*value);
}

void FieldReader::read(std::string_view name, std::uint32_t& out, std::uint32_t low, std::uint32_t high) {
  if (const auto value = integer(name, low, high, fmt::format("from {} to {}", low, high)))
    out = static_cast<std::uint32_t>(*value);
}

void FieldReader::read(std::string_view name, std::string& out) {
  JsonValue* const value = find(name);
  if (!value) return;
  if (auto* const text = value->as<std::string>()) out = std::move(*text);
}

void FieldReader::read_short(std::string_view name, std::string& out, std::size_t max_bytes) {
  read(name, out);
  if (out.size() > max_bytes)
    refuse(name, fmt::format("{} has {} bytes; at most {} are taken", path(name), out.size(), max_bytes));
}

void FieldReader::read_strings(std::string_view name, std::vector<std::string>& out, std::size_t max_count,
                               bool or_one) {
  JsonValue* const value = find(name);
  if (!value) return;
  if (auto* const text = value->as<std::string>(); text && or_one) return void(out.push_back(std::move(*text)));
  auto* const array = value->as<JsonArray>();
  if (!array) return refuse(name, path(name) + " must be an array of strings");
  if (array->size() > max_count)
    return refuse(name, fmt::format("{} has {} entries; at most {} are taken", path(name), array->size(), max_count));
  for (JsonValue& each : *array) {
    auto* const text = each.as<std::string>();
    if (!text) return refuse(name, path(name) + " has an entry that is not a string");
    out.push_back(std::move(*text));
  }
}

void FieldReader::read_ids(std::string_view name, std::vector<TokenId>& out, std::size_t max_count) {
  JsonValue* const value = find(name);
  if (!value) return;
  const auto* const array = value->as<JsonArray>();
  if (!array) return refuse(name, path(name) + " must be an array of token ids");
  if (array->size() > max_count)
    return refuse(name, fmt::format("{} has {} ids; at most {} are taken", path(name), array->size(), max_count));
  auto ids = to_ids(*array);
  if (!ids) return refuse(name, path(name) + " has an entry that is not a token id, an integer from 0");
  out = *std::move(ids);
}

std::optional<std::vector<TokenId>> to_ids(const JsonArray& array) {
  std::vector<TokenId> ids;
  ids.reserve(array.size());
  for (const JsonValue& each : array) {
    const auto id = each.integer();
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) return std::nullopt;
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

}  // namespace troupe::ipc::api
