// The scalar variant's matrix products: the recipes of the integer variants in plain C++.
//
// A group of a panel is unpacked to signed bytes once per row tile; the sums over a group are exact integers, then
// added to a float32 chain per output: acc += sum * (d_weight * d_activation).
#include <algorithm>
#include <cstring>

#include "kernels/formats/weight_formats.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

using namespace layout;

constexpr std::size_t kRowTile = 8;

struct Acc {
  float lane[kPanelRows] = {};
};

const std::uint8_t* bytes(const std::byte* p) { return reinterpret_cast<const std::uint8_t*>(p); }

void dot(const std::int8_t* w, const std::int8_t* a, std::size_t count, std::int32_t (&sums)[kPanelRows]) {
  for (std::size_t quad = 0; quad < count / 4; ++quad)
    for (std::size_t n = 0; n < kPanelRows; ++n)
      for (std::size_t i = 0; i < 4; ++i) sums[n] += w[quad * kLine + 4 * n + i] * a[4 * quad + i];
}

// acc += sums * (d * da), for a run of `count` k that begins at `a`.
void add_run(const std::int8_t* w, const std::int8_t* a, std::size_t count, const float (&d)[kPanelRows], float da,
             Acc& acc) {
  std::int32_t sums[kPanelRows] = {};
  dot(w, a, count, sums);
  for (std::size_t n = 0; n < kPanelRows; ++n) acc.lane[n] += static_cast<float>(sums[n]) * (d[n] * da);
}

// The arguments of a Matmul.
struct Call {
  const MatrixView& matrix;
  const std::byte* prepared;
  std::size_t num_rows;
  float* out;
  std::size_t out_stride, panel_begin, panel_end;
};

// Calls per_group(panel, g, row pointers, num, accs) for ascending g, then writes the row tile's outputs.
template <class PerGroup>
void for_panels_and_tiles(const Call& call, std::size_t prepared_stride, std::size_t panel_bytes,
                          std::size_t num_groups, PerGroup&& per_group) {
  const MatrixView& matrix = call.matrix;
  for (std::size_t p = call.panel_begin; p < call.panel_end; ++p) {
    const std::byte* panel = matrix.body + p * panel_bytes;
    const std::size_t width = std::min(kPanelRows, matrix.rows - p * kPanelRows);
    for (std::size_t tile = 0; tile < call.num_rows; tile += kRowTile) {
      const std::size_t rows = std::min(kRowTile, call.num_rows - tile);
      const std::byte* a = call.prepared + tile * prepared_stride;
      Acc acc[kRowTile];
      for (std::size_t g = 0; g < num_groups; ++g) per_group(panel, g, a, rows, acc);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t n = 0; n < width; ++n)
          call.out[(tile + r) * call.out_stride + p * kPanelRows + n] = acc[r].lane[n] * matrix.scale;
    }
  }
}

// ---- Codes: unpack the lines of a run of 32 to the values of its codes, in quad order -----------------------------

int one_bit(const std::uint8_t* lines, std::size_t quad, std::size_t b) { return (lines[b] >> quad) & 1; }
int two_bits(const std::uint8_t* lines, std::size_t quad, std::size_t b) {
  return (lines[quad / 4 * kLine + b] >> (quad % 4 * 2)) & 3;
}
int nibble(const std::uint8_t* lines, std::size_t quad, std::size_t b) {
  return (lines[quad % 4 * kLine + b] >> (quad / 4 * 4)) & 15;
}

// Codes of 4 bits or more have nibbles as low bits, others two bits; the high bits are in the lines before.
template <class Packing>
void unpack_run(const std::uint8_t* lines, std::int8_t* w) {
  constexpr int bits = Packing::kBits, kLow = bits < 4 ? 2 : 4, kHigh = bits - kLow;
  for (std::size_t quad = 0; quad < 8; ++quad)
    for (std::size_t b = 0; b < kLine; ++b) {
      int code;
      if constexpr (bits == 8) {
        code = lines[quad * kLine + b];
      } else {
        const std::uint8_t* low = lines + kHigh * kLine;
        code = kLow == 2 ? two_bits(low, quad, b) : nibble(low, quad, b);
        if constexpr (kHigh == 1) code |= one_bit(lines, quad, b) << kLow;
        if constexpr (kHigh == 2) code |= two_bits(lines, quad, b) << kLow;
      }
      w[quad * kLine + b] = static_cast<std::int8_t>(Packing::Values::of(code));
    }
}

// ---- Products ------------------------------------------------------------------------------------------------------

// The activations' scale times the sum of their codes, of run `i` of group g.
template <std::size_t num_runs>
float scaled_sum(const std::byte* a, const Group32Row& row, std::size_t g, std::size_t i, float da) {
  if constexpr (num_runs == 1)
    return load<float>(a + row.scaled_sum + 4 * g);
  else
    return static_cast<float>(load<std::int32_t>(a + row.start16 + 4 * (2 * g + i))) * (da * kPerStart);
}

// acc += sum * (d * da) for every run, and for types with a min: acc += -min * (da * sum of a).
template <class Packing>
void multiply_codes(const Call& call) {
  using Scales = typename Packing::Scales;
  constexpr PanelUnit unit = Packing::kPanelUnit;
  constexpr std::size_t kRunK = Scales::kRunK, kRuns = 32 / kRunK, kUnitRuns = unit.k / 32;
  const std::size_t k = call.matrix.k;
  const Group32Row row = group32_row(k);
  const auto add_group = [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
    const std::byte* from = panel + g / kUnitRuns * unit_bytes(unit);
    float d[kRuns][kPanelRows], min[kRuns][kPanelRows];
    for (std::size_t i = 0; i < kRuns; ++i)
      for (std::size_t n = 0; n < kPanelRows; ++n) {
        const std::size_t half = g % kUnitRuns * 2 + i;
        const scales::HalfRun scale = Scales::get(scales::From{from, n, unit.k, false}, half);
        d[i][n] = scale.d;
        min[i][n] = scale.min;
      }
    std::int8_t w[8 * kLine];
    unpack_run<Packing>(bytes(from) + unit.header + g % kUnitRuns * run_bytes(unit), w);
    for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
      for (std::size_t i = 0; i < kRuns; ++i) {
        const auto da = load<float>(a + row.scale + 4 * g);
        const auto* codes = reinterpret_cast<const std::int8_t*>(a) + 32 * g + kRunK * i;
        add_run(w + i * kRunK * kPanelRows, codes, kRunK, d[i], da, acc[r]);
        if constexpr (Scales::kHasMin) {
          const float sum = scaled_sum<kRuns>(a, row, g, i, da);
          for (std::size_t n = 0; n < kPanelRows; ++n) acc[r].lane[n] -= min[i][n] * sum;
        }
      }
  };
  for_panels_and_tiles(call, row.bytes, panel_bytes(unit, k), k / 32, add_group);
}

// Activations have one scale per 256.
void multiply_ternary(const Call& call) {
  const std::size_t k = call.matrix.k;
  const Group256Row row = group256_row(k);
  const auto add_group = [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
    const std::byte* unit = panel + g * kTQUnit;
    float d[kPanelRows];
    for (std::size_t n = 0; n < kPanelRows; ++n) d[n] = load_half(unit + 2 * n);
    std::int8_t w[256 * kPanelRows];
    for (std::size_t run = 0; run < 8; ++run)
      unpack_run<Ternary>(bytes(unit) + kLine + run * run_bytes(Ternary::kPanelUnit), w + run * 32 * kPanelRows);
    for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
      add_run(w, reinterpret_cast<const std::int8_t*>(a) + 256 * g, 256, d, load<float>(a + row.scale + 4 * g), acc[r]);
  };
  for_panels_and_tiles(call, row.bytes, panel_bytes(Ternary::kPanelUnit, k), (k + 255) / 256, add_group);
}

// Unrounded activations: one chain per output over ascending k.
template <class Number>
void multiply_numbers(const Call& call) {
  const std::size_t k = call.matrix.k, stride = float_row_bytes(k);
  const auto add_column = [&](const std::byte* panel, std::size_t i, const std::byte* a, std::size_t rows, Acc* acc) {
    float w[kPanelRows];
    for (std::size_t n = 0; n < kPanelRows; ++n)
      w[n] = value_of(load<Number>(panel + (i * kPanelRows + n) * sizeof(Number)));
    for (std::size_t r = 0; r < rows; ++r) {
      const float x = load<float>(a + r * stride + 4 * i);
      for (std::size_t n = 0; n < kPanelRows; ++n) acc[r].lane[n] += w[n] * x;
    }
  };
  for_panels_and_tiles(call, stride, round_up(k * kPanelRows * sizeof(Number), kLine), k, add_column);
}

template <void (*multiply)(const Call& call)>
void run(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out, std::size_t out_stride,
         std::size_t panel_begin, std::size_t panel_end) {
  multiply({matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end});
}

}  // namespace

Matmul* matmul(WeightType type) {
  return visit_type(type, [](auto format) -> Matmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kIsNumbers<Packing>)
      return run<multiply_numbers<typename Packing::Number>>;
    else if constexpr (kIsTernary<Packing>)
      return run<multiply_ternary>;
    else
      return run<multiply_codes<Packing>>;
  });
}

}  // namespace troupe::kernels::scalar
