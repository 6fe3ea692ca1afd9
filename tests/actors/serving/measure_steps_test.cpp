#include "actors/batching/measure_steps.h"

#include <catch2/catch.hpp>
#include <string>

using namespace troupe;
using namespace troupe::actors;

namespace {

std::shared_ptr<engine::LoadedModel> embedded_model(std::uint32_t num_blocks) {
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  auto model = engine::LoadedModel::load(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf", options);
  if (!model) FAIL(model.error().message);
  return *model;
}

scheduler::StepLoad chunk_of(std::uint32_t tokens) {
  scheduler::StepLoad load;
  load.add_row(0, tokens, true);
  return load;
}

}  // namespace

TEST_CASE("before it is served, a model's steps are measured, from one row to a long chunk") {
  const auto model = embedded_model(64);
  engine::Team team(1);
  scheduler::CostModel costs;
  measure_steps(*model, team, {.max_seconds = 60}, costs);
  CHECK(costs.has_learned());
  CHECK(costs.error().num_steps == 5);  // after the first: three chunks, rows, one row
  CHECK(costs.predict(chunk_of(1)) > 0);
  CHECK(costs.predict(chunk_of(512)) > costs.predict(chunk_of(32)));
}

TEST_CASE("with little time, memory or few tokens per step fewer steps are measured") {
  engine::Team team(1);
  scheduler::CostModel costs;
  measure_steps(*embedded_model(64), team, {.max_seconds = 1e-9}, costs);
  CHECK(costs.has_learned());
  CHECK(costs.error().num_steps == 0);
  costs = {};
  measure_steps(*embedded_model(1), team, {.max_seconds = 60}, costs);
  CHECK(costs.error().num_steps == 3);  // after the first: one chunk, one row twice
  costs = {};
  measure_steps(*embedded_model(64), team, {.max_seconds = 60, .max_step_tokens = 4}, costs);
  CHECK(costs.error().num_steps == 2);
}
