// What must hold of a request whatever the model: the size of its prompt, its counts, the form of its parts. The one
// place of these rules: ipc asks when a request has been read, and the gateway of every request that it gets.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "actors/requests/request.h"
#include "scheduler/outcome.h"

namespace troupe::actors {

// The refusal of a request that can be served by no model. Its field is named as in the frames' protocol. How many
// stop strings, stop ids and biased tokens there are is bounded where they are read. O(ids of the prompt).
//   max_prompt_bytes  of the prompt, of all inputs of an Embed, or of the proposal; an id counts 4
[[nodiscard]] std::optional<scheduler::Refusal> check_shape(const Request& request,
                                                            std::uint64_t max_prompt_bytes = kMaxPromptBytes);

// The part of it that is the prompt's size. bytes: those of the request's prompt, and of what else comes with it.
[[nodiscard]] std::optional<scheduler::Refusal> check_input_bytes(const Request& request, std::uint64_t bytes,
                                                                  std::uint64_t max_prompt_bytes);

// The same of a text that is to be tokenized.
[[nodiscard]] std::optional<scheduler::Refusal> check_text(std::string_view text,
                                                           std::uint64_t max_prompt_bytes = kMaxPromptBytes);

}  // namespace troupe::actors
