#include "config/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "config/assert.h"
#include "config/config_file.h"
#include "config/flags.h"
#include "config/values.h"

namespace troupe::config {
namespace {

constexpr std::string_view kPrefix = "TROUPE_";

// Variables with this prefix that are read elsewhere: by the client library, and by our tests.
constexpr std::string_view kOtherVariables[] = {"HOST", "SHARED_DIR", "TEST_KILL", "MUTATIONS", "CHURN"};

std::string variable_or_empty(const Surroundings& surroundings, std::string_view name) {
  const auto found = surroundings.variables.find(name);
  return found == surroundings.variables.end() ? std::string() : found->second;
}

// Reads the first configuration file that exists; a file that was named explicitly must exist.
Result<std::optional<ConfigFile>> read_file(const std::string& asked_for, const Surroundings& surroundings) {
  if (!asked_for.empty()) {
    auto file = read_config_file(asked_for);
    if (!file) return file.error();
    if (!*file) return Error{ErrorCode::bad_config, asked_for + ": there is no such configuration file"};
    return *file;
  }
  std::string home = variable_or_empty(surroundings, "XDG_CONFIG_HOME");
  if (home.empty()) {
    const std::string user = variable_or_empty(surroundings, "HOME");
    if (!user.empty()) home = user + "/.config";
  }
  if (!home.empty()) {
    auto file = read_config_file(home + "/troupe/troupe.toml");
    if (!file || *file) return file;
  }
  return read_config_file(surroundings.system_file);
}

// Applies the entries of the file. Those of other subcommands are checked too, with a scratch copy of the options.
Status apply_file(Command command, const ConfigFile& file, Parsed& parsed) {
  parsed.file = file.path;
  Options unused;
  for (const ConfigEntry& entry : file.entries) {
    const bool ours = entry.option->belongs_to(command);
    const std::string place = fmt::format("{}:{}", file.path, entry.line);
    if (const auto problem = assign(*entry.option, entry.texts, ours ? parsed.options : unused))
      return Error{ErrorCode::bad_config, fmt::format("{}: {}: {}", place, entry.option->name, *problem)};
    if (ours) parsed.origins[std::string(entry.option->name)] = place;
  }
  return Ok{};
}

Status apply_variables(Command command, const Surroundings& surroundings, Parsed& parsed) {
  for (const Option& option : option_table()) {
    if (option.flag_only || !option.belongs_to(command)) continue;
    const std::string name = option.variable();
    const auto found = surroundings.variables.find(name);
    if (found == surroundings.variables.end()) continue;
    const std::vector<std::string> texts{found->second};
    if (const auto problem = assign(option, texts, parsed.options))
      return Error{ErrorCode::bad_config, name + ": " + *problem};
    parsed.origins[std::string(option.name)] = name;
  }
  return Ok{};
}

void warn_of_unknown_variables(const Surroundings& surroundings, std::vector<std::string>& warnings) {
  std::vector<std::string> known(std::begin(kOtherVariables), std::end(kOtherVariables));  // without the prefix
  for (const Option& option : option_table())
    if (!option.flag_only) known.push_back(option.variable().substr(kPrefix.size()));
  for (auto it = surroundings.variables.lower_bound(kPrefix);
       it != surroundings.variables.end() && it->first.starts_with(kPrefix); ++it) {
    const std::string name = it->first.substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto likely = nearest(name, known);
    warnings.push_back(fmt::format("the environment variable {} is not one of troupe's and has no effect{}", it->first,
                                   likely ? fmt::format(" (did you mean {}{}?)", kPrefix, *likely) : ""));
  }
}

constexpr std::string_view kPathValue = "PATH";  // Option::value of options that name a socket

Status apply_flags(const Flags& flags, Parsed& parsed) {
  for (const FlagUse& use : flags.uses) {
    // Most likely an empty variable in a script; the default socket could be that of another server.
    const std::string flag = fmt::format("--{}", use.option->name);
    if (use.option->value == kPathValue && use.texts.back().empty())
      return Error{ErrorCode::invalid_argument, flag + ": the path is empty; name one, or leave the flag out"};
    if (const auto problem = assign(*use.option, use.texts, parsed.options))
      return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", flag, *problem)};
    parsed.origins[std::string(use.option->name)] = flag;
  }
  return Ok{};
}

}  // namespace

std::string Option::variable() const {
  std::string text(kPrefix);
  for (const char c : name) text += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::vector<std::string> Option::spellings() const {
  std::vector<std::string> all{fmt::format("--{}", name)};
  for (std::string_view rest = also; !rest.empty();) {
    const std::size_t end = rest.find(' ');
    all.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return all;
}

bool Option::is_list() const {
  return std::holds_alternative<std::vector<std::int64_t> Options::*>(field) ||
         std::holds_alternative<std::vector<std::string> Options::*>(field);
}

Surroundings Surroundings::of_this_process() {
  Surroundings surroundings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      surroundings.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return surroundings;
}

Result<Parsed> parse(Command command, std::span<const std::string> arguments, const Surroundings& surroundings) {
  auto flags = read_flags(command, arguments);
  if (!flags) return flags.error();
  Parsed parsed;
  parsed.arguments = std::move(flags->arguments);
  parsed.command_line.assign(arguments.begin(), arguments.end());
  if (flags->asks_for_help) {
    parsed.options.help = true;
    return parsed;
  }

  std::string asked_for = variable_or_empty(surroundings, "TROUPE_CONFIG");
  for (const FlagUse& use : flags->uses)
    if (use.option->name == "config") asked_for = use.texts.back();
  const bool uses_files = std::any_of(option_table().begin(), option_table().end(), [&](const Option& option) {
    return option.name == "config" && option.belongs_to(command);
  });
  if (uses_files) {
    auto file = read_file(asked_for, surroundings);
    if (!file) return file.error();
    if (*file)
      if (auto status = apply_file(command, **file, parsed); !status) return status.error();
  }
  if (auto status = apply_variables(command, surroundings, parsed); !status) return status.error();
  if (auto status = apply_flags(*flags, parsed); !status) return status.error();
  warn_of_unknown_variables(surroundings, parsed.warnings);
  return parsed;
}

Error bad_value(const Given& given, const std::string& option, const std::string& why) {
  const auto found = given.origins.find(option);
  const std::string origin = found == given.origins.end() ? "--" + option : found->second;
  return {origin.starts_with("--") ? ErrorCode::invalid_argument : ErrorCode::bad_config, origin + ": " + why};
}

Result<Reread> read_again(Command command, const Parsed& in_effect, const Surroundings& surroundings) {
  auto fresh = parse(command, in_effect.command_line, surroundings);
  if (!fresh) return fresh.error();
  Reread reread{.in_effect = in_effect, .changed = {}, .need_restart = {}};
  reread.in_effect.file = fresh->file;
  for (const Option& option : option_table()) {
    if (!option.belongs_to(command)) continue;
    const std::vector<std::string> texts = to_texts(option, fresh->options);
    if (texts == to_texts(option, in_effect.options)) continue;
    if (!option.reloads) {
      reread.need_restart.push_back(describe(option, *fresh));
      continue;
    }
    TROUPE_ASSERT(!assign(option, texts, reread.in_effect.options));  // it was read from there
    const std::string name(option.name);
    reread.in_effect.origins.erase(name);
    if (const auto origin = fresh->origins.find(name); origin != fresh->origins.end())
      reread.in_effect.origins.insert(*origin);
    reread.changed.push_back(&option);
  }
  return reread;
}

}  // namespace troupe::config
