// Memory that models live in: aligned, packed with a header, reused between steps.
#include <cmath>
#include <cstring>
#include <random>

#include <catch2/catch.hpp>

#include "engine/compute/team.h"
#include "engine/layers/rope_table.h"
#include "engine/memory/aligned_memory.h"
#include "engine/memory/workspace.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::test {
namespace {

using engine::AlignedMemory;
using engine::PackedMatrix;
using engine::Team;
using engine::Workspace;

TEST_CASE("aligned memory is zero, aligned, and has the requested size") {
  for (const std::size_t bytes : {1u, 64u, 4097u, 2u << 20, (2u << 20) + 1, 5u << 20}) {
    const AlignedMemory memory = AlignedMemory::allocate(bytes);
    REQUIRE(memory.data() != nullptr);
    CHECK(memory.size() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % (bytes >= 2u << 20 ? 2u << 20 : 64u) == 0);
    CHECK(memory.data()[0] == std::byte{0});
    memory.data()[bytes - 1] = std::byte{1};
  }
  CHECK(AlignedMemory::allocate(0).data() == nullptr);
  CHECK(AlignedMemory::allocate(std::size_t{1} << 62).data() == nullptr);
}

TEST_CASE("aligned memory moves with its owner") {
  AlignedMemory first = AlignedMemory::allocate(100);
  std::byte* data = first.data();
  AlignedMemory second = std::move(first);
  CHECK(second.data() == data);
  first = std::move(second);
  CHECK(first.data() == data);
}

TEST_CASE("a workspace returns the same memory again, and grows") {
  Workspace workspace;
  const auto small = workspace.take<float>(Workspace::Slot::residual, 10);
  small[9] = 5.0f;
  CHECK(workspace.take<float>(Workspace::Slot::residual, 5).data() == small.data());
  CHECK(workspace.take<float>(Workspace::Slot::delta, 10).data() != small.data());
  const std::size_t before = workspace.total_bytes();
  const auto large = workspace.take<float>(Workspace::Slot::residual, 100000);
  large[99999] = 1.0f;
  CHECK(workspace.total_bytes() > before);
}

std::vector<std::byte> random_floats(std::size_t count) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof value);
  }
  return bytes;
}

TEST_CASE("a packed matrix has a header that describes it, and the rows of the file") {
  constexpr std::size_t kRows = 533, kK = 36;  // several chunks, a part of a panel
  const auto source = random_floats(kRows * kK);
  Team team(3);
  for (const auto layout : {kernels::Layout::file, kernels::Layout::panels}) {
    const auto packed = PackedMatrix::pack(team, {kernels::WeightType::f32, layout, kRows, kK, 2.0f}, source);
    REQUIRE(packed);
    const engine::PackedHeader& header = packed->header();
    CHECK(header.version == kernels::kRecipeVersion);
    CHECK(header.type == kernels::WeightType::f32);
    CHECK(header.layout == layout);
    CHECK(header.rows == kRows);
    CHECK(header.k == kK);
    CHECK(header.body_bytes + engine::kPackedHeaderBytes == packed->bytes().size());
    const auto body = packed->bytes().subspan(engine::kPackedHeaderBytes);
    CHECK(body.data() == packed->view().body);
    CHECK(header.checksum == engine::checksum(team, body));
    float row[kK], expected[kK];
    for (std::size_t r = 0; r < kRows; ++r) {
      kernels::unpack_row(packed->view(), r, row);
      std::memcpy(expected, source.data() + r * sizeof expected, sizeof expected);
      for (std::size_t i = 0; i < kK; ++i) REQUIRE(row[i] == 2.0f * expected[i]);
    }
  }
}

TEST_CASE("a checksum depends on every bit and on their order, not on the number of threads") {
  Team one(1), four(4);
  auto bytes = random_floats(800000);  // more than three pieces
  const std::uint64_t sum = engine::checksum(one, bytes);
  CHECK(engine::checksum(four, bytes) == sum);
  for (const std::size_t at : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    bytes[at] ^= std::byte{0x10};
    CHECK(engine::checksum(one, bytes) != sum);
    bytes[at] ^= std::byte{0x10};
  }
  std::swap(bytes[8], bytes[40]);
  CHECK((bytes[8] == bytes[40] || engine::checksum(one, bytes) != sum));
  CHECK(engine::checksum(one, std::span(bytes).first(31)) != engine::checksum(one, std::span(bytes).first(32)));
}

TEST_CASE("rotation angles are those of the paper, scaled and divided by the file's factors") {
  const engine::RopeParams params{.rotated = 8, .base = 10000.0, .position_scale = 0.25, .factors = {1, 2, 4, 8}};
  const engine::RopeTable table(params, 1000);
  CHECK(table.rotated() == 8);
  for (const std::uint32_t position : {0u, 1u, 17u, 999u}) {
    for (std::uint32_t i = 0; i < 4; ++i) {
      const double angle = position * 0.25 * std::pow(10000.0, -2.0 * i / 8) / params.factors[i];
      CHECK(table.cos(position)[i] == Approx(std::cos(angle)).margin(1e-7));
      CHECK(table.sin(position)[i] == Approx(std::sin(angle)).margin(1e-7));
    }
  }
}

}  // namespace
}  // namespace troupe::test
