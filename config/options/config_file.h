// troupe.toml: a flat list of keys, each the name of a flag, and [[model]] and [[tenant]] tables behind it. Used by
// parse() only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/options/model_tables.h"
#include "config/options/options.h"
#include "config/options/tenant_rules.h"

namespace troupe::config {

struct ConfigEntry {
  const Option* option;
  std::vector<std::string> texts;  // the argument for assign(); empty for an empty list
  int line;                        // from 1
  std::string former_name{};       // of the option, if the file has that
};

struct ConfigFile {
  std::string path;
  std::vector<ConfigEntry> entries;  // by key
  std::vector<ModelTable> models;    // in the order of the file
  std::vector<TenantRule> tenants;   // likewise
};

// nullopt if there is no such file. Error: bad_config if it cannot be read, is not TOML (with the line), has an unknown
// key (with the nearest name), a value of the wrong type, or a bad table (to_model_tables(), to_tenant_rules()).
[[nodiscard]] Result<std::optional<ConfigFile>> read_config_file(const std::string& path, FormerNames former_names);

// A text as a TOML string, quoted.
[[nodiscard]] std::string toml_string(const std::string& text);

}  // namespace troupe::config
