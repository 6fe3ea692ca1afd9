// Flags and subcommands of llama.cpp, vLLM and Ollama that troupe does not have: what to use instead.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "config/options/option.h"

namespace troupe::config {

struct AdviceRow {
  std::uint32_t commands;  // bits as in Option: the subcommands of troupe that give this advice
  std::string_view names;  // between spaces
  std::string_view advice;
};

// The tables that the two functions below look into, row by row: of several rows with a name the first of a subcommand
// counts. docs/coming_from.md has them, too, and a test compares.
[[nodiscard]] std::span<const AdviceRow> flags_of_others();
[[nodiscard]] std::span<const AdviceRow> subcommands_of_others();

// Advice on a flag that `command` does not have, without its value: the end of a sentence ("leave it out"), or empty.
[[nodiscard]] std::string_view advice_on_flag(Command command, std::string_view flag);

// The same for a word in a subcommand's place.
[[nodiscard]] std::string_view advice_on_subcommand(std::string_view name);

}  // namespace troupe::config
