// Shared by --help and the manual page. Used by help.cpp and man.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"

namespace troupe::config {

// "[0 to 100; default 0.8; TROUPE_TEMP]"; empty if an option has none of these.
[[nodiscard]] std::string facts(const Option& option);

// All spellings, short ones first: "-c", "--ctx-size", "--max-model-len".
[[nodiscard]] std::vector<std::string> sorted_spellings(const Option& option);

}  // namespace troupe::config
