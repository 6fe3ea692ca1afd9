// Reads options from the command line, TROUPE_* variables and troupe.toml, and describes them.
//
// The parser, --help, --print-config, the variables and the file all use the table in option_table.cpp, so they cannot
// disagree. The first of these sets an option: flag, environment, file, default. Everything here is plain and
// thread-compatible; only parse() and read_again() read files.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/model_tables.h"
#include "config/options/option.h"
#include "config/options/tenant_rules.h"
#include "config/result.h"

namespace troupe::config {

struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view summary;      // one line for `troupe --help`
  std::string_view arguments;    // the positional ones, as --help shows them: "[PROMPT...]"; empty: none allowed
  std::string_view description;  // a paragraph for `troupe NAME --help`
  std::vector<std::string_view> examples;
};

[[nodiscard]] std::span<const CommandInfo> commands();
[[nodiscard]] const CommandInfo& info(Command command);
// nullptr if there is no such subcommand.
[[nodiscard]] const CommandInfo* find_command(std::string_view name);

// The inputs of parse() besides the arguments.
struct Surroundings {
  std::map<std::string, std::string, std::less<>> variables;  // the whole environment
  std::string system_file = "/etc/troupe/troupe.toml";
  bool is_root = false;
  FormerNames former_names = config::former_names();

  static Surroundings of_this_process();
};

// What a subcommand was given beside the values of its options.
struct Given {
  std::vector<std::string> arguments;                       // all that is not a flag, in order
  std::map<std::string, std::string, std::less<>> origins;  // option name -> "--threads", "TROUPE_THREADS", "FILE:3"
  std::vector<std::string> warnings;                        // unknown TROUPE_* variables, former names
  std::vector<std::string> hidden;  // of `file`, by flags and variables: "--allow-group hides allow-group of FILE:3"
  std::string file;                 // the configuration file that was read, if any
  std::vector<TenantRule> tenants;  // of `file`; of `serve` and `key`
  std::vector<ModelTable> models;   // of `file`, of `serve`; empty if a flag or a variable names models
  std::vector<std::string> command_line;  // the parsed arguments, for read_again()
};

struct Parsed : Given {
  Options options;
};

// Reads the arguments after the subcommand's name, the environment and the configuration file: --config, else
// TROUPE_CONFIG, else $XDG_CONFIG_HOME/troupe/troupe.toml (~/.config without the variable), else the system's file; of
// the last two the first that exists. A file may set options of other subcommands: they are checked and not used.
//
// With --help among the arguments everything else is ignored. Errors: invalid_argument for the command line, bad_config
// for a variable or a file; the message names the source, the value, and the range or the nearest known name.
[[nodiscard]] Result<Parsed> parse(Command command, std::span<const std::string> arguments,
                                   const Surroundings& surroundings);

// The result of read_again().
struct Reread {
  Parsed in_effect;                    // the old values, with the new tenants and values of options that reload
  std::vector<const Option*> changed;  // options that reload and have a new value
  bool tenants_changed = false;
  std::vector<std::string> need_restart;  // "threads = 4 (FILE:3)": other options with a new value
};

// Calls parse() again, with the same command line. Errors: as parse(); then the old values stay in effect.
[[nodiscard]] Result<Reread> read_again(Command command, const Parsed& in_effect, const Surroundings& surroundings);

// The error for a value that parse() accepted and that cannot be used: "ORIGIN: WHY". invalid_argument for a flag or a
// default, bad_config for a variable or a file.
[[nodiscard]] Error bad_value(const Given& given, const std::string& option, const std::string& why);

// The option as it stands in the configuration in effect: "log-level = \"warn\" (FILE:3)".
[[nodiscard]] std::string describe(const Option& option, const Parsed& parsed);

// What `troupe NAME --help` prints: usage, options by group with default, range and variable, and examples.
[[nodiscard]] std::string help(Command command);

struct ExitStatus {
  int code;
  std::string_view meaning;
};

// The manual page troupe(1) in man(7) format: the --help of every subcommand, and these exit statuses.
[[nodiscard]] std::string man_page(std::string_view version, std::span<const ExitStatus> statuses);

// What `troupe NAME --print-config` prints: a troupe.toml that reads back to the same values (of UTF-8 texts).
[[nodiscard]] std::string print_config(Command command, const Parsed& parsed);

}  // namespace troupe::config
