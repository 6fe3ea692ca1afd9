// The scalar variant's matrix products: the recipes of the integer variants in plain C++.
//
// A group of a panel is unpacked to signed bytes once per row tile; the sums over a group are exact integers, then
// added to a float32 chain per output: acc += sum * (d_weight * d_activation).
#include <algorithm>
#include <cstring>

#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

using namespace layout;

constexpr std::size_t kRowTile = 8;

struct Acc {
  float lane[kPanelRows] = {};
};

// A group's weights as signed bytes: 16 rows x up to 256 k in quad order, without the codes' offset.
struct Unpacked {
  std::int8_t w[256 * kPanelRows];
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

void half_scales(const std::byte* from, float (&d)[kPanelRows]) {
  for (std::size_t n = 0; n < kPanelRows; ++n) d[n] = load_half(from + 2 * n);
}

// Calls per_group(panel, g, row pointers, num, accs) for ascending g, then writes the row tile's outputs.
template <class PerGroup>
void for_panels_and_tiles(const MatrixView& matrix, const std::byte* prepared, std::size_t prepared_stride,
                          std::size_t num_rows, float* out, std::size_t out_stride, std::size_t panel_begin,
                          std::size_t panel_end, std::size_t panel_bytes, std::size_t num_groups,
                          PerGroup&& per_group) {
  for (std::size_t p = panel_begin; p < panel_end; ++p) {
    const std::byte* panel = matrix.body + p * panel_bytes;
    const std::size_t width = std::min(kPanelRows, matrix.rows - p * kPanelRows);
    for (std::size_t tile = 0; tile < num_rows; tile += kRowTile) {
      const std::size_t rows = std::min(kRowTile, num_rows - tile);
      const std::byte* a = prepared + tile * prepared_stride;
      Acc acc[kRowTile];
      for (std::size_t g = 0; g < num_groups; ++g) per_group(panel, g, a, rows, acc);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t n = 0; n < width; ++n)
          out[(tile + r) * out_stride + p * kPanelRows + n] = acc[r].lane[n] * matrix.scale;
    }
  }
}

// ---- Codes: unpack the lines of a run of 32 to the values of its codes, in quad order -----------------------------

using High = int(const std::uint8_t* lines, std::size_t quad, std::size_t b);
int no_bits(const std::uint8_t*, std::size_t, std::size_t) { return 0; }
int one_bit(const std::uint8_t* lines, std::size_t quad, std::size_t b) { return (lines[b] >> quad) & 1; }
int two_bits(const std::uint8_t* lines, std::size_t quad, std::size_t b) {
  return (lines[quad / 4 * kLine + b] >> (quad % 4 * 2)) & 3;
}

// Nibbles as low bits, and as high bits those that `high` reads from the `high_lines` lines before.
template <std::size_t high_lines, High high, int offset>
struct Nibbles {
  static void unpack(const std::uint8_t* lines, std::int8_t* w) {
    const std::uint8_t* nibbles = lines + high_lines * kLine;
    for (std::size_t quad = 0; quad < 8; ++quad)
      for (std::size_t b = 0; b < kLine; ++b) {
        const int low = (nibbles[quad % 4 * kLine + b] >> (quad / 4 * 4)) & 15;
        w[quad * kLine + b] = static_cast<std::int8_t>((low | high(lines, quad, b) << 4) - offset);
      }
  }
};
template <int offset>
using Fours = Nibbles<0, no_bits, offset>;
template <int offset>
using Fives = Nibbles<1, one_bit, offset>;
using Sixes = Nibbles<2, two_bits, 32>;

template <const std::int8_t (&values)[16]>
struct LookedUp {
  static void unpack(const std::uint8_t* lines, std::int8_t* w) {
    Fours<0>::unpack(lines, w);
    for (std::size_t b = 0; b < 8 * kLine; ++b) w[b] = values[w[b]];
  }
};

// Two low bits, and as high bits those that `high` reads from the `high_lines` lines before.
template <std::size_t high_lines, High high, int offset>
struct Pairs {
  static void unpack(const std::uint8_t* lines, std::int8_t* w) {
    for (std::size_t quad = 0; quad < 8; ++quad)
      for (std::size_t b = 0; b < kLine; ++b)
        w[quad * kLine + b] = static_cast<std::int8_t>(
            (two_bits(lines + high_lines * kLine, quad, b) | high(lines, quad, b) << 2) - offset);
  }
};
using Twos = Pairs<0, no_bits, 0>;
using Threes = Pairs<1, one_bit, 4>;

struct Bytes {
  static void unpack(const std::uint8_t* lines, std::int8_t* w) {
    for (std::size_t b = 0; b < 8 * kLine; ++b) w[b] = static_cast<std::int8_t>(lines[b] - 128);
  }
};

// ---- Scales: read from a unit's header, for its run `run` of 32 ----------------------------------------------------
//
// kRuns: scales per 32 weights. Only types with kHasMin write mins.

using Floats = float[kPanelRows];

struct Halves {
  static constexpr std::size_t kRuns = 1;
  static constexpr bool kHasMin = false;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats*) { half_scales(unit + run * 32, d[0]); }
};

struct HalvesAndMins {
  static constexpr std::size_t kRuns = 1;
  static constexpr bool kHasMin = true;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats* min) {
    half_scales(unit + run * 32, d[0]);
    half_scales(unit + kLine + run * 32, min[0]);
  }
};

struct Powers {
  static constexpr std::size_t kRuns = 1;
  static constexpr bool kHasMin = false;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats*) {
    for (std::size_t n = 0; n < kPanelRows; ++n) d[0][n] = half_of_e8m0(bytes(unit)[run * 16 + n]);
  }
};

// Q4_K, Q5_K.
struct RunScalesAndMins {
  static constexpr std::size_t kRuns = 1;
  static constexpr bool kHasMin = true;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats* min) {
    half_scales(unit, d[0]);
    half_scales(unit + kMinOffset, min[0]);
    for (std::size_t n = 0; n < kPanelRows; ++n) {
      d[0][n] *= bytes(unit)[kRunScales + run * 16 + n];
      min[0][n] *= bytes(unit)[kRunMins + run * 16 + n];
    }
  }
};

// IQ4_XS; with num_runs = 2 (a scale per half run) Q3_K and Q6_K.
template <std::size_t num_runs>
struct RunScales {
  static constexpr std::size_t kRuns = num_runs;
  static constexpr bool kHasMin = false;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats*) {
    for (std::size_t i = 0; i < kRuns; ++i) {
      half_scales(unit, d[i]);
      for (std::size_t n = 0; n < kPanelRows; ++n)
        d[i][n] *= static_cast<std::int8_t>(bytes(unit)[kRunScales + (run * kRuns + i) * 16 + n]);
    }
  }
};

// Q2_K.
struct HalfRunScalesAndMins {
  static constexpr std::size_t kRuns = 2;
  static constexpr bool kHasMin = true;
  static void unpack(const std::byte* unit, std::size_t run, Floats* d, Floats* min) {
    for (std::size_t i = 0; i < kRuns; ++i) {
      half_scales(unit, d[i]);
      half_scales(unit + kMinOffset, min[i]);
      for (std::size_t n = 0; n < kPanelRows; ++n) {
        const std::uint8_t both = bytes(unit)[kRunScales + (run * kRuns + i) * 16 + n];
        d[i][n] *= static_cast<float>(both & 15);
        min[i][n] *= static_cast<float>(both >> 4);
      }
    }
  }
};

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
template <PanelUnit unit, class Scales, class Codes>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  constexpr std::size_t kRuns = Scales::kRuns, kRunK = 32 / kRuns, kUnitRuns = unit.k / 32;
  const Group32Row row = group32_row(matrix.k);
  for_panels_and_tiles(matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end,
                       panel_bytes(unit, matrix.k), matrix.k / 32,
                       [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
                         const std::byte* from = panel + g / kUnitRuns * unit_bytes(unit);
                         Floats d[kRuns], min[kRuns];
                         Scales::unpack(from, g % kUnitRuns, d, min);
                         std::int8_t w[8 * kLine];
                         Codes::unpack(bytes(from) + unit.header + g % kUnitRuns * run_bytes(unit), w);
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
                       });
}

}  // namespace

#define TROUPE_MATMUL(function, ...)                                                                   \
  void function(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out, \
                std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {              \
    multiply<__VA_ARGS__>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);        \
  }
TROUPE_MATMUL(matmul_q8_0, kQ8_0, Halves, Bytes)
TROUPE_MATMUL(matmul_q4_0, kQ4_0, Halves, Fours<8>)
TROUPE_MATMUL(matmul_q4_1, kQ4_1, HalvesAndMins, Fours<0>)
TROUPE_MATMUL(matmul_q5_0, kQ5_0, Halves, Fives<16>)
TROUPE_MATMUL(matmul_q5_1, kQ5_1, HalvesAndMins, Fives<0>)
TROUPE_MATMUL(matmul_iq4_nl, kQ4_0, Halves, LookedUp<kIQ4_NLValues>)
TROUPE_MATMUL(matmul_iq4_xs, kIQ4_XS, RunScales<1>, LookedUp<kIQ4_NLValues>)
TROUPE_MATMUL(matmul_mxfp4, kMXFP4, Powers, LookedUp<kMXFP4Values>)
TROUPE_MATMUL(matmul_q2_k, kQ2_K, HalfRunScalesAndMins, Twos)
TROUPE_MATMUL(matmul_q3_k, kQ3_K, RunScales<2>, Threes)
TROUPE_MATMUL(matmul_q4_k, kQ4_K, RunScalesAndMins, Fours<0>)
TROUPE_MATMUL(matmul_q5_k, kQ5_K, RunScalesAndMins, Fives<0>)
TROUPE_MATMUL(matmul_q6_k, kQ6_K, RunScales<2>, Sixes)
#undef TROUPE_MATMUL

void matmul_tq(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
               std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const Group256Row row = group256_row(matrix.k);
  for_panels_and_tiles(matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end,
                       panel_bytes(kTQ, matrix.k), (matrix.k + 255) / 256,
                       [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
                         const std::byte* unit = panel + g * kTQUnit;
                         float d[kPanelRows];
                         half_scales(unit, d);
                         Unpacked u;
                         for (std::size_t quad = 0; quad < 64; ++quad)
                           for (std::size_t b = 0; b < kLine; ++b)
                             u.w[quad * kLine + b] = static_cast<std::int8_t>(
                                 ((bytes(unit)[kLine + quad / 4 * kLine + b] >> (quad % 4 * 2)) & 3) - 1);
                         for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
                           add_run(u.w, reinterpret_cast<const std::int8_t*>(a) + 256 * g, 256, d,
                                   load<float>(a + row.scale + 4 * g), acc[r]);
                       });
}

namespace {

// Unrounded activations: one chain per output over ascending k.
template <std::size_t element, class Convert>
void matmul_floats(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                   std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end, Convert&& convert) {
  const std::size_t stride = float_row_bytes(matrix.k);
  for_panels_and_tiles(matrix, prepared, stride, num_rows, out, out_stride, panel_begin, panel_end,
                       round_up(matrix.k * kPanelRows * element, kLine), matrix.k,
                       [&](const std::byte* panel, std::size_t i, const std::byte* a, std::size_t rows, Acc* acc) {
                         float w[kPanelRows];
                         for (std::size_t n = 0; n < kPanelRows; ++n)
                           w[n] = convert(panel + (i * kPanelRows + n) * element);
                         for (std::size_t r = 0; r < rows; ++r) {
                           const float x = load<float>(a + r * stride + 4 * i);
                           for (std::size_t n = 0; n < kPanelRows; ++n) acc[r].lane[n] += w[n] * x;
                         }
                       });
}

}  // namespace

void matmul_f32(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_floats<4>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end,
                   [](const std::byte* p) { return load<float>(p); });
}

void matmul_f16(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_floats<2>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end,
                   [](const std::byte* p) { return load_half(p); });
}

void matmul_bf16(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_floats<2>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end,
                   [](const std::byte* p) { return float_of_bf16(load<std::uint16_t>(p)); });
}

}  // namespace troupe::kernels::scalar
