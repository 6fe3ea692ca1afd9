#include "cli/client/first_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "config/sampling/sampling_numbers.h"

namespace troupe::cli {
namespace {

constexpr std::array<std::string_view, 18> kFamilies{"llama",  "tinyllama", "codellama", "mistral", "mixtral", "qwen",
                                                     "gemma",  "phi",       "deepseek",  "falcon",  "mamba",   "rwkv",
                                                     "smollm", "olmo",      "bitnet",    "gpt",     "vicuna",  "yi"};

// Words that only the protocol has, beside the numbers of sampling; "seed" or "stop" could be any text's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kFlags{
    {{"deadline_ms", "--timeout"},
     {"max_tokens", "-n"},
     {"logit_bias", "--logit-bias"},
     {"stop_ids", "--stop-id"},
     {"cache_scope", "--scope"},
     {"reasoning_budget", "--reasoning-budget"},
     {"session_recompute", "--recompute"}}};

// The flag in place of the word, if it is a field.
std::string flag_for(std::string_view word) {
  std::string flag(word);
  config::for_each_sampling_number([&](const config::SamplingNumber& number) {
    if (word == number.name) flag = "--" + std::string(number.option);
  });
  const auto found = std::ranges::find(kFlags, word, &std::pair<std::string_view, std::string_view>::first);
  return found == kFlags.end() ? flag : std::string(found->second);
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '_'; }

}  // namespace

bool looks_like_model(std::string_view word, std::span<const std::string> served) {
  if (std::ranges::find(served, word) != served.end() || word.ends_with(".gguf")) return true;
  std::string name(word);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.find(' ') != std::string::npos) return false;
  return std::ranges::any_of(kFamilies, [&](std::string_view family) {
    if (!name.starts_with(family) || name.size() == family.size() || is_letter(name[family.size()])) return false;
    return std::ranges::any_of(name.substr(family.size()), is_digit);
  });
}

std::string with_flags(std::string_view message) {
  std::string out;
  while (!message.empty()) {
    const auto begin = std::ranges::find_if(message, is_word);
    const auto end = std::find_if_not(begin, message.end(), is_word);
    out.append(message.begin(), begin);
    const std::string_view word(begin, end);
    out += flag_for(word);
    message.remove_prefix(static_cast<std::size_t>(end - message.begin()));
  }
  return out;
}

}  // namespace troupe::cli
