// What users of llama.cpp, vLLM and Ollama type and troupe does not have: what to do here instead.
#pragma once

#include <string_view>

#include "config/option.h"

namespace troupe::config {

// Of a flag that `command` does not have, without its value: the end of a sentence ("leave it out"); empty: nothing
// to say.
[[nodiscard]] std::string_view advice_on_flag(Command command, std::string_view flag);

// The same of a word in a subcommand's place.
[[nodiscard]] std::string_view advice_on_subcommand(std::string_view name);

}  // namespace troupe::config
