// The layouts that only ternary weights have, lookup and trits: the bits of multiply-adds with panels.
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

constexpr WeightType kTernary[] = {WeightType::tq1_0, WeightType::tq2_0, WeightType::i2_s};

// One scale per row, and no code 3, which is no ternary weight.
void make_ternary(WeightType type, std::size_t rows, std::size_t k, std::vector<std::byte>& file) {
  share_row_scales(type, rows, k, file);
  if (type == WeightType::tq2_0)
    for (std::size_t at = 0; at < file.size(); ++at)
      if (at % sizeof(GroupTQ2_0) < 64) file[at] &= ~((file[at] & std::byte{0xaa}) >> 1);  // 3 becomes 2
}

std::vector<std::byte> ternary_weights(WeightType type, std::size_t rows, std::size_t k, std::uint32_t seed) {
  std::vector<std::byte> file = random_weights(type, rows, k, seed);
  make_ternary(type, rows, k, file);
  return file;
}

constexpr Layout kLayouts[] = {Layout::lookup, Layout::trits};
const char* name(Layout layout) { return layout == Layout::lookup ? "lookup" : "trits"; }

// Calls test(table, layout) for all that this machine has.
template <class Test>
void for_each_layout(const Test& test) {
  for (const KernelTable* table : variants_here())
    for (const Layout layout : kLayouts)
      if (table->matmul(WeightType::tq2_0, layout) != nullptr) test(*table, layout);
}

// Rows [first_row, first_row + num_rows) of `a` times panels [begin, end).
void multiply(const KernelTable& table, const MatrixView& view, const PreparedRows& a, std::size_t first_row,
              std::size_t num_rows, std::size_t begin, std::size_t end, std::vector<float>& out,
              std::size_t out_stride) {
  table.matmul(view.type, view.layout)(view, a.bytes.data() + prepared_bytes(a.activation, a.k, first_row), num_rows,
                                       out.data() + first_row * out_stride, out_stride, begin, end);
}

std::vector<float> product(const KernelTable& table, Layout layout, WeightType type, const std::vector<std::byte>& file,
                           std::size_t outputs, std::size_t k, const std::vector<float>& x, std::size_t num_rows) {
  PackedMatrix matrix(type, layout, file, outputs, k);
  matrix.view.scale = 0.7f;
  const PreparedRows a(table, table.activation(type, layout), x, num_rows, k);
  const std::size_t stride = outputs + 3;
  std::vector<float> padded(num_rows * stride, std::nanf("")), out;
  multiply(table, matrix.view, a, 0, num_rows, 0, matrix.view.num_panels(), padded, stride);
  for (std::size_t i = 0; i < padded.size(); ++i) {
    if (i % stride < outputs)
      out.push_back(padded[i]);
    else
      REQUIRE(std::isnan(padded[i]));  // only the matrix's outputs are written
  }
  return out;
}

TEST_CASE("ternary layouts: a row unpacks to the file's values, and has 1.75 or 1.625 bits per weight") {
  for (const Layout layout : kLayouts)
    for (const WeightType type : kTernary)
      for (const std::size_t rows : {1, 16, 37}) {
        const std::size_t k = odd_k(type);
        const std::vector<std::byte> file = ternary_weights(type, rows, k, 7);
        PackedMatrix matrix(type, layout, file, rows, k);
        matrix.view.scale = 0.5f;
        std::vector<float> expected(rows * k), out(rows * k, std::nanf(""));
        dequantize(type, file.data(), expected.data(), expected.size());
        for (float& x : expected) x *= 0.5f;
        for (std::size_t row = 0; row < rows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
        INFO(name(layout) << " " << info(type).name << " rows " << rows);
        CHECK(same_bits(out, expected));
      }
  CHECK(packed_bytes(WeightType::tq2_0, Layout::lookup, 160, 2560) == 10 * (64 + 160 * 2560 / 10 * 7 / 32));
  CHECK(packed_bytes(WeightType::tq2_0, Layout::trits, 160, 2560) == 10 * (64 + 160 * 2560 / 10 * 13 / 64));
}

// FNV-1a over the bodies of a type at shapes with parts of panels and of units.
std::uint64_t hash_of_bodies(WeightType type, Layout layout) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  std::mt19937 random(11);
  for (const std::size_t rows : {1, 16, 37})
    for (const std::size_t k : {std::size_t{info(type).group_size}, odd_k(type), std::size_t{9 * 256}}) {
      std::vector<std::byte> file(rows * k / info(type).group_size * info(type).group_bytes);
      for (std::byte& b : file) b = static_cast<std::byte>(random());
      make_ternary(type, rows, k, file);
      const PackedMatrix matrix(type, layout, file, rows, k);
      for (std::size_t i = 0; i < matrix.body.size(); ++i)
        hash = (hash ^ static_cast<std::uint8_t>(matrix.body.data()[i])) * 0x100000001b3u;
    }
  return hash;
}

// Bodies are in cache files: the code may change, its output may not.
TEST_CASE("ternary layouts: bodies have the stored hashes") {
  CHECK(hash_of_bodies(WeightType::tq1_0, Layout::lookup) == 0xbfe0e6ddac5bdbd3);
  CHECK(hash_of_bodies(WeightType::tq2_0, Layout::lookup) == 0x553e6758c8045d97);
  CHECK(hash_of_bodies(WeightType::i2_s, Layout::lookup) == 0x32a97f5440e53196);
  CHECK(hash_of_bodies(WeightType::tq1_0, Layout::trits) == 0x11b89cdb13da34d1);
  CHECK(hash_of_bodies(WeightType::tq2_0, Layout::trits) == 0xffc283c2aad563ea);
  CHECK(hash_of_bodies(WeightType::i2_s, Layout::trits) == 0x490b55daeeac4188);
}

TEST_CASE("ternary layouts: any number of rows has the bits of multiply-adds with panels") {
  constexpr std::size_t kMaxRows = 97;
  for_each_layout([](const KernelTable& table, Layout layout) {
    for (const WeightType type : kTernary)
      for (const std::size_t groups : {1, 2, 3, 5, 9}) {
        const std::size_t k = groups * info(type).group_size, outputs = 16 * 5 - 3;
        const std::vector<std::byte> file = ternary_weights(type, outputs, k, 31);
        const std::vector<float> x = random_floats(kMaxRows * k, 32);
        const std::vector<float> expected = product(table, Layout::panels, type, file, outputs, k, x, kMaxRows);
        for (std::size_t rows = 1; rows <= kMaxRows; rows += rows < 21 ? 1 : 19) {  // blocks are of 48 rows
          INFO(table.name << " " << name(layout) << " " << info(type).name << " k " << k << " rows " << rows);
          const std::vector<float> out = product(table, layout, type, file, outputs, k, x, rows);
          REQUIRE(same_bits(out, {expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(rows * outputs)}));
        }
      }
  });
}

// There the float chain has one link, so that a fused multiply-add and the scalar kernel's two roundings are the same.
TEST_CASE("ternary layouts: one group has the bits of the scalar kernel, at every number of outputs") {
  for_each_layout([](const KernelTable& table, Layout layout) {
    for (const WeightType type : kTernary)
      for (std::size_t outputs = 1; outputs <= 49; ++outputs)
        for (const std::size_t rows : {1, 2, 5}) {
          const std::size_t k = info(type).group_size;
          const std::vector<std::byte> file = ternary_weights(type, outputs, k, static_cast<std::uint32_t>(outputs));
          const std::vector<float> x = random_floats(rows * k, 33);
          INFO(table.name << " " << name(layout) << " " << info(type).name << " outputs " << outputs);
          REQUIRE(same_bits(product(table, layout, type, file, outputs, k, x, rows),
                            product(*find_table("scalar"), Layout::panels, type, file, outputs, k, x, rows)));
        }
  });
}

TEST_CASE("ternary layouts: the same bits for calls split by panels, and from any first row") {
  for_each_layout([](const KernelTable& table, Layout layout) {
    const std::size_t k = 768, outputs = 16 * 5 - 3, num_rows = 7;
    const std::vector<std::byte> file = ternary_weights(WeightType::tq1_0, outputs, k, 5);
    const std::vector<float> x = random_floats(num_rows * k, 6);
    const PackedMatrix matrix(WeightType::tq1_0, layout, file, outputs, k);
    const PreparedRows a(table, table.activation(WeightType::tq1_0, layout), x, num_rows, k);
    std::vector<float> whole(num_rows * outputs, std::nanf("")), parts = whole;
    multiply(table, matrix.view, a, 0, num_rows, 0, 5, whole, outputs);
    for (std::size_t row = 0; row < num_rows; ++row)
      for (const auto& [begin, end] : {std::pair{0, 1}, {1, 4}, {4, 5}})
        multiply(table, matrix.view, a, row, 1, static_cast<std::size_t>(begin), static_cast<std::size_t>(end), parts,
                 outputs);
    INFO(table.name << " " << name(layout));
    CHECK(same_bits(whole, parts));
  });
}

// All weights alike or alternating, all activations at +-127: where bytes and int16 would overflow, and where a word of
// digits is the largest. By one row and by many.
TEST_CASE("ternary layouts: the largest sums are exact") {
  for_each_layout([](const KernelTable& table, Layout layout) {
    for (const int fill : {0x00, 0x55, 0xaa, 0x88, 0x22, 0xa0, 0x0a})
      for (const int pattern : {0, 1, 2, 3}) {
        const std::size_t k = 6912, outputs = 16, num_rows = 6;
        std::vector<std::byte> file = ternary_weights(WeightType::tq2_0, outputs, k, 1);
        for (std::size_t at = 0; at < file.size(); ++at)
          if (at % sizeof(GroupTQ2_0) < 64) file[at] = static_cast<std::byte>(fill);
        std::vector<float> x(num_rows * k);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const bool negative = pattern == 1 || (pattern == 2 && i % 2 == 1) || (pattern == 3 && i % 128 >= 64);
          x[i] = negative ? -1.0f : 1.0f;
        }
        INFO(table.name << " " << name(layout) << " fill " << fill << " pattern " << pattern);
        for (const std::size_t rows : {std::size_t{1}, num_rows})
          REQUIRE(same_bits(product(table, layout, WeightType::tq2_0, file, outputs, k, x, rows),
                            product(table, Layout::panels, WeightType::tq2_0, file, outputs, k, x, rows)));
      }
  });
}

// Every word of ten digits once, in the column of one byte: 3^10 of them, 6 to a group.
TEST_CASE("trits: every word of ten digits is unpacked exactly, in every variant") {
  constexpr std::size_t kWords = 59049, kRows = 48, k = 256 * (kWords / (kRows * 24) + 1);
  std::vector<std::byte> file = ternary_weights(WeightType::tq2_0, kRows, k, 1);
  std::vector<std::uint8_t> codes(kRows * k, 1);
  std::size_t word = 0;
  for (std::size_t at = 0; at < codes.size(); at += 256)
    for (std::size_t pair = 0; pair < 6; ++pair)
      for (std::size_t i = 0; i < 4; ++i, ++word)
        for (std::size_t digit = 10, rest = word % kWords; digit-- > 0; rest /= 3)
          codes[at + 4 * (10 * pair + digit) + i] = static_cast<std::uint8_t>(rest % 3);
  REQUIRE(word >= kWords);
  for (std::size_t row = 0; row < kRows; ++row)
    for (std::size_t g = 0; g < k / 256; ++g) {
      std::byte* group = file.data() + (row * (k / 256) + g) * sizeof(GroupTQ2_0);
      const std::uint8_t* of_group = codes.data() + row * k + 256 * g;
      for (std::size_t byte = 0; byte < 64; ++byte) {  // ggml's order: four times 32 in the bits of 32 bytes
        unsigned bits = 0;
        for (std::size_t s = 0; s < 4; ++s) bits |= unsigned{of_group[byte / 32 * 128 + 32 * s + byte % 32]} << (2 * s);
        group[byte] = static_cast<std::byte>(bits);
      }
    }
  const PackedMatrix matrix(WeightType::tq2_0, Layout::trits, file, kRows, k);
  std::vector<float> expected(kRows * k), out(kRows * k);
  dequantize(WeightType::tq2_0, file.data(), expected.data(), expected.size());
  for (std::size_t row = 0; row < kRows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
  REQUIRE(same_bits(out, expected));
  const std::vector<float> x = random_floats(5 * k, 34);
  for_each_layout([&](const KernelTable& table, Layout layout) {
    if (layout != Layout::trits) return;
    INFO(table.name);
    for (const std::size_t rows : {std::size_t{1}, std::size_t{5}})
      CHECK(same_bits(product(table, layout, WeightType::tq2_0, file, kRows, k, x, rows),
                      product(table, Layout::panels, WeightType::tq2_0, file, kRows, k, x, rows)));
  });
}

TEST_CASE("ternary layouts: only for ternary weights with one scale per row") {
  const std::size_t rows = 3, k = 512;
  const auto layout_of = [&](Layout asked, WeightType type, const std::vector<std::byte>& file) {
    return ternary_layout_for(asked, type, file.data(), rows, k);
  };
  for (const Layout layout : kLayouts) {
    for (const WeightType type : kTernary) {
      std::vector<std::byte> file = ternary_weights(type, rows, k, 3);
      CHECK(layout_of(layout, type, file) == layout);
      CHECK(layout_of(Layout::panels, type, file) == Layout::panels);
      if (type == WeightType::i2_s) continue;
      file.back() ^= std::byte{1};  // the last group's scale
      CHECK(layout_of(layout, type, file) == Layout::panels);
    }
    std::vector<std::byte> with_3 = ternary_weights(WeightType::tq2_0, rows, k, 3);
    with_3[with_3.size() - 3] |= std::byte{0x30};
    CHECK(layout_of(layout, WeightType::tq2_0, with_3) == Layout::panels);
    CHECK(layout_of(layout, WeightType::q8_0, random_weights(WeightType::q8_0, rows, k, 3)) == Layout::panels);
    // The matrix unit's recipe is another one: it has no choice.
    if (const KernelTable* amx = find_table("amx")) CHECK_FALSE(has_ternary_layout(*amx, layout));
    for (const char* variant : {"avx2", "avxvnni", "avx512", "avx512vnni"})
      if (const KernelTable* table = variant_built(variant)) CHECK(has_ternary_layout(*table, layout));
    CHECK_FALSE(has_ternary_layout(*find_table("scalar"), layout));
    CHECK_FALSE(has_ternary_layout(*find_table("reference"), layout));
  }
  CHECK(ternary_layout_for(Layout::lookup, WeightType::tq2_0, nullptr, 1, 256 * 65) == Layout::panels);
  CHECK(has_layout(WeightType::tq2_0, Layout::trits, 256 * 65));
}

}  // namespace
}  // namespace troupe::kernels::test
