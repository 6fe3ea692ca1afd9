// The lookup layout: the bits of multiply-adds, looked up.
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

constexpr WeightType kTernary[] = {WeightType::tq1_0, WeightType::tq2_0, WeightType::i2_s};

// Without code 3, which is no ternary weight.
std::vector<std::byte> ternary_weights(WeightType type, std::size_t rows, std::size_t k, std::uint32_t seed) {
  std::vector<std::byte> file = random_weights(type, rows, k, seed);
  share_row_scales(type, rows, k, file);
  if (type == WeightType::tq2_0)
    for (std::size_t at = 0; at < file.size(); ++at)
      if (at % sizeof(GroupTQ2_0) < 64) file[at] &= ~((file[at] & std::byte{0xaa}) >> 1);  // 3 becomes 2
  return file;
}

std::vector<const KernelTable*> tables_with_lookup() {
  std::vector<const KernelTable*> tables;
  for (const KernelTable* table : supported_tables())
    if (table->matmul(WeightType::tq2_0, Layout::lookup) != nullptr) tables.push_back(table);
  if (tables.empty()) WARN("skipped: this CPU has no variant with lookups");
  return tables;
}

// Rows [first_row, first_row + num_rows) of `a` times panels [begin, end).
void multiply(const KernelTable& table, const MatrixView& view, const PreparedRows& a, std::size_t first_row,
              std::size_t num_rows, std::size_t begin, std::size_t end, std::vector<float>& out) {
  table.matmul(view.type, view.layout)(view, a.bytes.data() + prepared_bytes(a.activation, a.k, first_row), num_rows,
                                       out.data() + first_row * view.rows, view.rows, begin, end);
}

std::vector<float> product(const KernelTable& table, Layout layout, WeightType type, const std::vector<std::byte>& file,
                           std::size_t outputs, std::size_t k, const std::vector<float>& x, std::size_t num_rows) {
  PackedMatrix matrix(type, layout, file, outputs, k);
  matrix.view.scale = 0.7f;
  const PreparedRows a(table, table.activation(type, layout), x, num_rows, k);
  std::vector<float> out(num_rows * outputs, std::nanf(""));
  multiply(table, matrix.view, a, 0, num_rows, 0, matrix.view.num_panels(), out);
  return out;
}

TEST_CASE("lookup: a row out of the layout is that of the file, and takes 1.75 bits per weight") {
  for (const WeightType type : kTernary)
    for (const std::size_t rows : {1, 16, 37}) {
      const std::size_t k = odd_k(type);
      const std::vector<std::byte> file = ternary_weights(type, rows, k, 7);
      PackedMatrix matrix(type, Layout::lookup, file, rows, k);
      matrix.view.scale = 0.5f;
      std::vector<float> expected(rows * k), out(rows * k, std::nanf(""));
      dequantize(type, file.data(), expected.data(), expected.size());
      for (float& x : expected) x *= 0.5f;
      for (std::size_t row = 0; row < rows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
      INFO(info(type).name << " rows " << rows);
      CHECK(same_bits(out, expected));
    }
  CHECK(packed_bytes(WeightType::tq2_0, Layout::lookup, 160, 2560) == 10 * (64 + 160 * 2560 / 10 * 7 / 32));
}

TEST_CASE("lookup: any number of rows has the bits of multiply-adds") {
  constexpr std::size_t kMaxRows = 21;
  for (const KernelTable* table : tables_with_lookup())
    for (const WeightType type : kTernary)
      for (const std::size_t groups : {1, 2, 3, 5, 9}) {
        const std::size_t k = groups * info(type).group_size, outputs = 16 * 5 - 3;
        const std::vector<std::byte> file = ternary_weights(type, outputs, k, 31);
        const std::vector<float> x = random_floats(kMaxRows * k, 32);
        const std::vector<float> expected = product(*table, Layout::panels, type, file, outputs, k, x, kMaxRows);
        for (std::size_t rows = 1; rows <= kMaxRows; ++rows) {
          INFO(table->name << " " << info(type).name << " k " << k << " rows " << rows);
          const std::vector<float> out = product(*table, Layout::lookup, type, file, outputs, k, x, rows);
          REQUIRE(same_bits(out, {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(rows * outputs)}));
        }
      }
}

TEST_CASE("lookup: calls may be split by panels, and begin at any row") {
  for (const KernelTable* table : tables_with_lookup()) {
    const std::size_t k = 768, outputs = 16 * 5 - 3, num_rows = 7;
    const std::vector<std::byte> file = ternary_weights(WeightType::tq1_0, outputs, k, 5);
    const std::vector<float> x = random_floats(num_rows * k, 6);
    const PackedMatrix matrix(WeightType::tq1_0, Layout::lookup, file, outputs, k);
    const PreparedRows a(*table, Activation::i8_group256_tables, x, num_rows, k);
    std::vector<float> whole(num_rows * outputs, std::nanf("")), parts = whole;
    multiply(*table, matrix.view, a, 0, num_rows, 0, 5, whole);
    for (std::size_t row = 0; row < num_rows; ++row)
      for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 5}})
        multiply(*table, matrix.view, a, row, 1, static_cast<std::size_t>(begin), static_cast<std::size_t>(end), parts);
    INFO(table->name);
    CHECK(same_bits(whole, parts));
  }
}

// All weights alike or alternating, all activations at +-127: where bytes and int16 would overflow.
TEST_CASE("lookup: the largest sums are exact") {
  for (const KernelTable* table : tables_with_lookup())
    for (const int fill : {0x00, 0x55, 0xaa, 0x88, 0x22, 0xa0, 0x0a})
      for (const int pattern : {0, 1, 2, 3}) {
        const std::size_t k = 6912, outputs = 16;
        std::vector<std::byte> file = ternary_weights(WeightType::tq2_0, outputs, k, 1);
        for (std::size_t at = 0; at < file.size(); ++at)
          if (at % sizeof(GroupTQ2_0) < 64) file[at] = static_cast<std::byte>(fill);
        std::vector<float> x(k);
        for (std::size_t i = 0; i < k; ++i) {
          const bool negative = pattern == 1 || (pattern == 2 && i % 2 == 1) || (pattern == 3 && i % 128 >= 64);
          x[i] = negative ? -1.0f : 1.0f;
        }
        INFO(table->name << " fill " << fill << " pattern " << pattern);
        REQUIRE(same_bits(product(*table, Layout::lookup, WeightType::tq2_0, file, outputs, k, x, 1),
                          product(*table, Layout::panels, WeightType::tq2_0, file, outputs, k, x, 1)));
      }
}

TEST_CASE("lookup: only where a row has one scale, and weights are ternary") {
  const std::size_t rows = 3, k = 512;
  const auto layout_of = [&](WeightType type, const std::vector<std::byte>& file, Layout asked = Layout::lookup) {
    return ternary_layout_for(asked, type, file.data(), rows, k);
  };
  for (const WeightType type : kTernary) {
    std::vector<std::byte> file = ternary_weights(type, rows, k, 3);
    CHECK(layout_of(type, file) == Layout::lookup);
    CHECK(layout_of(type, file, Layout::panels) == Layout::panels);
    if (type == WeightType::i2_s) continue;
    file.back() ^= std::byte{1};  // the last group's scale
    CHECK(layout_of(type, file) == Layout::panels);
  }
  std::vector<std::byte> with_3 = ternary_weights(WeightType::tq2_0, rows, k, 3);
  with_3[with_3.size() - 3] |= std::byte{0x30};
  CHECK(layout_of(WeightType::tq2_0, with_3) == Layout::panels);
  CHECK(layout_of(WeightType::q8_0, random_weights(WeightType::q8_0, rows, k, 3)) == Layout::panels);
  CHECK(ternary_layout_for(Layout::lookup, WeightType::tq2_0, nullptr, 1, 256 * 65) == Layout::panels);
  // The matrix unit's recipe is another one: it has no choice.
  if (const KernelTable* amx = find_table("amx")) CHECK_FALSE(has_lookup(*amx));
  CHECK(has_lookup(*find_table("avx2")));
  CHECK(has_lookup(*find_table("avx512vnni")));
  CHECK_FALSE(has_lookup(*find_table("scalar")));
  CHECK_FALSE(has_lookup(*find_table("reference")));
}

}  // namespace
}  // namespace troupe::kernels::test
