#include "kernels/packed_lookup.h"

#include <algorithm>
#include <cstdint>

#include "config/assert.h"
#include "kernels/groups.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/packed_layout.h"

namespace troupe::kernels {
namespace {

using namespace layout;

constexpr std::size_t kTriples = 86;  // the last one has one weight of 256

// The codes (weight + 1) of the 256 k of unit `unit`, what a row lacks as zeros, and the scale.
template <class GroupTQ>
void read_unit(const PanelRows& rows, std::size_t row, std::size_t unit, std::size_t, std::uint8_t (&codes)[256]) {
  codes_of(load<GroupTQ>(rows.at(row, unit * sizeof(GroupTQ))), codes);
}
template <>
void read_unit<GroupI2_S>(const PanelRows& rows, std::size_t row, std::size_t unit, std::size_t k,
                          std::uint8_t (&codes)[256]) {
  std::fill(std::begin(codes), std::end(codes), std::uint8_t{1});
  for (std::size_t g = 2 * unit; g < std::min(2 * unit + 2, k / 128); ++g)
    codes_of(load<GroupI2_S>(rows.at(row, g * sizeof(GroupI2_S))),
             *reinterpret_cast<std::uint8_t(*)[128]>(codes + g % 2 * 128));
}

void put_unit(const std::uint8_t (&codes)[256], std::byte* unit, std::size_t row) {
  auto* bytes = reinterpret_cast<std::uint8_t*>(unit);
  for (std::size_t triple = 0; triple < kTriples; ++triple) {
    const auto digit = [&](std::size_t i) { return 3 * triple + i < 256 ? codes[3 * triple + i] - 1 : 0; };
    const int v = 9 * digit(0) + 3 * digit(1) + digit(2);
    const std::size_t step = triple / 4, byte = triple % 4 * kPanelRows + row;
    if (v < 0) bytes[step / 8 * kLine + byte] |= static_cast<std::uint8_t>(0x80u >> (step % 8));
    bytes[kLookupSigns + step / 2 * kLine + byte] |= static_cast<std::uint8_t>((v < 0 ? -v : v) << (step % 2 * 4));
  }
}

template <class Group>
void pack_units(const PanelRows& rows, std::size_t k, std::byte* panel) {
  for (std::size_t unit = 0; unit < (k + 255) / 256; ++unit)
    for (std::size_t row = 0; row < rows.count; ++row) {
      std::uint8_t codes[256];
      read_unit<Group>(rows, row, unit, k, codes);
      put_unit(codes, panel + kLine + unit * kLookupUnit, row);
    }
}

template <class GroupTQ>
void pack_scales(const PanelRows& rows, std::byte* panel) {
  for (std::size_t row = 0; row < rows.count; ++row)
    store(panel + 2 * row, load<std::uint16_t>(rows.at(row, offsetof(GroupTQ, d))));
}

}  // namespace

bool lookup_can_hold(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k) {
  if (!is_ternary(type) || k > kMaxLookupK || !tiles_can_hold(type, file_rows, rows, k)) return false;
  if (type != WeightType::tq2_0) return true;
  std::uint8_t threes = 0;
  for (std::size_t g = 0; g < rows * (k / 256); ++g) {
    const auto group = load<GroupTQ2_0>(file_rows + g * sizeof(GroupTQ2_0));
    for (const std::uint8_t codes : group.codes) threes |= static_cast<std::uint8_t>(codes & (codes >> 1) & 0x55);
  }
  return threes == 0;
}

void pack_lookup_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel) {
  switch (type) {
    case WeightType::tq1_0:
      pack_scales<GroupTQ1_0>(rows, panel);
      return pack_units<GroupTQ1_0>(rows, k, panel);
    case WeightType::tq2_0:
      pack_scales<GroupTQ2_0>(rows, panel);
      return pack_units<GroupTQ2_0>(rows, k, panel);
    case WeightType::i2_s:
      for (std::size_t row = 0; row < rows.count; ++row) store(panel + 2 * row, half_of_float(1.0f));
      return pack_units<GroupI2_S>(rows, k, panel);
    default:
      TROUPE_ASSERT(!"no lookups for this type");
  }
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

}  // namespace troupe::kernels
