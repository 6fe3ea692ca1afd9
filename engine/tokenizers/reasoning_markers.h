// Which markers a model writes around its reasoning.
#pragma once

#include <string_view>

#include "engine/sampling/reasoning_markers.h"

namespace troupe::engine {

class Tokenizer;

// The first pair known that the chat template writes or looks for, else the first whose tokens the vocabulary has, else
// <think>, which models also write whose template says nothing of it. template_source: empty if there is none.
// tokenizer: null for a model without a vocabulary. A pair whose end also ends an answer is not taken.
[[nodiscard]] ReasoningMarkers find_reasoning_markers(std::string_view template_source, const Tokenizer* tokenizer);

// Whether a text begins reasoning, by any pair that is known, and does not end it.
[[nodiscard]] bool is_within_reasoning(std::string_view text);
// Whether a text has nothing but white space behind the end of reasoning, of any pair that is known.
[[nodiscard]] bool ends_with_reasoning(std::string_view text);

}  // namespace troupe::engine
