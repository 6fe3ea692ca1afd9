// Completion for shells: scripts that complete subcommands, flags and their values, made of the tables of subcommands
// and options.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

// By the name of an option, values that it may have and that its row does not list.
using ValueNames = std::map<std::string_view, std::vector<std::string>>;

// The script for "bash", "zsh" or "fish"; empty for another shell.
[[nodiscard]] std::string completion(std::string_view shell, const ValueNames& names);

}  // namespace troupe::config
