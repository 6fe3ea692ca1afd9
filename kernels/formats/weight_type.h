// The number formats of weights in model files, and their exact values as float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::kernels {

// Formats with kernels. Files of packed weights hold these numbers: new ones go to the end.
enum class WeightType : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  iq4_nl,
  q4_k,
  q5_k,
  q6_k,
  tq1_0,
  tq2_0,
  i2_s,
  q5_0,
  q5_1,
  iq4_xs,
  mxfp4,
  q2_k,
  q3_k,
};

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;      // as in GGUF tools: "Q4_K"
  std::uint32_t gguf_number;  // ggml_type in a GGUF tensor directory
  std::uint32_t group_size;   // weights in a group, adjacent in a row
  std::uint32_t group_bytes;
  // Bytes after the groups of a whole tensor (I2_S); they begin with a float32, the scale of all its weights.
  std::uint32_t tail_bytes = 0;
};

[[nodiscard]] std::span<const WeightTypeInfo> weight_types();
[[nodiscard]] const WeightTypeInfo& info(WeightType type);
[[nodiscard]] std::optional<WeightType> weight_type_of_gguf(std::uint32_t gguf_number);

// out[i] = the exact float32 value of weight i. `count` is a multiple of the group size; `in` holds count / group_size
// groups, any alignment. Bit-equal to ggml's to_float; does not apply the scale of a whole tensor.
void dequantize(WeightType type, const std::byte* in, float* out, std::size_t count);

}  // namespace troupe::kernels
