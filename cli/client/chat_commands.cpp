#include "cli/client/chat_commands.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <type_traits>

#include "config/normal_float.h"
#include "config/options/values.h"
#include "config/printable.h"
#include "config/sampling/sampling_numbers.h"

namespace troupe::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

constexpr std::array<std::pair<std::string_view, ChatCommand>, 12> kCommands = {{
    {"set", ChatCommand::set},
    {"system", ChatCommand::system},
    {"save", ChatCommand::save},
    {"load", ChatCommand::load},
    {"clear", ChatCommand::clear},
    {"regen", ChatCommand::regenerate},
    {"undo", ChatCommand::undo},
    {"session", ChatCommand::session},
    {"stats", ChatCommand::stats},
    {"help", ChatCommand::help},
    {"quit", ChatCommand::quit},
    {"exit", ChatCommand::quit},
}};

// -1 unsets them.
constexpr config::SamplingNumber kSeed{"seed", "seed", -1, 9007199254740992.0, false, "from 0 to 2^53, or -1 (any)"};
constexpr config::SamplingNumber kPredict{"max_tokens", "predict", -1, 1 << 24, false, "of tokens, or -1 (no limit)"};
constexpr config::SamplingNumber kReasoningBudget{"reasoning_budget",           "reasoning-budget", -1, 1 << 24, false,
                                                  "of tokens, or -1 (no limit)"};

// Calls f(number, member) for each setting.
template <class Settings, class F>
void for_each_setting(Settings& settings, const F& f) {
  config::for_each_sampling_number(f, settings.sampling);
  f(kSeed, settings.sampling.seed);
  f(kPredict, settings.sampling.max_tokens);
  f(kReasoningBudget, settings.reasoning_budget);
}

std::string list_of(ChatSettings settings) {
  config::for_each_sampling_number(
      [](const config::SamplingNumber&, auto& value, const auto& preset) {
        if (!value) value = preset;
      },
      settings.sampling, settings.presets);
  std::string text;
  for_each_setting(settings, [&](const config::SamplingNumber& number, const auto& value) {
    text += value ? fmt::format("  {:<18} {:g}\n", number.option, static_cast<double>(*value))
                  : fmt::format("  {:<18} (unset)\n", number.option);
  });
  return text;
}

// Sets the member, or says what it takes.
template <class Value>
Status set_member(const config::SamplingNumber& number, std::string_view text, std::optional<Value>& member) {
  constexpr bool kIsWhole = std::is_integral_v<Value>;
  const auto value = config::parse_number(std::string(text));
  if (!value || !config::is_in_range(number, *value) || (kIsWhole && std::floor(*value) != *value))
    return Error{ErrorCode::invalid_argument, fmt::format("/set {} takes {}: {}", number.option,
                                                          kIsWhole ? "a whole number" : "a number", number.range)};
  if (std::is_unsigned_v<Value> && *value < 0) {
    member.reset();
    return Ok{};
  }
  if constexpr (kIsWhole)
    member = static_cast<Value>(*value);
  else
    member = config::to_normal_float(*value);
  return Ok{};
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
  if (assignment.empty()) return list_of(settings);
  const std::size_t split = assignment.find_first_of(" \t=");
  const std::string_view name = assignment.substr(0, split);
  const std::string_view text = split == std::string_view::npos ? "" : trimmed(assignment.substr(split + 1));
  std::optional<Status> done;
  for_each_setting(settings, [&](const config::SamplingNumber& number, auto& member) {
    if (number.option == name || number.name == name) done = set_member(number, text, member);
  });
  if (!done)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there is no setting '{}'; these are:\n{}", Printable(name).text(), list_of(settings))};
  if (!*done) return done->error();
  return list_of(settings);
}

std::string_view chat_help() {
  return "  /set NAME VALUE   temp, top-k, seed, predict, ...; without arguments: shows all\n"
         "  /system TEXT      what the model is told first; without TEXT: nothing\n"
         "  /regen            another answer instead of the last\n"
         "  /undo             takes back what was said last, and its answer\n"
         "  /clear            begins a new conversation\n"
         "  /save FILE, /load FILE\n"
         "  /session NAME     continues the conversation of this name, or keeps this one as it; without NAME: shows "
         "it\n"
         "  /stats            tokens and times of the last answer\n"
         "  /quit             or Ctrl-D\n"
         "A line that ends with \\ goes on in the next; \"\"\" begins and ends a text of several lines, as "
         "a paste is one; // begins a text with a slash. Ctrl-C stops an answer.\n";
}

}  // namespace troupe::cli
