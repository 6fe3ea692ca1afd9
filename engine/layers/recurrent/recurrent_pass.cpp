#include "engine/layers/recurrent/recurrent_pass.h"

#include <algorithm>

#include "config/assert.h"
#include "kernels/formats/half.h"

namespace troupe::engine {

void round_state(float* state, std::size_t count) {
  constexpr float kMaxHalf = 65504.0f;
  for (std::size_t i = 0; i < count; ++i)
    state[i] = kernels::float_of_half(kernels::half_of_float(std::clamp(state[i], -kMaxHalf, kMaxHalf)));
}

std::uint32_t round_every(const CacheSpec& cache) {
  return cache.state_type == StateType::f16 ? cache.snapshot_every : 0;
}

RecurrentPass::RecurrentPass(const ModelWeights& weights, Team& team, std::span<const SequenceRows> batch,
                             Workspace& workspace)
    : LayerPass(weights, team, batch, workspace), round_every_(engine::round_every(weights.cache)) {
  for (const SequenceRows& rows : batch) TROUPE_ASSERT(rows.state != nullptr);
}

void RecurrentPass::reset_input(std::initializer_list<Product> products) {
  const PackedMatrix* consumers[8] = {};
  TROUPE_ASSERT(products.size() <= 8);
  std::size_t count = 0;
  for (const Product& product : products) consumers[count++] = product.matrix;
  input_.reset(num_rows_, std::span<const PackedMatrix* const>(consumers, count));
}

void RecurrentPass::multiply(const float* x, std::size_t stride, std::initializer_list<Product> products) {
  reset_input(products);
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t rows, std::uint32_t) {
    input_.set_rows(first, rows, x + first * stride, stride);
  });
  input_.multiply(products);
}

void RecurrentPass::multiply_mapped(kernels::Function function, const float* x, std::size_t stride,
                                    std::initializer_list<Product> products) {
  const std::size_t k = products.begin()->matrix->k();
  multiply_made([&](std::size_t row, float* out) { kernels_.recurrent->map(function, x + row * stride, out, k); },
                products);
}

void RecurrentPass::map(kernels::Function function, float* x, std::size_t width) {
  for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    kernels_.recurrent->map(function, x + first * width, x + first * width, count * width);
  });
}

void RecurrentPass::add_projection(const PackedMatrix& matrix, const float* x, std::size_t stride) {
  multiply(x, stride, {{&matrix, delta_.data(), dim_}});
  delta_pending_ = true;
}

CacheSpec state_cache_spec(const StateLayout& layout, const LoadOptions& options) {
  CacheSpec spec;
  spec.kv_type = options.kv_type;
  spec.state_type = options.state_type;
  spec.snapshot_every = options.snapshot_every;
  spec.groups.resize(1);  // its blocks only count positions
  spec.state = layout.shape();
  return spec;
}

}  // namespace troupe::engine
