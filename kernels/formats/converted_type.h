// User-defined weight types: an extension point (docs/extending.md, docs/examples/weight_type.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/result.h"
#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

// A type in files that no kernel multiplies with. Its weights are converted to another type while they are loaded, so
// every variant can run them.
struct ConvertedType {
  // As for any type, except that `type` is the type after conversion: f32, which holds every result of `dequantize`, or
  // f16 or bf16, half as large, to which results are rounded (to nearest even; exact if they are representable).
  WeightTypeInfo info;
  // Raised whenever `dequantize` gives other values: weights packed from the old values are then not used again.
  std::uint32_t version = 1;
  // out[0..info.group_size) = the weights of one group of info.group_bytes, at any alignment, with any contents. Called
  // by several threads at once; must not throw.
  void (*dequantize)(const std::byte* group, float* out) = nullptr;
};

inline constexpr std::size_t kMaxConvertedTypes = 32;

// Files opened after this call may have `type`.
//
// Nothing is copied: the type and its name must live, unchanged, as long as the program.
//
// Errors, without adding the type: invalid_argument for a name or GGUF number that another type has, for an
// inconsistent description, or for more than kMaxConvertedTypes. Any thread, at any time.
[[nodiscard]] Status register_type(const ConvertedType& type);

[[nodiscard]] std::span<const ConvertedType* const> converted_types();
[[nodiscard]] const ConvertedType* converted_type_of_gguf(std::uint32_t gguf_number);  // nullptr if there is none

// out[i] = weight i, by the type's `dequantize`. `count` is a multiple of the group size.
void dequantize(const ConvertedType& type, const std::byte* in, float* out, std::size_t count);

// The same in the format of the converted type, info(type.info.type).group_bytes each. False if a weight is not finite
// in that type, such as 70,000 as f16.
[[nodiscard]] bool convert(const ConvertedType& type, const std::byte* in, std::byte* out, std::size_t count);

}  // namespace troupe::kernels
