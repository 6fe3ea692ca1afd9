// Products: accuracy against double precision, the same bits in any batch, extreme values; and packed weights.
#include "tests/kernels/kernel_support.h"
#include "tests/support/sanitized.h"

namespace troupe::kernels::test {
namespace {

// Double-precision product of the dequantised weights with the values of the prepared rows, and the
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

// What tiles add: bfloat16 weights made out of codes are cut off to 8 bits, within 2^-7 of the weight; 8 bits of a code
// and its scale leave as much of the largest.
double weight_rounding(const MatrixView& view, Activation activation) {
  const bool exact = view.type == WeightType::bf16 || view.type == WeightType::f16;
  if (activation == Activation::bf16_split_tiles) return 1.0 / 65536;  // the product of the low parts is left out
  if (activation == Activation::i8_group256_tiles) return 1.0 / 128;
  return activation == Activation::bf16_tiles && !exact ? 1.0 / 128 : 0;
}

TEST_CASE("matmul of every variant and type is the product of dequantised weights and prepared rows") {
  for (const KernelTable* table : variants_here())
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
  constexpr std::size_t kStep = troupe::test::kSanitized ? 5 : 1;
  for (const KernelTable* table : variants_here())
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
        for (std::size_t rows = 1; rows <= kMaxRows; rows += rows < 40 || rows > 94 ? kStep : 9) {
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
  for (const KernelTable* table : variants_here())
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

// Kernels do not check scales: a bad one must not change the outputs of other rows.
TEST_CASE("a NaN scale makes the output of its own row NaN, and no other") {
  const std::size_t outputs = 37, bad_row = 5, num_rows = 6;
  for (const KernelTable* table : variants_here())
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

TEST_CASE("ternary rows with more than one scale are multiplied in panels") {
  const KernelTable* table = variant_built("amx");
  if (table == nullptr) return;
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

}  // namespace
}  // namespace troupe::kernels::test
