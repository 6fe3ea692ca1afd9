// What is told to other users names no folder of this machine.
#pragma once

#include <string>
#include <string_view>

namespace troupe {

// The text with the folders of every absolute path left out: "/srv/models/a.gguf: cannot be read" becomes "a.gguf:
// cannot be read". A path in quotes ends with them; another one, as it may have spaces, with ": ", "; ", ", ", a
// closing bracket or the text, and what stands between it and a later slash before that is left out with it. For
// messages to guests: the owner is told the whole path, by the log as well.
[[nodiscard]] std::string without_folders(std::string_view text);

}  // namespace troupe
