// JSON values as the constraints write them.
#pragma once

#include <string>

#include "engine/chat/values/json.h"

namespace troupe::engine::constraints {

// The compact text of a value: strings as written() has them in JSON, numbers as JavaScript prints them: integers in
// digits, other numbers in their shortest form, with an exponent from 1e+21 on and below 1e-6 only. A value has one
// text. Doubles must be finite (asserted). Any depth; O(text).
[[nodiscard]] std::string value_text(const chat::Json& value);

}  // namespace troupe::engine::constraints
