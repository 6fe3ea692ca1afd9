// What this binary was built from, and with what.
#pragma once

#include <string_view>

namespace troupe::cli {

extern const std::string_view kVersion;           // "0.1.0"
extern const std::string_view kCommit;            // abbreviated hash when configured in a git checkout, else ""
extern const std::string_view kVersionAndCommit;  // "0.1.0 (adf5cc8)", or without the parentheses
extern const std::string_view kCompiler;          // "GNU 12.2.0"
extern const std::string_view kBuildType;         // "Release"

}  // namespace troupe::cli
