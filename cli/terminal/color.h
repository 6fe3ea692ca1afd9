// Colours of text on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace troupe::cli {

// Whether text for a descriptor may have escape sequences: it is a terminal that knows them (TERM is set, and not
// "dumb"), and NO_COLOR is unset or empty (no-color.org).
[[nodiscard]] bool shows_colors(int fd);

enum class Color { red, green, yellow };

// The text between the escape sequences of the colour; as it is if `is_shown` is false.
[[nodiscard]] std::string colored(std::string_view text, Color color, bool is_shown = true);

}  // namespace troupe::cli
