#include "engine/layers/rope_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/assert.h"

namespace troupe::engine {
namespace {

// The index of the pair, as a fraction, with this many full rotations within the original context.
double pair_with(double rotations, const RopeParams& params) {
  return params.rotated * std::log(params.yarn->original_context / (rotations * 2 * M_PI)) /
         (2 * std::log(params.base));
}

}  // namespace

std::vector<double> rope_frequencies(const RopeParams& params) {
  const std::uint32_t num_pairs = params.rotated / 2;
  TROUPE_ASSERT(params.rotated % 2 == 0);
  TROUPE_ASSERT(params.factors.empty() || params.factors.size() == num_pairs);
  double low = 0, high = 0;
  if (params.yarn) {
    low = pair_with(params.yarn->beta_fast, params);
    high = pair_with(params.yarn->beta_slow, params);
    if (!params.yarn->is_exact) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(0.0, low);
    high = std::min(params.rotated - 1.0, high);
  }
  std::vector<double> frequencies(num_pairs);
  for (std::uint32_t i = 0; i < num_pairs; ++i) {
    frequencies[i] = std::pow(params.base, -2.0 * i / params.rotated);
    if (!params.factors.empty()) frequencies[i] /= static_cast<double>(params.factors[i]);
    double kept = 0;  // share of the unscaled position in the angle
    if (params.yarn) kept = params.yarn->share * (1.0 - std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0));
    frequencies[i] *= params.position_scale * (1.0 - kept) + kept;
  }
  return frequencies;
}

Status check_rope_memory(const ModelFile& file, const LoadOptions& options, std::uint32_t context,
                         std::uint64_t bytes) {
  if (options.memory == 0 || bytes <= options.memory) return Ok{};
  return Error{ErrorCode::out_of_memory,
               fmt::format("{}: rotations for {} tokens take {} MiB, and the memory budget leaves {} MiB; use a "
                           "smaller -c or a larger --memory",
                           file.path(), context, bytes >> 20, options.memory >> 20)};
}

RopeTable::RopeTable(const RopeParams& params, std::uint32_t num_positions, double step)
    : rotated_(params.rotated), values_(std::size_t{num_positions} * params.rotated) {
  const std::uint32_t num_pairs = rotated_ / 2;
  const std::vector<double> frequencies = rope_frequencies(params);
  for (std::uint32_t position = 0; position < num_positions; ++position) {
    float* row = values_.data() + std::size_t{position} * rotated_;
    for (std::uint32_t i = 0; i < num_pairs; ++i) {
      const double angle = position * step * frequencies[i];
      row[i] = static_cast<float>(params.magnitude * std::cos(angle));
      row[num_pairs + i] = static_cast<float>(params.magnitude * std::sin(angle));
    }
  }
}

}  // namespace troupe::engine
