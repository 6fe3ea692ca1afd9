// How packed matrices store the weights of each type, and visit_type: the one place where a WeightType becomes a C++
// type.
//
// A type's packing is Numbers or Codes<scales, bits, values>: w = value of the code * d - min, with d and min the same
// for 16 or more weights of a row. Types of equal packing share all code that reads packed matrices. packed_layout.h
// has the bytes.
//
// Files for one instruction set use types and constants, and visit_type, which is static; not the functions of scales.
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/formats/groups.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/kernels.h"

namespace troupe::kernels {

// ---- Numbers: F32, F16, BF16 -----------------------------------------------------------------------------------

template <class Group, Activation amx_activation>
struct Numbers {
  using Number = Group;
  static constexpr std::size_t kBytes = sizeof(Group);
  static constexpr Activation kActivation = Activation::f32, kAmxActivation = amx_activation;
};

// ---- Values of codes -------------------------------------------------------------------------------------------
//
//   kOffset        0 or a power of two; added, it makes them unsigned
//   largest(bits)  the largest unsigned one

template <int offset>
struct Minus {  // code - offset
  static constexpr int kOffset = offset;
  static constexpr int largest(int bits) { return (1 << bits) - 1; }
  static constexpr int of(int code) { return code - offset; }
};

template <const std::int8_t (&values)[16]>
struct Among {  // values[code]
  static constexpr int kOffset = [] {
    int offset = 1;
    for (const int value : values)
      while (value + offset < 0) offset *= 2;
    return offset;
  }();
  static constexpr int largest(int) {
    int largest = values[0];
    for (const int value : values) largest = value > largest ? value : largest;
    return largest + kOffset;
  }
  static constexpr int of(int code) { return values[code]; }
};

// ---- Scales ----------------------------------------------------------------------------------------------------
//
// kRunK, kHasMin    weights of a row that share d and min; whether there is a min
// kPanelK, kTilesK  weights of a row in a unit of either layout
// header(k)         bytes of the scales of 16 rows in the header of a unit of k weights
// of(group, half)   d and min of half run `half`, 16 weights, of a group
// put(group, to, run)  writes the scales of a group whose first run of 32 is the unit's run `run`
// get(from, half)   d and min of the unit's half run `half`

namespace scales {

struct HalfRun {
  float d = 0, min = 0;
};

// The place of a row's scales in the header of a unit of k weights.
template <class Byte>
struct Place {
  Byte* header;
  std::size_t row, k;
  bool tiles;

  float half(std::size_t offset) const { return load_half(header + offset + 2 * row); }
  std::uint8_t byte(std::size_t offset) const { return static_cast<std::uint8_t>(header[offset + row]); }
  void put_half(std::size_t offset, std::uint16_t bits) const { store(header + offset + 2 * row, bits); }
  void put_half(std::size_t offset, const std::uint8_t (&half)[2]) const {
    put_half(offset, load<std::uint16_t>(half));
  }
  void put_byte(std::size_t offset, int byte) const { header[offset + row] = static_cast<std::byte>(byte); }
};
using From = Place<const std::byte>;
using To = Place<std::byte>;

// The recipes of most types: int8 activations per 32, on AMX bfloat16.
struct Per32 {
  static constexpr Activation kActivation = Activation::i8_group32, kAmxActivation = Activation::bf16_tiles;
};
template <std::size_t run_k, bool has_min>
struct Units256 {
  static constexpr std::size_t kRunK = run_k, kPanelK = 256, kTilesK = 256;
  static constexpr bool kHasMin = has_min;
};

// Per 32 weights a float16 d.
struct Halves : Per32 {
  static constexpr std::size_t kRunK = 32, kPanelK = 64, kTilesK = 128;
  static constexpr bool kHasMin = false;
  static constexpr std::size_t header(std::size_t k) { return k; }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t) {
    return {load_half(group.d)};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t run) {
    to.put_half(32 * run, group.d);
  }
  static HalfRun get(const From& from, std::size_t half) { return {from.half(half / 2 * 32)}; }
};

// The same and then, as many, a float16 m = -min; in panels min.
struct HalvesAndMins : Per32 {
  static constexpr std::size_t kRunK = 32, kPanelK = 64, kTilesK = 128;
  static constexpr bool kHasMin = true;
  static constexpr std::size_t header(std::size_t k) { return 2 * k; }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t) {
    return {load_half(group.d), -load_half(group.m)};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t run) {
    to.put_half(32 * run, group.d);
    to.put_half(to.k + 32 * run, static_cast<std::uint16_t>(load<std::uint16_t>(group.m) ^ (to.tiles ? 0u : 0x8000u)));
  }
  static HalfRun get(const From& from, std::size_t half) {
    const float min = from.half(from.k + half / 2 * 32);
    return {from.half(half / 2 * 32), from.tiles ? -min : min};
  }
};

// Per 32 weights the exponent of a power of two. The scale is half of it, because kMXFP4Values are doubled.
struct Powers : Per32 {
  static constexpr std::size_t kRunK = 32, kPanelK = 128, kTilesK = 128;
  static constexpr bool kHasMin = false;
  static constexpr std::size_t header(std::size_t k) { return k / 2; }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t) {
    return {half_of_e8m0(group.e)};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t run) {
    to.put_byte(16 * run, group.e);
  }
  static HalfRun get(const From& from, std::size_t half) { return {half_of_e8m0(from.byte(half / 2 * 16))}; }
};

// Per 256 weights a float16 d and `count` int8 scales: one for each run of 32, or half run.
template <std::size_t count>
struct SignedScales : Per32, Units256<256 / count, false> {
  static constexpr std::size_t header(std::size_t) { return layout::kLine + 16 * count; }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t half) {
    return {load_half(group.d) * static_cast<float>(scale_of(group, half * count / 16))};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t) {
    to.put_half(0, group.d);
    for (std::size_t i = 0; i < count; ++i) to.put_byte(layout::kRunScales + 16 * i, scale_of(group, i));
  }
  static HalfRun get(const From& from, std::size_t half) {
    return {from.half(0) * static_cast<std::int8_t>(from.byte(layout::kRunScales + half * count / 16 * 16))};
  }
};
using Runs = SignedScales<8>;
using HalfRuns = SignedScales<16>;

// Per 256 weights a float16 d and dmin, and for each run a scale and a min of 6 bits. AMX multiplies them in int8, from
// panels.
struct RunsAndMins : Units256<32, true> {
  static constexpr Activation kActivation = Activation::i8_group32, kAmxActivation = Activation::i8_group256_tiles;
  static constexpr std::size_t header(std::size_t) { return 5 * layout::kLine; }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t half) {
    const ScaleMin run = scale_min_of(group.scales, half / 2);
    return {load_half(group.d) * run.scale, load_half(group.dmin) * run.min};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t) {
    to.put_half(0, group.d);
    to.put_half(layout::kMinOffset, group.dmin);
    for (std::size_t i = 0; i < 8; ++i) {
      const ScaleMin run = scale_min_of(group.scales, i);
      to.put_byte(layout::kRunScales + 16 * i, run.scale);
      to.put_byte(layout::kRunMins + 16 * i, run.min);
    }
  }
  static HalfRun get(const From& from, std::size_t half) {
    const std::size_t run = half / 2 * 16;
    return {from.half(0) * from.byte(layout::kRunScales + run),
            from.half(layout::kMinOffset) * from.byte(layout::kRunMins + run)};
  }
};

// Per 256 weights a float16 d and dmin, and for each half run a byte: scale in the low, min in the high nibble.
struct HalfRunsAndMins : Per32, Units256<16, true> {
  static constexpr std::size_t header(std::size_t) { return 5 * layout::kLine; }
  static HalfRun scaled(float d, float dmin, std::uint8_t both) {
    return {d * static_cast<float>(both & 15), dmin * static_cast<float>(both >> 4)};
  }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t half) {
    return scaled(load_half(group.d), load_half(group.dmin), group.scales[half]);
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t) {
    to.put_half(0, group.d);
    to.put_half(layout::kMinOffset, group.dmin);
    for (std::size_t i = 0; i < 16; ++i) to.put_byte(layout::kRunScales + 16 * i, group.scales[i]);
  }
  static HalfRun get(const From& from, std::size_t half) {
    return scaled(from.half(0), from.half(layout::kMinOffset), from.byte(layout::kRunScales + 16 * half));
  }
};

// Per 256 weights a float16 d; 1 for groups without. Activations are int8 per 256 or, on AMX, per row.
struct One : Units256<256, false> {
  static constexpr Activation kActivation = Activation::i8_group256, kAmxActivation = Activation::i8_tiles;
  static constexpr std::size_t header(std::size_t) { return layout::kLine; }
  template <class Group>
  static std::uint16_t d_of(const Group& group) {
    if constexpr (requires { group.d; })
      return load<std::uint16_t>(group.d);
    else
      return half_of_float(1.0f);
  }
  template <class Group>
  static HalfRun of(const Group& group, std::size_t) {
    return {float_of_half(d_of(group))};
  }
  template <class Group>
  static void put(const Group& group, const To& to, std::size_t) {
    to.put_half(0, d_of(group));
  }
  static HalfRun get(const From& from, std::size_t) { return {from.half(0)}; }
};

}  // namespace scales

// ---- Codes -----------------------------------------------------------------------------------------------------

// `amx_activation` other than that of the scales: i8_group32, for a type that AMX has no product for.
template <class ScalesType, int bits, class ValuesType, Activation amx_activation = ScalesType::kAmxActivation>
struct Codes {
  using Scales = ScalesType;
  using Values = ValuesType;
  static constexpr int kBits = bits, kLargest = Values::largest(bits);
  static constexpr Activation kActivation = Scales::kActivation, kAmxActivation = amx_activation;
  static constexpr layout::PanelUnit kPanelUnit{Scales::kPanelK, Scales::header(Scales::kPanelK), bits};
  static constexpr std::size_t kTilesK = bits == 8 ? layout::kStageK : Scales::kTilesK;
  static constexpr layout::PanelUnit kTilesUnit{kTilesK, Scales::header(kTilesK), bits};
};

// One scale for 256 weights, in tiles, lookup and trits one for a row; there they have layouts of their own.
using Ternary = Codes<scales::One, 2, Minus<1>>;

template <class Packing>
inline constexpr bool kIsTernary = std::is_same_v<Packing, Ternary>;
template <class Packing>
inline constexpr bool kIsNumbers = Packing::kActivation == Activation::f32;
template <class Packing>
inline constexpr bool kHasTiles = is_tiled(Packing::kAmxActivation) && Packing::kAmxActivation
                                                                           != Activation::i8_group256_tiles;

// ---- By type ---------------------------------------------------------------------------------------------------

// A row of TROUPE_WEIGHT_TYPES.
template <class GroupType, std::size_t weights, class PackingType>
struct WeightFormat {
  using Group = GroupType;
  using Packing = PackingType;
  static constexpr std::size_t kWeights = weights;  // in a group
};

// Calls visitor(WeightFormat<...>{}) with the format of `type`.
template <class Visitor>
static constexpr auto visit_type(WeightType type, Visitor&& visitor) {
#define TROUPE_VISIT(id, number, name, gguf_number, weights, Group, ...) \
  case WeightType::id:                                                   \
    return visitor(WeightFormat<Group, weights, __VA_ARGS__>{});
  switch (type) { TROUPE_WEIGHT_TYPES(TROUPE_VISIT) }
#undef TROUPE_VISIT
  __builtin_unreachable();
}

}  // namespace troupe::kernels
