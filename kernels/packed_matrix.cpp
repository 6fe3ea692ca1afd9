// Packing of weights from file order into panels, and back. packed_layout.h documents the bodies.
#include <algorithm>
#include <cstring>

#include "config/assert.h"
#include "kernels/groups.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/packed_layout.h"
#include "kernels/packed_ternary.h"
#include "kernels/packed_tiles.h"

namespace troupe::kernels {
namespace {

using namespace layout;

std::size_t file_row_bytes(WeightType type, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  TROUPE_ASSERT(k % t.group_size == 0);
  return k / t.group_size * t.group_bytes;
}

std::size_t panel_bytes(WeightType type, Layout layout, std::size_t k) {
  if (layout == Layout::tiles) return tiles_panel_bytes(type, k);
  if (layout == Layout::lookup) return lookup_panel_bytes(k);
  if (layout == Layout::trits) return trits_panel_bytes(k);
  switch (type) {
    case WeightType::f32:
      return k * kLine;
    case WeightType::f16:
    case WeightType::bf16:
      return round_up(k * 32, kLine);
    case WeightType::q8_0:
      return (k + 63) / 64 * kQ8_0Unit;
    case WeightType::q4_0:
    case WeightType::iq4_nl:
      return (k + 63) / 64 * kQ4_0Unit;
    case WeightType::q4_1:
      return (k + 63) / 64 * kQ4_1Unit;
    case WeightType::q4_k:
      return k / 256 * kQ4_KUnit;
    case WeightType::q5_k:
      return k / 256 * kQ5_KUnit;
    case WeightType::q6_k:
      return k / 256 * kQ6_KUnit;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return (k + 255) / 256 * kTQUnit;
  }
  return 0;
}

std::uint8_t* at(std::byte* p, std::size_t offset) { return reinterpret_cast<std::uint8_t*>(p + offset); }
const std::uint8_t* at(const std::byte* p, std::size_t offset) {
  return reinterpret_cast<const std::uint8_t*>(p + offset);
}

// Offset in a line of code `i` of a run: its quad's byte.
std::size_t in_line(std::size_t row, std::size_t i) { return 4 * row + i % 4; }

// A quad lies in one piece in its line and in a group's codes: packing moves and joins words of four codes.
using Quad = std::uint32_t;
constexpr Quad each_byte(Quad byte) { return byte * 0x01010101u; }

Quad quad_of(const std::uint8_t* codes, std::size_t q) { return load<Quad>(codes + 4 * q); }
void put_quad(std::uint8_t* lines, std::size_t line, std::size_t row, Quad quad) {
  store(lines + line * kLine + 4 * row, quad);
}

void put_nibbles(std::uint8_t* lines, std::size_t row, const std::uint8_t codes[32]) {
  for (std::size_t q = 0; q < 4; ++q)
    put_quad(lines, q, row, (quad_of(codes, q) & each_byte(15)) | ((quad_of(codes, q + 4) & each_byte(15)) << 4));
}
std::uint8_t get_nibble(const std::uint8_t* lines, std::size_t row, std::size_t i) {
  const std::size_t quad = i / 4;
  return (lines[quad % 4 * kLine + in_line(row, i)] >> (quad / 4 * 4)) & 15;
}

// put: writes group `g` of row `row` to the panel.
// get: that group's values as float32, by the formula of `dequantize`.

void put(const GroupQ8_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 2 * kQ8_0Unit;
  std::memcpy(unit + g % 2 * 32 + 2 * row, group.d, 2);
  std::uint8_t codes[32];
  codes_of(group, codes);
  std::uint8_t* lines = at(unit, kLine + g % 2 * 8 * kLine);
  for (std::size_t q = 0; q < 8; ++q) put_quad(lines, q, row, quad_of(codes, q));
}
void get_q8_0(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 2 * kQ8_0Unit;
  const float d = load_half(unit + g % 2 * 32 + 2 * row);
  const std::uint8_t* lines = at(unit, kLine + g % 2 * 8 * kLine);
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t line = i / 4;
    out[i] = static_cast<float>(lines[line * kLine + in_line(row, i)] - 128) * d;
  }
}

template <class GroupQ4>
void put_q4(const GroupQ4& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 2 * kQ4_0Unit;
  std::memcpy(unit + g % 2 * 32 + 2 * row, group.d, 2);
  std::uint8_t codes[32];
  codes_of(group, codes);
  put_nibbles(at(unit, kLine + g % 2 * 4 * kLine), row, codes);
}
void put(const GroupQ4_0& group, std::byte* panel, std::size_t row, std::size_t g) { put_q4(group, panel, row, g); }
void put(const GroupIQ4_NL& group, std::byte* panel, std::size_t row, std::size_t g) { put_q4(group, panel, row, g); }
void get_q4_0(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 2 * kQ4_0Unit;
  const float d = load_half(unit + g % 2 * 32 + 2 * row);
  const std::uint8_t* lines = at(unit, kLine + g % 2 * 4 * kLine);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_nibble(lines, row, i) - 8) * d;
}
void get_iq4_nl(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 2 * kQ4_0Unit;
  const float d = load_half(unit + g % 2 * 32 + 2 * row);
  const std::uint8_t* lines = at(unit, kLine + g % 2 * 4 * kLine);
  for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kIQ4_NLValues[get_nibble(lines, row, i)]);
}

void put(const GroupQ4_1& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 2 * kQ4_1Unit;
  std::memcpy(unit + g % 2 * 32 + 2 * row, group.d, 2);
  store(unit + kLine + g % 2 * 32 + 2 * row, static_cast<std::uint16_t>(load<std::uint16_t>(group.m) ^ 0x8000u));
  std::uint8_t codes[32];
  codes_of(group, codes);
  put_nibbles(at(unit, 2 * kLine + g % 2 * 4 * kLine), row, codes);
}
void get_q4_1(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 2 * kQ4_1Unit;
  const float d = load_half(unit + g % 2 * 32 + 2 * row);
  const float min = load_half(unit + kLine + g % 2 * 32 + 2 * row);
  const std::uint8_t* lines = at(unit, 2 * kLine + g % 2 * 4 * kLine);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_nibble(lines, row, i)) * d - min;
}

template <class GroupQ4Or5K>
void put_scales_and_mins(const GroupQ4Or5K& group, std::byte* unit, std::size_t row) {
  std::memcpy(unit + 2 * row, group.d, 2);
  std::memcpy(unit + kMinOffset + 2 * row, group.dmin, 2);
  for (int run = 0; run < 8; ++run) {
    const ScaleMin s = scale_min_of(group.scales, run);
    *at(unit, kRunScales + 16 * static_cast<std::size_t>(run) + row) = s.scale;
    *at(unit, kRunMins + 16 * static_cast<std::size_t>(run) + row) = s.min;
  }
}

void put(const GroupQ4_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kQ4_KUnit;
  put_scales_and_mins(group, unit, row);
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) put_nibbles(at(unit, kRuns + run * kQ4_KRun), row, codes + 32 * run);
}

void put(const GroupQ5_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kQ5_KUnit;
  put_scales_and_mins(group, unit, row);
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) {
    std::uint8_t* lines = at(unit, kRuns + run * kQ5_KRun);
    Quad fifth_bits = 0;
    for (std::size_t q = 0; q < 8; ++q) fifth_bits |= ((quad_of(codes + 32 * run, q) >> 4) & each_byte(1)) << q;
    put_quad(lines, 0, row, fifth_bits);
    put_nibbles(lines + kLine, row, codes + 32 * run);
  }
}

// Q4_K (no line of high bits) and Q5_K (one).
void get_q45_k(const std::byte* unit, std::size_t row, bool fifth_bit, float* out) {
  const float d = load_half(unit + 2 * row);
  const float dmin = load_half(unit + kMinOffset + 2 * row);
  for (std::size_t run = 0; run < 8; ++run, out += 32) {
    const float scale = d * *at(unit, kRunScales + 16 * run + row);
    const float min = dmin * *at(unit, kRunMins + 16 * run + row);
    const std::uint8_t* lines = at(unit, kRuns + run * (fifth_bit ? kQ5_KRun : kQ4_KRun));
    for (std::size_t i = 0; i < 32; ++i) {
      const int high = fifth_bit ? (lines[in_line(row, i)] >> (i / 4)) & 1 : 0;
      const int code = get_nibble(fifth_bit ? lines + kLine : lines, row, i) | (high << 4);
      out[i] = scale * static_cast<float>(code) - min;
    }
  }
}

void put(const GroupQ6_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kQ6_KUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  for (std::size_t run = 0; run < 16; ++run)
    *at(unit, kRunScales + 16 * run + row) = static_cast<std::uint8_t>(group.scales[run]);
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t pair = 0; pair < 8; ++pair) {
    std::uint8_t* lines = at(unit, kRuns + pair * kQ6_KRun);
    for (std::size_t line = 0; line < 2; ++line) {
      Quad high_bits = 0;
      for (std::size_t q = 0; q < 4; ++q)
        high_bits |= ((quad_of(codes + 32 * pair, 4 * line + q) >> 4) & each_byte(3)) << (2 * q);
      put_quad(lines, line, row, high_bits);
    }
    put_nibbles(lines + 2 * kLine, row, codes + 32 * pair);
  }
}
void get_q6_k(const std::byte* unit, std::size_t row, float* out) {
  const float d = load_half(unit + 2 * row);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint8_t* lines = at(unit, kRuns + i / 32 * kQ6_KRun);
    const std::size_t quad = i % 32 / 4;
    const int high = (lines[quad / 4 * kLine + in_line(row, i)] >> (quad % 4 * 2)) & 3;
    const int code = get_nibble(lines + 2 * kLine, row, i % 32) | (high << 4);
    const auto scale = static_cast<std::int8_t>(*at(unit, kRunScales + i / 16 * 16 + row));
    out[i] = d * scale * static_cast<float>(code - 32);
  }
}

// 16 codes to a line.
void put_ternary_codes(const std::uint8_t* codes, std::uint8_t* lines, std::size_t row, std::size_t num_lines) {
  for (std::size_t line = 0; line < num_lines; ++line) {
    Quad joined = 0;
    for (std::size_t q = 0; q < 4; ++q) joined |= quad_of(codes, 4 * line + q) << (2 * q);
    put_quad(lines, line, row, joined);
  }
}
template <class GroupTQ>
void put_ternary(const GroupTQ& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kTQUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  std::uint8_t codes[256];
  codes_of(group, codes);
  put_ternary_codes(codes, at(unit, kLine), row, 16);
}
void put(const GroupTQ1_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  put_ternary(group, panel, row, g);
}
void put(const GroupTQ2_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  put_ternary(group, panel, row, g);
}
void put(const GroupI2_S& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 2 * kTQUnit;
  store(unit + 2 * row, half_of_float(1.0f));
  std::uint8_t codes[128];
  codes_of(group, codes);
  put_ternary_codes(codes, at(unit, kLine + g % 2 * 8 * kLine), row, 8);
}
void get_ternary(const std::byte* unit, std::size_t row, std::size_t count, float* out) {
  const float d = load_half(unit + 2 * row);
  for (std::size_t i = 0; i < count; ++i) {
    const int code = (*at(unit, kLine + i / 16 * kLine + in_line(row, i)) >> (i / 4 % 4 * 2)) & 3;
    out[i] = static_cast<float>(code - 1) * d;
  }
}

// Group by group, all rows of the panel: what is being written then stays in the first-level cache.
template <class Group>
void pack_groups(const PanelRows& rows, std::size_t num_groups, std::byte* panel) {
  for (std::size_t g = 0; g < num_groups; ++g)
    for (std::size_t row = 0; row < rows.count; ++row) put(load<Group>(rows.at(row, g * sizeof(Group))), panel, row, g);
}

template <class Element>
void pack_elements(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t row = 0; row < rows.count; ++row)
      store(panel + (i * kPanelRows + row) * sizeof(Element), load<Element>(rows.at(row, i * sizeof(Element))));
}

// The panel begins as zeros: what is missing at its ends stays zero.
void pack_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  switch (type) {
    case WeightType::f32:
      return pack_elements<std::uint32_t>(rows, k, panel);
    case WeightType::f16:
    case WeightType::bf16:
      return pack_elements<std::uint16_t>(rows, k, panel);
    case WeightType::q8_0:
      return pack_groups<GroupQ8_0>(rows, k / 32, panel);
    case WeightType::q4_0:
      return pack_groups<GroupQ4_0>(rows, k / 32, panel);
    case WeightType::q4_1:
      return pack_groups<GroupQ4_1>(rows, k / 32, panel);
    case WeightType::iq4_nl:
      return pack_groups<GroupIQ4_NL>(rows, k / 32, panel);
    case WeightType::q4_k:
      return pack_groups<GroupQ4_K>(rows, k / 256, panel);
    case WeightType::q5_k:
      return pack_groups<GroupQ5_K>(rows, k / 256, panel);
    case WeightType::q6_k:
      return pack_groups<GroupQ6_K>(rows, k / 256, panel);
    case WeightType::tq1_0:
      return pack_groups<GroupTQ1_0>(rows, k / 256, panel);
    case WeightType::tq2_0:
      return pack_groups<GroupTQ2_0>(rows, k / 256, panel);
    case WeightType::i2_s:
      return pack_groups<GroupI2_S>(rows, k / 128, panel);
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
    case WeightType::q8_0:
      for (std::size_t g = 0; g < k / 32; ++g) get_q8_0(panel, row, g, out + 32 * g);
      return;
    case WeightType::q4_0:
      for (std::size_t g = 0; g < k / 32; ++g) get_q4_0(panel, row, g, out + 32 * g);
      return;
    case WeightType::q4_1:
      for (std::size_t g = 0; g < k / 32; ++g) get_q4_1(panel, row, g, out + 32 * g);
      return;
    case WeightType::iq4_nl:
      for (std::size_t g = 0; g < k / 32; ++g) get_iq4_nl(panel, row, g, out + 32 * g);
      return;
    case WeightType::q4_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q45_k(panel + g * kQ4_KUnit, row, false, out + 256 * g);
      return;
    case WeightType::q5_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q45_k(panel + g * kQ5_KUnit, row, true, out + 256 * g);
      return;
    case WeightType::q6_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q6_k(panel + g * kQ6_KUnit, row, out + 256 * g);
      return;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      for (std::size_t i = 0; i < k; i += 256)
        get_ternary(panel + i / 256 * kTQUnit, row, std::min<std::size_t>(k - i, 256), out + i);
      return;
  }
}

}  // namespace

std::size_t packed_bytes(WeightType type, Layout layout, std::size_t rows, std::size_t k) {
  if (layout == Layout::file) return round_up(rows * file_row_bytes(type, k), kLine);
  TROUPE_ASSERT(k % info(type).group_size == 0);
  return (rows + kPanelRows - 1) / kPanelRows * panel_bytes(type, layout, k);
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
  const std::size_t bytes = panel_bytes(type, layout, k);
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
    const std::byte* panel = matrix.body + row / kPanelRows * panel_bytes(matrix.type, matrix.layout, matrix.k);
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
  if (layout == Layout::tiles)  // Q4_K and Q5_K: the matrix unit takes their panels
    return type != WeightType::f32 && type != WeightType::q4_k && type != WeightType::q5_k;
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
