#include "actors/models/model_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/normal_float.h"
#include "engine/chat/values/json.h"

namespace troupe::actors {
namespace {

constexpr std::string_view kPrefix = "general.sampling.";

// Which are said to be left out where they ask for something.
constexpr std::string_view kNotServed[] = {"mirostat", "xtc_probability"};

// Nothing: it is no number.
std::optional<double> number_of(const engine::MetadataValue& value) {
  if (const auto* const whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* const number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

std::optional<double> number_in(const engine::ModelFile& file, std::string_view key, std::vector<std::string>& notes) {
  const std::string name = fmt::format("{}{}", kPrefix, key);
  const engine::MetadataValue* const found = file.find(name);
  if (found == nullptr) return std::nullopt;
  const auto number = number_of(*found);
  if (!number) notes.push_back(fmt::format("{} is no number, and is not taken", name));
  return number;
}

// Nothing: it is said in the notes.
template <class Value>
std::optional<Value> taken(const config::SamplingNumber& number, double value, std::vector<std::string>& notes) {
  const bool is_whole = std::is_floating_point_v<Value> || std::floor(value) == value;
  if (config::is_in_range(number, value) && is_whole) return static_cast<Value>(value);
  notes.push_back(
      fmt::format("{}{} is {:g}, and is not taken: it must be {}", kPrefix, number.file_key, value, number.range));
  return std::nullopt;
}

// Whether the conversation says how much the model reasons.
bool says_reasoning(const std::string& variables) {
  constexpr std::string_view kNames[] = {"enable_thinking", "thinking", "reasoning_effort"};
  const auto occurs = [&](std::string_view name) { return variables.find(name) != std::string::npos; };
  if (std::ranges::none_of(kNames, occurs)) return false;  // most: need not be parsed
  const auto parsed = engine::chat::parse_json(variables);
  return parsed && std::ranges::any_of(kNames, [&](std::string_view name) { return parsed->find(name) != nullptr; });
}

}  // namespace

config::ModelDefaults defaults_of(const engine::ModelFile& file, std::vector<std::string>& notes) {
  config::ModelDefaults defaults;
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& to) {
        using Value = typename std::remove_reference_t<decltype(to)>::value_type;
        if (number.file_key.empty()) return;
        if (const auto value = number_in(file, number.file_key, notes)) to = taken<Value>(number, *value, notes);
      },
      defaults);
  for (const std::string_view key : kNotServed)
    if (const auto value = number_in(file, key, notes); value && *value != 0)
      notes.push_back(fmt::format("{}{} is {:g}; tokens are not drawn in that way here", kPrefix, key, *value));
  return defaults;
}

void take_numbers(const config::ModelDefaults& defaults, Request& request) {
  config::for_each_sampling_number(
      [&](const config::SamplingNumber& number, auto& value, const auto& own) {
        if (!own || request.given_numbers.has(number)) return;
        if constexpr (std::is_floating_point_v<std::remove_reference_t<decltype(value)>>)
          value = config::to_normal_float(*own);
        else
          value = static_cast<std::int32_t>(*own);
      },
      request.sampling, defaults);
  if (defaults.reasoning_budget && !request.sampling.reasoning_budget)
    request.sampling.reasoning_budget =
        engine::ReasoningBudget{.num_tokens = static_cast<std::uint32_t>(*defaults.reasoning_budget)};
}

void take_conversation(const config::ModelDefaults& defaults, bool goes_on, ChatPrompt& chat) {
  if (chat.as_it_is) return;
  // Others are refused where the conversation is rendered.
  constexpr std::string_view kBlanks = " \t\r\n";
  const bool is_object =
      chat.variables.empty() || chat.variables.find_first_not_of(kBlanks) == chat.variables.find('{');
  if (!defaults.reasoning.empty() && is_object && !says_reasoning(chat.variables)) {
    const bool reasons = defaults.reasoning != "none";
    // Templates have two names for it.
    std::string members = fmt::format(R"("enable_thinking":{0},"thinking":{0})", reasons);
    if (reasons) members += fmt::format(R"(,"reasoning_effort":"{}")", defaults.reasoning);
    // Before those that there are; an object without any becomes one with these.
    const std::size_t open = chat.variables.find('{');
    const std::size_t next = chat.variables.find_first_not_of(kBlanks, open + 1);
    const bool has_none = open == std::string::npos || (next != std::string::npos && chat.variables[next] == '}');
    const std::size_t before = chat.variables.size();
    chat.variables = open == std::string::npos
                         ? fmt::format("{{{}}}", members)
                         : fmt::format("{{{}{}{}", members, has_none ? "" : ",", chat.variables.substr(open + 1));
    chat.added.variable_bytes += chat.variables.size() - std::min(before, chat.variables.size());
  }
  const auto is_system = [](const ChatMessage& each) { return each.role == "system" || each.role == "developer"; };
  if (goes_on || defaults.system.empty() || std::ranges::any_of(chat.messages, is_system)) return;
  const ChatMessage& first =
      *chat.messages.insert(chat.messages.begin(), ChatMessage{.role = "system", .content = defaults.system});
  ++chat.added.messages;
  chat.added.message_bytes += first.role.size() + first.content.size();
}

}  // namespace troupe::actors
