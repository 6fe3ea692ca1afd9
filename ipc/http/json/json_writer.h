// Writes JSON text by appending to a string: commas, quotes and escapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ipc/http/json/json_value.h"

namespace troupe::ipc::api {

// Calls must nest as JSON does; it is not checked. Bytes of strings that are not UTF-8 become U+FFFD.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& string(std::string_view text);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& integer(std::int64_t value);
  JsonWriter& natural(std::uint64_t value);
  JsonWriter& number(double value);  // as short as reads back the same; null if it is not finite
  JsonWriter& number(float value);
  JsonWriter& raw(std::string_view json);  // a value, as JSON text
  JsonWriter& value(const JsonValue& value);

  // key() and a value of this kind.
  JsonWriter& field(std::string_view name, std::string_view text) { return key(name).string(text); }
  JsonWriter& field(std::string_view name, const char* text) { return key(name).string(text); }
  template <class T>
  requires std::is_arithmetic_v<T> JsonWriter& field(std::string_view name, T value) {
    key(name);
    if constexpr (std::is_same_v<T, bool>)
      return boolean(value);
    else if constexpr (std::is_floating_point_v<T>)
      return number(value);
    else if constexpr (std::is_signed_v<T>)
      return integer(value);
    else
      return natural(value);
  }
  JsonWriter& raw_field(std::string_view name, std::string_view json) { return key(name).raw(json); }
  JsonWriter& null_field(std::string_view name) { return key(name).null(); }

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  void separate();

  std::string& out_;
  bool needs_comma_ = false;
};

// The value as JSON text.
[[nodiscard]] std::string to_json(const JsonValue& value);
[[nodiscard]] std::string to_json(std::string_view text);

}  // namespace troupe::ipc::api
