// How the memory beside weights is divided, and that a file's metadata alone are enough to divide it.
#include <string>

#include <catch2/catch.hpp>

#include "engine/model.h"
#include "engine/model/memory_budget.h"
#include "tests/engine/golden.h"

namespace troupe::test {
namespace {

using Catch::Matchers::Contains;
using engine::CacheGroup;
using engine::CacheSpec;
using engine::LoadOptions;
using engine::plan_cache;

constexpr std::uint64_t kFullBlock = 1000, kWindowBlock = 5000;
constexpr std::uint32_t kWindow = 64, kContext = 6400;  // 200 blocks; of the window at most 35: 63 + 1,024 positions
constexpr std::uint64_t kOfOne = 200 * kFullBlock + 35 * kWindowBlock;

CacheSpec with_window() {
  CacheSpec spec;
  spec.groups = {{.bytes_per_block = kFullBlock}, {.window = kWindow, .bytes_per_block = kWindowBlock}};
  return spec;
}

// 1,000 bytes of state, 600 of a snapshot in f16; `block_bytes` 0: nothing else.
CacheSpec with_state(std::uint64_t block_bytes, engine::StateType type = engine::StateType::f32) {
  CacheSpec spec;
  spec.state_type = type;
  spec.groups = {{.bytes_per_block = block_bytes}};
  spec.state = {.exact_floats = 50, .large_floats = 200};
  return spec;
}

LoadOptions options(std::uint32_t max_sequences, engine::StateType type = engine::StateType::f32) {
  LoadOptions options;
  options.max_sequences = max_sequences;
  options.state_type = type;
  return options;
}

TEST_CASE("cache plan: windows and whole contexts get room for as many sequences") {
  const auto two_and_a_half = plan_cache(with_window(), kContext, options(64), kOfOne * 5 / 2);
  REQUIRE(two_and_a_half);
  CHECK(two_and_a_half->num_blocks[0] == 500);
  CHECK(two_and_a_half->num_blocks[1] == 87);
  CHECK(two_and_a_half->num_snapshots == 0);
  CHECK(two_and_a_half->num_states == 0);
  const auto no_more_than_can_run = plan_cache(with_window(), kContext, options(3), kOfOne * 100);
  REQUIRE(no_more_than_can_run);
  CHECK(no_more_than_can_run->num_blocks[0] == 600);
  CHECK(no_more_than_can_run->num_blocks[1] == 105);
}

TEST_CASE("cache plan: each of three groups gets room for as many sequences") {
  CacheSpec spec = with_window();
  spec.groups.push_back({.window = 2048, .bytes_per_block = 700});  // 2,047 + 1,024 positions: 97
  const std::uint64_t of_one = kOfOne + 97 * 700;
  const auto plan = plan_cache(spec, kContext, options(64), of_one * 2);
  REQUIRE(plan);
  CHECK(plan->num_blocks == std::vector<std::uint32_t>{400, 70, 194});
  CHECK_FALSE(plan_cache(spec, kContext, options(64), of_one - 1));
}

TEST_CASE("cache plan: one whole context fits, or the error says which would") {
  CHECK(plan_cache(with_window(), kContext, options(1), kOfOne));
  const auto short_by_a_byte = plan_cache(with_window(), kContext, options(1), kOfOne - 1);
  REQUIRE_FALSE(short_by_a_byte);
  CHECK(short_by_a_byte.error().code == ErrorCode::out_of_memory);
  CHECK_THAT(short_by_a_byte.error().message, Contains("6400 tokens") && Contains("; use -c 6368 or less"));
  CHECK(plan_cache(with_window(), 6368, options(1), kOfOne - 1));
  // Not even the windows fit: no context is named.
  const auto tiny = plan_cache(with_window(), kContext, options(1), 35 * kWindowBlock - 1);
  REQUIRE_FALSE(tiny);
  CHECK_THAT(tiny.error().message, Contains("use a larger --memory or a smaller model"));
}

TEST_CASE("cache plan: a short context needs window blocks for itself alone") {
  CHECK(engine::blocks_needed({.window = kWindow}, 96) == 3);
  CHECK(engine::blocks_needed({.window = kWindow}, kContext) == 35);
  const auto plan = plan_cache(with_window(), 96, options(1), 3 * (kFullBlock + kWindowBlock));
  REQUIRE(plan);
  CHECK(plan->num_blocks[0] == 3);
  CHECK(plan->num_blocks[1] == 3);
}

TEST_CASE("cache plan: running states come first, then snapshots get half, or a quarter beside K and V") {
  // Four states of 1,000 bytes are set aside of 100,000; of 96,000 snapshots take half.
  const auto alone = plan_cache(with_state(0), kContext, options(4), 100000);
  REQUIRE(alone);
  CHECK(alone->num_states == 4);
  CHECK(alone->num_snapshots == 48);
  CHECK(alone->num_blocks[0] == 800);  // names of positions
  const auto beside = plan_cache(with_state(100), 320, options(4), 100000);
  REQUIRE(beside);
  CHECK(beside->num_snapshots == 24);
  CHECK(beside->num_blocks[0] == 40);  // of four contexts: all that can run
  const auto scarce = plan_cache(with_state(1000), 320, options(4), 100000);
  REQUIRE(scarce);
  CHECK(scarce->num_blocks[0] == 40);
  const auto scarcer = plan_cache(with_state(10000), 96, options(4), 100000);
  REQUIRE(scarcer);
  CHECK(scarcer->num_blocks[0] == 7);  // of 72,000
  // At most a quarter is kept for states that run, and f16 makes snapshots smaller.
  const auto many =
      plan_cache(with_state(0, engine::StateType::f16), kContext, options(64, engine::StateType::f16), 100000);
  REQUIRE(many);
  CHECK(many->num_states == 25);
  CHECK(many->num_snapshots == 62);  // of 37,500
  const auto none = plan_cache(with_state(0), kContext, options(4), 999);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, Contains("the state of one sequence takes 1 MiB"));
}

TEST_CASE("cache plan: a number of blocks or snapshots in the options is used as it is, or refused") {
  LoadOptions exactly = options(4);
  exactly.num_blocks = 10;
  exactly.num_snapshots = 3;
  const auto windows = plan_cache(with_window(), kContext, exactly, 10 * (kFullBlock + kWindowBlock));
  REQUIRE(windows);
  CHECK(windows->num_blocks[0] == 10);
  CHECK(windows->num_blocks[1] == 10);
  CHECK_FALSE(plan_cache(with_window(), kContext, exactly, 10 * (kFullBlock + kWindowBlock) - 1));
  const auto snapshots = plan_cache(with_state(0), kContext, exactly, 100000);
  REQUIRE(snapshots);
  CHECK(snapshots->num_snapshots == 3);
}

void require_same(const CacheSpec& outlined, const CacheSpec& loaded) {
  CHECK(outlined.kv_type == loaded.kv_type);
  CHECK(outlined.state_type == loaded.state_type);
  CHECK(outlined.snapshot_every == loaded.snapshot_every);
  REQUIRE(outlined.groups.size() == loaded.groups.size());
  for (std::size_t i = 0; i < loaded.groups.size(); ++i) {
    const CacheGroup &a = outlined.groups[i], &b = loaded.groups[i];
    CHECK(a.layers.size() == b.layers.size());
    CHECK(a.window == b.window);
    CHECK(a.bytes_per_block == b.bytes_per_block);
  }
  CHECK(outlined.state.exact_floats == loaded.state.exact_floats);
  CHECK(outlined.state.large_floats == loaded.state.large_floats);
}

TEST_CASE("an outline from metadata alone has the cache layout and plan of the loaded model") {
  for (const std::string& name : golden_names()) {
    const auto golden = load_golden(name);
    if (!golden) return;
    for (const std::uint32_t context : {0u, 12u, 3000u}) {
      LoadOptions load;
      load.kernels = "scalar";
      load.kv_type = context == 0 ? kernels::KvType::i8 : kernels::KvType::f32;
      load.state_type = context == 0 ? engine::StateType::f16 : engine::StateType::f32;
      load.context = context;
      load.memory = 24u << 20;
      load.max_sequences = 5;
      INFO(name << ", " << context);
      const auto model = engine::LoadedModel::load(golden->model_path, load);
      REQUIRE(model);
      const auto file = engine::open_gguf(golden->model_path);
      REQUIRE(file);
      const auto family = engine::find_family(**file);
      REQUIRE(family);
      engine::LoadOptions metadata;
      metadata.kv_type = load.kv_type;
      metadata.state_type = load.state_type;
      metadata.context = context;
      const auto outline = (*family)->outline(**file, metadata);
      REQUIRE(outline);
      CHECK(outline->info.context == (*model)->info().context);
      CHECK(outline->info.window == (*model)->info().window);
      require_same(outline->cache, (*model)->cache_spec());

      // A few bytes aside, where a family cuts its tensors or keeps small ones as vectors.
      const std::uint64_t weights = (*model)->model().weight_bytes();
      const std::uint64_t estimate =
          engine::packed_weight_bytes(**file, *kernels::find_table("scalar")) + outline->table_bytes;
      const bool is_exact = name.find("llama") == 0 || name.find("gemma") == 0 || name.find("qwen") == 0 ||
                            name.find("bitnet") == 0 || name.find("olmoe") == 0;
      CHECK(static_cast<double>(estimate) ==
            Approx(static_cast<double>(weights)).epsilon(is_exact ? 0.0 : 0.02).margin(0));
      const auto plan = plan_cache(outline->cache, outline->info.context, load, load.memory - weights);
      REQUIRE(plan);
      REQUIRE(plan->num_blocks.size() == (*model)->arenas().size());
      for (GroupId group = 0; group < plan->num_blocks.size(); ++group)
        CHECK(plan->num_blocks[group] == (*model)->arena(group)->num_blocks());
      CHECK(plan->num_snapshots == ((*model)->snapshots() ? (*model)->snapshots()->num_snapshots() : 0));
    }
  }
}

}  // namespace
}  // namespace troupe::test
