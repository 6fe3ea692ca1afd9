// Flags and subcommands of llama.cpp, vLLM and Ollama that troupe does not have: what to use instead.
#pragma once

#include <string_view>

#include "config/options/option.h"

namespace troupe::config {

// Advice on a flag that `command` does not have, without its value: the end of a sentence ("leave it out"), or empty.
[[nodiscard]] std::string_view advice_on_flag(Command command, std::string_view flag);

// The same for a word in a subcommand's place.
[[nodiscard]] std::string_view advice_on_subcommand(std::string_view name);

}  // namespace troupe::config
