// Packing into the lookup and the trits layout of packed_layout.h, and back: what packed_matrix.cpp calls for those.
#pragma once

#include <cstddef>

#include "kernels/formats/packed_tiles.h"
#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

// Whether both layouts can say what these weights, of a ternary type, are: one scale for all groups of a row, and no
// code 3, which TQ2_0 has bits for (a weight of 2) but no converter writes.
[[nodiscard]] bool has_ternary_rows(WeightType type, const std::byte* file_rows, std::size_t rows, std::size_t k);

// Packs a panel that begins as zeros, of weights that the layout can hold.
void pack_lookup_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);
void pack_trits_panel(WeightType type, const PanelRows& rows, std::size_t k, std::byte* panel);

// out[0..k) = the exact values of the file.
void unpack_lookup_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);
void unpack_trits_row(WeightType type, const std::byte* panel, std::size_t row, std::size_t k, float* out);

}  // namespace troupe::kernels
