// One table per variant, and the choice among them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#include "config/assert.h"
#include "kernels/append_only.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/formats/weight_formats.h"
#include "kernels/register_table.h"
#include "kernels/variants.h"

namespace troupe::kernels {
namespace {

Layout file_layout(WeightType) { return Layout::file; }
Layout panels_layout(WeightType) { return Layout::panels; }

Activation reference_activation(WeightType, Layout) { return Activation::f32; }
Matmul* reference_matmul(WeightType, Layout layout) { return layout == Layout::file ? reference::matmul : nullptr; }

// The recipe of all integer variants.
Activation integer_activation(WeightType type, Layout layout) {
  if (layout == Layout::lookup && is_ternary(type)) return Activation::i8_group256_tables;
  return visit_type(type, [](auto format) { return decltype(format)::Packing::kActivation; });
}

bool is_float(WeightType type) { return integer_activation(type, Layout::panels) == Activation::f32; }

Unit no_unit(WeightType, Layout) { return Unit::none; }
Unit avx2_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx2 : Unit::int8_avx2; }
Matmul* scalar_matmul(WeightType type, Layout layout) {
  return layout == Layout::lookup || layout == Layout::trits ? nullptr : scalar::matmul(type);
}

// A type of codes that the variant does not unpack gets the scalar product, which has them all.
template <MatmulOf numbers, MatmulOf int8, Matmul trits, Matmul lookup>
Matmul* vector_matmul(WeightType type, Layout layout) {
  if (layout == Layout::lookup) return is_ternary(type) ? lookup : nullptr;
  if (layout == Layout::trits) return is_ternary(type) ? trits : nullptr;
  Matmul* const found = is_float(type) ? numbers(type) : int8(type);
  return found ? found : scalar::matmul(type);
}
constexpr auto avx2_matmul =
    vector_matmul<avx2::matmul_numbers, avx2::matmul_int8, avx2::matmul_trits, avx2::matmul_lookup>;
GatedMatmul* no_gated_matmul(WeightType, Layout) { return nullptr; }

template <PrepareRow* prepare_row>
void row_by_row(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                std::byte* prepared) {
  for (std::size_t r = 0; r < num_rows; ++r) prepare_row(x + r * stride, k, first_row + r, prepared);
}

// Vector kernels read a prepared row once per pair of panels: a call's rows should stay in the second-level cache.
constexpr std::size_t kCachedBytes = 1024 * 1024;
constexpr std::size_t kAnyNumber = static_cast<std::size_t>(-1);

// The members of a table from gated_matmul on.
#define TROUPE_INITIALISE(variant, Type, name) .name = variant::name,
#define TROUPE_FUNCTIONS_OF(variant)                                                           \
  .gated_matmul = no_gated_matmul, .max_prepared_bytes = kCachedBytes, .max_rows = kAnyNumber, \
  TROUPE_ROW_FUNCTIONS(TROUPE_INITIALISE, variant).recurrent = &variant::recurrent

constexpr KernelTable kReference = {
    .name = "reference",
    .layout = file_layout,
    .activation = reference_activation,
    .unit = no_unit,
    .prepare = {row_by_row<reference::prepare_f32>},
    .matmul = reference_matmul,
    TROUPE_FUNCTIONS_OF(reference),
};

constexpr KernelTable kScalar = {
    .name = "scalar",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = no_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<scalar::prepare_i8_group32>,
                row_by_row<scalar::prepare_i8_group256>},
    .matmul = scalar_matmul,
    TROUPE_FUNCTIONS_OF(scalar),
};

constexpr KernelTable kAvx2 = {
    .name = "avx2",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = avx2_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<avx2::prepare_i8_group32>,
                row_by_row<avx2::prepare_i8_group256>, nullptr, nullptr, nullptr, nullptr,
                row_by_row<avx2::prepare_i8_group256_tables>},
    .matmul = avx2_matmul,
    TROUPE_FUNCTIONS_OF(avx2),
};

// Built for one CPU (TROUPE_CPU in CMakeLists.txt), the library has only the variants that it can run.
#if TROUPE_WITH_AVXVNNI
Unit avxvnni_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx2 : Unit::int8_avxvnni; }
constexpr auto avxvnni_matmul =
    vector_matmul<avx2::matmul_numbers, avxvnni::matmul_int8, avxvnni::matmul_trits, avx2::matmul_lookup>;

// Its own products with int8 activations; the rest is AVX2's.
constexpr KernelTable kAvxVnni = [] {
  KernelTable table = kAvx2;
  table.name = "avxvnni";
  table.unit = avxvnni_unit;
  table.matmul = avxvnni_matmul;
  return table;
}();
#endif

#if TROUPE_WITH_AVX512
Unit avx512_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx512 : Unit::int8_avx512; }
constexpr auto avx512_matmul =
    vector_matmul<avx512::matmul_numbers, avx512::matmul_int8, avx512::matmul_trits, avx512::matmul_lookup>;

constexpr KernelTable kAvx512 = {
    .name = "avx512",
    .layout = panels_layout,
    .activation = integer_activation,
    .unit = avx512_unit,
    .prepare = {row_by_row<scalar::prepare_f32>, row_by_row<avx512::prepare_i8_group32>,
                row_by_row<avx512::prepare_i8_group256>, nullptr, nullptr, nullptr, nullptr,
                row_by_row<avx2::prepare_i8_group256_tables>},
    .matmul = avx512_matmul,
    TROUPE_FUNCTIONS_OF(avx512),
};
#endif

#undef TROUPE_FUNCTIONS_OF
#undef TROUPE_INITIALISE

#if TROUPE_WITH_AVX512VNNI
Unit avx512vnni_unit(WeightType type, Layout) { return is_float(type) ? Unit::f32_avx512 : Unit::int8_avx512vnni; }
constexpr auto avx512vnni_matmul =
    vector_matmul<avx512::matmul_numbers, avx512vnni::matmul_int8, avx512vnni::matmul_trits, avx512vnni::matmul_lookup>;

// Its own products with int8 activations; the rest is AVX-512's.
constexpr KernelTable kAvx512Vnni = [] {
  KernelTable table = kAvx512;
  table.name = "avx512vnni";
  table.unit = avx512vnni_unit;
  table.matmul = avx512vnni_matmul;
  return table;
}();
#endif

#if TROUPE_WITH_AMX
Layout amx_layout(WeightType type) { return has_layout(type, Layout::tiles, 256) ? Layout::tiles : Layout::panels; }

Activation amx_activation(WeightType type, Layout layout) {
  const Activation activation = visit_type(type, [](auto format) { return decltype(format)::Packing::kAmxActivation; });
  const bool used = layout == Layout::tiles || activation == Activation::i8_group256_tiles;
  return used ? activation : integer_activation(type, layout);
}

Unit amx_unit(WeightType type, Layout layout) {
  switch (amx_activation(type, layout)) {
    case Activation::i8_tiles:
    case Activation::i8_group256_tiles:
      return Unit::int8_amx;
    case Activation::bf16_tiles:
    case Activation::bf16_split_tiles:
      return Unit::bf16_amx;
    default:
      return avx512vnni_unit(type, layout);
  }
}

Matmul* amx_matmul(WeightType type, Layout layout) {
  Matmul* found = nullptr;
  if (layout == Layout::panels) found = amx::matmul_int8(type);
  if (layout != Layout::tiles) return found ? found : avx512vnni_matmul(type, layout);
  found = amx::matmul_tiles(type);
  return found ? found : amx::matmul_codebook_tiles(type);
}

GatedMatmul* amx_gated_matmul(WeightType type, Layout layout) {
  if (layout != Layout::tiles) return nullptr;
  GatedMatmul* const found = amx::gated_tiles(type);
  return found ? found : amx::gated_codebook_tiles(type);
}

// AMX tiles, for Q4_K and Q5_K expanded from panels. All else, including F32 and ternary matrices that need panels, is
// AVX-512's.
constexpr KernelTable kAmx = [] {
  KernelTable table = kAvx512Vnni;
  table.name = "amx";
  table.layout = amx_layout;
  table.activation = amx_activation;
  table.unit = amx_unit;
  table.prepare[static_cast<std::size_t>(Activation::bf16_tiles)] = amx::prepare_bf16_tiles;
  table.prepare[static_cast<std::size_t>(Activation::bf16_split_tiles)] = amx::prepare_bf16_split_tiles;
  table.prepare[static_cast<std::size_t>(Activation::i8_tiles)] = amx::prepare_i8_tiles;
  table.prepare[static_cast<std::size_t>(Activation::i8_group256_tiles)] = amx::prepare_i8_group256_tiles;
  table.matmul = amx_matmul;
  table.gated_matmul = amx_gated_matmul;
  table.attend_split = amx::attend_split;
  table.max_prepared_bytes = kAnyNumber;  // the kernels cut k into blocks themselves
  table.max_rows = 512;
  return table;
}();
#endif

// Best last: best_table takes the last of these that this CPU can run. (The order of avxvnni and avx512 does not
// matter: every CPU with both AVX-VNNI and AVX-512 also has AVX-512-VNNI.)
struct BuiltIn {
  const KernelTable* table;
  bool (*is_supported)();
};
constexpr bool always() { return true; }
constexpr BuiltIn kBuiltIn[] = {
    {&kReference, always},
    {&kScalar, always},
    {&kAvx2, has_avx2},
#if TROUPE_WITH_AVXVNNI
    {&kAvxVnni, has_avxvnni},
#endif
#if TROUPE_WITH_AVX512
    {&kAvx512, has_avx512},
#endif
#if TROUPE_WITH_AVX512VNNI
    {&kAvx512Vnni, has_avx512vnni},
#endif
#if TROUPE_WITH_AMX
    {&kAmx, [] { return has_avx512amx() && has_amx_int8() && has_amx_bf16(); }},
#endif
};

// True for registered tables.
bool cpu_has(const KernelTable& table) {
  const auto* found = std::ranges::find(kBuiltIn, &table, &BuiltIn::table);
  return found == std::end(kBuiltIn) || found->is_supported();
}

// Each list has the built-in tables first, then registered ones.
struct Tables {
  // The CPU's features are queried once: they cannot change during the process.
  Tables() {
    for (const auto& [table, is_supported] : kBuiltIn) {
      all.add(*table);
      if (!is_supported()) continue;
      supported.add(*table);
      best = table;
    }
  }

  AppendOnly<KernelTable, std::size(kBuiltIn) + kMaxRegisteredTables> all, supported;
  const KernelTable* best = nullptr;
  std::mutex adding;
};

Tables& tables() {
  static Tables result;
  return result;
}

bool is_table_name(std::string_view name) {
  return !name.empty() && name.size() <= 16 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

bool lacks_product(const KernelTable& table, WeightType type, Layout layout) {
  if (!has_layout(type, layout, 256)) return true;
  const auto activation = static_cast<std::size_t>(table.activation(type, layout));
  return activation >= kNumActivations || !table.prepare[activation] || !table.matmul(type, layout);
}

// A function that `table` lacks, or nothing.
std::string_view missing_function(const KernelTable& table) {
  const RecurrentKernels* const recurrent = table.recurrent;
#define TROUPE_NAMED(owner, Type, name) {(owner).name != nullptr, #name},
  const std::pair<bool, std::string_view> functions[] = {
      {table.layout != nullptr, "layout"},
      {table.activation != nullptr, "activation"},
      {table.unit != nullptr, "unit"},
      {table.matmul != nullptr, "matmul"},
      {table.gated_matmul != nullptr, "gated_matmul"},
      {recurrent && recurrent->map && recurrent->layer_norm && recurrent->mix && recurrent->convolve &&
           recurrent->selective_scan && recurrent->head_scan && recurrent->wkv6 && recurrent->wkv7 &&
           recurrent->delta_rule,
       "recurrent"},
      TROUPE_ROW_FUNCTIONS(TROUPE_NAMED, table)};
#undef TROUPE_NAMED
  for (const auto& [is_there, function] : functions)
    if (!is_there) return function;
  return {};
}

// A weight type without a product in `table`, or nothing.
std::string_view missing_product(const KernelTable& table) {
  for (const WeightTypeInfo& type : weight_types()) {
    const Layout layout = table.layout(type.type);
    if (lacks_product(table, type.type, layout)) return type.name;
    // Ternary weights may come as panels instead: layout_for.
    if (layout == Layout::tiles && lacks_product(table, type.type, Layout::panels)) return type.name;
  }
  return {};
}

}  // namespace

std::span<const KernelTable* const> all_tables() { return tables().all.entries(); }

std::span<const KernelTable* const> supported_tables() { return tables().supported.entries(); }

const KernelTable* find_table(std::string_view name) {
  for (const KernelTable* table : all_tables())
    if (table->name == name) return table;
  return nullptr;
}

bool is_supported(const KernelTable& table) { return cpu_has(table); }

const KernelTable& best_table() { return *tables().best; }

Status register_table(const KernelTable& table) {
  const std::string which = fmt::format("kernel variant '{}'", table.name.substr(0, 32));
  const auto bad = [](std::string what) { return Error{ErrorCode::invalid_argument, std::move(what)}; };
  if (!is_table_name(table.name)) return bad(which + " needs a name of 1 to 16 of a-z, 0-9 and _");
  if (const auto missing = missing_function(table); !missing.empty())
    return bad(fmt::format("{} lacks a function: {}", which, missing));
  if (const auto missing = missing_product(table); !missing.empty())
    return bad(fmt::format("{} lacks what multiplies with {}", which, missing));
  if (table.max_prepared_bytes == 0 || table.max_rows == 0)
    return bad(which + " takes no rows: max_prepared_bytes or max_rows is 0");
  const std::lock_guard lock(tables().adding);
  if (find_table(table.name)) return bad(which + " is there already");
  if (tables().all.full())
    return bad(fmt::format("no room for {}: {} were registered already", which, kMaxRegisteredTables));
  tables().all.add(table);
  tables().supported.add(table);
  return Ok{};
}

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

void leave_caches([[maybe_unused]] const std::byte* bytes, [[maybe_unused]] std::size_t count) {
#if defined(__x86_64__) || defined(__i386__)
  for (std::size_t i = 0; i < count; i += layout::kLine) _mm_clflush(bytes + i);
  _mm_mfence();
#endif
}

}  // namespace troupe::kernels
