// Packing and unpacking of panels, for packed_matrix.cpp: the loops over groups of codes, and the tile, lookup and
// trits layouts of packed_layout.h.
#pragma once

#include <cstddef>

#include "kernels/formats/weight_formats.h"

namespace troupe::kernels {

// The rows of one panel, in file format.
struct PanelRows {
  const std::byte* first;
  std::size_t row_bytes;  // from one to the next
  std::size_t count;      // 16, or fewer in the last panel

  [[gnu::always_inline]] const std::byte* at(std::size_t row, std::size_t offset) const {
    return first + row * row_bytes + offset;
  }
};

// Lines<Packing> is the place of codes in a unit of a layout:
//   kUnit, kTiles
//   put(lines, row, run, codes)  writes the 32 codes of run `run` of the unit to its zeroed lines, after the header
//   get(lines, row, run, i)      code i of that run

// Group by group, for all rows of the panel, so that the lines being written stay in the first-level cache.
template <class Format, template <class> class Lines>
void pack_groups(const PanelRows& rows, std::size_t k, std::byte* panel) {
  using Group = typename Format::Group;
  using Packing = typename Format::Packing;
  constexpr layout::PanelUnit unit = Lines<Packing>::kUnit;
  for (std::size_t begin = 0; begin < k; begin += Format::kWeights) {
    std::byte* const to = panel + begin / unit.k * unit_bytes(unit);
    const std::size_t run = begin % unit.k / 32;
    for (std::size_t row = 0; row < rows.count; ++row) {
      const auto group = load<Group>(rows.at(row, begin / Format::kWeights * sizeof(Group)));
      Packing::Scales::put(group, scales::To{to, row, unit.k, Lines<Packing>::kTiles}, run);
      std::uint8_t codes[Format::kWeights];
      codes_of(group, codes);
      for (std::size_t i = 0; i < Format::kWeights / 32; ++i)
        Lines<Packing>::put(to + unit.header, row, run + i, codes + 32 * i);
    }
  }
}

// out[0..k) = the file's exact values of row `row` of a panel, by the formula of `dequantize`.
template <class Packing, template <class> class Lines>
void unpack_groups(const std::byte* panel, std::size_t row, std::size_t k, float* out) {
  constexpr layout::PanelUnit unit = Lines<Packing>::kUnit;
  for (std::size_t begin = 0; begin < k; begin += 16, out += 16) {
    const std::byte* from = panel + begin / unit.k * unit_bytes(unit);
    const std::size_t half = begin % unit.k / 16;
    const scales::HalfRun scale = Packing::Scales::get(scales::From{from, row, unit.k, Lines<Packing>::kTiles}, half);
    for (std::size_t j = 0; j < 16; ++j) {
      const int code = Lines<Packing>::get(from + unit.header, row, half / 2, half % 2 * 16 + j);
      out[j] = static_cast<float>(Packing::Values::of(code)) * scale.d - scale.min;
    }
  }
}

// ---- Tiles (packed_tiles.cpp) ----------------------------------------------------------------------------------

// Whether this type has a tile layout (weight_formats.h).
[[nodiscard]] bool has_tiles(WeightType type);

// Whether the layout can represent these weights: ternary types need one scale for all groups of a row.
[[nodiscard]] bool tiles_can_hold(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k);

// Bytes of a panel of 16 rows. has_tiles() is asserted here and below.
[[nodiscard]] std::size_t tiles_panel_bytes(WeightType type, std::size_t k);

// Packs a panel, zeroed by the caller.
void pack_tiles_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);

// out[0..k) = the file's exact values.
void unpack_tiles_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);

// ---- Lookup and trits (packed_ternary.cpp) ---------------------------------------------------------------------

// Whether both layouts can represent these weights of a ternary type: one scale for all groups of a row, and no code 3,
// which TQ2_0 has bits for (a weight of 2) but no converter writes.
[[nodiscard]] bool has_ternary_rows(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k);

// Packs a panel, zeroed by the caller, of weights that the layout can represent.
void pack_lookup_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);
void pack_trits_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);

// out[0..k) = the file's exact values.
void unpack_lookup_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);
void unpack_trits_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);

}  // namespace troupe::kernels
