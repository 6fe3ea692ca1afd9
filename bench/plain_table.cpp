// Compiled, like the scalar kernels that it names, with `scalar` in identifiers replaced by `plain` (CMakeLists.txt).
#include "bench/plain_table.h"

#include "kernels/variants.h"

namespace troupe::kernels {
namespace {

template <PrepareRow* prepare_row>
void row_by_row(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                std::byte* prepared) {
  for (std::size_t r = 0; r < num_rows; ++r) prepare_row(x + r * stride, k, first_row + r, prepared);
}

Matmul* plain_matmul(WeightType type, Layout) { return scalar::matmul(type); }

KernelTable make() {
  KernelTable table = *find_table("scalar");
  table.name = "plain";
  table.prepare[static_cast<std::size_t>(Activation::f32)] = row_by_row<scalar::prepare_f32>;
  table.prepare[static_cast<std::size_t>(Activation::i8_group32)] = row_by_row<scalar::prepare_i8_group32>;
  table.prepare[static_cast<std::size_t>(Activation::i8_group256)] = row_by_row<scalar::prepare_i8_group256>;
  table.matmul = plain_matmul;
  table.rms_norm = scalar::rms_norm;
  table.rope = scalar::rope;
  table.silu_mul = scalar::silu_mul;
  table.gelu_mul = scalar::gelu_mul;
  table.relu2_mul = scalar::relu2_mul;
  table.soft_cap = scalar::soft_cap;
  table.add = scalar::add;
  table.store_kv = scalar::store_kv;
  table.attend_split = scalar::attend_split;
  table.score_offsets = scalar::score_offsets;
  table.merge_partial = scalar::merge_partial;
  table.finish_attention = scalar::finish_attention;
  table.arg_max = scalar::arg_max;
  table.exp_tile = scalar::exp_tile;
  table.clamp = scalar::clamp;
  table.collect = scalar::collect;
  table.sums_above = scalar::sums_above;
  return table;
}

}  // namespace

const KernelTable& plain_table() {
  static const KernelTable table = make();
  return table;
}

}  // namespace troupe::kernels
