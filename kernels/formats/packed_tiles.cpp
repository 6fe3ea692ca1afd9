// The tile layout: packing and unpacking of panels.
#include <algorithm>
#include <cstring>

#include "config/assert.h"
#include "kernels/formats/packed_groups.h"

namespace troupe::kernels {
namespace {

using namespace layout;

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

// Writes bit `bit` of the codes of run `run` to a line of such bits.
void put_bits(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32], std::size_t bit) {
  std::uint32_t joined = 0;
  for (std::size_t i = 0; i < 32; ++i) joined |= ((codes[i] >> bit) & 1u) << run_word(i);
  store(lines + run * kLine + 4 * row, joined);
}
int get_bit(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
  return load<std::uint32_t>(lines + run * kLine + 4 * row) >> run_word(i) & 1;
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

// In a unit: lines of ones for codes of 3 or 5 bits, nibbles for 4, 5 and 6, twos for 2, 3 and 6; or signed bytes.
template <class Packing>
struct TileLines {
  static constexpr PanelUnit kUnit = Packing::kTilesUnit;
  static constexpr bool kTiles = true;
  static constexpr std::size_t kBits = kUnit.bits;
  static constexpr bool kOnes = kBits % 2 == 1, kNibbles = kBits >= 4;
  static constexpr std::size_t kTwos = kBits == 2 || kBits == 3 ? 0 : 4;  // the first of the two bits
  static constexpr bool kHasTwos = kBits == 2 || kBits == 3 || kBits == 6;
  static_assert(!kHasTwos || kUnit.k == 256, "a line of twos is for 256 k");
  static constexpr std::size_t kNibblesAt = kOnes ? kUnit.k / 32 * kLine : 0;
  static constexpr std::size_t kTwosAt = kNibblesAt + (kNibbles ? kUnit.k / 128 * kTilesNibbles : 0);

  static void put(std::byte* lines, std::size_t row, std::size_t run, const std::uint8_t codes[32]) {
    if constexpr (kBits == 8) {
      for (std::size_t i = 0; i < 32; ++i) lines[row * kLine + run * 32 + i] = static_cast<std::byte>(codes[i] ^ 0x80);
    } else {
      if constexpr (kOnes) put_bits(lines, row, run, codes, kBits - 1);
      if constexpr (kNibbles) put_nibbles(lines + kNibblesAt, row, run, codes);
      if constexpr (kHasTwos) put_twos(lines + kTwosAt, row, run, codes, kTwos);
    }
  }
  static int get(const std::byte* lines, std::size_t row, std::size_t run, std::size_t i) {
    if constexpr (kBits == 8) return *at(lines, row * kLine + run * 32 + i) ^ 0x80;
    int code = 0;
    if constexpr (kOnes) code |= get_bit(lines, row, run, i) << (kBits - 1);
    if constexpr (kNibbles) code |= get_nibble(lines + kNibblesAt, row, run, i);
    if constexpr (kHasTwos) code |= get_two(lines + kTwosAt, row, run, i) << kTwos;
    return code;
  }
};

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

template <class Format>
void pack_ternary(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t begin = 0; begin < k; begin += Format::kWeights)
    for (std::size_t row = 0; row < rows.count; ++row) {
      const auto group =
          load<typename Format::Group>(rows.at(row, begin / Format::kWeights * sizeof(typename Format::Group)));
      store(panel + 4 * row, scales::One::of(group, 0).d);  // the same in every group
      std::uint8_t codes[Format::kWeights];
      codes_of(group, codes);
      put_ternary_codes(panel, row, begin, codes, Format::kWeights);
    }
}
void get_ternary(const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  const auto d = load<float>(panel + 4 * row);
  for (std::size_t i = 0; i < k; ++i) {
    const int code = (*at(panel, ternary_byte(row, i)) >> (i / 64 % 4 * 2)) & 3;
    out[i] = static_cast<float>(code - 1) * d;
  }
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
  return visit_type(type, [](auto format) { return kHasTiles<typename decltype(format)::Packing>; });
}

bool tiles_can_hold(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k) {
  return visit_type(type, [&](auto format) {
    using Format = decltype(format);
    if constexpr (kIsTernary<typename Format::Packing> && requires { Format::Group::d; })
      return one_scale_per_row<typename Format::Group>(file_rows, rows, k / Format::kWeights);
    else
      return true;
  });
}

std::size_t tiles_panel_bytes(WeightType type, std::size_t k) {
  return visit_type(type, [&](auto format) -> std::size_t {
    using Packing = typename decltype(format)::Packing;
    if constexpr (!kHasTiles<Packing>)
      TROUPE_ASSERT(!"no tiles for this type");
    else if constexpr (kIsNumbers<Packing>)
      return (k + 63) / 64 * kTilesFloatStage;
    else if constexpr (kIsTernary<Packing>)
      return kLine + (k + 255) / 256 * kTilesTQUnit;
    else
      return panel_bytes(Packing::kTilesUnit, k);
    return 0;
  });
}

void pack_tiles_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  visit_type(type, [&](auto format) {
    using Format = decltype(format);
    using Packing = typename Format::Packing;
    if constexpr (!kHasTiles<Packing>)
      TROUPE_ASSERT(!"no tiles for this type");
    else if constexpr (kIsNumbers<Packing>)
      pack_elements(rows, k, panel);
    else if constexpr (kIsTernary<Packing>)
      pack_ternary<Format>(rows, k, panel);
    else
      pack_groups<Format, TileLines>(rows, k, panel);
  });
}

void unpack_tiles_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  visit_type(type, [&](auto format) {
    using Packing = typename decltype(format)::Packing;
    if constexpr (!kHasTiles<Packing>)
      TROUPE_ASSERT(!"no tiles for this type");
    else if constexpr (kIsNumbers<Packing>)
      for (std::size_t i = 0; i < k; ++i)
        out[i] = value_of(load<typename Packing::Number>(panel + element_offset(row, i)));
    else if constexpr (kIsTernary<Packing>)
      get_ternary(panel, row, k, out);
    else
      unpack_groups<Packing, TileLines>(panel, row, k, out);
  });
}

}  // namespace troupe::kernels
