#include "cli/terminal/color.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace troupe::cli {

bool shows_colors(int fd) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const name = std::getenv("TERM");
  const std::string_view terminal = name == nullptr ? "" : name;
  if (no_color != nullptr && *no_color != '\0') return false;
  return !terminal.empty() && terminal != "dumb" && ::isatty(fd) != 0;
}

std::string colored(std::string_view text, Color color, bool is_shown) {
  constexpr int kCodes[] = {31, 32, 33};
  if (!is_shown) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", kCodes[static_cast<int>(color)], text);
}

}  // namespace troupe::cli
