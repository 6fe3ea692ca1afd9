// Whether the weights of a file are numbers: one that is not would make every answer nonsense, hours after the load.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/formats/weight_type.h"

namespace troupe::engine {

// Whether all weights of these whole groups are finite as float32. Looks at floats and at the scales of groups, not at
// codes, which are finite times them. Reads `groups` once; O(bytes).
[[nodiscard]] bool all_finite(kernels::WeightType type, std::span<const std::byte> groups);

}  // namespace troupe::engine
