// The layouts of ternary weights, which give the same bits: choice, cache and log.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "engine/weights/ternary_choice.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/model_harness.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::LoadedModel;
using engine::LoadOptions;
using engine::Ternary;

const std::string kTales = TROUPE_MODELS "/tales-5m-tq2_0.gguf";

struct Load {
  std::shared_ptr<LoadedModel> model;
  std::string notes;
};

Load load(const std::string& kernels, std::optional<Ternary> ternary, const std::string& cache = "") {
  Load load;
  LoadOptions options;
  options.memory = 64u << 20;
  options.kernels = kernels;
  options.ternary = ternary;
  options.weights_cache.directory = cache;
  options.notes = [&load](const engine::LoadNote& note) { load.notes += note.text + "\n"; };
  auto loaded = LoadedModel::load(kTales, options);
  if (!loaded) FAIL(loaded.error().message);
  load.model = *loaded;
  return load;
}

std::vector<float> logits_of(const LoadedModel& model, std::uint32_t chunk) {
  engine::Team team(2);
  engine::Executor executor(model, team);
  SequenceRunner runner(executor, 1, random_tokens(21, model.info().vocab_size, 7), {0});
  return runner.run(chunk);
}

std::vector<std::string> variants() {
  std::vector<std::string> names;
  for (const kernels::KernelTable* table : variants_to_try())
    if (kernels::has_ternary_layout(*table, kernels::Layout::trits)) names.emplace_back(table->name);
  return names;
}

TEST_CASE(
    "ternary weights as lookups and as trits give the bits and the numerics_id of multiply-adds, in less memory") {
  for (const std::string& kernels : variants()) {
    const Load multiply = load(kernels, Ternary::multiply);
    const std::vector<float> expected = logits_of(*multiply.model, 21);
    std::uint64_t bytes = multiply.model->model().weight_bytes();
    for (const Ternary ternary : {Ternary::lookup, Ternary::trits}) {
      INFO(kernels << " " << engine::name(ternary));
      const Load got = load(kernels, ternary);
      CHECK(got.model->numerics_id() == multiply.model->numerics_id());
      CHECK(got.model->model().weight_bytes() < bytes);
      bytes = got.model->model().weight_bytes();
      for (const std::uint32_t chunk : {1u, 3u, 5u, 21u}) CHECK(logits_of(*got.model, chunk) == expected);
    }
  }
}

TEST_CASE("each layout has its own cache file and is read back from it") {
  const TempFolder root;
  for (const std::string& kernels : variants()) {
    const std::string cache = root.path(kernels);
    const std::string id = load(kernels, Ternary::multiply).model->numerics_id();
    for (const char* begins : {"packed ", "read "})
      for (const Ternary ternary : {Ternary::lookup, Ternary::multiply, Ternary::trits}) {
        const Load got = load(kernels, ternary, cache);
        INFO(kernels << "\n" << got.notes);
        CHECK(got.notes.starts_with(begins));
        CHECK(got.notes.find("damaged") == std::string::npos);
        CHECK(got.model->numerics_id() == id);
        CHECK(got.model->model().weight_bytes() == load(kernels, ternary).model->model().weight_bytes());
        CHECK(logits_of(*got.model, 1) == logits_of(*load(kernels, Ternary::multiply).model, 1));
      }
    CHECK(std::distance(std::filesystem::directory_iterator(cache), {}) == 3);
  }
}

TEST_CASE("asking for lookup tables or trits that the kernels lack, or for an unknown name, is an error") {
  LoadOptions options;
  options.kernels = "scalar";
  for (const auto& [ternary, words] : {std::pair{Ternary::lookup, "lookup tables"}, {Ternary::trits, "packed trits"}}) {
    options.ternary = ternary;
    const auto refused = LoadedModel::load(kTales, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ErrorCode::unsupported);
    CHECK(refused.error().message.find("'scalar' have no " + std::string(words)) != std::string::npos);
  }
  options.ternary = Ternary::multiply;
  CHECK(LoadedModel::load(kTales, options));

  options.ternary = std::nullopt;
  ::setenv("TROUPE_TERNARY", "both", 1);
  const auto unknown = LoadedModel::load(kTales, options);
  ::setenv("TROUPE_TERNARY", "lookup", 1);
  const auto none = LoadedModel::load(kTales, options);
  ::unsetenv("TROUPE_TERNARY");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().message.find("'both' is none of") != std::string::npos);
  REQUIRE_FALSE(none);
  for (const Ternary ternary : {Ternary::automatic, Ternary::multiply, Ternary::lookup, Ternary::trits})
    CHECK(engine::find_ternary(engine::name(ternary)) == ternary);
}

TEST_CASE("all layouts are timed, but not for a small model") {
  for (const std::string& kernels : variants()) {
    engine::Team team(2);
    const auto times_of = [&](std::size_t k) {
      return engine::time_ternary(*kernels::find_table(kernels), team, kernels::WeightType::tq2_0, k);
    };
    const std::vector<engine::TernaryTime> times = times_of(512);
    REQUIRE(times.size() == 3);
    CHECK(times[0].layout == kernels::Layout::panels);
    for (const engine::TernaryTime& time : times) CHECK((time.seconds > 0 && std::isfinite(time.seconds)));
    CHECK(times_of(256 * 65).size() == 2);  // no lookups of rows so long
    const Load automatic = load(kernels, std::nullopt);
    CHECK(automatic.notes.find("ternary weights") == std::string::npos);
    CHECK(automatic.model->model().weight_bytes() == load(kernels, Ternary::multiply).model->model().weight_bytes());
  }
}

TEST_CASE("a large model is measured once, with a note of the result") {
  GgufWriter writer;
  writer.add("general.architecture", "llama");
  writer.add_tensor("blk.0.ffn_up.weight", {4096, 40000}, 35, std::string(40000 * 4096 / 256 * 66, '\x24'));  // TQ2_0
  const TemporaryFile path(writer.bytes());
  const auto file = engine::open_gguf(path.path());
  REQUIRE(file);
  for (const std::string& kernels : variants()) {
    engine::Team team(2);
    std::string note;
    engine::LoadOptions options;
    options.kernels = kernels;
    options.team = &team;
    options.notes = [&](const engine::LoadNote& said) { note += said.text; };
    const auto chosen = engine::choose_ternary_layout(**file, options);
    REQUIRE(chosen);
    INFO(note);
    const bool lookup = *chosen == kernels::Layout::lookup, trits = *chosen == kernels::Layout::trits;
    CHECK(note.starts_with(lookup  ? "ternary weights: lookup tables, 1.75 bits: "
                           : trits ? "ternary weights: packed trits, 1.6 bits: "
                                   : "ternary weights: multiply-add, 2.1 bits: "));
    CHECK(note.find(" us for one row and eight against ") != std::string::npos);
    CHECK((note.find(" us of multiply-add") == std::string::npos) == !(lookup || trits));
    CHECK((note.find(" us of lookup tables") == std::string::npos) == lookup);
    CHECK((note.find(" us of packed trits") == std::string::npos) == trits);
    note.clear();
    for (const auto& [ternary, layout] : {std::pair{Ternary::multiply, kernels::Layout::panels},
                                          {Ternary::lookup, kernels::Layout::lookup},
                                          {Ternary::trits, kernels::Layout::trits}}) {
      options.ternary = ternary;
      CHECK(*engine::choose_ternary_layout(**file, options) == layout);
    }
    CHECK(note.empty());
  }
}

}  // namespace
}  // namespace troupe::test
