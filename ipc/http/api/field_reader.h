// Reads the members of a checked object into our types, and keeps the first refusal.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/ids.h"
#include "ipc/http/api/error.h"
#include "ipc/http/json/json_value.h"

namespace troupe::ipc::api {

// Names and types were checked by check_fields(); ranges of what our types cannot hold are checked here. After a
// refusal nothing is read any more. Not thread-safe.
class FieldReader {
 public:
  // Members of arrays and of objects are read through readers of their own, which share `refusal`.
  FieldReader(JsonObject& object, std::optional<ApiError>& refusal, std::string where = {})
      : object_(object), refusal_(refusal), where_(std::move(where)) {}

  // The member; null: there is none, or it is null, or something was refused before.
  JsonValue* find(std::string_view name) { return refusal_ ? nullptr : find_member(object_, name); }
  bool has(std::string_view name) { return find(name) != nullptr; }
  bool is_refused() const { return refusal_.has_value(); }

  // Each leaves `out` as it is if there is no member.
  void read(std::string_view name, bool& out);
  void read(std::string_view name, float& out);
  void read(std::string_view name, std::int32_t& out);
  // Integers from `low` to `high`.
  void read(std::string_view name, std::uint32_t& out, std::uint32_t low = 0,
            std::uint32_t high = std::numeric_limits<std::uint32_t>::max());
  void read(std::string_view name, std::string& out);  // moves it out of the document
  // As read(), with a limit of bytes.
  void read_short(std::string_view name, std::string& out, std::size_t max_bytes);
  // Strings, or one string where `or_one`.
  void read_strings(std::string_view name, std::vector<std::string>& out, std::size_t max_count, bool or_one);
  void read_ids(std::string_view name, std::vector<TokenId>& out, std::size_t max_count);

  std::string path(std::string_view name) const { return where_ + std::string(name); }
  void refuse(std::string_view name, std::string message);
  // Nothing: there is none, or it was refused, in the words of `range` ("from 1 to 64").
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low, std::int64_t high,
                                      std::string_view range);

 private:
  JsonObject& object_;
  std::optional<ApiError>& refusal_;
  const std::string where_;
};

// The array's values as token ids; nothing: one is not an integer from 0 to 2^31 - 1.
[[nodiscard]] std::optional<std::vector<TokenId>> to_ids(const JsonArray& array);

}  // namespace troupe::ipc::api
