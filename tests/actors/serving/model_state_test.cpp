#include "actors/serving/model_state.h"

#include <catch2/catch.hpp>

namespace troupe::actors {
namespace {

TEST_CASE("model state: one that is loaded on request says so until its load begins") {
  ModelState state("m");
  state.set_awaits_request(true);
  CHECK(state.readiness() == Readiness::on_request);
  state.set_awaits_request(false);
  CHECK(state.readiness() == Readiness::loading);
  state.set_draining();
  CHECK(state.readiness() == Readiness::draining);
}

TEST_CASE("model state: loading, then ready, then draining; each callback is called once") {
  ModelState state("tales");
  CHECK(state.readiness() == Readiness::loading);
  CHECK(state.name() == "tales");
  int told = 0;
  state.on_loaded([&](Status status) { told += status ? 1 : 100; });
  state.set_fraction(0.5);
  CHECK(state.fraction() == 0.5);
  CHECK(told == 0);

  const engine::LoadOptions options;  // a variable: GCC 12 takes members of a temporary for uninitialised
  auto model = engine::LoadedModel::load(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf", options);
  REQUIRE(model);
  state.loaded(std::make_shared<const ServedModel>(*std::move(model)));
  CHECK(told == 1);
  state.on_loaded([&](Status status) { told += status ? 10 : 100; });
  CHECK(told == 11);
  CHECK(state.readiness() == Readiness::ready);
  CHECK(state.name() == "tales");
  CHECK(state.fraction() == 1);
  state.set_draining();
  CHECK(state.readiness() == Readiness::draining);
}

TEST_CASE("model state: a failure is passed on with its reason, and stays") {
  ModelState state("x");
  std::string why;
  state.on_loaded([&](Status status) { why = status.error().message; });
  state.failed({ErrorCode::bad_model, "no tensors"});
  CHECK(why == "no tensors");
  CHECK(state.readiness() == Readiness::failed);
  CHECK(state.error()->code == ErrorCode::bad_model);
  CHECK_FALSE(state.model());
}

}  // namespace
}  // namespace troupe::actors
