#include "engine/layers/token_shift.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {

using Slot = Workspace::Slot;

RwkvShape read_rwkv_shape(Metadata& meta, const ModelInfo& info) {
  RwkvShape shape{.dim = info.dim};
  meta.refuse_unless("token_shift_count", {2}, "each half of a layer has one shift");
  shape.head_size = meta.count("wkv.head_size", kernels::kMaxWkvHead);
  shape.epsilon = static_cast<float>(meta.positive("attention.layer_norm_epsilon"));
  if (meta.failed()) return shape;
  if (shape.head_size % kernels::kStateLanes != 0 || shape.dim % shape.head_size != 0)
    meta.fail(
        ErrorCode::unsupported,
        fmt::format("heads of {} in {} dimensions: only heads of a multiple of 16 that divides them are supported",
                    shape.head_size, shape.dim));
  return shape;
}

StateLayout rwkv_state_layout(const RwkvShape& shape, std::uint32_t num_layers) {
  return {.exact_per_layer = 2 * std::uint64_t{shape.dim},
          .large_per_layer = std::uint64_t{shape.dim} * shape.head_size,
          .num_layers = num_layers};
}

ShiftedRows::ShiftedRows(RecurrentPass& pass, const kernels::KernelTable& kernels, const RwkvShape& shape,
                         const LayerNormWeights& norm, const StateLayout& states, std::uint32_t layer, Shift half)
    : pass_(pass), kernels_(kernels), shape_(shape), states_(states), layer_(layer), half_(half) {
  const std::size_t dim = shape.dim;
  rows_ = pass.take(Slot::normed, dim).data();
  before_ = pass.take_of<const float*>(Slot::shifted);
  const RecurrentRows rows = pass.rows();
  for (std::size_t sequence = 0; sequence < rows.places.size(); ++sequence) {
    const SequencePlace& place = rows.places[sequence];
    for (std::uint32_t i = 0; i < place.num_rows; ++i)
      before_[place.first_row + i] = i == 0 ? kept(sequence) : rows_ + (place.first_row + i - 1) * dim;
  }
  pass.for_residuals([&](std::size_t row, const float* x) {
    kernels.recurrent->layer_norm(x, norm.weight.data(), norm.bias.data(), rows_ + row * dim, dim, shape_.epsilon);
  });
}

float* ShiftedRows::kept(std::size_t sequence) const {
  float* state = states_.exact(pass_.rows().batch[sequence].state, layer_);
  return half_ == Shift::time_mix ? state : state + shape_.dim;
}

void ShiftedRows::keep_last() {
  const RecurrentRows rows = pass_.rows();
  for (std::size_t sequence = 0; sequence < rows.places.size(); ++sequence) {
    const SequencePlace& place = rows.places[sequence];
    std::memcpy(kept(sequence), row(place.first_row + place.num_rows - 1), shape_.dim * sizeof(float));
  }
}

void ShiftedRows::multiply(const std::vector<float>& mix, std::initializer_list<Product> products) const {
  pass_.multiply_made(
      [&](std::size_t i, float* out) { kernels_.recurrent->mix(row(i), before(i), mix.data(), out, shape_.dim); },
      products);
}

void ShiftedRows::mix(const std::vector<float>& mix, float* out) const {
  pass_.for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
    for (std::size_t i = first; i < first + count; ++i)
      kernels_.recurrent->mix(row(i), before(i), mix.data(), out + i * shape_.dim, shape_.dim);
  });
}

}  // namespace troupe::engine
