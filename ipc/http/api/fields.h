// What becomes of each field of a request: the one table that the checks, /openapi.json and docs/api-fields.md follow.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/http/api/endpoint.h"
#include "ipc/http/api/error.h"
#include "ipc/http/json/json_value.h"

namespace troupe::ipc::api {

enum class FieldUse : std::uint8_t {
  honoured,
  only,     // served with certain values, which are the default or change nothing; others are refused
  refused,  // with any value but null
  ignored,  // passed over with any value, and named in a header of the answer (x-troupe-ignored)
};

// Sets of JSON types.
using JsonTypes = std::uint8_t;
inline constexpr JsonTypes kBoolean = 1, kInteger = 2, kNumber = 4, kString = 8, kArray = 16, kObject = 32, kAny = 63;

// Sets of endpoints.
using EndpointSet = std::uint16_t;
[[nodiscard]] constexpr EndpointSet set_of(Endpoint endpoint) {
  return static_cast<EndpointSet>(1u << static_cast<unsigned>(endpoint));
}

struct Field {
  EndpointSet endpoints;
  std::string_view path;  // "stream_options.include_usage"; "messages[].role" of the objects in an array
  JsonTypes types;        // null is taken for all, and means the same as no field
  FieldUse use;
  std::string_view values;  // JSON texts with | between them, the only ones taken; empty: decided by other checks
  std::string_view note;    // what it does; the others: why
};

[[nodiscard]] std::span<const Field> fields();
[[nodiscard]] const Field* find_field(Endpoint endpoint, std::string_view path);
// Whether a request without this field is refused.
[[nodiscard]] bool is_required(Endpoint endpoint, std::string_view path);

// Checks the names, types and listed values of a whole body, with the objects in it, and that what is required is
// there. The first refusal, or nothing. `ignored` gets the names of what is passed over.
[[nodiscard]] std::optional<ApiError> check_fields(Endpoint endpoint, const JsonObject& body,
                                                   std::vector<std::string_view>& ignored);

// For messages and documents: "a string or an array".
[[nodiscard]] std::string types_in_words(JsonTypes types);

}  // namespace troupe::ipc::api
