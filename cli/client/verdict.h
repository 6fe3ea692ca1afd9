// What a receipt that is proved shows, and what it does not, in words (docs/verification.md).
#pragma once

#include <string>
#include <string_view>

#include "actors/requests/proof.h"

namespace troupe::cli {

// What the answer was computed from: "the model 92f12d9bef3d2293, a prompt of 5 tokens, temperature 0.8, seed 7,
// logit_bias of 2 ids (300: -inf, 337: 3)". Neutral parameters and those that had no part in it are left out.
[[nodiscard]] std::string proved_for(const actors::Proof& proof);

// What the receipt says, and would be proved with another value, too: "the name \"x\" (here this model is \"tales\"),
// seed and choice (at temperature 0 nothing is drawn)". name: of the model with its hash, here. Empty: nothing.
[[nodiscard]] std::string not_proved(const actors::Proof& proof, std::string_view name);

}  // namespace troupe::cli
