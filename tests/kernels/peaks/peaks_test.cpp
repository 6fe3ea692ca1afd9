// The loops that measure a machine: each does its work in every round.
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <catch2/catch.hpp>

#include "kernels/cpu/cpu_features.h"
#include "kernels/kernels.h"
#include "kernels/peaks/peaks.h"
#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {

TEST_CASE("every unit has a name of its own, and is found by it") {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kNumUnits; ++i) {
    const Unit unit = static_cast<Unit>(i);
    CHECK(names.insert(name(unit)).second);
    CHECK(find_unit(name(unit)) == unit);
  }
  CHECK_FALSE(find_unit("int8"));
  CHECK_FALSE(find_unit(""));
}

TEST_CASE("the unit of every supported variant has a peak loop") {
  for (const KernelTable* table : variants_here())
    for (const WeightTypeInfo& type : weight_types()) {
      const Unit unit = table->unit(type.type, table->layout(type.type));
      if (table->name == "amx" && type.type != WeightType::f32)
        CHECK((unit == Unit::int8_amx || unit == Unit::bf16_amx));
      if (table->name == "amx") CHECK(table->unit(WeightType::tq2_0, Layout::panels) == Unit::int8_avx512vnni);
      INFO(table->name << " " << type.name << " " << name(unit));
      bool found = unit == Unit::none;
      for (const PeakLoop& loop : peak_loops()) found = found || loop.unit == unit;
      CHECK(found);
      const bool plain = table->name == "reference" || table->name == "scalar";
      CHECK((unit == Unit::none) == plain);
    }
}

TEST_CASE("the unit of each integer variant is the instruction that it multiplies with") {
  const std::pair<std::string_view, Unit> units[] = {{"avx2", Unit::int8_avx2},
                                                     {"avxvnni", Unit::int8_avxvnni},
                                                     {"avx512", Unit::int8_avx512},
                                                     {"avx512vnni", Unit::int8_avx512vnni}};
  for (const auto& [variant, unit] : units) {
    const KernelTable* table = variant_built(variant);
    if (table == nullptr) continue;
    INFO(variant);
    CHECK(table->unit(WeightType::q4_k, Layout::panels) == unit);
    const bool narrow = variant == "avx2" || variant == "avxvnni";
    CHECK(table->unit(WeightType::f32, Layout::panels) == (narrow ? Unit::f32_avx2 : Unit::f32_avx512));
    // A table is offered exactly where its loop is.
    bool found = false;
    for (const PeakLoop& loop : peak_loops()) found = found || loop.unit == unit;
    CHECK(found == is_supported(*table));
  }
}

TEST_CASE("a peak loop computes in every round: the bits differ with the number of rounds") {
  for (const PeakLoop& loop : peak_loops()) {
    INFO(name(loop.unit));
    CHECK(loop.ops_per_round > 0);
    CHECK(loop.run(3) == loop.run(3));
    CHECK(loop.run(1) != loop.run(2));
  }
}

TEST_CASE("loops of the matrix unit exist exactly if it is allowed") {
  std::set<Unit> units;
  for (const PeakLoop& loop : peak_loops()) units.insert(loop.unit);
  CHECK(units.contains(Unit::int8_amx) == has_amx_int8());
  CHECK(units.contains(Unit::bf16_amx) == has_amx_bf16());
  CHECK((dependent_adds_beside_amx() != nullptr) == has_amx_int8());
  CHECK((amx_allowed() || !(has_amx_int8() || has_amx_bf16())));
}

TEST_CASE("each addition of the chain is done: the sum is of all rounds") {
  for (const std::uint64_t rounds : {0u, 1u, 2u, 1000u}) {
    const std::uint64_t sum = 1 + kAddsPerRound * (rounds * (rounds == 0 ? 0 : rounds - 1) / 2);
    CHECK(dependent_adds(rounds) == sum);
    // Beside the tiles the sum has their bits on top.
    if (Loop* const beside = dependent_adds_beside_amx()) CHECK(beside(rounds + 1) != beside(rounds));
  }
}

TEST_CASE("reading reads every byte, and none after the end") {
  for (const std::size_t bytes : {256u, 512u, 4096u, 256u * 37}) {
    const AlignedBytes data(bytes);
    CHECK(read_all(data.data(), bytes) == 0);
    for (std::size_t at = 0; at < bytes; at += 61) {
      std::memset(data.data(), 0, bytes);
      data.data()[at] = std::byte{0x10};
      CHECK(read_all(data.data(), bytes) == std::uint64_t{0x10} << at % 8 * 8);
    }
  }
}

}  // namespace troupe::kernels::test
