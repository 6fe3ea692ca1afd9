// Every family and weight type against tests/data/golden: tiny models and their logits, which tools/golden/make.py
// makes by passes in float64 that share nothing with the engine. (Encoders: model/encoder_test.cpp.)
#include <algorithm>
#include <cstring>
#include <set>

#include "engine/evaluation/eval.h"
#include "engine/model.h"
#include "tests/engine/golden.h"
#include "tests/engine/model_harness.h"

namespace troupe::test {
namespace {

using engine::Team;

const std::string kFolder = TROUPE_TEST_DATA "/golden/";

struct Fixture {
  std::string name;
  std::string weights;        // the type that it is there for
  Tolerance exact;            // where activations stay in float32
  Tolerance rounded;          // where they are rounded for products with such weights
  std::vector<float> logits;  // [tokens, vocabulary]

  std::string path() const { return kFolder + name + ".gguf"; }
};

struct Fixtures {
  std::vector<TokenId> tokens;
  std::vector<Fixture> all;
};

Tolerance tolerance_of(const nlohmann::json& json) {
  return {json.at("max_abs").get<double>(), json.at("rms").get<double>()};
}

Fixtures load_fixtures() {
  const auto json = nlohmann::json::parse(std::ifstream(kFolder + "golden.json"));
  const std::vector<float> logits = read_floats(kFolder + "logits.f32");
  Fixtures out{.tokens = json.at("tokens").get<std::vector<TokenId>>(), .all = {}};
  const std::size_t size = out.tokens.size() * json.at("vocabulary").get<std::size_t>();
  REQUIRE(logits.size() == json.at("models").size() * size);
  auto at = logits.begin();
  for (const auto& model : json.at("models")) {
    const auto& tolerance = model.at("tolerance");
    const auto end = at + static_cast<std::ptrdiff_t>(size);
    out.all.push_back({.name = model.at("name").get<std::string>(),
                       .weights = model.at("weights").get<std::string>(),
                       .exact = tolerance_of(tolerance.at("exact")),
                       .rounded = tolerance_of(tolerance.at(tolerance.contains("rounded") ? "rounded" : "exact")),
                       .logits = {at, end}});
    at = end;
  }
  return out;
}

const kernels::WeightTypeInfo& type_named(const std::string& name) {
  for (const kernels::WeightTypeInfo& type : kernels::weight_types())
    if (type.name == name) return type;
  FAIL("there is no weight type " << name);
  return kernels::weight_types().front();
}

// Whether products with these weights take activations as they are.
bool keeps_activations(const kernels::KernelTable& table, kernels::WeightType type) {
  return table.activation(type, table.layout(type)) == kernels::Activation::f32;
}

TEST_CASE("there is a golden fixture of every family and of every weight type") {
  std::set<std::string> families, types;
  for (const Fixture& fixture : load_fixtures().all) {
    INFO(fixture.name);
    const engine::ModelInfo info = load_model(fixture.path(), "scalar")->info();
    CHECK(info.weight_types.find(fixture.weights + " x ") != std::string::npos);
    families.insert(info.family);
    types.insert(fixture.weights);
  }
  for (const engine::Family& family : engine::families()) CHECK(families.contains(std::string(family.name)));
  for (const kernels::WeightTypeInfo& type : kernels::weight_types()) CHECK(types.contains(std::string(type.name)));
}

TEST_CASE("golden fixtures: every variant gives the logits of a pass in double, and the same bits in chunks") {
  const Fixtures fixtures = load_fixtures();
  Team team(2);
  for (const Fixture& fixture : fixtures.all)
    for (const kernels::KernelTable* table : variants_to_try()) {
      const auto model = load_model(fixture.path(), std::string(table->name));
      const auto logits = engine::evaluate(*model, team, fixtures.tokens);
      REQUIRE(logits);
      const bool exact = keeps_activations(*table, type_named(fixture.weights).type);
      const Tolerance& allowed = exact ? fixture.exact : fixture.rounded;
      const Difference actual = difference(*logits, fixture.logits);
      INFO(fixture.name << ", " << table->name << ": max " << actual.max_abs << " (allowed " << allowed.max_abs
                        << "), RMS " << actual.rms << " (allowed " << allowed.rms << ")");
      CHECK(actual.max_abs <= allowed.max_abs);
      CHECK(actual.rms <= allowed.rms);
      for (const std::uint32_t chunk : {1u, 7u, 33u}) {
        INFO("in chunks of " << chunk);
        const auto chunked = engine::evaluate(*model, team, fixtures.tokens, chunk);
        REQUIRE(chunked);
        CHECK(std::memcmp(chunked->data(), logits->data(), logits->size() * sizeof(float)) == 0);
      }
    }
}

// tools/golden/witnesses.py has asked them.
TEST_CASE("golden fixtures: logits are those of llama.cpp and of transformers") {
  const Fixtures fixtures = load_fixtures();
  const std::string folder = TROUPE_TEST_DATA "/";
  const auto json = nlohmann::json::parse(std::ifstream(folder + "witnesses.json"));
  const std::vector<float> logits = read_floats(folder + "witnesses.f32");
  const auto step = json.at("step").get<std::size_t>();
  const std::size_t num_rows = (fixtures.tokens.size() + step - 1) / step;
  const std::size_t vocabulary = fixtures.all.front().logits.size() / fixtures.tokens.size();
  REQUIRE(logits.size() == json.at("logits").size() * num_rows * vocabulary);
  Team team(2);
  auto at = logits.begin();
  for (const auto& witness : json.at("logits")) {
    INFO(witness.dump());
    const auto model = load_model(kFolder + witness.at("model").get<std::string>() + ".gguf", "scalar");
    const auto ours = engine::evaluate(*model, team, fixtures.tokens);
    REQUIRE(ours);
    double max = 0;
    for (std::size_t row = 0; row < num_rows; ++row, at += static_cast<std::ptrdiff_t>(vocabulary)) {
      const auto begin = ours->begin() + static_cast<std::ptrdiff_t>(row * step * vocabulary);
      max = std::max(max, difference({begin, begin + static_cast<std::ptrdiff_t>(vocabulary)},
                                     {at, at + static_cast<std::ptrdiff_t>(vocabulary)})
                              .max_abs);
    }
    INFO("max " << max);
    CHECK(max <= witness.at("max_abs").get<double>());
  }
}

}  // namespace
}  // namespace troupe::test
