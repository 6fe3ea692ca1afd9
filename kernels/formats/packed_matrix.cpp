// Packing of weights from file order into panels, and back. packed_layout.h documents the bodies.
#include <algorithm>
#include <cstring>

#include "config/assert.h"
#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/formats/packed_ternary.h"
#include "kernels/formats/packed_tiles.h"
#include "kernels/kernels.h"

namespace troupe::kernels {
namespace {

using namespace layout;

std::size_t file_row_bytes(WeightType type, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  TROUPE_ASSERT(k % t.group_size == 0);
  return k / t.group_size * t.group_bytes;
}

// The unit of a type that is stored in units.
PanelUnit unit_of(WeightType type) {
  switch (type) {
    case WeightType::q8_0:
      return kQ8_0;
    case WeightType::q4_0:
    case WeightType::iq4_nl:
      return kQ4_0;
    case WeightType::q4_1:
      return kQ4_1;
    case WeightType::q5_0:
      return kQ5_0;
    case WeightType::q5_1:
      return kQ5_1;
    case WeightType::mxfp4:
      return kMXFP4;
    case WeightType::iq4_xs:
      return kIQ4_XS;
    case WeightType::q2_k:
      return kQ2_K;
    case WeightType::q3_k:
      return kQ3_K;
    case WeightType::q4_k:
      return kQ4_K;
    case WeightType::q5_k:
      return kQ5_K;
    case WeightType::q6_k:
      return kQ6_K;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return kTQ;
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      break;
  }
  TROUPE_ASSERT(!"no units for this type");
  return {};
}

std::size_t bytes_of_panel(WeightType type, Layout layout, std::size_t k) {
  if (layout == Layout::tiles) return tiles_panel_bytes(type, k);
  if (layout == Layout::lookup) return lookup_panel_bytes(k);
  if (layout == Layout::trits) return trits_panel_bytes(k);
  if (type == WeightType::f32) return k * kLine;
  if (type == WeightType::f16 || type == WeightType::bf16) return round_up(k * 32, kLine);
  return layout::panel_bytes(unit_of(type), k);
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

// ---- Scales of codes -------------------------------------------------------------------------------------------

// put_scales: writes a group's scales to its unit's header; `run` is the group's first run in the unit.
// scales_of: d and min of the 16 weights of half run `half` of the unit: w = value * d - min, by the formula of
// `dequantize`.

template <class Group>
void put_d(const Group& group, std::byte* unit, std::size_t row, std::size_t run) {
  std::memcpy(unit + 32 * run + 2 * row, group.d, 2);
}
template <class GroupWithM>
void put_d_and_m(const GroupWithM& group, std::byte* unit, std::size_t row, std::size_t run) {
  put_d(group, unit, row, run);
  store(unit + kLine + 32 * run + 2 * row, static_cast<std::uint16_t>(load<std::uint16_t>(group.m) ^ 0x8000u));
}
// The scales of runs, or of half runs.
template <class Scale>
void put_run_scales(std::byte* unit, std::size_t row, std::size_t count, Scale&& scale) {
  for (std::size_t i = 0; i < count; ++i)
    *at(unit, kRunScales + 16 * i + row) = static_cast<std::uint8_t>(scale(static_cast<int>(i)));
}
template <class GroupQ4Or5K>
void put_scales_and_mins(const GroupQ4Or5K& group, std::byte* unit, std::size_t row) {
  put_d(group, unit, row, 0);
  std::memcpy(unit + kMinOffset + 2 * row, group.dmin, 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin s = scale_min_of(group.scales, run);
    *at(unit, kRunScales + 16 * static_cast<std::size_t>(run) + row) = s.scale;
    *at(unit, kRunMins + 16 * static_cast<std::size_t>(run) + row) = s.min;
  }
}

template <class Group>
void put_scales(const Group& group, std::byte* unit, std::size_t row, std::size_t run) {
  put_d(group, unit, row, run);
}
void put_scales(const GroupQ4_1& group, std::byte* unit, std::size_t row, std::size_t run) {
  put_d_and_m(group, unit, row, run);
}
void put_scales(const GroupQ5_1& group, std::byte* unit, std::size_t row, std::size_t run) {
  put_d_and_m(group, unit, row, run);
}
void put_scales(const GroupMXFP4& group, std::byte* unit, std::size_t row, std::size_t run) {
  *at(unit, 16 * run + row) = group.e;
}
void put_scales(const GroupIQ4_XS& group, std::byte* unit, std::size_t row, std::size_t) {
  put_d(group, unit, row, 0);
  put_run_scales(unit, row, 8, [&](int run) { return scale_of(group, run); });
}
void put_scales(const GroupQ2_K& group, std::byte* unit, std::size_t row, std::size_t) {
  put_d(group, unit, row, 0);
  std::memcpy(unit + kMinOffset + 2 * row, group.dmin, 2);
  put_run_scales(unit, row, 16, [&](int half) { return group.scales[half]; });
}
void put_scales(const GroupQ3_K& group, std::byte* unit, std::size_t row, std::size_t) {
  put_d(group, unit, row, 0);
  put_run_scales(unit, row, 16, [&](int half) { return scale_of(group, half); });
}
void put_scales(const GroupQ4_K& group, std::byte* unit, std::size_t row, std::size_t) {
  put_scales_and_mins(group, unit, row);
}
void put_scales(const GroupQ5_K& group, std::byte* unit, std::size_t row, std::size_t) {
  put_scales_and_mins(group, unit, row);
}
void put_scales(const GroupQ6_K& group, std::byte* unit, std::size_t row, std::size_t) {
  put_d(group, unit, row, 0);
  put_run_scales(unit, row, 16, [&](int half) { return group.scales[half]; });
}
void put_scales(const GroupI2_S&, std::byte* unit, std::size_t row, std::size_t) {
  store(unit + 2 * row, half_of_float(1.0f));
}

struct HalfRun {
  float d = 0, min = 0;
};

HalfRun scales_of(WeightType type, const std::byte* unit, std::size_t row, std::size_t half) {
  const std::size_t run = half / 2;
  const auto half_at = [&](std::size_t offset) { return load_half(unit + offset + 2 * row); };
  const auto byte_at = [&](std::size_t offset) { return *at(unit, offset + row); };
  const auto scale_at = [&](std::size_t i) { return static_cast<std::int8_t>(byte_at(kRunScales + 16 * i)); };
  switch (type) {
    case WeightType::q8_0:
    case WeightType::q4_0:
    case WeightType::q5_0:
    case WeightType::iq4_nl:
      return {half_at(32 * run)};
    case WeightType::q4_1:
    case WeightType::q5_1:
      return {half_at(32 * run), half_at(kLine + 32 * run)};
    case WeightType::mxfp4:
      return {half_of_e8m0(byte_at(16 * run))};
    case WeightType::iq4_xs:
      return {half_at(0) * scale_at(run)};
    case WeightType::q2_k: {
      const std::uint8_t both = byte_at(kRunScales + 16 * half);
      return {half_at(0) * static_cast<float>(both & 15), half_at(kMinOffset) * static_cast<float>(both >> 4)};
    }
    case WeightType::q3_k:
    case WeightType::q6_k:
      return {half_at(0) * scale_at(half)};
    case WeightType::q4_k:
    case WeightType::q5_k:
      return {half_at(0) * byte_at(kRunScales + 16 * run), half_at(kMinOffset) * byte_at(kRunMins + 16 * run)};
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return {half_at(0)};
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      break;
  }
  return {};
}

// The value of a code.
int value_of(WeightType type, int code) {
  switch (type) {
    case WeightType::q8_0:
      return code - 128;
    case WeightType::q4_0:
      return code - 8;
    case WeightType::q5_0:
      return code - 16;
    case WeightType::iq4_nl:
    case WeightType::iq4_xs:
      return kIQ4_NLValues[code];
    case WeightType::mxfp4:
      return kMXFP4Values[code];
    case WeightType::q3_k:
      return code - 4;
    case WeightType::q6_k:
      return code - 32;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return code - 1;
    default:
      return code;
  }
}

// ---- Panels ----------------------------------------------------------------------------------------------------

// Group by group, for all rows of the panel, so that the lines being written stay in the first-level cache.
template <class Group, std::size_t group_size, PanelUnit unit>
void pack_groups(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t begin = 0; begin < k; begin += group_size) {
    std::byte* const to = panel + begin / unit.k * unit_bytes(unit);
    const std::size_t run = begin % unit.k / 32;
    for (std::size_t row = 0; row < rows.count; ++row) {
      const auto group = load<Group>(rows.at(row, begin / group_size * sizeof(Group)));
      put_scales(group, to, row, run);
      std::uint8_t codes[group_size];
      codes_of(group, codes);
      for (std::size_t i = 0; i < group_size / 32; ++i)
        put_run<unit.bits>(at(to, unit.header + (run + i) * run_bytes(unit)), row, codes + 32 * i);
    }
  }
}

template <class Element>
void pack_elements(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t row = 0; row < rows.count; ++row)
      store(panel + (i * kPanelRows + row) * sizeof(Element), load<Element>(rows.at(row, i * sizeof(Element))));
}

// The panel is zeroed by the caller: missing rows and missing k stay zero.
void pack_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  switch (type) {
    case WeightType::f32:
      return pack_elements<std::uint32_t>(rows, k, panel);
    case WeightType::f16:
    case WeightType::bf16:
      return pack_elements<std::uint16_t>(rows, k, panel);
    case WeightType::q8_0:
      return pack_groups<GroupQ8_0, 32, kQ8_0>(rows, k, panel);
    case WeightType::q4_0:
      return pack_groups<GroupQ4_0, 32, kQ4_0>(rows, k, panel);
    case WeightType::q4_1:
      return pack_groups<GroupQ4_1, 32, kQ4_1>(rows, k, panel);
    case WeightType::q5_0:
      return pack_groups<GroupQ5_0, 32, kQ5_0>(rows, k, panel);
    case WeightType::q5_1:
      return pack_groups<GroupQ5_1, 32, kQ5_1>(rows, k, panel);
    case WeightType::iq4_nl:
      return pack_groups<GroupIQ4_NL, 32, kQ4_0>(rows, k, panel);
    case WeightType::iq4_xs:
      return pack_groups<GroupIQ4_XS, 256, kIQ4_XS>(rows, k, panel);
    case WeightType::mxfp4:
      return pack_groups<GroupMXFP4, 32, kMXFP4>(rows, k, panel);
    case WeightType::q2_k:
      return pack_groups<GroupQ2_K, 256, kQ2_K>(rows, k, panel);
    case WeightType::q3_k:
      return pack_groups<GroupQ3_K, 256, kQ3_K>(rows, k, panel);
    case WeightType::q4_k:
      return pack_groups<GroupQ4_K, 256, kQ4_K>(rows, k, panel);
    case WeightType::q5_k:
      return pack_groups<GroupQ5_K, 256, kQ5_K>(rows, k, panel);
    case WeightType::q6_k:
      return pack_groups<GroupQ6_K, 256, kQ6_K>(rows, k, panel);
    case WeightType::tq1_0:
      return pack_groups<GroupTQ1_0, 256, kTQ>(rows, k, panel);
    case WeightType::tq2_0:
      return pack_groups<GroupTQ2_0, 256, kTQ>(rows, k, panel);
    case WeightType::i2_s:
      return pack_groups<GroupI2_S, 128, kTQ>(rows, k, panel);
  }
}

void unpack_panel_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  switch (type) {
    case WeightType::f32:
      for (std::size_t i = 0; i < k; ++i) out[i] = load<float>(panel + (i * kPanelRows + row) * 4);
      return;
    case WeightType::f16:
      for (std::size_t i = 0; i < k; ++i) out[i] = load_half(panel + (i * kPanelRows + row) * 2);
      return;
    case WeightType::bf16:
      for (std::size_t i = 0; i < k; ++i)
        out[i] = float_of_bf16(load<std::uint16_t>(panel + (i * kPanelRows + row) * 2));
      return;
    default:
      break;
  }
  const PanelUnit unit = unit_of(type);
  for (std::size_t begin = 0; begin < k; begin += 16, out += 16) {
    const std::byte* from = panel + begin / unit.k * unit_bytes(unit);
    const std::size_t i = begin % unit.k;
    const std::uint8_t* lines = at(from, unit.header + i / 32 * run_bytes(unit));
    const HalfRun scales = scales_of(type, from, row, i / 16);
    for (std::size_t j = 0; j < 16; ++j) {
      const int value = value_of(type, get_code(lines, unit.bits, row, i % 32 + j));
      out[j] = static_cast<float>(value) * scales.d - scales.min;
    }
  }
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
  return type == WeightType::tq1_0 || type == WeightType::tq2_0 || type == WeightType::i2_s;
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
