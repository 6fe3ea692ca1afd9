// The arithmetic units that products run on. The peak of its unit is the limit of a product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe::kernels {

// Names are part of a stored probe (engine/machine/probe_file.h).
enum class Unit : std::uint8_t {
  none,             // plain C++: no meaningful limit
  f32_avx2,         // float32 fused multiply-add, 8 at a time
  f32_avx512,       // the same, 16 at a time
  int8_avx2,        // u8 x s8 into int32 by VPMADDUBSW, VPMADDWD and VPADDD
  int8_avxvnni,     // VPDPBUSD on 32 bytes
  int8_avx512,      // as int8_avx2, on 64 bytes
  int8_avx512vnni,  // VPDPBUSD on 64 bytes
  int8_amx,         // TDPBSSD and its variants
  bf16_amx,         // TDPBF16PS
};
inline constexpr std::size_t kNumUnits = 9;

[[nodiscard]] std::string_view name(Unit unit);  // "int8-avx512vnni"
[[nodiscard]] std::optional<Unit> find_unit(std::string_view name);

}  // namespace troupe::kernels
