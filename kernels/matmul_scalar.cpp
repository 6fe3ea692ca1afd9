// The scalar variant's matrix products: the recipes of the integer variants in plain C++.
//
// A group of a panel is unpacked to signed bytes once for a tile of rows; the sums over a group are
// exact integers, then added to a float32 chain per output: acc += sum * (d_weight * d_activation).
#include <algorithm>
#include <cstring>

#include "kernels/groups.h"
#include "kernels/half.h"
#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
namespace {

using namespace layout;

constexpr std::size_t kRowTile = 8;

struct Acc {
  float lane[kPanelRows] = {};
};

// 16 rows x `count` k of a group in quad order, with the offset of the codes already removed.
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

// Calls per_group(panel, g, row pointers, num, accs) for g ascending, then writes the tile's outputs.
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

// Unpacks the nibble line pairs of a run of 32; `high` is or-ed in per byte, then `offset` taken off.
template <class High>
void unpack_run(const std::uint8_t* lines, int offset, std::int8_t* w, High&& high) {
  for (std::size_t quad = 0; quad < 8; ++quad)
    for (std::size_t b = 0; b < kLine; ++b) {
      const int low = (lines[quad % 4 * kLine + b] >> (quad / 4 * 4)) & 15;
      w[quad * kLine + b] = static_cast<std::int8_t>((low | high(quad, b)) - offset);
    }
}
constexpr auto kNoHigh = [](std::size_t, std::size_t) { return 0; };

struct Q8_0 {
  static void unpack(const std::byte* panel, std::size_t g, std::int8_t* w, float (&d)[kPanelRows]) {
    const std::byte* unit = panel + g / 2 * kQ8_0Unit;
    half_scales(unit + g % 2 * 32, d);
    const std::uint8_t* lines = bytes(unit) + kLine + g % 2 * 8 * kLine;
    for (std::size_t b = 0; b < 8 * kLine; ++b) w[b] = static_cast<std::int8_t>(lines[b] - 128);
  }
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ8_0Unit; }
};

struct Q4_0 {
  static void unpack(const std::byte* panel, std::size_t g, std::int8_t* w, float (&d)[kPanelRows]) {
    const std::byte* unit = panel + g / 2 * kQ4_0Unit;
    half_scales(unit + g % 2 * 32, d);
    unpack_run(bytes(unit) + kLine + g % 2 * 4 * kLine, 8, w, kNoHigh);
  }
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
};

struct IQ4_NL {
  static void unpack(const std::byte* panel, std::size_t g, std::int8_t* w, float (&d)[kPanelRows]) {
    const std::byte* unit = panel + g / 2 * kQ4_0Unit;
    half_scales(unit + g % 2 * 32, d);
    unpack_run(bytes(unit) + kLine + g % 2 * 4 * kLine, 0, w, kNoHigh);
    for (std::size_t b = 0; b < 8 * kLine; ++b) w[b] = kIQ4_NLValues[w[b]];
  }
  static std::size_t panel_bytes(std::size_t k) { return (k + 63) / 64 * kQ4_0Unit; }
};

template <class Type>
void matmul_groups_of_32(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                         std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const Group32Row row = group32_row(matrix.k);
  for_panels_and_tiles(matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end,
                       Type::panel_bytes(matrix.k), matrix.k / 32,
                       [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
                         std::int8_t w[8 * kLine];
                         float d[kPanelRows];
                         Type::unpack(panel, g, w, d);
                         for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
                           add_run(w, reinterpret_cast<const std::int8_t*>(a) + 32 * g, 32, d,
                                   load<float>(a + row.scale + 4 * g), acc[r]);
                       });
}

// Types with a min: acc += sum * (d * da), then acc += -min * (da * sum of a).
void add_run_with_min(const std::int8_t* w, const std::byte* a, const Group32Row& row, std::size_t g,
                      const float (&d)[kPanelRows], const float (&min)[kPanelRows], Acc& acc) {
  add_run(w, reinterpret_cast<const std::int8_t*>(a) + 32 * g, 32, d, load<float>(a + row.scale + 4 * g), acc);
  const float scaled_sum = load<float>(a + row.scaled_sum + 4 * g);
  for (std::size_t n = 0; n < kPanelRows; ++n) acc.lane[n] -= min[n] * scaled_sum;
}

template <bool fifth_bit>
void matmul_with_mins(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                      std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  constexpr std::size_t kUnit = fifth_bit ? kQ5_KUnit : kQ4_KUnit;
  constexpr std::size_t kRun = fifth_bit ? kQ5_KRun : kQ4_KRun;
  const Group32Row row = group32_row(matrix.k);
  for_panels_and_tiles(
      matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end, matrix.k / 256 * kUnit,
      matrix.k / 32, [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
        const std::byte* unit = panel + g / 8 * kUnit;
        float d[kPanelRows], min[kPanelRows];
        half_scales(unit, d);
        half_scales(unit + kMinOffset, min);
        for (std::size_t n = 0; n < kPanelRows; ++n) {
          d[n] *= bytes(unit)[kRunScales + g % 8 * 16 + n];
          min[n] *= bytes(unit)[kRunMins + g % 8 * 16 + n];
        }
        std::int8_t w[8 * kLine];
        const std::uint8_t* lines = bytes(unit) + kRuns + g % 8 * kRun;
        if constexpr (fifth_bit)
          unpack_run(lines + kLine, 0, w, [&](std::size_t q, std::size_t b) { return ((lines[b] >> q) & 1) << 4; });
        else
          unpack_run(lines, 0, w, kNoHigh);
        for (std::size_t r = 0; r < rows; ++r, a += row.bytes) add_run_with_min(w, a, row, g, d, min, acc[r]);
      });
}

}  // namespace

void matmul_q8_0(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_groups_of_32<Q8_0>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q4_0(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_groups_of_32<Q4_0>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_iq4_nl(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                   std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_groups_of_32<IQ4_NL>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q4_1(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const Group32Row row = group32_row(matrix.k);
  for_panels_and_tiles(matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end,
                       (matrix.k + 63) / 64 * kQ4_1Unit, matrix.k / 32,
                       [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
                         const std::byte* unit = panel + g / 2 * kQ4_1Unit;
                         float d[kPanelRows], min[kPanelRows];
                         half_scales(unit + g % 2 * 32, d);
                         half_scales(unit + kLine + g % 2 * 32, min);
                         std::int8_t w[8 * kLine];
                         unpack_run(bytes(unit) + 2 * kLine + g % 2 * 4 * kLine, 0, w, kNoHigh);
                         for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
                           add_run_with_min(w, a, row, g, d, min, acc[r]);
                       });
}

void matmul_q4_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_with_mins<false>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

void matmul_q5_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  matmul_with_mins<true>(matrix, prepared, num_rows, out, out_stride, panel_begin, panel_end);
}

// The weights' scales change every 16, the activations' every 32: two runs per activation group.
void matmul_q6_k(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                 std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const Group32Row row = group32_row(matrix.k);
  for_panels_and_tiles(
      matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end, matrix.k / 256 * kQ6_KUnit,
      matrix.k / 32, [&](const std::byte* panel, std::size_t g, const std::byte* a, std::size_t rows, Acc* acc) {
        const std::byte* unit = panel + g / 8 * kQ6_KUnit;
        const std::uint8_t* lines = bytes(unit) + kRuns + g % 8 * kQ6_KRun;
        std::int8_t w[8 * kLine];
        unpack_run(lines + 2 * kLine, 32, w,
                   [&](std::size_t q, std::size_t b) { return ((lines[q / 4 * kLine + b] >> (q % 4 * 2)) & 3) << 4; });
        float d[2][kPanelRows];
        for (std::size_t half = 0; half < 2; ++half) {
          half_scales(unit, d[half]);
          for (std::size_t n = 0; n < kPanelRows; ++n)
            d[half][n] *= static_cast<std::int8_t>(bytes(unit)[kRunScales + (g % 8 * 2 + half) * 16 + n]);
        }
        for (std::size_t r = 0; r < rows; ++r, a += row.bytes)
          for (std::size_t half = 0; half < 2; ++half)
            add_run(w + half * 4 * kLine, reinterpret_cast<const std::int8_t*>(a) + 32 * g + 16 * half, 16, d[half],
                    load<float>(a + row.scale + 4 * g), acc[r]);
      });
}

void matmul_tq(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
               std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const Group256Row row = group256_row(matrix.k);
  for_panels_and_tiles(matrix, prepared, row.bytes, num_rows, out, out_stride, panel_begin, panel_end,
                       (matrix.k + 255) / 256 * kTQUnit, (matrix.k + 255) / 256,
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
