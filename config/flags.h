// The command line of one subcommand, split into flags and arguments, values not parsed yet. Used by parse() only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/options.h"

namespace troupe::config {

struct FlagUse {
  const Option* option;
  std::vector<std::string> texts;  // one per occurrence, at least one
};

struct Flags {
  std::vector<FlagUse> uses;           // in the order of the table, each option once
  std::vector<std::string> arguments;  // all that is not a flag, and everything after "--"
  bool asks_for_help = false;
};

// A value may be part of its flag behind '=', and behind a flag of one letter where it begins as a number ("-c64").
// Error: invalid_argument, for an unknown flag (with the nearest name, or what to do instead), a flag without its
// value, or an argument where the subcommand takes none.
[[nodiscard]] Result<Flags> read_flags(Command command, std::span<const std::string> arguments);

}  // namespace troupe::config
