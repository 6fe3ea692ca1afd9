#include "cli/chat_commands.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "config/normal_float.h"
#include "config/printable.h"
#include "config/values.h"

namespace troupe::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

constexpr std::array<std::pair<std::string_view, ChatCommand>, 10> kCommands = {{
    {"set", ChatCommand::set},
    {"system", ChatCommand::system},
    {"save", ChatCommand::save},
    {"load", ChatCommand::load},
    {"clear", ChatCommand::clear},
    {"regen", ChatCommand::regenerate},
    {"stats", ChatCommand::stats},
    {"help", ChatCommand::help},
    {"quit", ChatCommand::quit},
    {"exit", ChatCommand::quit},
}};

// A number that a setting takes, and where it goes.
struct Setting {
  std::string_view name;
  double min, max;
  bool is_whole;
  void (*set)(client::Sampling& sampling, double value);
  std::optional<double> (*get)(const client::Sampling& sampling);
};

template <auto member>
void set_member(client::Sampling& sampling, double value) {
  using Value = typename std::remove_reference_t<decltype(sampling.*member)>::value_type;
  if constexpr (std::is_same_v<Value, float>)
    sampling.*member = config::to_normal_float(value);
  else
    sampling.*member = static_cast<Value>(value);
}
template <auto member>
std::optional<double> get_member(const client::Sampling& sampling) {
  const auto& value = sampling.*member;
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}
template <auto member>
constexpr Setting setting(std::string_view name, double min, double max, bool is_whole) {
  return {name, min, max, is_whole, set_member<member>, get_member<member>};
}

using client::Sampling;
constexpr double kMost = 1 << 30;
constexpr std::array<Setting, 10> kSettings = {
    setting<&Sampling::temperature>("temp", 0, 100, false),
    setting<&Sampling::top_k>("top-k", 0, kMost, true),
    setting<&Sampling::top_p>("top-p", 0, 1, false),
    setting<&Sampling::min_p>("min-p", 0, 1, false),
    setting<&Sampling::repeat_penalty>("repeat-penalty", 0.01, 100, false),
    setting<&Sampling::presence_penalty>("presence-penalty", -100, 100, false),
    setting<&Sampling::frequency_penalty>("frequency-penalty", -100, 100, false),
    setting<&Sampling::repeat_last_n>("repeat-last-n", -1, kMost, true),
    setting<&Sampling::seed>("seed", 0, 9007199254740992.0, true),
    setting<&Sampling::max_tokens>("predict", 0, kMost, true),
};

std::string list_of(const client::Sampling& sampling) {
  std::string text;
  for (const Setting& each : kSettings) {
    const auto value = each.get(sampling);
    text += value ? fmt::format("  {:<18} {:g}\n", each.name, *value) : fmt::format("  {:<18} (unset)\n", each.name);
  }
  return text;
}

}  // namespace

std::optional<std::string> MessageLines::finish() {
  is_block_ = is_open_ = false;
  return std::exchange(text_, {});
}

std::optional<std::string> MessageLines::add(std::string_view line) {
  constexpr std::string_view kQuotes = "\"\"\"";
  if (!is_open() && line.starts_with(kQuotes)) {
    is_block_ = true;
    line.remove_prefix(kQuotes.size());
    if (line.empty()) return std::nullopt;
  } else if (is_block_ && !text_.empty()) {
    text_ += '\n';
  }
  if (is_block_) {
    const std::size_t end = line.rfind(kQuotes);
    text_ += line.substr(0, end);
    if (end == std::string_view::npos) {
      if (text_.empty()) text_ += '\n';
      return std::nullopt;
    }
    if (text_.ends_with('\n')) text_.pop_back();
    return finish();
  }
  is_open_ = line.ends_with('\\');
  if (is_open_) line.remove_suffix(1);
  text_ += line;
  if (!is_open_) return finish();
  text_ += '\n';
  return std::nullopt;
}

std::optional<std::string> MessageLines::end() {
  if (!is_open() || text_.empty()) return std::nullopt;
  return finish();
}

void MessageLines::clear() { (void)finish(); }

Result<std::optional<CommandLine>> parse_command(std::string_view line) {
  if (line.size() < 2 || line[0] != '/' || line[1] < 'a' || line[1] > 'z') return std::optional<CommandLine>();
  const std::string_view name = line.substr(1, line.find_first_of(" \t") - 1);
  for (const auto& [known, command] : kCommands)
    if (name == known) return std::optional(CommandLine{command, std::string(trimmed(line.substr(1 + name.size())))});
  return Error{ErrorCode::invalid_argument,
               fmt::format("there is no command /{}; /help lists them, and // begins a text with a slash",
                           Printable(name).text())};
}

Result<std::string> set_setting(ChatSettings& settings, std::string_view assignment) {
  assignment = trimmed(assignment);
  if (assignment.empty()) return list_of(settings.sampling);
  const std::size_t split = assignment.find_first_of(" \t=");
  const std::string_view name = assignment.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? "" : trimmed(assignment.substr(split + 1));
  for (const Setting& each : kSettings) {
    if (each.name != name) continue;
    const auto value = config::parse_number(std::string(text));
    if (!value || *value < each.min || *value > each.max || (each.is_whole && std::floor(*value) != *value))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("/set {} takes {} from {:g} to {:g}", name,
                               each.is_whole ? "a whole number" : "a number", each.min, each.max)};
    each.set(settings.sampling, *value);
    return list_of(settings.sampling);
  }
  return Error{ErrorCode::invalid_argument, fmt::format("there is no setting '{}'; these are:\n{}",
                                                        Printable(name).text(), list_of(settings.sampling))};
}

std::string_view chat_help() {
  return "  /set NAME VALUE   temp, top-k, seed, predict, ...; without arguments: shows all\n"
         "  /system TEXT      what the model is told first; without TEXT: nothing\n"
         "  /regen            another answer instead of the last\n"
         "  /clear            begins a new conversation\n"
         "  /save FILE, /load FILE\n"
         "  /stats            tokens and times of the last answer\n"
         "  /quit             or Ctrl-D\n"
         "A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of several lines; // begins a "
         "text "
         "with a slash. Ctrl-C stops an answer.\n";
}

}  // namespace troupe::cli
