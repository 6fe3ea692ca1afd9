// Prepared rows: how they are rounded, and that the bits do not depend on how calls are split.
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

TEST_CASE("rows for products of groups are rounded to int8, with a scale for 256 and sums of 32") {
  const KernelTable* const amx = variant_here("amx");
  if (amx == nullptr) return;
  const KernelTable& table = *amx;
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
  const KernelTable* const amx = variant_here("amx");
  if (amx == nullptr) return;
  const KernelTable& table = *amx;
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
  for (const KernelTable* table : variants_here())
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
  for (const KernelTable* table : variants_here())
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

TEST_CASE("rows have the same bits whether they are rounded at once or one by one, and other rows are unchanged") {
  constexpr std::size_t kRows = 37, kStride = 555;
  const std::vector<float> x = random_floats(kRows * kStride, 77, 3.0f);
  for (const KernelTable* table : variants_here())
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
