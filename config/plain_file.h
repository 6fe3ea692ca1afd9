// Files that somebody names in an option.
#pragma once

#include <cstddef>
#include <string>

#include "config/result.h"

namespace troupe {

// The bytes of a plain file, or of /dev/null. Never waits: a pipe without a writer, a terminal and a device without an
// end are refused unread. Error: it cannot be opened or read, is something else, or has more than max_bytes.
[[nodiscard]] Result<std::string> read_plain_file(const std::string& path, std::size_t max_bytes);

}  // namespace troupe
