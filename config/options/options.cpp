#include "config/options/options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <utility>

#include "config/assert.h"
#include "config/options/config_file.h"
#include "config/options/other_programs.h"
#include "config/options/values.h"

namespace troupe::config {
namespace {

constexpr std::string_view kPrefix = "TROUPE_";

// Variables with this prefix that the client library and the tests read.
constexpr std::string_view kOtherVariables[] = {"HOST", "SHARED_DIR", "TEST_KILL", "MUTATIONS", "CHURN"};

struct FlagUse {
  const Option* option;
  std::vector<std::string> texts;  // one per occurrence, at least one
};

// The command line of one subcommand, split into flags and arguments, values not parsed yet.
struct Flags {
  std::vector<FlagUse> uses;           // in the order of the table, each option once
  std::vector<std::string> arguments;  // all that is not a flag, and everything after "--"
  bool asks_for_help = false;
  std::vector<std::string> warnings;  // of former names
};

std::string renamed(std::string_view was, std::string_view is) {
  return fmt::format("{} is called {} now; the old name is still understood", was, is);
}

std::string variable_of(std::string_view name) {
  std::string text(kPrefix);
  for (const char c : name) text += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

const Option* find_spelling(Command command, std::string_view name) {
  for (const Option& option : option_table()) {
    if (!option.belongs_to(command)) continue;
    for (const std::string& spelling : option.spellings())
      if (spelling == name) return &option;
  }
  return nullptr;
}

Error unknown_flag(Command command, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  std::string message = fmt::format("unknown flag {} of `troupe {}`", flag, info(command).name);
  if (const std::string_view advice = advice_on_flag(command, flag); !advice.empty())
    return {ErrorCode::invalid_argument, fmt::format("{}: {}", message, advice)};
  std::vector<std::string> known;
  bool have_others = false;  // several options of the table may have this spelling
  for (const Option& option : option_table())
    for (const std::string& spelling : option.spellings()) {
      if (option.belongs_to(command))
        known.push_back(spelling);
      else
        have_others |= spelling == flag;
    }
  if (have_others) message += "; only other subcommands have it";
  if (const auto likely = nearest(flag, known))
    message += "; did you mean " + *likely + "?";
  else if (flag[1] != '-' && find_spelling(command, flag.substr(0, 2)))
    message += "; a value of " + flag.substr(0, 2) + " goes behind a space";
  if (flag.find(' ') != std::string::npos && !info(command).arguments.empty())
    message += "; a text that begins with a dash goes behind --";
  return {ErrorCode::invalid_argument, message + " (--help lists the flags)"};
}

// "64", "-1", ".5": then "-c64" can only be -c and its value.
bool begins_as_number(std::string_view text) {
  const std::size_t digit = text.find_first_not_of("+-.");
  return digit <= 1 && std::isdigit(static_cast<unsigned char>(text[digit])) != 0;
}

// K and V have one type here; llama.cpp's flags give it for each of them.
class KvTypes {
 public:
  void note(std::string_view spelling, const std::string& type) {
    const std::string name = type == "q8_0" ? "int8" : type;
    if (spelling == "-ctk" || spelling == "--cache-type-k") of_k_ = name;
    if (spelling == "-ctv" || spelling == "--cache-type-v") of_v_ = name;
  }
  Status check() const {
    if (!of_k_ || !of_v_ || *of_k_ == *of_v_) return Ok{};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("-ctk {} and -ctv {}: K and V have one type here; give both the same, or --kv-type",
                             *of_k_, *of_v_)};
  }

 private:
  std::optional<std::string> of_k_, of_v_;
};

// The arguments with every flag in the one form that CLI11 cannot mistake: "--name" and the value behind it, and of a
// switch "--name=value". CLI11 alone would read any "-xyz" as -x with the value "yz", and take what follows "--name=".
Result<std::vector<std::string>> with_long_names(Command command, std::span<const std::string> arguments,
                                                 FormerNames former_names, std::vector<std::string>& warnings) {
  std::vector<std::string> plain;
  KvTypes kv_types;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.size() < 2 || argument[0] != '-') {
      plain.push_back(argument);
      continue;
    }
    const std::size_t equals = argument.find('=');
    std::string spelling = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (spelling.starts_with("--"))
      if (const std::string today = fmt::format("--{}", name_today(std::string_view(spelling).substr(2), former_names));
          today != spelling)
        warnings.push_back(renamed(std::exchange(spelling, today), today));
    const Option* option = find_spelling(command, spelling);
    if (!option && argument[1] != '-' && begins_as_number(argument.substr(2))) {
      spelling = argument.substr(0, 2);
      option = find_spelling(command, spelling);
      value = argument.substr(2);
    }
    const bool is_switch = option && option->value.empty();
    if (!option || (is_switch && value && equals == std::string::npos)) return unknown_flag(command, argument);
    plain.push_back(fmt::format("--{}{}", option->name, is_switch && value ? "=" + *value : ""));
    if (is_switch) continue;
    if (!value && i + 1 < arguments.size()) value = arguments[++i];  // whatever it looks like
    if (value) plain.push_back(*value);
    if (value && option->name == "kv-type") kv_types.note(spelling, *value);
  }
  if (Status same = kv_types.check(); !same) return same.error();
  return plain;
}

// CLI11 says "--name: 1 required  missing".
Error missing_value(const std::string& what) {
  const std::string flag = what.substr(0, what.find(':'));
  for (const Option& option : option_table())
    if (fmt::format("--{}", option.name) == flag)
      return {ErrorCode::invalid_argument, fmt::format("{0} needs a value: {0} {1}", flag, option.value)};
  return {ErrorCode::invalid_argument, what};
}

CLI::Option* add(CLI::App& app, const Option& option) {
  const std::string name = fmt::format("--{}", option.name);
  // An empty placeholder means a switch: it takes no value, but --name=false is understood.
  if (option.value.empty()) return app.add_flag(name)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::Option* added = app.add_option(name, CLI::callback_t([](const CLI::results_t&) { return true; }));
  // One value for each occurrence: `--stop a b` must not swallow b.
  if (option.is_list()) return added->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->allow_extra_args(false);
}

// A value may be part of its flag behind '=', and behind a flag of one letter where it begins as a number ("-c64").
// Error: invalid_argument, for an unknown flag (with the nearest name, or what to do instead), a flag without its
// value, or an argument where the subcommand takes none.
Result<Flags> read_flags(Command command, std::span<const std::string> arguments, FormerNames former_names) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<const Option*, CLI::Option*>> added;
  for (const Option& option : option_table())
    if (option.belongs_to(command)) added.emplace_back(&option, add(app, option));

  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  Flags flags;
  auto plain = with_long_names(command, {arguments.begin(), end_of_flags}, former_names, flags.warnings);
  if (!plain) return plain.error();
  std::reverse(plain->begin(), plain->end());  // the order in which CLI11 wants them
  try {
    app.parse(std::move(*plain));
  } catch (const CLI::ArgumentMismatch& error) {
    return missing_value(error.what());
  } catch (const CLI::ParseError& error) {
    return Error{ErrorCode::invalid_argument, error.what()};
  }
  flags.arguments = app.remaining();
  if (end_of_flags != arguments.end()) flags.arguments.insert(flags.arguments.end(), end_of_flags + 1, arguments.end());

  for (const auto& [option, use] : added) {
    if (use->count() == 0) continue;
    flags.uses.push_back({option, use->results()});
    if (option->name == "help") flags.asks_for_help = true;
  }
  if (info(command).arguments.empty() && !flags.arguments.empty() && !flags.asks_for_help)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("unexpected argument '{}': `troupe {}` takes flags only (a model is named with -m)",
                             flags.arguments.front(), info(command).name)};
  return flags;
}

std::string variable_or_empty(const Surroundings& surroundings, std::string_view name) {
  const auto found = surroundings.variables.find(name);
  return found == surroundings.variables.end() ? std::string() : found->second;
}

// Reads the first configuration file that exists; the one that was asked for must exist.
Result<std::optional<ConfigFile>> read_file(const std::string& asked_for, const Surroundings& surroundings) {
  if (!asked_for.empty()) {
    auto file = read_config_file(asked_for, surroundings.former_names);
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
    auto file = read_config_file(home + "/troupe/troupe.toml", surroundings.former_names);
    if (!file || *file) return file;
  }
  return read_config_file(surroundings.system_file, surroundings.former_names);
}

const Option& model_option() {
  const auto found = std::ranges::find(option_table(), std::string_view("model"), &Option::name);
  TROUPE_ASSERT(found != option_table().end());
  return *found;
}

// The allow-... of the machine's file are those of the machine's socket: a server that a user starts takes them only if
// the file is named.
void leave_out_guests(ConfigFile& file, std::vector<std::string>& warnings) {
  std::erase_if(file.entries, [&](const ConfigEntry& entry) {
    const std::string_view name = entry.option->name;
    if (name != "allow-uid" && name != "allow-gid" && name != "allow-user" && name != "allow-group") return false;
    warnings.push_back(fmt::format("{}:{}: {} is for the machine's server and not for this one; --config {} takes it",
                                   file.path, entry.line, name, file.path));
    return true;
  });
}

using Places = std::vector<std::pair<std::string, std::string>>;  // option name and where the file has it: "FILE:3"

// What a flag or a variable has set as well as the file, which then does nothing.
std::vector<std::string> hidden_keys(const Places& of_file, const Parsed& parsed) {
  std::vector<std::string> hidden;
  for (const auto& [name, place] : of_file)
    if (const std::string& origin = parsed.origins.at(name); origin != place)
      hidden.push_back(fmt::format("{} hides {} of {}", origin, name, place));
  const auto model = parsed.origins.find(model_option().name);
  if (!parsed.models.empty() && model != parsed.origins.end())
    hidden.push_back(fmt::format("{} hides the [[model]] tables of {}", model->second, parsed.file));
  return hidden;
}

// Applies the entries of the file. Those of other subcommands are checked too, with a scratch copy of the options.
Status apply_file(Command command, const ConfigFile& file, Parsed& parsed, Places& places) {
  parsed.file = file.path;
  Options unused;
  for (const ConfigEntry& entry : file.entries) {
    const bool ours = entry.option->belongs_to(command);
    const std::string place = fmt::format("{}:{}", file.path, entry.line);
    if (const auto problem = assign(*entry.option, entry.texts, ours ? parsed.options : unused))
      return Error{ErrorCode::bad_config, fmt::format("{}: {}: {}", place, entry.option->name, *problem)};
    if (ours) {
      parsed.origins[std::string(entry.option->name)] = place;
      places.emplace_back(entry.option->name, place);
    }
    if (!entry.former_name.empty())
      parsed.warnings.push_back(fmt::format("{}: {}", place, renamed(entry.former_name, entry.option->name)));
  }
  if (command == Command::serve || command == Command::key) parsed.tenants = file.tenants;
  if (file.models.empty()) return Ok{};
  // Other subcommands, which have one model, take the default one.
  if (command == Command::serve) {
    parsed.models = file.models;
  } else if (const Option& model = model_option(); model.belongs_to(command)) {
    parsed.options.model = {file.models.front().path};
    parsed.origins[std::string(model.name)] = fmt::format("{}:{}", file.path, file.models.front().line);
  }
  return Ok{};
}

Status apply_variables(Command command, const Surroundings& surroundings, Parsed& parsed) {
  for (const Option& option : option_table()) {
    if (option.flag_only || !option.belongs_to(command)) continue;
    std::string name = option.variable();
    auto found = surroundings.variables.find(name);
    for (const FormerName& each : surroundings.former_names) {
      if (found != surroundings.variables.end() || each.is != option.name) continue;
      found = surroundings.variables.find(variable_of(each.was));
      if (found != surroundings.variables.end())
        parsed.warnings.push_back(renamed(found->first, std::exchange(name, found->first)));
    }
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
  for (const FormerName& each : surroundings.former_names)
    known.push_back(variable_of(each.was).substr(kPrefix.size()));
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

// `troupe serve FILE` is `troupe serve -m FILE`.
Status take_models(Parsed& parsed) {
  const std::string name(model_option().name);
  if (parsed.arguments.empty()) return Ok{};
  const auto given = parsed.origins.find(name);
  if (given != parsed.origins.end() && given->second.starts_with("--"))
    return Error{ErrorCode::invalid_argument, fmt::format("'{}' and {}: models are arguments or values of -m, not both",
                                                          parsed.arguments.front(), given->second)};
  for (const std::string& model : parsed.arguments)
    if (model.empty()) return Error{ErrorCode::invalid_argument, "the path of a model is empty"};
  if (const auto problem = assign(model_option(), parsed.arguments, parsed.options))
    return Error{ErrorCode::invalid_argument, *problem};
  parsed.origins[name] = "--" + name;
  parsed.arguments.clear();
  return Ok{};
}

}  // namespace

std::string Option::variable() const { return variable_of(name); }

std::vector<std::string> Option::spellings() const {
  std::vector<std::string> all{fmt::format("--{}", name)};
  if (also.empty()) return all;
  std::vector<std::string> others = split(also, ' ');
  std::move(others.begin(), others.end(), std::back_inserter(all));
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
  surroundings.is_root = ::geteuid() == 0;
  return surroundings;
}

Result<Parsed> parse(Command command, std::span<const std::string> arguments, const Surroundings& surroundings) {
  auto flags = read_flags(command, arguments, surroundings.former_names);
  if (!flags) return flags.error();
  Parsed parsed;
  parsed.arguments = std::move(flags->arguments);
  parsed.warnings = std::move(flags->warnings);
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
  Places places;
  if (uses_files) {
    auto file = read_file(asked_for, surroundings);
    if (!file) return file.error();
    if (*file && command == Command::serve && asked_for.empty() && !surroundings.is_root &&
        (*file)->path == surroundings.system_file)
      leave_out_guests(**file, parsed.warnings);
    if (*file)
      if (auto status = apply_file(command, **file, parsed, places); !status) return status.error();
  }
  if (auto status = apply_variables(command, surroundings, parsed); !status) return status.error();
  if (auto status = apply_flags(*flags, parsed); !status) return status.error();
  if (command == Command::serve)
    if (auto status = take_models(parsed); !status) return status.error();
  parsed.hidden = hidden_keys(places, parsed);
  if (parsed.origins.contains(model_option().name)) parsed.models.clear();
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
  reread.tenants_changed = fresh->tenants != in_effect.tenants;
  reread.in_effect.file = fresh->file;
  reread.in_effect.hidden = fresh->hidden;
  reread.in_effect.tenants = fresh->tenants;
  reread.in_effect.models = fresh->models;
  for (const Option& option : option_table()) {
    if (!option.belongs_to(command)) continue;
    const std::vector<std::string> texts = to_texts(option, fresh->options);
    if (texts == to_texts(option, in_effect.options)) continue;
    if (option.changes != Changes::by_reload) {
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
