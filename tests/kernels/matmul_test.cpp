#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

// Double-precision product of the dequantised weights with what the prepared rows stand for, and the
// size of its terms: float32 rounding errors are relative to that.
struct Exact {
  std::vector<double> value, size;
};

Exact exact_product(const std::vector<float>& weights, Activation activation, const PreparedRows& a,
                    std::size_t num_rows, std::size_t outputs, std::size_t k, double scale) {
  Exact exact{std::vector<double>(num_rows * outputs), std::vector<double>(num_rows * outputs)};
  for (std::size_t r = 0; r < num_rows; ++r) {
    const std::vector<double> x = prepared_values(activation, a.bytes.data() + r * a.stride, k);
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

std::vector<float> multiply(const KernelTable& table, const MatrixView& view, const PreparedRows& a,
                            std::size_t row_begin, std::size_t num_rows, std::size_t panel_begin, std::size_t panel_end,
                            std::vector<float> out, std::size_t out_stride) {
  table.matmul(view.type)(view, a.bytes.data() + row_begin * a.stride, num_rows, out.data() + row_begin * out_stride,
                          out_stride, panel_begin, panel_end);
  return out;
}

TEST_CASE("matmul of every variant and type is the product of dequantised weights and prepared rows") {
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types())
      for (const std::size_t outputs : {1, 16, 37}) {
        const std::size_t k = odd_k(type.type), num_rows = 5, stride = outputs + 3;
        const std::vector<std::byte> file = random_weights(type.type, outputs, k, 11);
        std::vector<float> weights(outputs * k);
        dequantize(type.type, file.data(), weights.data(), weights.size());
        PackedMatrix matrix(type.type, table->layout, file, outputs, k);
        matrix.view.scale = 0.75f;
        const Activation activation = table->activation(type.type);
        const PreparedRows a(*table, activation, random_floats(num_rows * k, 5), num_rows, k);
        const Exact exact = exact_product(weights, activation, a, num_rows, outputs, k, 0.75);
        const std::vector<float> out = multiply(*table, matrix.view, a, 0, num_rows, 0, matrix.view.num_panels(),
                                                std::vector<float>(num_rows * stride, std::nanf("")), stride);
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
            REQUIRE(std::fabs(got - exact.value[r * outputs + n]) <= 2e-6 * exact.size[r * outputs + n]);
          }
      }
}

TEST_CASE("matmul gives the same bits for any number of rows and any split of rows and panels") {
  constexpr std::size_t kMaxRows = 40;
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types()) {
      const std::size_t k = odd_k(type.type), outputs = 16 * 5 - 3;
      const std::vector<std::byte> file = random_weights(type.type, outputs, k, 21);
      const PackedMatrix matrix(type.type, table->layout, file, outputs, k);
      const std::size_t panels = matrix.view.num_panels();
      const PreparedRows a(*table, table->activation(type.type), random_floats(kMaxRows * k, 6), kMaxRows, k);
      const std::vector<float> empty(kMaxRows * outputs, std::nanf(""));
      std::vector<float> one_by_one = empty;
      for (std::size_t r = 0; r < kMaxRows; ++r)
        for (std::size_t p = 0; p < panels; ++p)
          one_by_one = multiply(*table, matrix.view, a, r, 1, p, p + 1, std::move(one_by_one), outputs);
      INFO(table->name << " " << type.name);
      for (std::size_t rows = 1; rows <= kMaxRows; ++rows) {
        INFO("rows " << rows);
        std::vector<float> together = multiply(*table, matrix.view, a, 0, rows, 0, panels, empty, outputs);
        together.resize(rows * outputs);
        const std::vector<float> expected(one_by_one.begin(),
                                          one_by_one.begin() + static_cast<std::ptrdiff_t>(rows * outputs));
        REQUIRE(same_bits(together, expected));
      }
      for (const std::size_t split : {1, 2, 3, 4}) {
        std::vector<float> parts = multiply(*table, matrix.view, a, 0, kMaxRows, 0, split, empty, outputs);
        parts = multiply(*table, matrix.view, a, 0, kMaxRows, split, panels, std::move(parts), outputs);
        REQUIRE(same_bits(parts, one_by_one));
      }
    }
}

// All codes at their largest, all activations at +-127: where narrow sums would overflow or saturate.
TEST_CASE("matmul is exact with extreme codes and extreme activations") {
  for (const KernelTable* table : supported_tables())
    for (const WeightTypeInfo& type : weight_types()) {
      if (type.group_size == 1) continue;
      for (const int fill : {0x00, 0xff, 0x7f, 0x80})
        for (const int pattern : {0, 1, 2}) {
          const std::size_t k = 512, outputs = 16;
          std::vector<std::byte> file = random_weights(type.type, outputs, k, 1);
          const std::vector<std::byte> scales = file;
          for (std::byte& b : file) b = static_cast<std::byte>(fill);
          for (std::size_t at = 0; at < file.size(); at += type.group_bytes)  // but keep d and dmin
            for (const std::size_t d : {std::size_t{0}, std::size_t{2}, type.group_bytes - std::size_t{2}})
              if ((type.type == WeightType::q6_k || type.type == WeightType::tq1_0 || type.type == WeightType::tq2_0) ==
                      (d > 2) &&
                  (d != 2 || type.type == WeightType::q4_k || type.type == WeightType::q5_k))
                std::memcpy(&file[at + d], &scales[at + d], 2);
          std::vector<float> weights(outputs * k), x(k);
          dequantize(type.type, file.data(), weights.data(), weights.size());
          for (std::size_t i = 0; i < k; ++i)
            x[i] = pattern == 0 ? 1.0f : pattern == 1 ? -1.0f : (i % 2 == 0 ? 1.0f : -1.0f);
          const PackedMatrix matrix(type.type, table->layout, file, outputs, k);
          const Activation activation = table->activation(type.type);
          const PreparedRows a(*table, activation, x, 1, k);
          const Exact exact = exact_product(weights, activation, a, 1, outputs, k, 1.0);
          const std::vector<float> out = multiply(*table, matrix.view, a, 0, 1, 0, 1, std::vector<float>(16), 16);
          INFO(table->name << " " << type.name << " fill " << fill << " pattern " << pattern);
          for (std::size_t n = 0; n < outputs; ++n) REQUIRE(std::fabs(out[n] - exact.value[n]) <= 1e-6 * exact.size[n]);
        }
    }
}

// A group of the file taken apart: `run` weights share a scale; w = d * (code - offset) - min.
struct Runs {
  std::uint8_t codes[256];
  int offset = 0;
  std::size_t run = 32;
  float d[16] = {}, min[8] = {};
};

template <class GroupQ4Or5K>
void take_apart_with_mins(const GroupQ4Or5K& group, Runs& out) {
  codes_of(group, out.codes);
  for (int i = 0; i < 8; ++i) {
    out.d[i] = load_half(group.d) * scale_min_of(group.scales, i).scale;
    out.min[i] = load_half(group.dmin) * scale_min_of(group.scales, i).min;
  }
}

template <class Group>
void take_apart(const Group& group, int offset, std::size_t run, Runs& out) {
  codes_of(group, out.codes);
  out.offset = offset;
  out.run = run;
  out.d[0] = load_half(group.d);
}

Runs take_apart(WeightType type, const std::byte* group) {
  Runs out;
  switch (type) {
    case WeightType::q8_0:
      take_apart(load<GroupQ8_0>(group), 128, 32, out);
      break;
    case WeightType::q4_0:
      take_apart(load<GroupQ4_0>(group), 8, 32, out);
      break;
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
    default:
      FAIL("not a quantized type");
  }
  return out;
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
  const bool ternary = type == WeightType::tq1_0 || type == WeightType::tq2_0;
  const std::byte* scales = a + (ternary ? layout::group256_row(k).scale : layout::group32_row(k).scale);
  const auto* codes_a = reinterpret_cast<const std::int8_t*>(a);
  for (std::size_t begin = 0; begin < k; begin += t.group_size) {
    const Runs group = take_apart(type, file_row + begin / t.group_size * t.group_bytes);
    for (std::size_t i = 0; i < t.group_size; i += group.run) {
      std::int32_t sum = 0, sum_a = 0;
      for (std::size_t j = i; j < i + group.run; ++j) {
        sum += (group.codes[j] - group.offset) * codes_a[begin + j];
        sum_a += codes_a[begin + j];
      }
      const float da = load<float>(scales + (begin + i) / (ternary ? 256 : 32) * 4);
      acc = std::fma(static_cast<float>(sum), group.d[i / group.run] * da, acc);
      if (type == WeightType::q4_k || type == WeightType::q5_k)
        acc = std::fma(-group.min[i / group.run], da * static_cast<float>(sum_a), acc);
    }
  }
  return acc;
}

TEST_CASE("the vector variants follow the recipe bit by bit, and so agree with each other") {
  for (const char* variant : {"avx2", "avx512vnni"}) {
    const KernelTable* table = find_table(variant);
    if (table == nullptr || !is_supported(*table)) {
      WARN("skipped: this CPU has no " << variant);
      continue;
    }
    for (const WeightTypeInfo& type : weight_types()) {
      const std::size_t k = odd_k(type.type), outputs = 35, num_rows = 9;
      const std::vector<std::byte> file = random_weights(type.type, outputs, k, 31);
      const PackedMatrix matrix(type.type, table->layout, file, outputs, k);
      const PreparedRows a(*table, table->activation(type.type), random_floats(num_rows * k, 32), num_rows, k);
      const std::vector<float> out = multiply(*table, matrix.view, a, 0, num_rows, 0, matrix.view.num_panels(),
                                              std::vector<float>(num_rows * outputs), outputs);
      std::vector<float> expected;
      for (std::size_t r = 0; r < num_rows; ++r)
        for (std::size_t n = 0; n < outputs; ++n)
          expected.push_back(
              by_the_recipe(type.type, file.data() + n * (file.size() / outputs), a.bytes.data() + r * a.stride, k));
      INFO(variant << " " << type.name);
      REQUIRE(same_bits(out, expected));
    }
  }
}

TEST_CASE("prepared rows round to the nearest step of their group's scale, and their sums are right") {
  for (const KernelTable* table : supported_tables())
    for (const Activation activation : {Activation::i8_group32, Activation::i8_group256}) {
      if (table->prepare[static_cast<std::size_t>(activation)] == nullptr) continue;
      for (const std::size_t k : {32, 64, 96, 256, 288, 512, 544}) {
        std::vector<float> x = random_floats(k, static_cast<std::uint32_t>(k));
        for (std::size_t i = 0; i < 32; ++i) x[i] = 0.0f;  // a group of zeros
        x[31] = k == 64 ? 1e-38f : 0.0f;                   // and of almost zeros
        const PreparedRows row(*table, activation, x, 1, k);
        const std::vector<double> values = prepared_values(activation, row.bytes.data(), k);
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
        REQUIRE(std::memcmp(expected.bytes.data(), got.bytes.data(), got.stride) == 0);
      }
    }
}

}  // namespace
}  // namespace troupe::kernels::test
