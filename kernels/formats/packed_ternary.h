// Packing to and unpacking from the lookup and trits layouts of packed_layout.h, for packed_matrix.cpp.
#pragma once

#include <cstddef>

#include "kernels/formats/packed_tiles.h"
#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

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
