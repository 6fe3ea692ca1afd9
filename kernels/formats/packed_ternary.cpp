// The lookup and trits layouts: packing and unpacking of panels.
#include <algorithm>
#include <cstdint>

#include "config/assert.h"
#include "kernels/formats/packed_groups.h"

namespace troupe::kernels {
namespace {

using namespace layout;

constexpr std::size_t kTriples = 86;  // the last one has one weight of 256

// Reads the codes (weight + 1) of the 256 k of unit `unit`, zero weights beyond the end of the row.
template <class Format>
void read_unit(const PanelRows& rows, std::size_t row, std::size_t unit, std::size_t k, std::uint8_t (&codes)[256]) {
  using Group = typename Format::Group;
  std::fill(std::begin(codes), std::end(codes), std::uint8_t{1});
  for (std::size_t begin = 256 * unit; begin < std::min(256 * unit + 256, k); begin += Format::kWeights)
    codes_of(load<Group>(rows.at(row, begin / Format::kWeights * sizeof(Group))), codes + begin % 256);
}

void put_lookup_unit(const std::uint8_t (&codes)[256], std::byte* unit, std::size_t row) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(unit);
  for (std::size_t triple = 0; triple < kTriples; ++triple) {
    const auto digit = [&](std::size_t i) { return 3 * triple + i < 256 ? codes[3 * triple + i] - 1 : 0; };
    const int v = 9 * digit(0) + 3 * digit(1) + digit(2);
    const std::size_t step = triple / 4, byte = triple % 4 * kPanelRows + row;
    if (v < 0) bytes[step / 8 * kLine + byte] |= static_cast<std::uint8_t>(0x80u >> (step % 8));
    bytes[kLookupSigns + step / 2 * kLine + byte] |= static_cast<std::uint8_t>((v < 0 ? -v : v) << (step % 2 * 4));
  }
}

// The word and digit of byte `i` of quad `quad` of a row.
struct TritsPlace {
  std::size_t offset;  // of the word in its unit
  std::size_t digit;
};
TritsPlace trits_place(std::size_t row, std::size_t quad, std::size_t i) {
  const std::size_t byte = 4 * row + i, lane = byte / 16, in_lane = byte % 16;
  const std::size_t line = 2 * (quad / kTritsQuads) + in_lane / 8;
  return {line * kLine + 2 * (8 * lane + in_lane % 8), quad % kTritsQuads};
}
constexpr std::size_t kTritsWordQuads = kTritsPairs * kTritsQuads;  // the quads after them are nibbles
constexpr std::uint32_t kTritsRange = 59049;                        // 3^10

void put_trits_unit(const std::uint8_t (&codes)[256], std::byte* unit, std::size_t row) {
  for (std::size_t i = 0; i < 4; ++i) {
    const auto code = [&](std::size_t quad) { return std::uint32_t{codes[4 * quad + i]}; };
    for (std::size_t quad = 0; quad < kTritsWordQuads; quad += kTritsQuads) {
      std::uint32_t value = 0;
      for (std::size_t digit = 0; digit < kTritsQuads; ++digit) value = 3 * value + code(quad + digit);
      const std::uint32_t word = (value * 65536 + kTritsRange - 1) / kTritsRange;
      store(unit + trits_place(row, quad, i).offset, static_cast<std::uint16_t>(word));
    }
    const std::uint32_t low = 3 * code(kTritsWordQuads) + code(kTritsWordQuads + 1);
    const std::uint32_t high = 3 * code(kTritsWordQuads + 2) + code(kTritsWordQuads + 3);
    unit[2 * kTritsPairs * kLine + 4 * row + i] = static_cast<std::byte>(low | (high << 4));
  }
}

std::uint32_t get_trit(const std::byte* unit, std::size_t row, std::size_t quad, std::size_t i) {
  if (quad >= kTritsWordQuads) {
    const auto nibbles = std::to_integer<std::uint32_t>(unit[2 * kTritsPairs * kLine + 4 * row + i]);
    const std::uint32_t two = (nibbles >> ((quad - kTritsWordQuads) / 2 * 4)) & 15;
    return quad % 2 == 0 ? two / 3 : two % 3;
  }
  const TritsPlace place = trits_place(row, quad, i);
  std::uint32_t rest = load<std::uint16_t>(unit + place.offset);
  for (std::size_t digit = 0; digit < place.digit; ++digit) rest = rest * 3 & 0xffff;
  return rest * 3 >> 16;
}

// `put_unit` writes a row's 256 codes to a unit of `unit_bytes`; units follow a line of scales.
template <class PutUnit>
void pack_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel, std::size_t unit_bytes,
                PutUnit& put_unit) {
  visit_type(type, [&](auto format) {
    using Format = decltype(format);
    if constexpr (!kIsTernary<typename Format::Packing>) {
      TROUPE_ASSERT(!"no such layout of this type");
    } else {
      for (std::size_t row = 0; row < rows.count; ++row)
        store(panel + 2 * row, scales::One::d_of(load<typename Format::Group>(rows.at(row, 0))));
      for (std::size_t unit = 0; unit < (k + 255) / 256; ++unit)
        for (std::size_t row = 0; row < rows.count; ++row) {
          std::uint8_t codes[256];
          read_unit<Format>(rows, row, unit, k, codes);
          put_unit(codes, panel + kLine + unit * unit_bytes, row);
        }
    }
  });
}

}  // namespace

bool has_ternary_rows(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k) {
  TROUPE_ASSERT(is_ternary(type));
  if (!tiles_can_hold(type, file_rows, rows, k)) return false;
  return visit_type(type, [&](auto format) {
    using Format = decltype(format);
    using Group = typename Format::Group;
    if constexpr (requires(Group group) { threes_in(group); }) {
      std::uint8_t threes = 0;
      for (std::size_t g = 0; g < rows * (k / Format::kWeights); ++g)
        threes |= threes_in(load<Group>(file_rows + g * sizeof(Group)));
      return threes == 0;
    } else {
      return true;
    }
  });
}

void pack_lookup_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  pack_panel(type, rows, k, panel, kLookupUnit, put_lookup_unit);
}
void pack_trits_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  pack_panel(type, rows, k, panel, kTritsUnit, put_trits_unit);
}

void unpack_lookup_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  TROUPE_ASSERT(is_ternary(type));
  const float d = load_half(panel + 2 * row);
  for (std::size_t i = 0; i < k; ++i) {
    const auto* unit = reinterpret_cast<const std::uint8_t*>(panel + kLine + i / 256 * kLookupUnit);
    const std::size_t triple = i % 256 / 3, step = triple / 4, byte = triple % 4 * kPanelRows + row;
    int v = (unit[kLookupSigns + step / 2 * kLine + byte] >> (step % 2 * 4)) & 15;
    if (((unit[step / 8 * kLine + byte] << (step % 8)) & 0x80) != 0) v = -v;
    const int code = (v + 13) / (i % 256 % 3 == 0 ? 9 : i % 256 % 3 == 1 ? 3 : 1) % 3;
    out[i] = static_cast<float>(code - 1) * d;
  }
}

void unpack_trits_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  TROUPE_ASSERT(is_ternary(type));
  const float d = load_half(panel + 2 * row);
  for (std::size_t i = 0; i < k; ++i) {
    const std::byte* unit = panel + kLine + i / 256 * kTritsUnit;
    out[i] = (static_cast<float>(get_trit(unit, row, i % 256 / 4, i % 4)) - 1.0f) * d;
  }
}

}  // namespace troupe::kernels
