// The recipes of docs/numerics.md written down once more, as plainly as possible: variants follow them bit by bit.
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

// A group of the file taken apart: `run` weights share a scale; w = d * (code - offset) - min.
struct Runs {
  std::uint8_t codes[256];
  int offset = 0;
  std::size_t run = 32;
  float d[16] = {}, min[16] = {};
};

template <class GroupQ4Or5K>
void take_apart_with_mins(const GroupQ4Or5K& group, Runs& out) {
  codes_of(group, out.codes);
  for (int i = 0; i < 8; ++i) {
    out.d[i] = load_half(group.d) * scale_min_of(group.scales, i).scale;
    out.min[i] = load_half(group.dmin) * scale_min_of(group.scales, i).min;
  }
}

// Codes that stand for values, as codes that are the values plus `offset`.
void look_up(const std::int8_t (&values)[16], int offset, std::size_t count, Runs& out) {
  out.offset = offset;
  for (std::size_t i = 0; i < count; ++i) out.codes[i] = static_cast<std::uint8_t>(values[out.codes[i]] + offset);
}

template <class Group>
void take_apart(const Group& group, int offset, std::size_t run, Runs& out) {
  codes_of(group, out.codes);
  out.offset = offset;
  out.run = run;
  out.d[0] = load_half(group.d);
}

// The first `count` weights, at most 256: one group, or two of I2_S, whose activations share a scale.
Runs take_apart(WeightType type, const std::byte* group, std::size_t count) {
  Runs out;
  switch (type) {
    case WeightType::q8_0:
      take_apart(load<GroupQ8_0>(group), 128, 32, out);
      break;
    case WeightType::q4_0:
      take_apart(load<GroupQ4_0>(group), 8, 32, out);
      break;
    case WeightType::q4_1: {
      const auto q4_1 = load<GroupQ4_1>(group);
      take_apart(q4_1, 0, 32, out);
      out.min[0] = -load_half(q4_1.m);
      break;
    }
    case WeightType::q5_0:
      take_apart(load<GroupQ5_0>(group), 16, 32, out);
      break;
    case WeightType::q5_1: {
      const auto q5_1 = load<GroupQ5_1>(group);
      take_apart(q5_1, 0, 32, out);
      out.min[0] = -load_half(q5_1.m);
      break;
    }
    case WeightType::iq4_nl:
      take_apart(load<GroupIQ4_NL>(group), 0, 32, out);
      look_up(kIQ4_NLValues, 128, 32, out);
      break;
    case WeightType::iq4_xs: {
      const auto iq4_xs = load<GroupIQ4_XS>(group);
      take_apart(iq4_xs, 0, 32, out);
      look_up(kIQ4_NLValues, 128, 256, out);
      for (int i = 0; i < 8; ++i) out.d[i] = load_half(iq4_xs.d) * static_cast<float>(scale_of(iq4_xs, i));
      break;
    }
    case WeightType::mxfp4: {
      const auto mxfp4 = load<GroupMXFP4>(group);
      codes_of(mxfp4, out.codes);
      look_up(kMXFP4Values, 16, 32, out);
      out.d[0] = half_of_e8m0(mxfp4.e);
      break;
    }
    case WeightType::q2_k: {
      const auto q2_k = load<GroupQ2_K>(group);
      take_apart(q2_k, 0, 16, out);
      for (int i = 0; i < 16; ++i) {
        out.d[i] = load_half(q2_k.d) * static_cast<float>(q2_k.scales[i] & 15);
        out.min[i] = load_half(q2_k.dmin) * static_cast<float>(q2_k.scales[i] >> 4);
      }
      break;
    }
    case WeightType::q3_k: {
      const auto q3_k = load<GroupQ3_K>(group);
      take_apart(q3_k, 4, 16, out);
      for (int i = 0; i < 16; ++i) out.d[i] = load_half(q3_k.d) * static_cast<float>(scale_of(q3_k, i));
      break;
    }
    case WeightType::q4_k:
      take_apart_with_mins(load<GroupQ4_K>(group), out);
      break;
    case WeightType::q5_k:
      take_apart_with_mins(load<GroupQ5_K>(group), out);
      break;
    case WeightType::q6_k: {
      const auto q6_k = load<GroupQ6_K>(group);
      take_apart(q6_k, 32, 16, out);
      for (int i = 0; i < 16; ++i) out.d[i] = load_half(q6_k.d) * q6_k.scales[i];
      break;
    }
    case WeightType::tq1_0:
      take_apart(load<GroupTQ1_0>(group), 1, 256, out);
      break;
    case WeightType::tq2_0:
      take_apart(load<GroupTQ2_0>(group), 1, 256, out);
      break;
    case WeightType::i2_s:
      for (std::size_t i = 0; i < count; i += 128) codes_of(load<GroupI2_S>(group + i / 4), out.codes + i);
      out.offset = 1;
      out.run = 256;
      out.d[0] = 1.0f;
      break;
    default:
      FAIL("not a quantized type");
  }
  return out;
}

bool has_min(WeightType type) {
  return type == WeightType::q4_1 || type == WeightType::q5_1 || type == WeightType::q2_k || type == WeightType::q4_k ||
         type == WeightType::q5_k;
}

// The recipe written down once more, as plainly as possible: exact integers per run of the weights' scale,
// then one fused chain per output. Works on the file's groups, not on panels.
float by_the_recipe(WeightType type, const std::byte* file_row, const std::byte* a, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  float acc = 0;
  if (t.group_size == 1) {
    std::vector<float> weights(k);
    dequantize(type, file_row, weights.data(), k);
    for (std::size_t i = 0; i < k; ++i) acc = std::fma(weights[i], load<float>(a + 4 * i), acc);
    return acc;
  }
  const bool ternary = type == WeightType::tq1_0 || type == WeightType::tq2_0 || type == WeightType::i2_s;
  const std::size_t step = ternary ? 256 : t.group_size;
  const std::byte* scales = a + (ternary ? layout::group256_row(k).scale : layout::group32_row(k).scale);
  const auto* codes_a = reinterpret_cast<const std::int8_t*>(a);
  for (std::size_t begin = 0; begin < k; begin += step) {
    const std::size_t count = std::min(step, k - begin);
    const Runs group = take_apart(type, file_row + begin / t.group_size * t.group_bytes, count);
    for (std::size_t i = 0; i < count; i += group.run) {
      std::int32_t sum = 0, sum_a = 0;
      for (std::size_t j = i; j < std::min(i + group.run, count); ++j) {
        sum += (group.codes[j] - group.offset) * codes_a[begin + j];
        sum_a += codes_a[begin + j];
      }
      const float da = load<float>(scales + (begin + i) / (ternary ? 256 : 32) * 4);
      acc = std::fma(static_cast<float>(sum), group.d[i / group.run] * da, acc);
      if (has_min(type)) acc = std::fma(-group.min[i / group.run], da * static_cast<float>(sum_a), acc);
    }
  }
  return acc;
}

TEST_CASE("the vector variants give the bits of the recipe") {
  for (const char* variant : {"avx2", "avxvnni", "avx512", "avx512vnni"}) {
    const KernelTable* const table = variant_here(variant);
    if (table == nullptr) continue;
    for (const WeightTypeInfo& type : weight_types())
      for (const std::size_t groups : {1, 2, 3, 5, 7, 8, 9, 16, 17}) {
        const std::size_t k = groups * type.group_size, outputs = 35, num_rows = 9;
        const std::vector<std::byte> file = random_weights(type.type, outputs, k, 31);
        const PackedMatrix matrix(type.type, Layout::panels, file, outputs, k);
        const PreparedRows a(*table, table->activation(type.type, Layout::panels), random_floats(num_rows * k, 32),
                             num_rows, k);
        const std::vector<float> out = multiply(*table, matrix.view, a, num_rows, 0, matrix.view.num_panels(),
                                                std::vector<float>(num_rows * outputs), outputs);
        std::vector<float> expected;
        for (std::size_t r = 0; r < num_rows; ++r)
          for (std::size_t n = 0; n < outputs; ++n)
            expected.push_back(by_the_recipe(type.type, file.data() + n * (file.size() / outputs), a.row(r), k));
        INFO(variant << " " << type.name << " k " << k);
        REQUIRE(same_bits(out, expected));
      }
  }
}

// The recipe of the matrix unit, written down as plainly as possible: bfloat16 weights, and per run of 32 k two fused
// chains, of the first and of the second 16, whose sum is added.
float tiles_chain(const std::vector<float>& weights, const std::vector<float>& a, float acc, std::size_t run) {
  float first = 0, second = 0;
  for (std::size_t i = 32 * run; i < 32 * run + 16; ++i) {
    first = std::fma(a[i], weights[i], first);
    second = std::fma(a[i + 16], weights[i + 16], second);
  }
  return acc + (first + second);
}

float cut_off(float x) { return float_of_bits(bits_of_float(x) & 0xffff0000u); }
// All but the last `bits` bits.
float leading_bits(float x, int bits) { return float_of_bits(bits_of_float(x) & ~0u << bits); }

// Weights as their tiles hold them, `k` of them and zeros up to a multiple of 32.
std::vector<float> tile_weights(WeightType type, const std::byte* file_row, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  std::vector<float> out((k + 31) / 32 * 32);
  if (t.group_size == 1) {
    dequantize(type, file_row, out.data(), k);
    return out;
  }
  const float raise = layout::kCutOffRaise;
  for (std::size_t i = 0; i < k; ++i) {
    const std::byte* file_group = file_row + i / t.group_size * t.group_bytes;
    const Runs group = take_apart(type, file_group, t.group_size);
    const std::size_t at = i % t.group_size;
    const auto code = static_cast<float>(group.codes[at] - group.offset);
    float value = 0;
    if (type == WeightType::q8_0) {
      value = code * leading_bits(group.d[0] * raise, 9);
    } else if (type == WeightType::q6_k) {
      const auto q6_k = load<GroupQ6_K>(file_group);
      value = code * leading_bits((load_half(q6_k.d) * raise) * q6_k.scales[at / 16], 3);
    } else if (has_min(type)) {
      value = std::fma(code * raise, group.d[at / group.run], -(group.min[at / group.run] * raise));
    } else {
      value = (code * raise) * group.d[at / group.run];
    }
    out[i] = cut_off(value);
  }
  return out;
}

// Q4_K and Q5_K: codes times scales in 8 bits, integers over 256 k, then one float step.
float by_the_group_recipe(WeightType type, const std::byte* file_row, const PreparedRows& a, std::size_t r) {
  const WeightTypeInfo& t = info(type);
  const int step = type == WeightType::q4_k ? 4 : 8;
  float acc = 0;
  for (std::size_t i = 0; i < a.k; i += 256) {
    const std::byte* file_group = file_row + i / 256 * t.group_bytes;
    const Runs group = take_apart(type, file_group, 256);
    const auto header = load<GroupQ4_K>(file_group);  // Q5_K begins alike
    std::int32_t sum = 0, min_sum = 0;
    for (std::size_t j = 0; j < 256; ++j) {
      const ScaleMin run = scale_min_of(header.scales, static_cast<int>(j / 32));
      sum += (run.scale * group.codes[j] + step / 2) / step * grouped_code(a, r, i + j);
      min_sum += run.min * grouped_code(a, r, i + j);
    }
    const float value = std::fma(-static_cast<float>(min_sum), load_half(header.dmin),
                                 static_cast<float>(sum) * (load_half(header.d) * static_cast<float>(step)));
    acc = std::fma(value, grouped_scale(a, r, i), acc);
  }
  return acc;
}

float by_the_tile_recipe(WeightType type, const std::byte* file_row, const PreparedRows& a, std::size_t r) {
  const std::size_t k = a.k;
  if (a.activation == Activation::i8_group256_tiles) return by_the_group_recipe(type, file_row, a, r);
  if (is_ternary(type)) {
    const WeightTypeInfo& t = info(type);
    std::int32_t sum = 0;
    Runs group;
    for (std::size_t i = 0; i < k; ++i) {
      if (i % t.group_size == 0) group = take_apart(type, file_row + i / t.group_size * t.group_bytes, t.group_size);
      sum += (group.codes[i % t.group_size] - 1) * tiled_code(a, r, i);
    }
    return static_cast<float>(sum) * (group.d[0] * tiled_end(a, r).scale);
  }
  const std::vector<float> weights = tile_weights(type, file_row, k);
  std::vector<float> high(weights.size()), low(weights.size()), weights_high, weights_low;
  for (std::size_t i = 0; i < k; ++i) {
    high[i] = tiled_bf16(a, r, i);
    if (type == WeightType::f16) low[i] = tiled_bf16(a, r, i, 1);
  }
  for (const float weight : weights) {
    weights_high.push_back(type == WeightType::f16 ? cut_off(weight) : weight);
    weights_low.push_back(weight - weights_high.back());
  }
  float acc = 0;
  for (std::size_t run = 0; run < weights.size() / 32; ++run) {
    acc = tiles_chain(weights_high, high, acc, run);
    if (type != WeightType::f16) continue;
    acc = tiles_chain(weights_high, low, acc, run);
    acc = tiles_chain(weights_low, high, acc, run);
  }
  return acc;
}

TEST_CASE("the matrix unit gives the bits of its recipes") {
  const KernelTable* const table = variant_here("amx");
  if (table == nullptr) return;
  std::size_t num_types = 0;
  for (const WeightTypeInfo& type : weight_types()) {
    if (type.type == WeightType::f32) continue;
    ++num_types;
    const std::size_t k = odd_k(type.type), outputs = 35, num_rows = 37;
    std::vector<std::byte> file = random_weights(type.type, outputs, k, 31);
    if (is_ternary(type.type)) share_row_scales(type.type, outputs, k, file);
    const Layout layout = layout_for(*table, type.type, file.data(), outputs, k);
    const PackedMatrix matrix(type.type, layout, file, outputs, k);
    const PreparedRows a(*table, table->activation(type.type, layout), random_floats(num_rows * k, 32), num_rows, k);
    const std::vector<float> out = multiply(*table, matrix.view, a, num_rows, 0, matrix.view.num_panels(),
                                            std::vector<float>(num_rows * outputs), outputs);
    INFO(type.name);
    for (std::size_t r = 0; r < num_rows; ++r)
      for (std::size_t n = 0; n < outputs; ++n) {
        INFO("row " << r << " output " << n);
        const float expected = by_the_tile_recipe(type.type, file.data() + n * (file.size() / outputs), a, r);
        REQUIRE(bits_of_float(out[r * outputs + n]) == bits_of_float(expected));
      }
  }
  REQUIRE(num_types == 18);
}

TEST_CASE("a gated product is its two products, silu, and the rounding, bit by bit") {
  const KernelTable* const amx = variant_here("amx");
  if (amx == nullptr) return;
  const KernelTable& table = *amx;
  std::size_t num_types = 0;
  for (const WeightTypeInfo& type : weight_types()) {
    GatedMatmul* const multiply_gated = table.gated_matmul(type.type, table.layout(type.type));
    if (multiply_gated == nullptr) continue;
    ++num_types;
    for (const std::size_t outputs : {77, 96, 256}) {
      const std::size_t k = odd_k(type.type), max_rows = 130, panels = (outputs + 15) / 16;
      PackedMatrix gate(type.type, Layout::tiles, random_weights(type.type, outputs, k, 61), outputs, k);
      PackedMatrix up(type.type, Layout::tiles, random_weights(type.type, outputs, k, 62), outputs, k);
      gate.view.scale = 0.5f;
      up.view.scale = -0.75f;
      const PreparedRows a(table, table.activation(type.type, Layout::tiles), random_floats(max_rows * k, 63), max_rows,
                           k);
      for (const std::size_t num_rows : {1, 16, 17, 32, 33, 96, 97, 130}) {
        std::vector<float> gates(num_rows * outputs), ups(gates);
        gates = multiply(table, gate.view, a, num_rows, 0, panels, std::move(gates), outputs);
        ups = multiply(table, up.view, a, num_rows, 0, panels, std::move(ups), outputs);
        table.silu_mul(gates.data(), ups.data(), gates.data(), gates.size());
        const PreparedRows expected(table, Activation::bf16_tiles, gates, num_rows, outputs);
        const std::size_t split = num_rows % 3;  // of the panels into two calls; 0: one call
        PreparedRows got(table, Activation::bf16_tiles, std::vector<float>(num_rows * outputs, 7.0f), num_rows,
                         outputs);
        std::memset(got.bytes.data(), 0x55, got.bytes.size());
        if (split != 0) multiply_gated(gate.view, up.view, a.bytes.data(), num_rows, got.bytes.data(), 0, split);
        multiply_gated(gate.view, up.view, a.bytes.data(), num_rows, got.bytes.data(), split, panels);
        INFO(type.name << " outputs " << outputs << " rows " << num_rows);
        for (std::size_t r = 0; r < num_rows; ++r)
          for (std::size_t i = 0; i < layout::tiles_k(outputs); ++i)  // and the zeros behind the last output
            REQUIRE(bits_of_float(tiled_bf16(got, r, i)) == bits_of_float(tiled_bf16(expected, r, i)));
      }
    }
  }
  REQUIRE(num_types == 12);
}

}  // namespace
}  // namespace troupe::kernels::test
