// Text on the wire is valid UTF-8, wherever it came from.
#pragma once

#include <string>
#include <string_view>

namespace troupe::ipc {

// Whether all of `text` is UTF-8 (RFC 3629: no surrogates, nothing overlong, nothing above U+10FFFF).
// O(text.size()).
[[nodiscard]] bool is_utf8(std::string_view text);

// `text` with every byte that does not belong to a UTF-8 character replaced by U+FFFD. O(text.size()).
[[nodiscard]] std::string valid_utf8(std::string_view text);

}  // namespace troupe::ipc
