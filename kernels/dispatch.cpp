// One table per variant, and the choice among them.
#include <array>
#include <cstring>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "config/assert.h"
#include "kernels/amx_permission.h"
#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/packed_layout.h"
#include "kernels/variants.h"

namespace troupe::kernels {
namespace {

Layout file_layout(WeightType) { return Layout::file; }
Layout panels_layout(WeightType) { return Layout::panels; }
Layout amx_layout(WeightType type) { return type == WeightType::f32 ? Layout::panels : Layout::tiles; }

Activation reference_activation(WeightType, Layout) { return Activation::f32; }
Matmul* reference_matmul(WeightType, Layout layout) { return layout == Layout::file ? reference::matmul : nullptr; }

// The recipe of all integer variants.
Activation integer_activation(WeightType type, Layout layout) {
  switch (type) {
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      return Activation::f32;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return layout == Layout::lookup ? Activation::i8_group256_tables : Activation::i8_group256;
    default:
      return Activation::i8_group32;
  }
}

Activation amx_activation(WeightType type, Layout layout) {
  if (layout != Layout::tiles) return integer_activation(type, layout);
  switch (type) {
    case WeightType::f16:
      return Activation::bf16_split_tiles;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return Activation::i8_tiles;
    default:
      return Activation::bf16_tiles;
  }
}

bool is_float(WeightType type) { return integer_activation(type, Layout::panels) == Activation::f32; }

Unit no_unit(WeightType, Layout) { return Unit::none; }
Unit avx2_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx2 : Unit::int8_avx2; }
Unit avx512vnni_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx512 : Unit::int8_avx512vnni; }
Unit amx_unit(WeightType type, Layout layout) {
  if (layout != Layout::tiles) return avx512vnni_unit(type, layout);
  return amx_activation(type, layout) == Activation::i8_tiles ? Unit::int8_amx : Unit::bf16_amx;
}

// TROUPE_MATMUL_OF(variant, looking_up): the function that maps a type to namespace `variant`'s product, and in the
// lookup layout to `looking_up`.
#define TROUPE_MATMUL_OF(variant, looking_up)                                     \
  Matmul* variant##_matmul(WeightType type, Layout layout) {                      \
    if (layout == Layout::lookup) return is_ternary(type) ? looking_up : nullptr; \
    switch (type) {                                                               \
      case WeightType::f32:                                                       \
        return variant::matmul_f32;                                               \
      case WeightType::f16:                                                       \
        return variant::matmul_f16;                                               \
      case WeightType::bf16:                                                      \
        return variant::matmul_bf16;                                              \
      case WeightType::q8_0:                                                      \
        return variant::matmul_q8_0;                                              \
      case WeightType::q4_0:                                                      \
        return variant::matmul_q4_0;                                              \
      case WeightType::q4_1:                                                      \
        return variant::matmul_q4_1;                                              \
      case WeightType::iq4_nl:                                                    \
        return variant::matmul_iq4_nl;                                            \
      case WeightType::q4_k:                                                      \
        return variant::matmul_q4_k;                                              \
      case WeightType::q5_k:                                                      \
        return variant::matmul_q5_k;                                              \
      case WeightType::q6_k:                                                      \
        return variant::matmul_q6_k;                                              \
      case WeightType::tq1_0:                                                     \
      case WeightType::tq2_0:                                                     \
      case WeightType::i2_s:                                                      \
        return variant::matmul_tq;                                                \
    }                                                                             \
    return nullptr;                                                               \
  }
constexpr Matmul* kNoLookup = nullptr;
TROUPE_MATMUL_OF(scalar, kNoLookup)
TROUPE_MATMUL_OF(avx2, avx2::matmul_lookup)
TROUPE_MATMUL_OF(avx512vnni, avx512vnni::matmul_lookup)
#undef TROUPE_MATMUL_OF

Matmul* amx_matmul(WeightType type, Layout layout) {
  if (layout != Layout::tiles) return avx512vnni_matmul(type, layout);
  switch (type) {
    case WeightType::f16:
      return amx::matmul_f16;
    case WeightType::bf16:
      return amx::matmul_bf16;
    case WeightType::q8_0:
      return amx::matmul_q8_0;
    case WeightType::q4_0:
      return amx::matmul_q4_0;
    case WeightType::q4_1:
      return amx::matmul_q4_1;
    case WeightType::iq4_nl:
      return amx::matmul_iq4_nl;
    case WeightType::q4_k:
      return amx::matmul_q4_k;
    case WeightType::q5_k:
      return amx::matmul_q5_k;
    case WeightType::q6_k:
      return amx::matmul_q6_k;
    case WeightType::tq1_0:
    case WeightType::tq2_0:
    case WeightType::i2_s:
      return amx::matmul_tq;
    case WeightType::f32:
      break;
  }
  return nullptr;
}

GatedMatmul* amx_gated_matmul(WeightType type, Layout layout) {
  if (layout != Layout::tiles) return nullptr;
  switch (type) {
    case WeightType::bf16:
      return amx::gated_bf16;
    case WeightType::q8_0:
      return amx::gated_q8_0;
    case WeightType::q4_0:
      return amx::gated_q4_0;
    case WeightType::q4_1:
      return amx::gated_q4_1;
    case WeightType::iq4_nl:
      return amx::gated_iq4_nl;
    case WeightType::q4_k:
      return amx::gated_q4_k;
    case WeightType::q5_k:
      return amx::gated_q5_k;
    case WeightType::q6_k:
      return amx::gated_q6_k;
    default:
      return nullptr;
  }
}

GatedMatmul* no_gated_matmul(WeightType, Layout) { return nullptr; }

template <PrepareRow* prepare_row>
void row_by_row(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                std::byte* prepared) {
  for (std::size_t r = 0; r < num_rows; ++r) prepare_row(x + r * stride, k, first_row + r, prepared);
}

// Vector kernels read a prepared row once per pair of panels: a call's rows should stay in the second-level cache.
constexpr std::size_t kCachedBytes = 1024 * 1024;
constexpr std::size_t kAnyNumber = static_cast<std::size_t>(-1);

constexpr KernelTable kReference = {
    .name = "reference",
    .layout = file_layout,
    .activation = reference_activation,
    .unit = no_unit,
    .prepare = {row_by_row<reference::prepare_f32>},
    .matmul = reference_matmul,
    .gated_matmul = no_gated_matmul,
    .max_prepared_bytes = kCachedBytes,
    .max_rows = kAnyNumber,
    .rms_norm = reference::rms_norm,
    .rope = reference::rope,
    .silu_mul = reference::silu_mul,
    .add = reference::add,
    .store_kv = scalar::store_kv,
    .attend_split = reference::attend_split,
    .merge_partial = reference::merge_partial,
    .finish_attention = reference::finish_attention,
    .arg_max = reference::arg_max,
    .exp_tile = reference::exp_tile,
    .clamp = scalar::clamp,
    .collect = scalar::collect,
    .sums_above = scalar::sums_above,
};

constexpr KernelTable kScalar = {
    .name = "scalar",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = no_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<scalar::prepare_i8_group32>,
                row_by_row<scalar::prepare_i8_group256>},
    .matmul = scalar_matmul,
    .gated_matmul = no_gated_matmul,
    .max_prepared_bytes = kCachedBytes,
    .max_rows = kAnyNumber,
    .rms_norm = scalar::rms_norm,
    .rope = scalar::rope,
    .silu_mul = scalar::silu_mul,
    .add = scalar::add,
    .store_kv = scalar::store_kv,
    .attend_split = scalar::attend_split,
    .merge_partial = scalar::merge_partial,
    .finish_attention = scalar::finish_attention,
    .arg_max = scalar::arg_max,
    .exp_tile = scalar::exp_tile,
    .clamp = scalar::clamp,
    .collect = scalar::collect,
    .sums_above = scalar::sums_above,
};

constexpr KernelTable kAvx2 = {
    .name = "avx2",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = avx2_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<avx2::prepare_i8_group32>,
                row_by_row<avx2::prepare_i8_group256>, nullptr, nullptr, nullptr,
                row_by_row<avx2::prepare_i8_group256_tables>},
    .matmul = avx2_matmul,
    .gated_matmul = no_gated_matmul,
    .max_prepared_bytes = kCachedBytes,
    .max_rows = kAnyNumber,
    .rms_norm = avx2::rms_norm,
    .rope = avx2::rope,
    .silu_mul = avx2::silu_mul,
    .add = avx2::add,
    .store_kv = avx2::store_kv,
    .attend_split = avx2::attend_split,
    .merge_partial = avx2::merge_partial,
    .finish_attention = avx2::finish_attention,
    .arg_max = avx2::arg_max,
    .exp_tile = avx2::exp_tile,
    .clamp = avx2::clamp,
    .collect = avx2::collect,
    .sums_above = avx2::sums_above,
};

constexpr KernelTable kAvx512Vnni = {
    .name = "avx512vnni",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = avx512vnni_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<avx512vnni::prepare_i8_group32>,
                row_by_row<avx512vnni::prepare_i8_group256>, nullptr, nullptr, nullptr,
                row_by_row<avx2::prepare_i8_group256_tables>},
    .matmul = avx512vnni_matmul,
    .gated_matmul = no_gated_matmul,
    .max_prepared_bytes = kCachedBytes,
    .max_rows = kAnyNumber,
    .rms_norm = avx512vnni::rms_norm,
    .rope = avx512vnni::rope,
    .silu_mul = avx512vnni::silu_mul,
    .add = avx512vnni::add,
    .store_kv = avx512vnni::store_kv,
    .attend_split = avx512vnni::attend_split,
    .merge_partial = avx512vnni::merge_partial,
    .finish_attention = avx512vnni::finish_attention,
    .arg_max = avx512vnni::arg_max,
    .exp_tile = avx512vnni::exp_tile,
    .clamp = avx512vnni::clamp,
    .collect = avx512vnni::collect,
    .sums_above = avx512vnni::sums_above,
};

// Tiles for all matrices but F32's and those ternary ones that need panels; the rest is AVX-512's.
constexpr KernelTable kAmx = [] {
  KernelTable table = kAvx512Vnni;
  table.name = "amx";
  table.layout = amx_layout;
  table.activation = amx_activation;
  table.unit = amx_unit;
  table.prepare[static_cast<std::size_t>(Activation::bf16_tiles)] = amx::prepare_bf16_tiles;
  table.prepare[static_cast<std::size_t>(Activation::bf16_split_tiles)] = amx::prepare_bf16_split_tiles;
  table.prepare[static_cast<std::size_t>(Activation::i8_tiles)] = amx::prepare_i8_tiles;
  table.matmul = amx_matmul;
  table.gated_matmul = amx_gated_matmul;
  table.attend_split = amx::attend_split;
  table.max_prepared_bytes = kAnyNumber;  // cuts k itself
  table.max_rows = 512;
  return table;
}();

// Best last: best_table takes the last one this CPU can run.
constexpr const KernelTable* kTables[] = {&kReference, &kScalar, &kAvx2, &kAvx512Vnni, &kAmx};

// Clang 14's __builtin_cpu_supports does not know this one. Its registers are those of AVX.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// CPUID, and whether the operating system saves the registers (both are in __builtin_cpu_supports).
bool cpu_has(std::string_view name) {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (name == kAvx2.name) return has_avx2;
  const bool has_avx512vnni = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                              __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                              __builtin_cpu_supports("avx512vnni");
  if (name == kAvx512Vnni.name) return has_avx512vnni;
  if (name == kAmx.name)
    return has_avx512vnni && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512bf16") && has_amx_int8() && has_amx_bf16();
  return true;
}

struct Supported {
  std::array<const KernelTable*, std::size(kTables)> tables{};
  std::size_t count = 0;
};

// Asked once: the answer cannot change while the process lives.
const Supported& supported() {
  static const Supported result = [] {
    Supported s;
    for (const KernelTable* table : kTables)
      if (cpu_has(table->name)) s.tables[s.count++] = table;
    return s;
  }();
  return result;
}

}  // namespace

std::span<const KernelTable* const> all_tables() { return kTables; }

std::span<const KernelTable* const> supported_tables() { return {supported().tables.data(), supported().count}; }

const KernelTable* find_table(std::string_view name) {
  for (const KernelTable* table : kTables)
    if (table->name == name) return table;
  return nullptr;
}

bool is_supported(const KernelTable& table) { return cpu_has(table.name); }

const KernelTable& best_table() { return *supported_tables().back(); }

float log_positive(float x) {
  // x = 2^e * m with m in [sqrt(1/2), sqrt(2)); ln m by Cephes' polynomial for ln(1 + z) (S. Moshier, logf).
  const std::uint32_t bits = bits_of_float(x);
  std::int32_t exponent = static_cast<std::int32_t>(bits >> 23) - 126;
  float m = float_of_bits((bits & 0x7fffffu) | 0x3f000000u);  // [0.5, 1)
  if (m < 0.707106781f) {
    m += m;
    --exponent;
  }
  const float z = m - 1.0f;
  const float z2 = z * z;
  float p = 7.0376836292e-2f;
  p = p * z - 1.1514610310e-1f;
  p = p * z + 1.1676998740e-1f;
  p = p * z - 1.2420140846e-1f;
  p = p * z + 1.4249322787e-1f;
  p = p * z - 1.6668057665e-1f;
  p = p * z + 2.0000714765e-1f;
  p = p * z - 2.4999993993e-1f;
  p = p * z + 3.3333331174e-1f;
  p = p * z * z2;
  const auto e = static_cast<float>(exponent);
  p += e * -2.12194440e-4f;  // ln 2 in two parts: the high one times e is exact
  p -= 0.5f * z2;
  return (z + p) + e * 0.693359375f;
}

void set_flush_denormals() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // FTZ, DAZ
#endif
}

}  // namespace troupe::kernels
