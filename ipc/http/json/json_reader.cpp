#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/printable.h"
#include "ipc/http/json/json_value.h"

namespace troupe::ipc::api {
namespace {

// Builds the document from the events of the library's parser, which keeps no call stack, and stops it at the first
// limit. Returning false ends the parse.
class DocumentBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit DocumentBuilder(std::string_view what) : what_(what) {}

  bool null() override { return add(JsonValue()); }
  bool boolean(bool value) override { return add(JsonValue(value)); }
  bool number_integer(std::int64_t value) override { return add(JsonValue(value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return add(JsonValue(static_cast<std::int64_t>(value)));
    return add(JsonValue(value));
  }
  // Also integers beyond 64 bits, which stay what they are.
  bool number_float(double value, const std::string& written) override {
    const bool is_whole = written.find_first_not_of("-0123456789") == std::string::npos;
    return add(is_whole ? JsonValue(LargeInteger{written}) : JsonValue(value));
  }
  bool string(std::string& value) override { return add(JsonValue(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return fail("binary values are not JSON"); }

  bool start_object(std::size_t) override { return open(JsonValue(JsonObject{})); }
  bool key(std::string& name) override {
    if (name.size() > kMaxJsonKeyBytes)
      return fail(fmt::format("a key has {} bytes; at most {} are taken", name.size(), kMaxJsonKeyBytes));
    JsonObject& object = *open_.back().as<JsonObject>();
    if (object.size() >= kMaxJsonMembers)
      return fail(fmt::format("an object has more than {} members", kMaxJsonMembers));
    object.push_back({std::move(name), JsonValue()});
    return true;
  }
  bool end_object() override {
    const JsonObject& object = *open_.back().as<JsonObject>();
    std::vector<std::string_view> keys;
    keys.reserve(object.size());
    for (const JsonMember& each : object) keys.push_back(each.key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end())
      return fail(fmt::format("the key \"{}\" comes twice in an object", Printable(*twice).text()));
    return close();
  }
  bool start_array(std::size_t) override { return open(JsonValue(JsonArray{})); }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) override {
    // The library's text names its own classes and repeats bytes of the document.
    const bool is_number = std::string_view(error.what()).find("out_of_range") != std::string_view::npos;
    return fail(fmt::format("{} is not JSON: {} at byte {}, near \"{}\"", what_,
                            is_number ? "a number out of range" : "something unexpected", position,
                            Printable(last_token.substr(0, kShownBytes)).text()));
  }

  JsonValue take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

 private:
  static constexpr std::size_t kShownBytes = 40;

  bool fail(std::string message) {
    if (problem_.empty()) problem_ = std::move(message);
    return false;
  }
  bool count() {
    if (++num_values_ <= kMaxJsonValues) return true;
    return fail(fmt::format("{} has more than {} JSON values", what_, kMaxJsonValues));
  }
  bool place(JsonValue&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* const array = open_.back().as<JsonArray>()) {
      array->push_back(std::move(value));
    } else {
      open_.back().as<JsonObject>()->back().value = std::move(value);
    }
    return true;
  }
  bool add(JsonValue&& value) { return count() && place(std::move(value)); }
  bool open(JsonValue&& value) {
    if (!count()) return false;
    if (open_.size() >= kMaxJsonDepth)
      return fail(fmt::format("arrays and objects are nested more than {} deep", kMaxJsonDepth));
    open_.push_back(std::move(value));
    return true;
  }
  bool close() {
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    return place(std::move(value));
  }

  const std::string_view what_;
  JsonValue root_;
  std::vector<JsonValue> open_;  // the arrays and objects that have begun, outermost first
  std::size_t num_values_ = 0;
  std::string problem_;
};

}  // namespace

std::optional<double> JsonValue::number() const {
  if (const auto* value = as<double>()) return *value;
  if (const auto* value = as<LargeInteger>()) return std::strtod(value->digits.c_str(), nullptr);
  if (const auto* value = as<std::int64_t>()) return static_cast<double>(*value);
  if (const auto* value = as<std::uint64_t>()) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<std::int64_t> JsonValue::integer() const {
  if (const auto* value = as<std::int64_t>()) return *value;
  const auto* value = as<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!value || std::trunc(*value) != *value || std::abs(*value) > kExact) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

const JsonValue* find_member(const JsonObject& object, std::string_view key) {
  for (const JsonMember& each : object)
    if (each.key == key) return each.value.is_null() ? nullptr : &each.value;
  return nullptr;
}

JsonValue* find_member(JsonObject& object, std::string_view key) {
  return const_cast<JsonValue*>(find_member(std::as_const(object), key));
}

Result<JsonValue> read_json(std::string_view text, std::string_view what) {
  DocumentBuilder builder(what);
  const bool ok = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!ok) return Error{ErrorCode::invalid_argument, builder.problem()};
  return builder.take();
}

}  // namespace troupe::ipc::api
