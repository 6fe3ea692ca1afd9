#include "engine/layers/pooling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "config/assert.h"

namespace troupe::engine {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"mean", "cls", "last"};

}  // namespace

std::string_view name(Pooling pooling) { return kNames[static_cast<std::size_t>(pooling)]; }

void pool_rows(const float* hidden, std::size_t num_rows, std::size_t dim, const PoolingOptions& options, float* out) {
  TROUPE_ASSERT(num_rows >= 1);
  const float* const row = options.pooling == Pooling::last ? hidden + (num_rows - 1) * dim : hidden;
  std::copy(row, row + dim, out);
  if (options.pooling == Pooling::mean) {
    for (std::size_t r = 1; r < num_rows; ++r)
      for (std::size_t i = 0; i < dim; ++i) out[i] += hidden[r * dim + i];
    const float share = 1.0f / static_cast<float>(num_rows);
    for (std::size_t i = 0; i < dim; ++i) out[i] *= share;
  }
  if (!options.normalise) return;
  double squares = 0;
  for (std::size_t i = 0; i < dim; ++i) squares += static_cast<double>(out[i]) * static_cast<double>(out[i]);
  if (squares == 0) return;
  const auto scale = static_cast<float>(1.0 / std::sqrt(squares));
  for (std::size_t i = 0; i < dim; ++i) out[i] *= scale;
}

}  // namespace troupe::engine
