// Checks that the weights of a file are finite: a single one that is not would spoil every answer, without an error.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/formats/weight_type.h"

namespace troupe::engine {

// Whether all weights of these whole groups are finite as float32. Checks floats and the scales of groups; codes are
// always finite. Reads `groups` once; O(bytes).
[[nodiscard]] bool all_finite(kernels::WeightType type, std::span<const std::byte> groups);

}  // namespace troupe::engine
