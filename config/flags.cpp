#include "config/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <optional>

#include "config/other_programs.h"
#include "config/values.h"

namespace troupe::config {
namespace {

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
  for (const Option& option : option_table())
    for (const std::string& spelling : option.spellings()) {
      if (option.belongs_to(command))
        known.push_back(spelling);
      else if (spelling == flag)
        message += "; only other subcommands have it";
    }
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
Result<std::vector<std::string>> with_long_names(Command command, std::span<const std::string> arguments) {
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

}  // namespace

Result<Flags> read_flags(Command command, std::span<const std::string> arguments) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<std::pair<const Option*, CLI::Option*>> added;
  for (const Option& option : option_table())
    if (option.belongs_to(command)) added.emplace_back(&option, add(app, option));

  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  auto plain = with_long_names(command, {arguments.begin(), end_of_flags});
  if (!plain) return plain.error();
  std::reverse(plain->begin(), plain->end());  // the order in which CLI11 wants them
  Flags flags;
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

}  // namespace troupe::config
