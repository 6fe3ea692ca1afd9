#include "kernels/formats/weight_type.h"

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

// FNV-1a over the bodies of a type at shapes with parts of panels, of units and of groups of units.
std::uint64_t hash_of_bodies(WeightType type, Layout layout) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const std::size_t group = info(type).group_size;
  std::mt19937 random(11);
  for (const std::size_t rows : {1, 16, 37})
    for (const std::size_t k :
         {group == 1 ? 36 : group, odd_k(type), 5 * std::max<std::size_t>(group, 32), 9 * 256ul}) {
      std::vector<std::byte> file(rows * k / group * info(type).group_bytes);
      for (std::byte& b : file) b = static_cast<std::byte>(random());
      if (layout == Layout::tiles && is_ternary(type)) share_row_scales(type, rows, k, file);
      const PackedMatrix matrix(type, layout, file, rows, k);
      for (std::size_t i = 0; i < matrix.body.size(); ++i)
        hash = (hash ^ static_cast<std::uint8_t>(matrix.body.data()[i])) * 0x100000001b3u;
    }
  return hash;
}

// Bodies are in cache files and determine a model's hash: the code may change, its output may not.
TEST_CASE("bodies have the stored hashes") {
  struct Row {
    WeightType type;
    std::uint64_t panels, tiles;
  };
  const Row rows[] = {
      {WeightType::f32, 0x5b4959c2a45f51df, 0},
      {WeightType::f16, 0x5399e20a98cdf466, 0x89dc9499f7c221be},
      {WeightType::bf16, 0x5399e20a98cdf466, 0x89dc9499f7c221be},
      {WeightType::q8_0, 0x8e3d79b41f993575, 0x8d60bdcb37f462b5},
      {WeightType::q4_0, 0xc3b5811139eec7c2, 0xf62985870745a0a6},
      {WeightType::q4_1, 0xc79fe0357da1892e, 0x22d20037ac14e3ce},
      {WeightType::q5_0, 0x673ccaac109c369c, 0xe09aeb952d8341b0},
      {WeightType::q5_1, 0x21d6a33ec2f3bb84, 0xea765e2242318aa4},
      {WeightType::iq4_nl, 0xc3b5811139eec7c2, 0xf62985870745a0a6},
      {WeightType::iq4_xs, 0x1180ee615d891cf4, 0xbaa97576980652e2},
      {WeightType::mxfp4, 0xad0c1c4c707d8e9b, 0xc8961fd8c926ec53},
      {WeightType::q2_k, 0x6a665de97ffcca68, 0x8300220b78afed24},
      {WeightType::q3_k, 0xa539d37f2ccca4d9, 0xcf4df7158dbd671b},
      {WeightType::q4_k, 0xa27f2d077ca1588b, 0},
      {WeightType::q5_k, 0x829b7eb10820f3ac, 0},
      {WeightType::q6_k, 0x89dc19da5deccc12, 0xe7d06f8e10c6fe96},
      {WeightType::tq1_0, 0xb97b5028d1c86b70, 0x635b923fb280ba46},
      {WeightType::tq2_0, 0x169f86cef960948d, 0x835984e1232242af},
      {WeightType::i2_s, 0xd65baf90fd39d537, 0xbfd8cb9612505375},
  };
  CHECK(std::size(rows) == weight_types().size());
  for (const Row& row : rows) {
    INFO(info(row.type).name);
    CHECK(hash_of_bodies(row.type, Layout::panels) == row.panels);
    if (has_layout(row.type, Layout::tiles, 256)) CHECK(hash_of_bodies(row.type, Layout::tiles) == row.tiles);
  }
}

TEST_CASE("every float16 is unchanged after conversion to float32 and back, and ties round to even") {
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
