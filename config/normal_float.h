// Numbers from outside as float32.
#pragma once

#include <cmath>
#include <limits>

namespace troupe::config {

// The nearest float32, but of a value that is not 0 at least the smallest normal one: threads that compute take smaller
// ones for 0, which means "off" in many places.
[[nodiscard]] inline float to_normal_float(double value) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  if (value != 0 && std::abs(value) < double{kLeast}) return value < 0 ? -kLeast : kLeast;
  return static_cast<float>(value);
}

}  // namespace troupe::config
