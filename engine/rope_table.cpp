#include "engine/rope_table.h"

#include <cmath>

#include "config/assert.h"

namespace troupe::engine {

RopeTable::RopeTable(const RopeParams& params, std::uint32_t num_positions)
    : rotated_(params.rotated), values_(std::size_t{num_positions} * params.rotated) {
  const std::uint32_t num_pairs = rotated_ / 2;
  TROUPE_ASSERT(rotated_ % 2 == 0);
  TROUPE_ASSERT(params.factors.empty() || params.factors.size() == num_pairs);
  std::vector<double> frequencies(num_pairs);
  for (std::uint32_t i = 0; i < num_pairs; ++i) {
    frequencies[i] = params.position_scale * std::pow(params.base, -2.0 * i / rotated_);
    if (!params.factors.empty()) frequencies[i] /= static_cast<double>(params.factors[i]);
  }
  for (std::uint32_t position = 0; position < num_positions; ++position) {
    float* row = values_.data() + std::size_t{position} * rotated_;
    for (std::uint32_t i = 0; i < num_pairs; ++i) {
      row[i] = static_cast<float>(std::cos(position * frequencies[i]));
      row[num_pairs + i] = static_cast<float>(std::sin(position * frequencies[i]));
    }
  }
}

}  // namespace troupe::engine
