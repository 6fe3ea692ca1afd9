// A JSON document that was read: plain values, without the library that read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/result.h"

namespace troupe::ipc::api {

struct JsonMember;
class JsonValue;
using JsonArray = std::vector<JsonValue>;
using JsonObject = std::vector<JsonMember>;  // in the order of the document; no key twice

// An integer beyond 64 bits: an optional '-' and digits.
struct LargeInteger {
  std::string digits;
};

class JsonValue {
 public:
  // Integers that fit int64 are int64, those above it uint64 or large, all other numbers double.
  using Variant = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, LargeInteger, double, std::string,
                               JsonArray, JsonObject>;

  JsonValue() noexcept;
  explicit JsonValue(Variant value);
  // Defined where JsonMember is known.
  JsonValue(const JsonValue&);
  JsonValue(JsonValue&&) noexcept;
  JsonValue& operator=(const JsonValue&);
  JsonValue& operator=(JsonValue&&) noexcept;
  ~JsonValue();

  const Variant& get() const { return value_; }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&value_);
  }
  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  // Of any number, also an integer that a double cannot hold exactly.
  std::optional<double> number() const;
  // Of an integer, also one written as 3.0.
  std::optional<std::int64_t> integer() const;

 private:
  Variant value_;  // default: null
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

inline JsonValue::JsonValue() noexcept = default;
inline JsonValue::JsonValue(Variant value) : value_(std::move(value)) {}
inline JsonValue::JsonValue(const JsonValue&) = default;
inline JsonValue::JsonValue(JsonValue&&) noexcept = default;
inline JsonValue& JsonValue::operator=(const JsonValue&) = default;
inline JsonValue& JsonValue::operator=(JsonValue&&) noexcept = default;
inline JsonValue::~JsonValue() = default;
static_assert(sizeof(JsonValue) == 40);

// The member with this key that is not null; else null. O(object.size()).
[[nodiscard]] const JsonValue* find_member(const JsonObject& object, std::string_view key);
[[nodiscard]] JsonValue* find_member(JsonObject& object, std::string_view key);

inline constexpr std::size_t kMaxJsonDepth = 32;         // arrays and objects within one another
inline constexpr std::size_t kMaxJsonValues = 1u << 20;  // of a document; each takes 40 bytes of memory
inline constexpr std::size_t kMaxJsonMembers = 4096;     // of one object
inline constexpr std::size_t kMaxJsonKeyBytes = 256;

// Reads one document of UTF-8 text. Errors (invalid_argument): it is not JSON, with the place; a limit above is
// exceeded; a key comes twice in an object. O(n log n) in text.size(); the stack does not grow with the document.
//   what  the text is called in errors
[[nodiscard]] Result<JsonValue> read_json(std::string_view text, std::string_view what = "the body");

}  // namespace troupe::ipc::api
