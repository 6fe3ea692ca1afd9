// Fields of answers that say how a transfer goes on. Plain logic; servers may send any text.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::cli {

// By their names in small letters. Of a field that is there twice, the last.
using HttpFields = std::map<std::string, std::string, std::less<>>;

// Adds "Name: value"; what is no field is passed over.
void add_field(std::string_view line, HttpFields& fields);
[[nodiscard]] std::string_view field_of(const HttpFields& fields, std::string_view name);  // "" if absent

// "bytes 0-99/1000"
struct ContentRange {
  std::uint64_t begin = 0, end = 0, size = 0;  // end: behind the last byte
};
// Nothing if it is none, if it does not say the size, or contradicts itself.
[[nodiscard]] std::optional<ContentRange> parse_content_range(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> parse_length(std::string_view text);

// A number of seconds, or a date as "Sun, 29 Nov 2026 11:00:00 GMT", seen from `now` (seconds since 1970); nothing if
// it is neither. A date that has passed is 0 s.
[[nodiscard]] std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now);

// The address of the next page: <https://...>; rel="next"; empty if there is none.
[[nodiscard]] std::string next_link(std::string_view text);

// How long to wait after the n-th failure with nothing between them, from 1: half a second, doubled up to 30.
[[nodiscard]] std::chrono::milliseconds backoff(int failures);

}  // namespace troupe::cli
