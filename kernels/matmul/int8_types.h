// A packing (weight_formats.h) for the products with int8 activations of all vector variants. Internal linkage, as in
// matmul_int8_256.h.
#pragma once

#include "kernels/formats/weight_formats.h"

namespace troupe::kernels {
namespace {

//   kRunQuads     quads that share a scale: an exact integer run
//   kWide         codes of 8 bits, offset 128: the sum of two products would not fit into int16
//   kNarrowQuads  quads with `vpmaddubsw` results (at most 2 * 127 * largest code each) that add up in int16
//   kStartShift   log2 of the ratio of the offset that a row's `start` is for to the codes' offset; -1: no offset
//   kRow256       activations have one scale per 256
template <class PackingType>
struct Int8Type {
  using Packing = PackingType;
  using Scales = typename Packing::Scales;
  static constexpr int kOffset = Packing::Values::kOffset;
  static constexpr int kRunQuads = static_cast<int>(Scales::kRunK / 4);
  static constexpr bool kWide = kOffset == layout::kSumOffset, kHasMin = Scales::kHasMin;
  static constexpr bool kRow256 = Packing::kActivation == Activation::i8_group256;
  static constexpr int kNarrowQuads = [] {
    int quads = 1;
    while (!kWide && 2 * quads <= kRunQuads && 2 * quads * 2 * 127 * Packing::kLargest <= 32767) quads *= 2;
    return quads;
  }();
  static constexpr int kStartShift = [] {
    if (kRow256) return 0;  // their `start` is for the offset of ternary codes
    if (kOffset == 0) return -1;
    int shift = 0;
    while (kOffset << shift != layout::kSumOffset) ++shift;
    return shift;
  }();
  static constexpr std::size_t kBlockBytes = 256 / Packing::kPanelUnit.k * unit_bytes(Packing::kPanelUnit);
  static std::size_t panel_bytes(std::size_t k) {
    constexpr layout::PanelUnit unit = Packing::kPanelUnit;
    return layout::panel_bytes(unit, k);
  }
};

}  // namespace
}  // namespace troupe::kernels
