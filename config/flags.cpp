#include "config/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "config/values.h"

namespace troupe::config {
namespace {

bool is_list(const Option& option) {
  return std::holds_alternative<std::vector<std::int64_t> Options::*>(option.field) ||
         std::holds_alternative<std::vector<std::string> Options::*>(option.field);
}

// CLI11 reads "-np 4" as -n with the value "p"; llama.cpp's spellings of that kind are replaced by their long names.
bool is_long_with_one_dash(std::string_view spelling) {
  return spelling.size() > 2 && spelling[0] == '-' && spelling[1] != '-';
}

std::string replace_one_dash_spelling(Command command, const std::string& argument) {
  for (const Option& option : option_table()) {
    if (!option.belongs_to(command)) continue;
    for (const std::string& spelling : option.spellings())
      if (is_long_with_one_dash(spelling) && spelling == argument) return "--" + std::string(option.name);
  }
  return argument;
}

Error unknown_flag(Command command, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  std::string message = "unknown flag " + flag + " of `troupe " + std::string(info(command).name) + "`";
  std::vector<std::string> known;
  for (const Option& option : option_table())
    for (const std::string& spelling : option.spellings()) {
      if (option.belongs_to(command))
        known.push_back(spelling);
      else if (spelling == flag)
        message += "; only other subcommands have it";
    }
  if (const auto likely = nearest(flag, known)) message += "; did you mean " + *likely + "?";
  return {ErrorCode::invalid_argument, message + " (--help lists the flags)"};
}

// Rewrites CLI11's message "--name: 1 required  missing".
Error missing_value(const std::string& what) {
  const std::string flag = what.substr(0, what.find(':'));
  for (const Option& option : option_table())
    if ("--" + std::string(option.name) == flag)
      return {ErrorCode::invalid_argument, flag + " needs a value: " + flag + " " + std::string(option.value)};
  return {ErrorCode::invalid_argument, what};
}

CLI::Option* add(CLI::App& app, const Option& option) {
  std::string names;
  for (const std::string& spelling : option.spellings())
    if (!is_long_with_one_dash(spelling)) names.append(names.empty() ? "" : ",").append(spelling);
  // An empty placeholder means a switch: it takes no value, but --name=false is understood.
  if (option.value.empty()) return app.add_flag(names)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::Option* added = app.add_option(names, CLI::callback_t([](const CLI::results_t&) { return true; }));
  // One value for each occurrence: `--stop a b` must not swallow b.
  if (is_list(option)) return added->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->allow_extra_args(false);
}

}  // namespace

Result<Flags> read_flags(Command command, std::span<const std::string> arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<const Option*, CLI::Option*>> added;
  for (const Option& option : option_table())
    if (option.belongs_to(command)) added.emplace_back(&option, add(app, option));

  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> reversed;  // CLI11 takes them in reverse order
  for (auto it = arguments.begin(); it != end_of_flags; ++it)
    reversed.insert(reversed.begin(), replace_one_dash_spelling(command, *it));
  Flags flags;
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ArgumentMismatch& error) {
    return missing_value(error.what());
  } catch (const CLI::ParseError& error) {
    return Error{ErrorCode::invalid_argument, error.what()};
  }
  for (const std::string& rest : app.remaining()) {
    if (rest.size() > 1 && rest[0] == '-') return unknown_flag(command, rest);
    flags.arguments.push_back(rest);
  }
  if (end_of_flags != arguments.end()) flags.arguments.insert(flags.arguments.end(), end_of_flags + 1, arguments.end());

  for (const auto& [option, use] : added) {
    if (use->count() == 0) continue;
    flags.uses.push_back({option, use->results()});
    if (option->name == "help") flags.asks_for_help = true;
  }
  if (info(command).arguments.empty() && !flags.arguments.empty() && !flags.asks_for_help)
    return Error{ErrorCode::invalid_argument, "unexpected argument '" + flags.arguments.front() + "': `troupe " +
                                                  std::string(info(command).name) + "` takes flags only" +
                                                  " (a model is named with -m)"};
  return flags;
}

}  // namespace troupe::config
