// Directories that the environment names: absolute paths; other values count as none.
#pragma once

#include <string>
#include <string_view>

#include "config/result.h"

namespace troupe {

// The value of the environment variable if it is an absolute path, else "".
[[nodiscard]] std::string absolute_variable(const char* name);

// The same for systemd's StateDirectory= and CacheDirectory=: the first of several paths, separated by colons.
[[nodiscard]] std::string service_directory(const char* name);

// Where the programs of this user keep what is to last: $XDG_STATE_HOME/troupe, else ~/.local/state/troupe, else "".
[[nodiscard]] std::string user_state_directory();

// The path of `name` where a server keeps what is to last: in $STATE_DIRECTORY, else user_state_directory(). `option`
// is the one whose value is auto: "usage-db". Error: bad_config, if the environment names no such directory, or HOME
// decides and is no directory.
[[nodiscard]] Result<std::string> state_path(std::string_view option, std::string_view name);

// What the value of such an option means: "" for an empty one and off, state_path() for auto, else the value.
[[nodiscard]] Result<std::string> chosen_state_path(const std::string& value, std::string_view option,
                                                    std::string_view name);

}  // namespace troupe
