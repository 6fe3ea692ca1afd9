// Weight types of one's own: an extension point (docs/extending.md, docs/examples/weight_type.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "config/result.h"
#include "kernels/formats/weight_type.h"

namespace troupe::kernels {

// A type that files have and no kernel multiplies with. Its weights become those of another type while they are loaded,
// and run on every variant from there.
struct ConvertedType {
  // As of any type, but that `type` is what its weights become: f32, which holds whatever `dequantize` gives, or f16 or
  // bf16, half as large, to which it is rounded (to nearest even; exact where every value is one of theirs).
  WeightTypeInfo info;
  // Raised whenever `dequantize` gives other values: weights that were packed from those are then not used again.
  std::uint32_t version = 1;
  // out[0..info.group_size) = the weights of one group of info.group_bytes, at any alignment, whatever is in it. Called
  // by several threads at once; must not throw.
  void (*dequantize)(const std::byte* group, float* out) = nullptr;
};

inline constexpr std::size_t kMaxConvertedTypes = 32;

// From now on files may have `type`: those that are opened later.
//
// Nothing is copied: the type and its name must live, unchanged, as long as the program.
//
// Error, and nothing is added: invalid_argument for a name or GGUF number that another type has, for a description that
// makes no sense, or for more than kMaxConvertedTypes. Any thread, at any time.
[[nodiscard]] Status register_type(const ConvertedType& type);

[[nodiscard]] std::span<const ConvertedType* const> converted_types();
[[nodiscard]] const ConvertedType* converted_type_of_gguf(std::uint32_t gguf_number);  // nullptr: there is none

// out[i] = weight i, as the type says. `count` is a multiple of the group size.
void dequantize(const ConvertedType& type, const std::byte* in, float* out, std::size_t count);

// The same in the format of what they become, info(type.info.type).group_bytes each. False where one of them is not
// finite there, such as 70,000 as f16.
[[nodiscard]] bool convert(const ConvertedType& type, const std::byte* in, std::byte* out, std::size_t count);

}  // namespace troupe::kernels
