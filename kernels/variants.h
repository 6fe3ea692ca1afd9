// The functions of every variant, with the contracts of kernels.h. dispatch.cpp lists them in tables.
//
// A variant lists only its own functions; dispatch.cpp fills the rest of its table from another variant.
#pragma once

#include "kernels/kernels.h"

namespace troupe::kernels {

// PrepareRows for a single row, for activations with separate lines per row: writes x [k] to row `row`.
using PrepareRow = void(const float* x, std::size_t k, std::size_t row, std::byte* prepared);

// The product of a type; nullptr for types without one there.
using MatmulOf = Matmul*(WeightType type);
using GatedMatmulOf = GatedMatmul*(WeightType type);

#define TROUPE_DECLARE(_, Type, name) Type name;

// Plain C++, for any x86-64 (or other) CPU: the integer recipes on packed panels.
namespace scalar {
PrepareRow prepare_f32, prepare_i8_group32, prepare_i8_group256;
MatmulOf matmul;  // of any type, in panels
TROUPE_ROW_FUNCTIONS(TROUPE_DECLARE, scalar)
extern const RecurrentKernels recurrent;
}  // namespace scalar

// The simplest arithmetic: file layout, float32 activations, sums in double, exp from libm. For testing the other
// variants against, not for serving.
namespace reference {
Matmul matmul;  // any type
RmsNorm rms_norm;
Rope rope;
SiluMul silu_mul;
GeluMul gelu_mul;
Relu2Mul relu2_mul;
SoftCap soft_cap;
AttendSplit attend_split;
ScoreOffsets score_offsets;
MergePartial merge_partial;
ExpTile exp_tile;
extern const RecurrentKernels recurrent;
using scalar::add, scalar::arg_max, scalar::clamp, scalar::collect, scalar::finish_attention, scalar::prepare_f32,
    scalar::store_kv, scalar::sums_above;
}  // namespace reference

// AVX2, FMA and F16C: Haswell (2013), Zen (2017) and later.
namespace avx2 {
PrepareRow prepare_i8_group32, prepare_i8_group256, prepare_i8_group256_tables;
MatmulOf matmul_numbers;  // F32, F16, BF16
MatmulOf matmul_int8;     // types of codes, with int8 activations
Matmul matmul_trits;
Matmul matmul_lookup;  // also used by avxvnni
// Converts one panel from Layout::lookup to Layout::panels.
void unpack_lookup_panel(const std::byte* panel, std::size_t k, std::byte* out);
TROUPE_ROW_FUNCTIONS(TROUPE_DECLARE, avx2)
extern const RecurrentKernels recurrent;
}  // namespace avx2

// AVX2 and AVX-VNNI, for CPUs without AVX-512: clients from Alder Lake (2021) on, Sierra Forest. All else is avx2's.
namespace avxvnni {
MatmulOf matmul_int8;
Matmul matmul_trits;
}  // namespace avxvnni

// AVX-512 F, BW, DQ and VL: servers from Skylake (2017) on.
namespace avx512 {
PrepareRow prepare_i8_group32, prepare_i8_group256;
MatmulOf matmul_numbers;  // F32, F16, BF16
MatmulOf matmul_int8;     // types of codes, with int8 activations
Matmul matmul_trits;
Matmul matmul_lookup;
TROUPE_ROW_FUNCTIONS(TROUPE_DECLARE, avx512)
extern const RecurrentKernels recurrent;
}  // namespace avx512

#undef TROUPE_DECLARE

// AVX-512 with VNNI: servers from Cascade Lake (2019) and Zen 4 (2022) on. All else is avx512's.
namespace avx512vnni {
MatmulOf matmul_int8;
Matmul matmul_trits;
Matmul matmul_lookup;
}  // namespace avx512vnni

// AMX with int8 and bfloat16 tiles, and the AVX-512 of these CPUs: servers from Sapphire Rapids (2023) on. All else of
// this variant is avx512vnni's.
namespace amx {
PrepareRows prepare_bf16_tiles, prepare_bf16_split_tiles, prepare_i8_tiles, prepare_i8_group256_tiles;
// Layout::tiles: types of long codes, numbers and ternary types; types of short codes.
MatmulOf matmul_tiles, matmul_codebook_tiles;
GatedMatmulOf gated_tiles, gated_codebook_tiles;
MatmulOf matmul_int8;      // Layout::panels, with Activation::i8_group256_tiles
AttendSplit attend_split;  // for f32 K and V it calls avx512's
}  // namespace amx

}  // namespace troupe::kernels
