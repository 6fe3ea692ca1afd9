#include "kernels/weight_type.h"

#include <fstream>
#include <iterator>

#include "tests/kernels/kernel_support.h"
#include "tests/support/shared_data.h"

namespace troupe::kernels::test {
namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<std::byte> out(chars.size());
  std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

TEST_CASE("every weight type dequantizes to the bits that llama.cpp gives") {
  for (const WeightTypeInfo& type : weight_types()) {
    if (type.type == WeightType::i2_s) continue;  // llama.cpp has it not
    const auto bin = troupe::test::shared_file("golden/blocks/" + std::string(type.name) + ".bin");
    const auto f32 = troupe::test::shared_file("golden/blocks/" + std::string(type.name) + ".f32");
    if (!bin || !f32) continue;
    const std::vector<std::byte> groups = read_file(*bin), expected = read_file(*f32);
    const std::size_t count = groups.size() / type.group_bytes * type.group_size;
    INFO(type.name);
    REQUIRE(expected.size() == count * sizeof(float));
    std::vector<float> out(count, std::nanf(""));
    dequantize(type.type, groups.data(), out.data(), count);
    CHECK(std::memcmp(out.data(), expected.data(), expected.size()) == 0);
  }
}

TEST_CASE("the packed form of every golden group unpacks to the same bits") {
  for (const WeightTypeInfo& type : weight_types()) {
    if (type.type == WeightType::i2_s) continue;
    const auto bin = troupe::test::shared_file("golden/blocks/" + std::string(type.name) + ".bin");
    if (!bin) continue;
    const std::vector<std::byte> file = read_file(*bin);
    const std::size_t groups = file.size() / type.group_bytes;
    const std::size_t groups_per_row = groups % 2 == 0 ? 2 : 1;
    const std::size_t rows = groups / groups_per_row, k = groups_per_row * type.group_size;
    INFO(type.name);
    std::vector<float> expected(rows * k), out(rows * k, std::nanf(""));
    dequantize(type.type, file.data(), expected.data(), expected.size());
    const PackedMatrix matrix(type.type, Layout::panels, file, rows, k);
    for (std::size_t row = 0; row < rows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
    CHECK(same_bits(out, expected));
  }
}

// I2_S is bitnet.cpp's: its dequantised values are written down here, not taken from there.
TEST_CASE("I2_S: four weights in a byte, 32 apart, the first in the highest bits, and code 3 is zero") {
  const std::size_t rows = 3, k = 640;
  std::mt19937 random(9);
  std::vector<float> weights(rows * k), out(rows * k, std::nanf(""));
  std::vector<std::byte> file(rows * k / 4, std::byte{0});
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto code = static_cast<unsigned>(random() % 4);
    weights[i] = code == 0 ? -1.0f : code == 2 ? 1.0f : 0.0f;
    file[i / 128 * 32 + i % 32] |= static_cast<std::byte>(code << (6 - i % 128 / 32 * 2));
  }
  dequantize(WeightType::i2_s, file.data(), out.data(), out.size());
  CHECK(same_bits(out, weights));
  PackedMatrix matrix(WeightType::i2_s, Layout::panels, file, rows, k);
  matrix.view.scale = 0.1f;  // no float16, as scales of tensors may be
  for (float& x : weights) x *= 0.1f;
  for (std::size_t row = 0; row < rows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
  CHECK(same_bits(out, weights));
}

TEST_CASE("packing and unpacking a row gives the values of the file, in both layouts, at odd shapes") {
  for (const WeightTypeInfo& type : weight_types())
    for (const Layout layout : {Layout::file, Layout::panels})
      for (const std::size_t rows : {1, 15, 16, 17, 33}) {
        const std::size_t k = odd_k(type.type);
        const std::vector<std::byte> file = random_weights(type.type, rows, k, 7);
        PackedMatrix matrix(type.type, layout, file, rows, k);
        matrix.view.scale = 0.5f;
        std::vector<float> expected(rows * k), out(rows * k, std::nanf(""));
        dequantize(type.type, file.data(), expected.data(), expected.size());
        for (float& x : expected) x *= 0.5f;
        for (std::size_t row = 0; row < rows; ++row) unpack_row(matrix.view, row, out.data() + row * k);
        INFO(type.name << " rows " << rows);
        CHECK(same_bits(out, expected));
      }
}

TEST_CASE("packed matrices stay within 1.1 of the file, but for TQ1_0, and begin on whole lines") {
  for (const WeightTypeInfo& type : weight_types()) {
    const std::size_t rows = 64, k = 2048;
    const double file = static_cast<double>(rows * k / type.group_size * type.group_bytes);
    const std::size_t packed = packed_bytes(type.type, Layout::panels, rows, k);
    INFO(type.name);
    CHECK(static_cast<double>(packed) <= (type.type == WeightType::tq1_0 ? 1.3 : 1.1) * file);
    CHECK(packed % 64 == 0);
    CHECK(packed_bytes(type.type, Layout::file, 3, k) % 64 == 0);
  }
}

TEST_CASE("panels packed in separate calls give the body of one call") {
  const std::size_t rows = 70, k = 512;
  for (const WeightTypeInfo& type : weight_types()) {
    const std::vector<std::byte> file = random_weights(type.type, rows, k, 3);
    const PackedMatrix whole(type.type, Layout::panels, file, rows, k);
    AlignedBytes parts(whole.body.size());
    std::memset(parts.data(), 0xee, parts.size());
    for (std::size_t p = whole.view.num_panels(); p-- > 0;)
      pack_panels(type.type, Layout::panels, file.data(), rows, k, p, p + 1, parts.data());
    INFO(type.name);
    CHECK(std::memcmp(parts.data(), whole.body.data(), parts.size()) == 0);
  }
}

TEST_CASE("every float16 survives the way to float32 and back, and halves between two round to even") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float_of_half(half);
    if (value != value) {
      REQUIRE((half_of_float(value) & 0x7e00) == 0x7e00);
      continue;
    }
    REQUIRE(half_of_float(value) == half);
    if (std::isinf(value) || (bits & 0x7fff) == 0x7bff) continue;
    const float next = float_of_half(static_cast<std::uint16_t>(bits + 1));
    const float middle = static_cast<float>((static_cast<double>(value) + next) / 2);
    REQUIRE(half_of_float(middle) == ((bits & 1) ? bits + 1 : bits));
    REQUIRE(half_of_float(std::nextafter(middle, next)) == bits + 1);
    REQUIRE(half_of_float(std::nextafter(middle, value)) == bits);
  }
  REQUIRE(half_of_float(65519.0f) == 0x7bff);
  REQUIRE(half_of_float(65520.0f) == 0x7c00);
}

TEST_CASE("types are found by their number in a GGUF file") {
  for (const WeightTypeInfo& type : weight_types()) CHECK(weight_type_of_gguf(type.gguf_number) == type.type);
  CHECK_FALSE(weight_type_of_gguf(9999));
}

}  // namespace
}  // namespace troupe::kernels::test
