#include "engine/layers/recurrent/token_shift.h"

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

ShiftedRows::ShiftedRows(RecurrentPass& pass, const HalfLayer& half, const LayerNormWeights& norm)
    : pass_(pass), half_(half) {
  const std::size_t dim = half.shape.dim;
  const RecurrentRows rows = pass.rows();
  rows_ = pass.take(Slot::normed, dim).data();
  before_ = pass.workspace().take<const float*>(Slot::shifted, rows.num_rows);
  for (std::size_t sequence = 0; sequence < rows.places.size(); ++sequence) {
    const SequencePlace& place = rows.places[sequence];
    for (std::uint32_t i = 0; i < place.num_rows; ++i)
      before_[place.first_row + i] =
          i == 0 ? last_row(rows.batch[sequence].state) : rows_ + (place.first_row + i - 1) * dim;
  }
  pass.for_residuals([&](std::size_t row, const float* x) {
    half.kernels.recurrent->layer_norm(x, norm.weight.data(), norm.bias.data(), rows_ + row * dim, dim,
                                       half.shape.epsilon);
  });
}

// Where a sequence's state has the last row of this half of the layer.
float* ShiftedRows::last_row(float* state) const {
  float* exact = half_.states.exact(state, half_.layer);
  return half_.half == Shift::time_mix ? exact : exact + half_.shape.dim;
}

void ShiftedRows::keep_last() {
  const RecurrentRows rows = pass_.rows();
  for (std::size_t sequence = 0; sequence < rows.places.size(); ++sequence) {
    const SequencePlace& place = rows.places[sequence];
    const SequenceRows& of = rows.batch[sequence];
    std::memcpy(last_row(of.state), row(place.first_row + place.num_rows - 1), half_.shape.dim * sizeof(float));
    if (of.kept_state)
      std::memcpy(last_row(of.kept_state), row(place.first_row + of.kept_after - 1), half_.shape.dim * sizeof(float));
  }
}

void ShiftedRows::mix_row(std::size_t i, const std::vector<float>& mix, float* out) const {
  half_.kernels.recurrent->mix(row(i), before(i), mix.data(), out, half_.shape.dim);
}

void ShiftedRows::multiply(const std::vector<float>& mix, std::initializer_list<Product> products) const {
  pass_.multiply_made([&](std::size_t i, float* out) { mix_row(i, mix, out); }, products);
}

void ShiftedRows::mix(const std::vector<float>& mix, float* out) const {
  pass_.for_each_row([&](std::size_t i) { mix_row(i, mix, out + i * half_.shape.dim); });
}

}  // namespace troupe::engine
