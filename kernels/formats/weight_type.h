// The number formats of weights in model files, and their exact values as float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::kernels {

// Every weight type with kernels, one row each; all else is looked up here (weight_formats.h). Columns:
//   id, and its number in files of packed weights: new rows take the next one
//   name and number in GGUF
//   weights in a group, adjacent in a row of the matrix
//   the group's bytes, with the functions that read them (groups.h)
//   how packed matrices store the weights, which decides the recipes of their products (weight_formats.h). A type of
//   codes for which AMX has no product says so: Codes<..., Activation::i8_group32>
#define TROUPE_WEIGHT_TYPES(X)                                                                \
  X(f32, 0, "F32", 0, 1, GroupF32, Numbers<GroupF32, Activation::f32>)                        \
  X(f16, 1, "F16", 1, 1, GroupF16, Numbers<GroupF16, Activation::bf16_split_tiles>)           \
  X(bf16, 2, "BF16", 30, 1, GroupBF16, Numbers<GroupBF16, Activation::bf16_tiles>)            \
  X(q8_0, 3, "Q8_0", 8, 32, GroupQ8_0, Codes<scales::Halves, 8, Minus<128>>)                  \
  X(q4_0, 4, "Q4_0", 2, 32, GroupQ4_0, Codes<scales::Halves, 4, Minus<8>>)                    \
  X(q4_1, 5, "Q4_1", 3, 32, GroupQ4_1, Codes<scales::HalvesAndMins, 4, Minus<0>>)             \
  X(q5_0, 13, "Q5_0", 6, 32, GroupQ5_0, Codes<scales::Halves, 5, Minus<16>>)                  \
  X(q5_1, 14, "Q5_1", 7, 32, GroupQ5_1, Codes<scales::HalvesAndMins, 5, Minus<0>>)            \
  X(iq4_nl, 6, "IQ4_NL", 20, 32, GroupIQ4_NL, Codes<scales::Halves, 4, Among<kIQ4_NLValues>>) \
  X(iq4_xs, 15, "IQ4_XS", 23, 256, GroupIQ4_XS, Codes<scales::Runs, 4, Among<kIQ4_NLValues>>) \
  X(mxfp4, 16, "MXFP4", 39, 32, GroupMXFP4, Codes<scales::Powers, 4, Among<kMXFP4Values>>)    \
  X(q2_k, 17, "Q2_K", 10, 256, GroupQ2_K, Codes<scales::HalfRunsAndMins, 2, Minus<0>>)        \
  X(q3_k, 18, "Q3_K", 11, 256, GroupQ3_K, Codes<scales::HalfRuns, 3, Minus<4>>)               \
  X(q4_k, 7, "Q4_K", 12, 256, GroupQ4_K, Codes<scales::RunsAndMins, 4, Minus<0>>)             \
  X(q5_k, 8, "Q5_K", 13, 256, GroupQ5_K, Codes<scales::RunsAndMins, 5, Minus<0>>)             \
  X(q6_k, 9, "Q6_K", 14, 256, GroupQ6_K, Codes<scales::HalfRuns, 6, Minus<32>>)               \
  X(tq1_0, 10, "TQ1_0", 34, 256, GroupTQ1_0, Ternary)                                         \
  X(tq2_0, 11, "TQ2_0", 35, 256, GroupTQ2_0, Ternary)                                         \
  X(i2_s, 12, "I2_S", 36, 128, GroupI2_S, Ternary)

#define TROUPE_WEIGHT_TYPE_ID(id, number, ...) id = number,
enum class WeightType : std::uint8_t { TROUPE_WEIGHT_TYPES(TROUPE_WEIGHT_TYPE_ID) };
#undef TROUPE_WEIGHT_TYPE_ID

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
