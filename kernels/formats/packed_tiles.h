// Packing to and unpacking from the tile layout of packed_layout.h, for packed_matrix.cpp.
#pragma once

#include <cstddef>

#include "kernels/formats/packed_groups.h"
#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

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

}  // namespace troupe::kernels
