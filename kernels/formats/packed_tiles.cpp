#include "kernels/formats/packed_tiles.h"

#include <algorithm>
#include <cstring>

#include "config/assert.h"
#include "kernels/formats/groups.h"
#include "kernels/formats/half.h"
#include "kernels/formats/packed_layout.h"

namespace troupe::kernels {
namespace {

using namespace layout;

std::uint8_t* at(std::byte* p, std::size_t offset) { return reinterpret_cast<std::uint8_t*>(p + offset); }
const std::uint8_t* at(const std::byte* p, std::size_t offset) {
  return reinterpret_cast<const std::uint8_t*>(p + offset);
}

// The offset of the byte with the nibble of k = i of run `run` (any number) of row `row`, from the nibble lines of the
// unit's first 128 k.
std::size_t nibble_byte(std::size_t row, std::size_t run, std::size_t i) {
  return run / 4 * kTilesNibbles + row * kLine + 2 * run_word(i) + run % 4 / 2;
}

// ORs 32 values into the words of a line, shifted to their bits, which are still zero.
void join_words(std::byte* line, const std::uint8_t values[32], std::size_t shift) {
  const auto factor = static_cast<std::uint16_t>(1u << shift);  // not a shift, for which compilers widen 16-bit lanes
  std::uint16_t words[32];
  std::memcpy(words, line, kLine);
  for (std::size_t i = 0; i < 16; ++i) {
    words[2 * i] |= static_cast<std::uint16_t>(values[i] * factor);
    words[2 * i + 1] |= static_cast<std::uint16_t>(values[16 + i] * factor);
  }
  std::memcpy(line, words, kLine);
}
void put_nibbles(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32]) {
  std::uint8_t nibbles[32];
  for (std::size_t i = 0; i < 32; ++i) nibbles[i] = codes[i] & 15;
  join_words(lines + run / 4 * kTilesNibbles + row * kLine, nibbles, run % 4 * 4);
}
std::uint8_t get_nibble(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
  return (*at(lines, nibble_byte(row, run, i)) >> (run % 2 * 4)) & 15;
}

// put: writes group `g` of row `row` to the zeroed panel. get: reads that group's values, by the formula of
// `dequantize`.

void put(const GroupQ8_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 2 * kTilesQ8_0Unit;
  std::memcpy(unit + g % 2 * 32 + 2 * row, group.d, 2);
  std::memcpy(unit + kLine + row * kLine + g % 2 * 32, group.codes, 32);
}
void get_q8_0(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 2 * kTilesQ8_0Unit;
  const float d = load_half(unit + g % 2 * 32 + 2 * row);
  const auto* codes = reinterpret_cast<const std::int8_t*>(unit + kLine + row * kLine + g % 2 * 32);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(codes[i]) * d;
}

// Writes bit `bit` of the codes of run `run` to a line of such bits.
void put_bits(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32], std::size_t bit) {
  std::uint32_t joined = 0;
  for (std::size_t i = 0; i < 32; ++i) joined |= ((codes[i] >> bit) & 1u) << run_word(i);
  store(lines + run * kLine + 4 * row, joined);
}
int get_bit(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
  return load<std::uint32_t>(lines + run * kLine + 4 * row) >> run_word(i) & 1;
}

// Groups of 32, four to a unit: the scale and, `header` bytes into the unit, the codes.
template <class Group>
void put_d(const Group& group, std::byte* unit, std::size_t row, std::size_t run) {
  std::memcpy(unit + run * 32 + 2 * row, group.d, 2);
}
template <class GroupWithM>
void put_d_and_m(const GroupWithM& group, std::byte* unit, std::size_t row, std::size_t run) {
  put_d(group, unit, row, run);
  std::memcpy(unit + 2 * kLine + run * 32 + 2 * row, group.m, 2);
}
template <class Group>
void put_nibbles32(const Group& group, std::byte* lines, std::size_t row, std::size_t run) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  put_nibbles(lines, row, run, codes);
}
template <class Group>
void put_fives32(const Group& group, std::byte* lines, std::size_t row, std::size_t run) {
  std::uint8_t codes[32];
  codes_of(group, codes);
  put_bits(lines, row, run, codes, 4);
  put_nibbles(lines + 4 * kLine, row, run, codes);
}
int get_five(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
  return get_nibble(lines + 4 * kLine, row, run, i) | get_bit(lines, row, run, i) << 4;
}

void put(const GroupQ4_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesQ4_0Unit;
  put_d(group, unit, row, g % 4);
  put_nibbles32(group, unit + 2 * kLine, row, g % 4);
}
void get_q4_0(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesQ4_0Unit;
  const float d = load_half(unit + g % 4 * 32 + 2 * row);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_nibble(unit + 2 * kLine, row, g % 4, i) - 8) * d;
}

void put(const GroupIQ4_NL& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesQ4_0Unit;
  put_d(group, unit, row, g % 4);
  put_nibbles32(group, unit + 2 * kLine, row, g % 4);
}
void get_iq4_nl(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesQ4_0Unit;
  const float d = load_half(unit + g % 4 * 32 + 2 * row);
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = static_cast<float>(kIQ4_NLValues[get_nibble(unit + 2 * kLine, row, g % 4, i)]) * d;
}

void put(const GroupQ4_1& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesQ4_1Unit;
  put_d_and_m(group, unit, row, g % 4);
  put_nibbles32(group, unit + 4 * kLine, row, g % 4);
}
void get_q4_1(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesQ4_1Unit;
  const float d = load_half(unit + g % 4 * 32 + 2 * row);
  const float m = load_half(unit + 2 * kLine + g % 4 * 32 + 2 * row);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_nibble(unit + 4 * kLine, row, g % 4, i)) * d + m;
}

void put(const GroupQ5_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesQ5_0Unit;
  put_d(group, unit, row, g % 4);
  put_fives32(group, unit + 2 * kLine, row, g % 4);
}
void get_q5_0(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesQ5_0Unit;
  const float d = load_half(unit + g % 4 * 32 + 2 * row);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_five(unit + 2 * kLine, row, g % 4, i) - 16) * d;
}

void put(const GroupQ5_1& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesQ5_1Unit;
  put_d_and_m(group, unit, row, g % 4);
  put_fives32(group, unit + 4 * kLine, row, g % 4);
}
void get_q5_1(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesQ5_1Unit;
  const float d = load_half(unit + g % 4 * 32 + 2 * row);
  const float m = load_half(unit + 2 * kLine + g % 4 * 32 + 2 * row);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(get_five(unit + 4 * kLine, row, g % 4, i)) * d + m;
}

void put(const GroupMXFP4& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g / 4 * kTilesMXFP4Unit;
  *at(unit, g % 4 * 16 + row) = group.e;
  put_nibbles32(group, unit + kLine, row, g % 4);
}
void get_mxfp4(const std::byte* panel, std::size_t row, std::size_t g, float* out) {
  const std::byte* unit = panel + g / 4 * kTilesMXFP4Unit;
  const float d = half_of_e8m0(*at(unit, g % 4 * 16 + row));
  for (std::size_t i = 0; i < 32; ++i)
    out[i] = static_cast<float>(kMXFP4Values[get_nibble(unit + kLine, row, g % 4, i)]) * d;
}

void put(const GroupIQ4_XS& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kTilesIQ4_XSUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) {
    *at(unit, kRunScales + 16 * run + row) = static_cast<std::uint8_t>(scale_of(group, static_cast<int>(run)));
    put_nibbles(unit + 3 * kLine, row, run, codes + 32 * run);
  }
}
void get_iq4_xs(const std::byte* unit, std::size_t row, float* out) {
  const float d = load_half(unit + 2 * row);
  for (std::size_t i = 0; i < 256; ++i) {
    const auto scale = static_cast<std::int8_t>(*at(unit, kRunScales + i / 32 * 16 + row));
    out[i] = d * scale * static_cast<float>(kIQ4_NLValues[get_nibble(unit + 3 * kLine, row, i / 32, i % 32)]);
  }
}

// Writes two bits of every code of a run, from bit `first` on, to bits 2 * run of the words of the row's line, which is
// zeroed.
void put_twos(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32], std::size_t first) {
  std::uint8_t twos[32];
  for (std::size_t i = 0; i < 32; ++i) twos[i] = (codes[i] >> first) & 3;
  join_words(lines + row * kLine, twos, 2 * run);
}
int get_two(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
  return (*at(lines, row * kLine + 2 * run_word(i) + run / 4) >> (run % 4 * 2)) & 3;
}

void put(const GroupQ2_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kTilesQ2_KUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  std::memcpy(unit + kMinOffset + 2 * row, group.dmin, 2);
  for (std::size_t half = 0; half < 16; ++half) *at(unit, kRunScales + 16 * half + row) = group.scales[half];
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) put_twos(unit + kRuns, row, run, codes + 32 * run, 0);
}
void get_q2_k(const std::byte* unit, std::size_t row, float* out) {
  const float d = load_half(unit + 2 * row), dmin = load_half(unit + kMinOffset + 2 * row);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint8_t both = *at(unit, kRunScales + i / 16 * 16 + row);
    out[i] = d * static_cast<float>(both & 15) * static_cast<float>(get_two(unit + kRuns, row, i / 32, i % 32)) -
             dmin * static_cast<float>(both >> 4);
  }
}

void put(const GroupQ3_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kTilesQ3_KUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  for (std::size_t half = 0; half < 16; ++half)
    *at(unit, kRunScales + 16 * half + row) = static_cast<std::uint8_t>(scale_of(group, static_cast<int>(half)));
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) {
    put_bits(unit + kRuns, row, run, codes + 32 * run, 2);
    put_twos(unit + kRuns + 8 * kLine, row, run, codes + 32 * run, 0);
  }
}
void get_q3_k(const std::byte* unit, std::size_t row, float* out) {
  const float d = load_half(unit + 2 * row);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t run = i / 32;
    const int code = get_two(unit + kRuns + 8 * kLine, row, run, i % 32) | get_bit(unit + kRuns, row, run, i % 32) << 2;
    const auto scale = static_cast<std::int8_t>(*at(unit, kRunScales + i / 16 * 16 + row));
    out[i] = d * scale * static_cast<float>(code - 4);
  }
}

void put(const GroupQ6_K& group, std::byte* panel, std::size_t row, std::size_t g) {
  std::byte* unit = panel + g * kTilesQ6_KUnit;
  std::memcpy(unit + 2 * row, group.d, 2);
  for (std::size_t run = 0; run < 16; ++run)
    *at(unit, kRunScales + 16 * run + row) = static_cast<std::uint8_t>(group.scales[run]);
  std::uint8_t codes[256];
  codes_of(group, codes);
  for (std::size_t run = 0; run < 8; ++run) {
    put_nibbles(unit + kRuns, row, run, codes + 32 * run);
    put_twos(unit + kTilesHighBits, row, run, codes + 32 * run, 4);
  }
}
void get_q6_k(const std::byte* unit, std::size_t row, float* out) {
  const float d = load_half(unit + 2 * row);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t run = i / 32;
    const int high = get_two(unit + kTilesHighBits, row, run, i % 32);
    const int code = get_nibble(unit + kRuns, row, run, i % 32) | (high << 4);
    const auto scale = static_cast<std::int8_t>(*at(unit, kRunScales + i / 16 * 16 + row));
    out[i] = d * scale * static_cast<float>(code - 32);
  }
}

// The offset of the byte with the code of k = i, at bits `i / 64 % 4 * 2`.
std::size_t ternary_byte(std::size_t row, std::size_t i) {
  return kLine + i / 256 * kTilesTQUnit + row * kLine + i % 64;
}

// ORs codes into the bytes of a row's lines, 64 at a time: `begin` (a multiple of 64) is the k of the first.
void put_ternary_codes(std::byte* panel, std::size_t row, std::size_t begin, const std::uint8_t* codes,
                       std::size_t count) {
  for (std::size_t k = begin; k < begin + count; k += 64, codes += 64) {
    std::byte* line = panel + ternary_byte(row, k);
    const std::size_t shift = k / 64 % 4 * 2;
    for (std::size_t b = 0; b < kLine; b += 8)  // two bits of eight bytes at once
      store(line + b, load<std::uint64_t>(line + b) | load<std::uint64_t>(codes + b) << shift);
  }
}

template <class GroupTQ>
void put_ternary(const GroupTQ& group, std::byte* panel, std::size_t row, std::size_t g) {
  store(panel + 4 * row, load_half(group.d));  // the same in every group
  std::uint8_t codes[256];
  codes_of(group, codes);
  put_ternary_codes(panel, row, 256 * g, codes, 256);
}
void put(const GroupI2_S& group, std::byte* panel, std::size_t row, std::size_t g) {
  store(panel + 4 * row, 1.0f);
  std::uint8_t codes[128];
  codes_of(group, codes);
  put_ternary_codes(panel, row, 128 * g, codes, 128);
}
void put(const GroupTQ1_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  put_ternary(group, panel, row, g);
}
void put(const GroupTQ2_0& group, std::byte* panel, std::size_t row, std::size_t g) {
  put_ternary(group, panel, row, g);
}
void get_ternary(const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  const auto d = load<float>(panel + 4 * row);
  for (std::size_t i = 0; i < k; ++i) {
    const int code = (*at(panel, ternary_byte(row, i)) >> (i / 64 % 4 * 2)) & 3;
    out[i] = static_cast<float>(code - 1) * d;
  }
}

// Group by group, for all rows of the panel, so that the lines being written stay in the first-level cache.
template <class Group>
void pack_groups(const PanelRows& rows, std::size_t num_groups, std::byte* panel) {
  for (std::size_t g = 0; g < num_groups; ++g)
    for (std::size_t row = 0; row < rows.count; ++row) put(load<Group>(rows.at(row, g * sizeof(Group))), panel, row, g);
}

// F16, BF16: two bytes each.
std::size_t element_offset(std::size_t row, std::size_t i) {
  return i / 32 * kTile + row * kLine + 2 * run_word(i % 32);
}

void pack_elements(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t run = 0; run < k; run += 32)
    for (std::size_t row = 0; row < rows.count; ++row) {
      std::uint16_t in[32] = {}, words[32];
      std::memcpy(in, rows.at(row, 2 * run), 2 * std::min<std::size_t>(k - run, 32));
      for (std::size_t i = 0; i < 16; ++i) {
        words[2 * i] = in[i];
        words[2 * i + 1] = in[16 + i];
      }
      std::memcpy(panel + element_offset(row, run), words, kLine);
    }
}

template <class GroupTQ>
bool one_scale_per_row(const std::byte* file_rows, std::size_t rows, std::size_t groups) {
  for (std::size_t row = 0; row < rows; ++row) {
    const std::byte* first = file_rows + row * groups * sizeof(GroupTQ) + offsetof(GroupTQ, d);
    for (std::size_t g = 1; g < groups; ++g)
      if (std::memcmp(first, first + g * sizeof(GroupTQ), sizeof(GroupTQ::d)) != 0) return false;
  }
  return true;
}

}  // namespace

bool has_tiles(WeightType type) {
  return type != WeightType::f32 && type != WeightType::q4_k && type != WeightType::q5_k;
}

bool tiles_can_hold(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k) {
  if (type == WeightType::tq1_0) return one_scale_per_row<GroupTQ1_0>(file_rows, rows, k / 256);
  if (type == WeightType::tq2_0) return one_scale_per_row<GroupTQ2_0>(file_rows, rows, k / 256);
  return true;
}

std::size_t tiles_panel_bytes(WeightType type, std::size_t k) {
  switch (type) {
    case WeightType::f16:
    case WeightType::bf16:
      return (k + 63) / 64 * kTilesFloatStage;
    case WeightType::q8_0:
      return (k + 63) / 64 * kTilesQ8_0Unit;
    case WeightType::q4_0:
    case WeightType::iq4_nl:
      return (k + 127) / 128 * kTilesQ4_0Unit;
    case WeightType::q4_1:
      return (k + 127) / 128 * kTilesQ4_1Unit;
    case WeightType::q5_0:
      return (k + 127) / 128 * kTilesQ5_0Unit;
    case WeightType::q5_1:
      return (k + 127) / 128 * kTilesQ5_1Unit;
    case WeightType::mxfp4:
      return (k + 127) / 128 * kTilesMXFP4Unit;
    case WeightType::iq4_xs:
      return k / 256 * kTilesIQ4_XSUnit;
    case WeightType::q2_k:
      return k / 256 * kTilesQ2_KUnit;
    case WeightType::q3_k:
      return k / 256 * kTilesQ3_KUnit;
    case WeightType::q6_k:
      return k / 256 * kTilesQ6_KUnit;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return kLine + (k + 255) / 256 * kTilesTQUnit;
    default:
      break;
  }
  TROUPE_ASSERT(!"no tiles for this type");
  return 0;
}

void pack_tiles_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  switch (type) {
    case WeightType::f16:
    case WeightType::bf16:
      return pack_elements(rows, k, panel);
    case WeightType::q8_0:
      return pack_groups<GroupQ8_0>(rows, k / 32, panel);
    case WeightType::q4_0:
      return pack_groups<GroupQ4_0>(rows, k / 32, panel);
    case WeightType::q4_1:
      return pack_groups<GroupQ4_1>(rows, k / 32, panel);
    case WeightType::iq4_nl:
      return pack_groups<GroupIQ4_NL>(rows, k / 32, panel);
    case WeightType::q5_0:
      return pack_groups<GroupQ5_0>(rows, k / 32, panel);
    case WeightType::q5_1:
      return pack_groups<GroupQ5_1>(rows, k / 32, panel);
    case WeightType::mxfp4:
      return pack_groups<GroupMXFP4>(rows, k / 32, panel);
    case WeightType::iq4_xs:
      return pack_groups<GroupIQ4_XS>(rows, k / 256, panel);
    case WeightType::q2_k:
      return pack_groups<GroupQ2_K>(rows, k / 256, panel);
    case WeightType::q3_k:
      return pack_groups<GroupQ3_K>(rows, k / 256, panel);
    case WeightType::q6_k:
      return pack_groups<GroupQ6_K>(rows, k / 256, panel);
    case WeightType::tq1_0:
      return pack_groups<GroupTQ1_0>(rows, k / 256, panel);
    case WeightType::tq2_0:
      return pack_groups<GroupTQ2_0>(rows, k / 256, panel);
    case WeightType::i2_s:
      return pack_groups<GroupI2_S>(rows, k / 128, panel);
    default:
      break;
  }
  TROUPE_ASSERT(!"no tiles for this type");
}

void unpack_tiles_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  switch (type) {
    case WeightType::f16:
      for (std::size_t i = 0; i < k; ++i) out[i] = load_half(panel + element_offset(row, i));
      return;
    case WeightType::bf16:
      for (std::size_t i = 0; i < k; ++i) out[i] = float_of_bf16(load<std::uint16_t>(panel + element_offset(row, i)));
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
    case WeightType::q5_0:
      for (std::size_t g = 0; g < k / 32; ++g) get_q5_0(panel, row, g, out + 32 * g);
      return;
    case WeightType::q5_1:
      for (std::size_t g = 0; g < k / 32; ++g) get_q5_1(panel, row, g, out + 32 * g);
      return;
    case WeightType::mxfp4:
      for (std::size_t g = 0; g < k / 32; ++g) get_mxfp4(panel, row, g, out + 32 * g);
      return;
    case WeightType::iq4_xs:
      for (std::size_t g = 0; g < k / 256; ++g) get_iq4_xs(panel + g * kTilesIQ4_XSUnit, row, out + 256 * g);
      return;
    case WeightType::q2_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q2_k(panel + g * kTilesQ2_KUnit, row, out + 256 * g);
      return;
    case WeightType::q3_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q3_k(panel + g * kTilesQ3_KUnit, row, out + 256 * g);
      return;
    case WeightType::q6_k:
      for (std::size_t g = 0; g < k / 256; ++g) get_q6_k(panel + g * kTilesQ6_KUnit, row, out + 256 * g);
      return;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return get_ternary(panel, row, k, out);
    default:
      break;
  }
  TROUPE_ASSERT(!"no tiles for this type");
}

}  // namespace troupe::kernels
