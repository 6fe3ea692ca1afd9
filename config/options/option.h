// What an option is: a row of the table in option_table.cpp.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "config/options/option_table.h"

namespace troupe::config {

// The subcommands that this version has.
enum class Command : std::uint8_t {
  serve,
  run,
  bench,
  eval,
  tokenize,
  inspect,
  status,
  top,
  version,
  load,
  probe,
  perplexity,
  embed,
  usage,
  session,
  model,
  key,
  chat,
  verify,
  completion,
  backup,
  restore,
  tools,
  schema,
  grammar,
  doctor,
  pull,
  list,
  rm,
  prune
};

// Its place in a set of subcommands.
constexpr std::uint32_t bit(Command command) { return 1u << static_cast<unsigned>(command); }

// The subcommands that talk to a server.
inline constexpr std::uint32_t kClientCommands = bit(Command::run) | bit(Command::status) | bit(Command::top) |
                                                 bit(Command::load) | bit(Command::embed) | bit(Command::usage) |
                                                 bit(Command::session) | bit(Command::chat) | bit(Command::model) |
                                                 bit(Command::verify) | bit(Command::doctor);
// The subcommands that take a text or token ids.
inline constexpr std::uint32_t kTextCommands = bit(Command::run) | bit(Command::tokenize) | bit(Command::embed);

// The member of Options that holds an option's value; its type determines how it is parsed, printed and checked.
using Field =
    std::variant<bool Options::*, std::int64_t Options::*, std::uint32_t Options::*, std::uint64_t Options::*,
                 double Options::*, std::string Options::*, Bytes Options::*, std::chrono::milliseconds Options::*,
                 Seed Options::*, std::vector<std::int64_t> Options::*, std::vector<std::string> Options::*>;

// The groups that a part of the server keeps as they are (option_groups.h).
using KeptGroups = std::tuple<GatewayLimits, ConnectionLimits>;

// Of the sets in a tuple, the bit of each that has the group.
template <class Group, class Sets>
constexpr std::uint32_t sets_with() {
  return []<std::size_t... kPlaces>(std::index_sequence<kPlaces...>) {
    return ((std::is_base_of_v<Group, std::tuple_element_t<kPlaces, Sets>> ? 1u << kPlaces : 0u) | ...);
  }
  (std::make_index_sequence<std::tuple_size_v<Sets>>());
}

// Where an option's value is, and with that, which subcommands have the option.
struct OptionPlace {
  template <class T, class Group>
  OptionPlace(T Group::*member);  // for the rows: defined in option_table.cpp

  Field field;
  std::uint32_t commands;     // the bit of each subcommand that has it
  std::uint32_t kept_groups;  // the bit of each of KeptGroups that it is in
};

// How the value of a running server changes.
enum class Changes : std::uint8_t {
  by_restart,
  by_reload,   // read_again()
  by_request,  // each request may bring its own
};

// Headings of --help: what stands below them, `troupe load` takes for each of its tenants.
inline constexpr std::string_view kPaceHeading = "Pace";
inline constexpr std::string_view kRequestsHeading = "Requests";
inline constexpr std::string_view kFaultsHeading = "Faults (shares of the requests, 0 to 1)";

// Allowed values of a number, an amount (in bytes), a duration (in milliseconds) or each entry of a list.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
};

// One row of the table. `name` is the flag without its dashes and the key in troupe.toml; the variable is TROUPE_ and
// the name in capitals with underscores.
struct Option : OptionPlace {
  std::string_view name;
  std::string_view also;   // further spellings, separated by spaces: "-c --max-model-len"
  std::string_view group;  // heading in --help
  std::string_view value;  // placeholder in --help: "TOKENS"; "a|b|c": these values only; empty: a flag without value
  Range range;
  std::string_view help;  // ends with the meaning of 0 or empty, if it is special
  Changes changes = Changes::by_restart;
  bool flag_only = false;  // no variable and no key in the file (--help, --print-config)

  bool belongs_to(Command command) const { return (commands & bit(command)) != 0; }
  std::string variable() const;                // "TROUPE_CTX_SIZE"
  std::vector<std::string> spellings() const;  // "--ctx-size", then those of `also`
  bool is_list() const;                        // whether it has several values
};

[[nodiscard]] std::span<const Option> option_table();

// A name that an option had in an earlier version: as a flag, a variable and a key it means the option still, with a
// warning that says the new name (docs/stability.md).
struct FormerName {
  std::string_view was;
  std::string_view is;  // the name of a row
};
using FormerNames = std::span<const FormerName>;

[[nodiscard]] FormerNames former_names();

}  // namespace troupe::config
