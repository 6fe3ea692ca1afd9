#include "kernels/cpu/unit.h"

namespace troupe::kernels {
namespace {

constexpr std::string_view kNames[kNumUnits] = {"none",         "f32-avx2",    "f32-avx512",      "int8-avx2",
                                                "int8-avxvnni", "int8-avx512", "int8-avx512vnni", "int8-amx",
                                                "bf16-amx"};

}  // namespace

std::string_view name(Unit unit) { return kNames[static_cast<std::size_t>(unit)]; }

std::optional<Unit> find_unit(std::string_view name) {
  for (std::size_t i = 0; i < kNumUnits; ++i)
    if (kNames[i] == name) return static_cast<Unit>(i);
  return std::nullopt;
}

}  // namespace troupe::kernels
