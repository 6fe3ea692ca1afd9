// troupe.toml: a flat list of keys, each the name of a flag. Used by parse() only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options.h"

namespace troupe::config {

struct ConfigEntry {
  const Option* option;
  std::vector<std::string> texts;  // the argument for assign(); empty for an empty list
  int line;                        // from 1
};

struct ConfigFile {
  std::string path;
  std::vector<ConfigEntry> entries;  // by key
};

// nullopt if there is no such file. Error: bad_config if it cannot be read, is not TOML (with the line), has an unknown
// key (with the nearest name), or a value of the wrong type.
[[nodiscard]] Result<std::optional<ConfigFile>> read_config_file(const std::string& path);

// A text as a TOML string, quoted.
[[nodiscard]] std::string toml_string(const std::string& text);

}  // namespace troupe::config
