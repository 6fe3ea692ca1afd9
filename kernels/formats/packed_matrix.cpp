// Packing of weights from file order into panels, and back. packed_layout.h documents the bodies.
#include <algorithm>
#include <cstring>

#include "config/assert.h"
#include "kernels/formats/packed_groups.h"
#include "kernels/kernels.h"

namespace troupe::kernels {
namespace {

using namespace layout;

std::size_t file_row_bytes(WeightType type, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  TROUPE_ASSERT(k % t.group_size == 0);
  return k / t.group_size * t.group_bytes;
}

std::size_t bytes_of_panel(WeightType type, Layout layout, std::size_t k) {
  if (layout == Layout::tiles) return tiles_panel_bytes(type, k);
  if (layout == Layout::lookup) return lookup_panel_bytes(k);
  if (layout == Layout::trits) return trits_panel_bytes(k);
  return visit_type(type, [&](auto format) {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kIsNumbers<Packing>)
      return round_up(k * kPanelRows * Packing::kBytes, kLine);
    else
      return layout::panel_bytes(Packing::kPanelUnit, k);
  });
}

std::uint8_t* at(std::byte* p, std::size_t offset) { return reinterpret_cast<std::uint8_t*>(p + offset); }
const std::uint8_t* at(const std::byte* p, std::size_t offset) {
  return reinterpret_cast<const std::uint8_t*>(p + offset);
}

// ---- Codes -----------------------------------------------------------------------------------------------------

// A quad is contiguous in its line and in a group's codes: packing moves and joins words of four codes.
using Quad = std::uint32_t;
constexpr Quad each_byte(Quad byte) { return byte * 0x01010101u; }

Quad quad_of(const std::uint8_t* codes, std::size_t q) { return load<Quad>(codes + 4 * q); }
void put_quad(std::uint8_t* lines, std::size_t line, std::size_t row, Quad quad) {
  store(lines + line * kLine + 4 * row, quad);
}

// Write one, two or four bits of each of 32 codes, from bit `first` on.
void put_ones(std::uint8_t* lines, std::size_t row, const std::uint8_t codes[32], std::size_t first) {
  Quad joined = 0;
  for (std::size_t q = 0; q < 8; ++q) joined |= ((quad_of(codes, q) >> first) & each_byte(1)) << q;
  put_quad(lines, 0, row, joined);
}
void put_twos(std::uint8_t* lines, std::size_t row, const std::uint8_t codes[32], std::size_t first) {
  for (std::size_t line = 0; line < 2; ++line) {
    Quad joined = 0;
    for (std::size_t q = 0; q < 4; ++q) joined |= ((quad_of(codes, 4 * line + q) >> first) & each_byte(3)) << (2 * q);
    put_quad(lines, line, row, joined);
  }
}
void put_nibbles(std::uint8_t* lines, std::size_t row, const std::uint8_t codes[32]) {
  for (std::size_t q = 0; q < 4; ++q)
    put_quad(lines, q, row, (quad_of(codes, q) & each_byte(15)) | ((quad_of(codes, q + 4) & each_byte(15)) << 4));
}

// The low bits of a code, stored in nibbles or as two bits; the bits above them are in the lines before.
constexpr std::size_t low_bits(std::size_t bits) { return bits < 4 ? 2 : 4; }

template <std::size_t bits>
void put_run(std::uint8_t* lines, std::size_t row, const std::uint8_t codes[32]) {
  if constexpr (bits == 8) {
    for (std::size_t q = 0; q < 8; ++q) put_quad(lines, q, row, quad_of(codes, q));
  } else {
    constexpr std::size_t kLow = low_bits(bits), kHigh = bits - kLow;
    static_assert(kHigh <= 2, "codes have 2 to 6 or 8 bits");
    if constexpr (kHigh == 1) put_ones(lines, row, codes, kLow);
    if constexpr (kHigh == 2) put_twos(lines, row, codes, kLow);
    if constexpr (kLow == 2) put_twos(lines + kHigh * kLine, row, codes, 0);
    if constexpr (kLow == 4) put_nibbles(lines + kHigh * kLine, row, codes);
  }
}

// Code i of a run.
int get_code(const std::uint8_t* lines, std::size_t bits, std::size_t row, std::size_t i) {
  const std::size_t quad = i / 4, byte = 4 * row + i % 4;
  const auto one = [&] { return (lines[byte] >> quad) & 1; };
  const auto two = [&](const std::uint8_t* from) { return (from[quad / 4 * kLine + byte] >> (quad % 4 * 2)) & 3; };
  const auto nibble = [&](const std::uint8_t* from) { return (from[quad % 4 * kLine + byte] >> (quad / 4 * 4)) & 15; };
  if (bits == 8) return lines[quad * kLine + byte];
  const std::size_t low = low_bits(bits), high = bits - low;
  const std::uint8_t* from = lines + high * kLine;
  const int upper = high == 0 ? 0 : high == 1 ? one() : two(lines);
  return (low == 2 ? two(from) : nibble(from)) | upper << low;
}

template <class Packing>
struct PanelLines {
  static constexpr PanelUnit kUnit = Packing::kPanelUnit;
  static constexpr bool kTiles = false;
  static void put(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32]) {
    put_run<kUnit.bits>(at(lines, run * run_bytes(kUnit)), row, codes);
  }
  static int get(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
    return get_code(at(lines, run * run_bytes(kUnit)), kUnit.bits, row, i);
  }
};

// ---- Panels ----------------------------------------------------------------------------------------------------

// The panel is zeroed by the caller: missing rows and missing k stay zero.
void pack_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  visit_type(type, [&](auto format) {
    using Format = decltype(format);
    if constexpr (kIsNumbers<typename Format::Packing>) {
      using Number = typename Format::Group;
      for (std::size_t i = 0; i < k; ++i)
        for (std::size_t row = 0; row < rows.count; ++row)
          store(panel + (i * kPanelRows + row) * sizeof(Number), load<Number>(rows.at(row, i * sizeof(Number))));
    } else {
      pack_groups<Format, PanelLines>(rows, k, panel);
    }
  });
}

void unpack_panel_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  visit_type(type, [&](auto format) {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kIsNumbers<Packing>)
      for (std::size_t i = 0; i < k; ++i)
        out[i] = value_of(load<typename Packing::Number>(panel + (i * kPanelRows + row) * Packing::kBytes));
    else
      unpack_groups<Packing, PanelLines>(panel, row, k, out);
  });
}

}  // namespace

std::size_t packed_bytes(WeightType type, Layout layout, std::size_t rows, std::size_t k) {
  if (layout == Layout::file) return round_up(rows * file_row_bytes(type, k), kLine);
  TROUPE_ASSERT(k % info(type).group_size == 0);
  return (rows + kPanelRows - 1) / kPanelRows * bytes_of_panel(type, layout, k);
}

MatrixView panel_range(const MatrixView& matrix, std::size_t panel_begin, std::size_t panel_end) {
  const WeightTypeInfo& type = info(matrix.type);
  const std::size_t panel_bytes = matrix.layout == Layout::file
                                      ? kPanelRows * (matrix.k / type.group_size * type.group_bytes)
                                      : packed_bytes(matrix.type, matrix.layout, kPanelRows, matrix.k);
  MatrixView range = matrix;
  range.body += panel_begin * panel_bytes;
  range.rows = std::min(matrix.rows, panel_end * kPanelRows) - panel_begin * kPanelRows;
  return range;
}

void pack_panels(WeightType type, Layout layout, const std::byte* file_rows, std::size_t rows, std::size_t k,
                 std::size_t panel_begin, std::size_t panel_end, std::byte* body) {
  const std::size_t row_bytes = file_row_bytes(type, k);
  const std::size_t row_begin = panel_begin * kPanelRows;
  const std::size_t row_end = std::min(rows, panel_end * kPanelRows);
  if (row_begin >= row_end) return;
  if (layout == Layout::file) {
    std::memcpy(body + row_begin * row_bytes, file_rows + row_begin * row_bytes, (row_end - row_begin) * row_bytes);
    return;
  }
  const std::size_t bytes = bytes_of_panel(type, layout, k);
  const auto pack = layout == Layout::tiles    ? pack_tiles_panel
                    : layout == Layout::lookup ? pack_lookup_panel
                    : layout == Layout::trits  ? pack_trits_panel
                                               : pack_panel;
  for (std::size_t row = row_begin; row < row_end; row += kPanelRows) {
    std::byte* panel = body + row / kPanelRows * bytes;
    std::memset(panel, 0, bytes);
    const PanelRows from{file_rows + row * row_bytes, row_bytes, std::min(row_end - row, kPanelRows)};
    pack(type, from, k, panel);
  }
}

void unpack_row(const MatrixView& matrix, std::size_t row, float* out) {
  TROUPE_ASSERT(row < matrix.rows);
  if (matrix.layout == Layout::file) {
    dequantize(matrix.type, matrix.body + row * file_row_bytes(matrix.type, matrix.k), out, matrix.k);
  } else {
    const std::byte* panel = matrix.body + row / kPanelRows * bytes_of_panel(matrix.type, matrix.layout, matrix.k);
    const auto unpack = matrix.layout == Layout::tiles    ? unpack_tiles_row
                        : matrix.layout == Layout::lookup ? unpack_lookup_row
                        : matrix.layout == Layout::trits  ? unpack_trits_row
                                                          : unpack_panel_row;
    unpack(matrix.type, panel, row % kPanelRows, matrix.k, out);
  }
  if (matrix.scale != 1.0f)
    for (std::size_t i = 0; i < matrix.k; ++i) out[i] *= matrix.scale;
}

std::size_t prepared_bytes(Activation activation, std::size_t k, std::size_t num_rows) {
  const std::size_t num_tiles = (num_rows + kPanelRows - 1) / kPanelRows;
  switch (activation) {
    case Activation::f32:
      return num_rows * float_row_bytes(k);
    case Activation::i8_group32:
      return num_rows * group32_row(k).bytes;
    case Activation::i8_group256:
      return num_rows * group256_row(k).bytes;
    case Activation::i8_group256_tables:
      return num_rows == 0 ? 0 : lookup_row(k, kLookupRows).codes + num_rows * group256_row(k).bytes;
    case Activation::bf16_tiles:
      return num_tiles * bf16_tiles_bytes(k);
    case Activation::bf16_split_tiles:
      return num_tiles * 2 * bf16_tiles_bytes(k);
    case Activation::i8_tiles:
      return num_tiles * i8_tiles_bytes(k);
    case Activation::i8_group256_tiles:
      return num_tiles * i8_group256_tiles_bytes(k);
  }
  return 0;
}

Layout layout_for(const KernelTable& table, WeightType type, const std::byte* file_rows, std::size_t rows,
                  std::size_t k) {
  const Layout layout = table.layout(type);
  if (layout == Layout::tiles && !tiles_can_hold(type, file_rows, rows, k)) return Layout::panels;
  return layout;
}

bool is_ternary(WeightType type) {
  return visit_type(type, [](auto format) { return kIsTernary<typename decltype(format)::Packing>; });
}

bool has_layout(WeightType type, Layout layout, std::size_t k) {
  if (layout == Layout::tiles) return has_tiles(type);
  if (layout == Layout::lookup) return is_ternary(type) && k <= kMaxLookupK;
  return layout != Layout::trits || is_ternary(type);
}

bool has_ternary_layout(const KernelTable& table, Layout layout) {
  return table.layout(WeightType::tq2_0) == Layout::panels && table.matmul(WeightType::tq2_0, layout) != nullptr;
}

Layout ternary_layout_for(Layout asked, WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k) {
  if (asked == Layout::panels) return asked;
  const bool can_hold = has_layout(type, asked, k) && has_ternary_rows(type, file_rows, rows, k);
  return can_hold ? asked : Layout::panels;
}

}  // namespace troupe::kernels
