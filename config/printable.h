// Text from outside (a client, a file, a flag) fit for one line of a message or a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

// Printable ASCII, everything else as '?', at most `max_bytes`: it cannot end the line, colour a terminal or fill a
// log.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t max_bytes = 64) {
  std::string out(text.substr(0, max_bytes));
  for (char& c : out)
    if (c < 0x20 || c > 0x7e) c = '?';
  return out;
}

}  // namespace troupe
