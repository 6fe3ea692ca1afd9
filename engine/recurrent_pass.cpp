#include "engine/recurrent_pass.h"

#include <cstring>

#include "config/assert.h"
#include "kernels/half.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

}  // namespace

void round_state(float* state, std::size_t count) {
  constexpr float kMaxHalf = 65504.0f;
  for (std::size_t i = 0; i < count; ++i)
    state[i] = kernels::float_of_half(kernels::half_of_float(std::clamp(state[i], -kMaxHalf, kMaxHalf)));
}

RecurrentPass::RecurrentPass(const ModelWeights& weights, Team& team, std::span<const SequenceRows> batch,
                             Workspace& workspace)
    : weights_(weights),
      kernels_(*weights.kernels),
      dim_(weights.info.dim),
      team_(team),
      workspace_(workspace),
      input_(kernels_, team, workspace) {
  const OperationScope scope(team, Operation::prepare);
  places_ = workspace.take<SequencePlace>(Slot::sequences, batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const SequenceRows& rows = batch[i];
    const auto count = static_cast<std::uint32_t>(rows.tokens.size());
    TROUPE_ASSERT(count >= 1 && rows.num_outputs <= count && rows.first_position + count <= weights.info.context);
    TROUPE_ASSERT(rows.state != nullptr);
    places_[i] = {.first_row = static_cast<std::uint32_t>(rows_.num_rows),
                  .num_rows = count,
                  .first_position = rows.first_position,
                  .num_outputs = rows.num_outputs};
    rows_.num_rows += count;
  }
  rows_.places = places_;
  rows_.batch = batch;
  rows_.round_every = weights.cache.state_type == StateType::f16 ? weights.cache.snapshot_every : 0;
  residual_ = take(Slot::residual, dim_);
  delta_ = take(Slot::delta, dim_);
}

void RecurrentPass::embed() {
  const OperationScope scope(team_, Operation::embed);
  std::span<TokenId> tokens = workspace_.take<TokenId>(Slot::tokens, rows_.num_rows);
  for (std::size_t i = 0; i < places_.size(); ++i)
    std::copy(rows_.batch[i].tokens.begin(), rows_.batch[i].tokens.end(), tokens.begin() + places_[i].first_row);
  for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    for (std::size_t row = first; row < first + count; ++row) {
      TROUPE_ASSERT(tokens[row] >= 0 && static_cast<std::uint32_t>(tokens[row]) < weights_.info.vocab_size);
      kernels::unpack_row(weights_.embedding.view(), static_cast<std::size_t>(tokens[row]),
                          residual_.data() + row * dim_);
    }
  });
}

void RecurrentPass::reset_input(std::initializer_list<Product> products) {
  const PackedMatrix* consumers[8] = {};
  TROUPE_ASSERT(products.size() <= 8);
  std::size_t count = 0;
  for (const Product& product : products) consumers[count++] = product.matrix;
  input_.reset(rows_.num_rows, std::span<const PackedMatrix* const>(consumers, count));
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

bool RecurrentPass::keep_only_outputs(std::initializer_list<Kept> buffers) {
  TROUPE_ASSERT(!delta_pending_);
  std::size_t kept = 0;
  for (SequencePlace& place : places_) {
    const std::uint32_t skipped = place.num_rows - place.num_outputs;
    for (std::uint32_t i = 0; i < place.num_outputs; ++i) {
      const std::size_t from = place.first_row + skipped + i, to = kept + i;
      if (from == to) continue;
      std::memcpy(residual_.data() + to * dim_, residual_.data() + from * dim_, dim_ * sizeof(float));
      for (const Kept& rows : buffers)
        std::memcpy(rows.x + to * rows.stride, rows.x + from * rows.stride, rows.width * sizeof(float));
    }
    place.first_row = static_cast<std::uint32_t>(kept);
    place.first_position += skipped;
    place.num_rows = place.num_outputs;
    kept += place.num_outputs;
  }
  rows_.num_rows = kept;
  return kept != 0;
}

CacheSpec state_cache_spec(const StateLayout& layout, const ModelOptions& options) {
  CacheSpec spec;
  spec.kv_type = options.kv_type;
  spec.state_type = options.state_type;
  spec.snapshot_every = options.snapshot_every;
  spec.groups = {{.kind = CacheGroup::Kind::full},
                 {.kind = CacheGroup::Kind::state, .num_layers = layout.num_layers, .state = layout.shape()}};
  return spec;
}

}  // namespace troupe::engine
