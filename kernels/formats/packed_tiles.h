// Packing to and unpacking from the tile layout of packed_layout.h, for packed_matrix.cpp.
#pragma once

#include <cstddef>

#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

// Whether this type has a tile layout: all but F32, and Q4_K and Q5_K, for which AMX reads panels.
[[nodiscard]] bool has_tiles(WeightType type);

// Whether the layout can represent these weights: ternary types need one scale for all groups of a row.
[[nodiscard]] bool tiles_can_hold(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k);

// Bytes of a panel of 16 rows. has_tiles() is asserted here and below.
[[nodiscard]] std::size_t tiles_panel_bytes(WeightType type, std::size_t k);

// The rows of one panel, in file format.
struct PanelRows {
  const std::byte* first;
  std::size_t row_bytes;  // from one to the next
  std::size_t count;      // 16, or fewer in the last panel

  [[gnu::always_inline]] const std::byte* at(std::size_t row, std::size_t offset) const {
    return first + row * row_bytes + offset;
  }
};

// Packs a panel, zeroed by the caller.
void pack_tiles_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);

// out[0..k) = the file's exact values.
void unpack_tiles_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);

}  // namespace troupe::kernels
