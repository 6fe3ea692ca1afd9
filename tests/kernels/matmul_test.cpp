#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

// Double-precision product of the dequantised weights with what the prepared rows stand for, and the
// size of its terms: float32 rounding errors are relative to that.
struct Exact {
  std::vector<double> value, size;
};

Exact exact_product(const std::vector<float>& weights, const PreparedRows& a, std::size_t num_rows, std::size_t outputs,
                    std::size_t k, double scale) {
  Exact exact{std::vector<double>(num_rows * outputs), std::vector<double>(num_rows * outputs)};
  for (std::size_t r = 0; r < num_rows; ++r) {
    const std::vector<double> x = prepared_values(a, r);
    for (std::size_t n = 0; n < outputs; ++n) {
      double sum = 0, activations = 0, largest = 0;
      for (std::size_t i = 0; i < k; ++i) {
        sum += x[i] * weights[n * k + i];
        activations += std::fabs(x[i]);
        largest = std::max(largest, std::fabs(static_cast<double>(weights[n * k + i])));
      }
      exact.value[r * outputs + n] = sum * scale;
      exact.size[r * outputs + n] = activations * largest * std::fabs(scale);
    }
  }
  return exact;
}

// Rows [0, num_rows) of `a` become rows of `out` from first_out on.
std::vector<float> multiply(const KernelTable& table, const MatrixView& view, const PreparedRows& a,
                            std::size_t num_rows, std::size_t panel_begin, std::size_t panel_end,
                            std::vector<float> out, std::size_t out_stride, std::size_t first_out = 0) {
  table.matmul(view.type, view.layout)(view, a.bytes.data(), num_rows, out.data() + first_out * out_stride, out_stride,
                                       panel_begin, panel_end);
  return out;
}

// What tiles add: bfloat16 weights made out of codes are cut off to 8 bits, within 2^-7 of the weight; 8 bits of a code
// and its scale leave as much of the largest.
double weight_rounding(const MatrixView& view, Activation activation) {
  const bool exact = view.type == WeightType::bf16 || view.type == WeightType::f16;
  if (activation == Activation::bf16_split_tiles) return 1.0 / 65536;  // the product of the low parts is left out
  if (activation == Activation::i8_group256_tiles) return 1.0 / 128;
  return activation == Activation::bf16_tiles && !exact ? 1.0 / 128 : 0;
}

TEST_CASE("matmul of every variant and type is the product of dequantised weights and prepared rows") {
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types())
      for (const std::size_t outputs : {1, 16, 37}) {
        const std::size_t k = odd_k(type.type), num_rows = 5, stride = outputs + 3;
        std::vector<std::byte> file = random_weights(type.type, outputs, k, 11);
        if (is_ternary(type.type) && outputs != 1) share_row_scales(type.type, outputs, k, file);
        std::vector<float> weights(outputs * k);
        dequantize(type.type, file.data(), weights.data(), weights.size());
        PackedMatrix matrix(type.type, layout_for(*table, type.type, file.data(), outputs, k), file, outputs, k);
        matrix.view.scale = 0.75f;
        const Activation activation = table->activation(type.type, matrix.view.layout);
        const PreparedRows a(*table, activation, random_floats(num_rows * k, 5), num_rows, k);
        const Exact exact = exact_product(weights, a, num_rows, outputs, k, 0.75);
        const std::vector<float> out = multiply(*table, matrix.view, a, num_rows, 0, matrix.view.num_panels(),
                                                std::vector<float>(num_rows * stride, std::nanf("")), stride);
        const double allowed = 2e-6 + weight_rounding(matrix.view, activation);
        INFO(table->name << " " << type.name << " outputs " << outputs);
        for (std::size_t r = 0; r < num_rows; ++r)
          for (std::size_t n = 0; n < stride; ++n) {
            const float got = out[r * stride + n];
            if (n >= outputs) {
              REQUIRE(std::isnan(got));  // only the matrix's outputs are written
              continue;
            }
            // A chain of k/16 additions and a few products, each within 2^-24 of terms that are
            // smaller than `size`; rounding errors of random signs stay far below this sum.
            REQUIRE(std::fabs(got - exact.value[r * outputs + n]) <= allowed * exact.size[r * outputs + n]);
          }
      }
}

TEST_CASE("matmul gives the same bits for any number of rows and any split of rows and panels") {
  constexpr std::size_t kMaxRows = 131;  // the matrix unit goes another way from 97 on
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types())
      for (const bool row_scales : {false, true}) {
        if (row_scales && !is_ternary(type.type)) continue;
        // The tile layout multiplies long rows in blocks of 512 k.
        const std::size_t k = odd_k(type.type) + (table->layout(type.type) == Layout::tiles ? 1024 : 0);
        const std::size_t outputs = 16 * 5 - 3;
        std::vector<std::byte> file = random_weights(type.type, outputs, k, 21);
        if (row_scales) share_row_scales(type.type, outputs, k, file);
        const Layout layout = layout_for(*table, type.type, file.data(), outputs, k);
        const PackedMatrix matrix(type.type, layout, file, outputs, k);
        const std::size_t panels = matrix.view.num_panels();
        const Activation activation = table->activation(type.type, layout);
        const std::vector<float> x = random_floats(kMaxRows * k, 6);
        const PreparedRows a(*table, activation, x, kMaxRows, k);
        const std::vector<float> empty(kMaxRows * outputs, std::nanf(""));
        std::vector<float> one_by_one = empty;
        for (std::size_t r = 0; r < kMaxRows; ++r) {
          const std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r * k),
                                       x.begin() + static_cast<std::ptrdiff_t>((r + 1) * k));
          const PreparedRows alone(*table, activation, row, 1, k);
          for (std::size_t p = 0; p < panels; ++p)
            one_by_one = multiply(*table, matrix.view, alone, 1, p, p + 1, std::move(one_by_one), outputs, r);
        }
        INFO(table->name << " " << type.name);
        for (std::size_t rows = 1; rows <= kMaxRows; rows += rows < 40 || rows > 94 ? 1 : 9) {
          INFO("rows " << rows);
          std::vector<float> together = multiply(*table, matrix.view, a, rows, 0, panels, empty, outputs);
          together.resize(rows * outputs);
          const std::vector<float> expected(one_by_one.begin(),
                                            one_by_one.begin() + static_cast<std::ptrdiff_t>(rows * outputs));
          REQUIRE(same_bits(together, expected));
        }
        for (const std::size_t split : {1, 2, 3, 4}) {
          std::vector<float> parts = multiply(*table, matrix.view, a, kMaxRows, 0, split, empty, outputs);
          parts = multiply(*table, matrix.view, a, kMaxRows, split, panels, std::move(parts), outputs);
          REQUIRE(same_bits(parts, one_by_one));
        }
      }
}

// All codes at their largest, all activations at +-127: where narrow sums would overflow or saturate.
TEST_CASE("matmul is exact with extreme codes and extreme activations") {
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types()) {
      if (type.group_size == 1) continue;
      for (const int fill : {0x00, 0xff, 0x7f, 0x80, 0xaa})
        for (const int pattern : {0, 1, 2}) {
          const std::size_t k = 6912, outputs = 16;
          std::vector<std::byte> file = random_weights(type.type, outputs, k, 1);
          if (is_ternary(type.type)) share_row_scales(type.type, outputs, k, file);
          const std::vector<std::byte> scales = file;
          for (std::byte& b : file) b = static_cast<std::byte>(fill);
          for (std::size_t at = 0; at < file.size(); at += type.group_bytes)  // but keep d and dmin
            for (const std::size_t d : scale_offsets(type.type))
              std::memcpy(&file[at + d], &scales[at + d], scale_bytes(type.type));
          std::vector<float> weights(outputs * k), x(k);
          dequantize(type.type, file.data(), weights.data(), weights.size());
          for (std::size_t i = 0; i < k; ++i)
            x[i] = pattern == 0 ? 1.0f : pattern == 1 ? -1.0f : (i % 2 == 0 ? 1.0f : -1.0f);
          const PackedMatrix matrix(type.type, layout_for(*table, type.type, file.data(), outputs, k), file, outputs,
                                    k);
          const Activation activation = table->activation(type.type, matrix.view.layout);
          const PreparedRows a(*table, activation, x, 1, k);
          const Exact exact = exact_product(weights, a, 1, outputs, k, 1.0);
          const std::vector<float> out = multiply(*table, matrix.view, a, 1, 0, 1, std::vector<float>(16), 16);
          // Some 430 roundings of up to 2^-24 of the sum, in directions of their own.
          const double allowed = 4e-6 + weight_rounding(matrix.view, activation);
          INFO(table->name << " " << type.name << " fill " << fill << " pattern " << pattern);
          for (std::size_t n = 0; n < outputs; ++n)
            REQUIRE(std::fabs(out[n] - exact.value[n]) <= allowed * exact.size[n]);
        }
    }
}

// Files are not searched for bad scales: those must not reach what other weights make.
TEST_CASE("a scale that is no number spoils the output of its own row, and no other") {
  const std::size_t outputs = 37, bad_row = 5, num_rows = 6;
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types()) {
      if (scale_offsets(type.type).empty()) continue;
      const std::size_t k = odd_k(type.type), panels = (outputs + kPanelRows - 1) / kPanelRows;
      std::vector<std::byte> file = random_weights(type.type, outputs, k, 41);
      const auto product = [&] {
        const PackedMatrix matrix(type.type, layout_for(*table, type.type, file.data(), outputs, k), file, outputs, k);
        const Activation activation = table->activation(type.type, matrix.view.layout);
        const PreparedRows a(*table, activation, random_floats(num_rows * k, 42), num_rows, k);
        return multiply(*table, matrix.view, a, num_rows, 0, panels, std::vector<float>(num_rows * outputs), outputs);
      };
      const std::vector<float> good = product();
      std::byte* const scale = file.data() + bad_row * (file.size() / outputs) + scale_offsets(type.type)[0];
      // MXFP4 has no such scale: its largest, which the standard calls no number, is a power of two, and some weights
      // are infinite.
      if (type.type == WeightType::mxfp4)
        store(scale, std::uint8_t{0xff});
      else
        store(scale, std::uint16_t{0x7e00});
      const std::vector<float> bad = product();
      INFO(table->name << " " << type.name);
      for (std::size_t i = 0; i < bad.size(); ++i)
        if (i % outputs != bad_row)
          REQUIRE(bits_of_float(bad[i]) == bits_of_float(good[i]));
        else
          REQUIRE_FALSE(std::fabs(bad[i]) <= 1e30f);
    }
}

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

TEST_CASE("the vector variants follow the recipe bit by bit, and so agree with each other") {
  for (const char* variant : {"avx2", "avxvnni", "avx512", "avx512vnni"}) {
    const KernelTable* table = find_table(variant);
    if (table == nullptr || !is_supported(*table)) {
      WARN("skipped: this CPU has no " << variant);
      continue;
    }
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

TEST_CASE("the matrix unit follows its recipes bit by bit") {
  const KernelTable* table = find_table("amx");
  if (table == nullptr || !is_supported(*table)) {
    WARN("skipped: this CPU has no AMX, or this process may not use it");
    return;
  }
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
  const KernelTable& table = *find_table("amx");
  if (!is_supported(table)) return;
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

TEST_CASE("ternary rows with more than one scale are multiplied in panels") {
  const KernelTable* table = find_table("amx");
  for (const WeightType type : {WeightType::tq1_0, WeightType::tq2_0}) {
    std::vector<std::byte> file = random_weights(type, 3, 512, 41);
    REQUIRE(layout_for(*table, type, file.data(), 3, 512) == Layout::panels);
    share_row_scales(type, 3, 512, file);
    REQUIRE(layout_for(*table, type, file.data(), 3, 512) == Layout::tiles);
    file[file.size() - 1] ^= std::byte{1};  // the last group's scale
    REQUIRE(layout_for(*table, type, file.data(), 3, 512) == Layout::panels);
    REQUIRE(layout_for(*table, type, file.data(), 2, 512) == Layout::tiles);
  }
}

TEST_CASE("the tile layout keeps every weight exactly") {
  for (const WeightTypeInfo& type : weight_types()) {
    if (!has_layout(type.type, Layout::tiles, 256)) continue;
    const std::size_t k = odd_k(type.type), rows = 19;
    std::vector<std::byte> file = random_weights(type.type, rows, k, 51);
    if (is_ternary(type.type)) share_row_scales(type.type, rows, k, file);
    std::vector<float> expected(rows * k), got(k);
    dequantize(type.type, file.data(), expected.data(), expected.size());
    const PackedMatrix matrix(type.type, Layout::tiles, file, rows, k);
    for (std::size_t r = 0; r < rows; ++r) {
      unpack_row(matrix.view, r, got.data());
      INFO(type.name << " row " << r);
      REQUIRE(same_bits(got, {expected.begin() + static_cast<std::ptrdiff_t>(r * k),
                              expected.begin() + static_cast<std::ptrdiff_t>((r + 1) * k)}));
    }
  }
}

TEST_CASE("rows for products of groups are rounded to int8, with a scale for 256 and sums of 32") {
  const KernelTable& table = *find_table("amx");
  if (!is_supported(table)) return;
  for (const std::size_t k : {256, 1024}) {
    const std::size_t rows = 18;
    std::vector<float> x = random_floats(rows * k, static_cast<std::uint32_t>(k) + 8, 3.0f);
    std::fill_n(x.begin(), 256, 0.0f);
    x[5] = 1e-38f;
    const PreparedRows a(table, Activation::i8_group256_tiles, x, rows, k);
    // The same codes and scales as one row after the other has.
    const PreparedRows plain(*find_table("scalar"), Activation::i8_group256, x, rows, k);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t i = 0; i < k; ++i) {
        INFO("k " << k << " row " << r << " at " << i);
        REQUIRE(grouped_code(a, r, i) == load<std::int8_t>(plain.row(r) + i));
        REQUIRE(grouped_scale(a, r, i) == load<float>(plain.row(r) + layout::group256_row(k).scale + i / 256 * 4));
        if (i % 32 != 0) continue;
        int sum = 0;
        for (std::size_t j = i; j < i + 32; ++j) sum += grouped_code(a, r, j);
        REQUIRE(grouped_sum(a, r, i) == sum);
      }
  }
}

TEST_CASE("rows for tiles are rounded as bfloat16, or to int8 of their own scale") {
  const KernelTable& table = *find_table("amx");
  if (!is_supported(table)) return;
  for (const std::size_t k : {1, 31, 32, 77, 256, 300, 1024}) {
    const std::size_t rows = 18;
    std::vector<float> x = random_floats(rows * k, static_cast<std::uint32_t>(k) + 7, 3.0f);
    x[0] = 1e-38f;
    for (const Activation activation : {Activation::bf16_tiles, Activation::bf16_split_tiles, Activation::i8_tiles}) {
      if (activation == Activation::i8_tiles && k % 32 != 0) continue;
      const PreparedRows a(table, activation, x, rows, k);
      for (std::size_t r = 0; r < rows; ++r) {
        const std::vector<double> values = prepared_values(a, r);
        double max = 0;
        std::int32_t sum = 0;
        for (std::size_t i = 0; i < k; ++i) max = std::max(max, std::fabs(static_cast<double>(x[r * k + i])));
        for (std::size_t i = 0; i < k; ++i) {
          const double value = x[r * k + i];
          const double step = activation == Activation::bf16_tiles         ? std::fabs(value) / 256
                              : activation == Activation::bf16_split_tiles ? std::fabs(value) / 65536
                                                                           : max / 127 * 0.5001;
          INFO("activation " << static_cast<int>(activation) << " k " << k << " row " << r << " at " << i);
          REQUIRE(std::fabs(values[i] - value) <= step + 1e-30);
          if (activation == Activation::i8_tiles) sum += tiled_code(a, r, i);
        }
        if (activation == Activation::i8_tiles) REQUIRE(tiled_end(a, r).sum == sum);
      }
    }
  }
}

TEST_CASE("prepared rows round to the nearest step of their group's scale, and their sums are right") {
  for (const KernelTable* table : supported_tables())
    for (const Activation activation : {Activation::i8_group32, Activation::i8_group256}) {
      if (table->prepare[static_cast<std::size_t>(activation)] == nullptr) continue;
      for (const std::size_t k : {32, 64, 96, 256, 288, 384, 512, 544}) {
        std::vector<float> x = random_floats(k, static_cast<std::uint32_t>(k));
        for (std::size_t i = 0; i < 32; ++i) x[i] = 0.0f;  // a group of zeros
        x[31] = k == 64 ? 1e-38f : 0.0f;                   // and of almost zeros
        const PreparedRows row(*table, activation, x, 1, k);
        const std::vector<double> values = prepared_values(row, 0);
        const std::size_t group = activation == Activation::i8_group32 ? 32 : 256;
        INFO(table->name << " k " << k);
        for (std::size_t begin = 0; begin < k; begin += group) {
          double max = 0;
          std::int32_t sum = 0;
          for (std::size_t i = begin; i < std::min(begin + group, k); ++i) {
            max = std::max(max, std::fabs(static_cast<double>(x[i])));
            sum += row.bytes.as<std::int8_t>()[i];
          }
          for (std::size_t i = begin; i < std::min(begin + group, k); ++i)
            REQUIRE(std::fabs(values[i] - x[i]) <= max / 127 * 0.5001 + 1e-30);
          const std::size_t start = group == 32 ? layout::group32_row(k).start : layout::group256_row(k).start;
          REQUIRE(load<std::int32_t>(row.bytes.data() + start + begin / group * 4) == -sum * (group == 32 ? 128 : 1));
        }
        if (activation == Activation::i8_group256)  // whole groups are multiplied
          for (std::size_t i = k; i < layout::round_up(k, 256); ++i) REQUIRE(row.bytes.data()[i] == std::byte{0});
      }
    }
}

TEST_CASE("all variants prepare the same bits") {
  const KernelTable& scalar = *find_table("scalar");
  for (const KernelTable* table : supported_tables())
    for (const Activation activation : {Activation::f32, Activation::i8_group32, Activation::i8_group256}) {
      if (table->prepare[static_cast<std::size_t>(activation)] == nullptr) continue;
      for (std::size_t k = 32; k <= 1056; k += 32) {
        std::vector<float> x = random_floats(k, static_cast<std::uint32_t>(k) + 99, 3.0f);
        for (std::size_t i = 0; i < k; i += 5) x[i] = std::round(x[i]) + 0.5f;  // ties
        const PreparedRows expected(scalar, activation, x, 1, k), got(*table, activation, x, 1, k);
        INFO(table->name << " activation " << static_cast<int>(activation) << " k " << k);
        REQUIRE(std::memcmp(expected.bytes.data(), got.bytes.data(), got.bytes.size()) == 0);
      }
    }
}

TEST_CASE("rows have the same bits whether they are rounded at once or one by one, and leave their neighbours alone") {
  constexpr std::size_t kRows = 37, kStride = 555;
  const std::vector<float> x = random_floats(kRows * kStride, 77, 3.0f);
  for (const KernelTable* table : supported_tables())
    for (std::size_t kind = 0; kind < kNumActivations; ++kind) {
      PrepareRows* const prepare = table->prepare[kind];
      if (prepare == nullptr) continue;
      const auto activation = static_cast<Activation>(kind);
      const std::size_t k = activation == Activation::i8_group256_tiles ? 512 : 544;
      const std::size_t bytes = prepared_bytes(activation, k, kRows);
      AlignedBytes at_once(bytes), one_by_one(bytes), in_parts(bytes);
      for (AlignedBytes* rows : {&at_once, &one_by_one, &in_parts}) std::memset(rows->data(), 0x55, bytes);
      prepare(x.data(), kStride, k, 0, kRows, at_once.data());
      for (std::size_t r = kRows; r-- > 0;) prepare(x.data() + r * kStride, kStride, k, r, 1, one_by_one.data());
      for (const auto& [first, count] : {std::pair<std::size_t, std::size_t>{7, 2}, {0, 7}, {20, 17}, {9, 11}})
        prepare(x.data() + first * kStride, kStride, k, first, count, in_parts.data());
      INFO(table->name << " activation " << kind);
      CHECK(std::memcmp(at_once.data(), one_by_one.data(), bytes) == 0);
      CHECK(std::memcmp(at_once.data(), in_parts.data(), bytes) == 0);
    }
}

}  // namespace
}  // namespace troupe::kernels::test
