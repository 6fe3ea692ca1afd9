// The kernel variant of a model: by name, for one stream, for many, and as measured and kept.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "engine/engine.h"
#include "engine/machine/probe_file.h"
#include "engine/model/kernel_choice.h"
#include "tests/support/temp_folder.h"

namespace troupe::test {
namespace {

using engine::LoadOptions;
using engine::Optimize;
using kernels::KernelTable;

// Sets a variable, or removes it, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_ ? before_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::optional<std::string> before_;
};

std::shared_ptr<const engine::ModelFile> draft_file() {
  auto file = engine::open_gguf(TROUPE_MODELS "/tales-draft-q8_0.gguf");
  if (!file) FAIL(file.error().message);
  return *file;
}

struct Choice {
  const KernelTable* kernels;
  std::string notes;
};
Choice choose(const engine::ModelFile& file, Optimize optimize, engine::Team* team, const std::string& name = "") {
  Choice choice{};
  LoadOptions options;
  options.kernels = name;
  options.optimize = optimize;
  options.notes = [&](const engine::LoadNote& note) { choice.notes += note.text + "\n"; };
  const auto chosen = engine::choose_kernels(file, options, team);
  if (!chosen) FAIL(chosen.error().message);
  choice.kernels = *chosen;
  return choice;
}

TEST_CASE("a named variant is taken, whatever is optimized for") {
  const auto file = draft_file();
  const Variable none("TROUPE_KERNELS", nullptr);
  for (const Optimize optimize : {Optimize::automatic, Optimize::latency, Optimize::throughput, Optimize::measure}) {
    CHECK(choose(*file, optimize, nullptr, "scalar").kernels->name == "scalar");
    const Variable named("TROUPE_KERNELS", "scalar");
    CHECK(choose(*file, optimize, nullptr).kernels->name == "scalar");
  }
}

TEST_CASE("many streams get the best variant, one stream the best without tiles") {
  const auto file = draft_file();
  const Variable none("TROUPE_KERNELS", nullptr);
  CHECK(choose(*file, Optimize::automatic, nullptr).kernels == &kernels::best_table());
  CHECK(choose(*file, Optimize::throughput, nullptr).kernels == &kernels::best_table());
  const KernelTable* const latency = choose(*file, Optimize::latency, nullptr).kernels;
  CHECK_FALSE(engine::uses_tiles(*file, *latency));
  const auto supported = kernels::supported_tables();
  const auto better = std::find(supported.begin(), supported.end(), latency) + 1;
  for (auto table = better; table != supported.end(); ++table) CHECK(engine::uses_tiles(*file, **table));
}

TEST_CASE("what is measured is kept, and taken without measuring from then on") {
  const auto file = draft_file();
  const TempFolder cache;
  const Variable none("TROUPE_KERNELS", nullptr), folder("XDG_CACHE_HOME", cache.path().c_str());
  const auto path = engine::kernel_choices_path(*engine::probe_folder());
  const std::string key = engine::kernel_choice_key(*file, 2);
  engine::Team team(2);

  CHECK(choose(*file, Optimize::measure, nullptr).kernels == &kernels::best_table());  // nothing to measure with
  CHECK_FALSE(std::filesystem::exists(path));

  const Choice measured = choose(*file, Optimize::measure, &team);
  CHECK(engine::kept_kernels(path, key) == std::string(measured.kernels->name));
  CHECK_THAT(measured.notes, Catch::Contains("by measuring one row and eight"));

  REQUIRE(engine::keep_kernels(path, key, "scalar"));
  REQUIRE(engine::keep_kernels(path, "another model", "avx2"));
  const Choice kept = choose(*file, Optimize::measure, &team);
  CHECK(kept.kernels->name == "scalar");
  CHECK_THAT(kept.notes, Catch::Contains("as measured before for Q8_0"));
  CHECK(engine::kept_kernels(path, "another model") == "avx2");

  for (const char* damaged : {"", "[", "[]", "{\"x\": 1}", "\xff"}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK_FALSE(engine::kept_kernels(path, key));
    CHECK_THAT(choose(*file, Optimize::measure, &team).notes, Catch::Contains("by measuring"));
    CHECK(engine::kept_kernels(path, key));
  }
  REQUIRE(engine::keep_kernels(path, key, "of another build"));
  CHECK_THAT(choose(*file, Optimize::measure, &team).notes, Catch::Contains("by measuring"));
}

TEST_CASE("a choice belongs to the types of a file, their sizes and the number of threads") {
  const auto file = draft_file();
  const std::string key = engine::kernel_choice_key(*file, 2);
  CHECK_THAT(key, Catch::StartsWith("Q8_0 x "));
  CHECK(key != engine::kernel_choice_key(*file, 1));
  const auto tales = engine::open_gguf(TROUPE_MODELS "/tales-5m-tq2_0.gguf");
  REQUIRE(tales);
  CHECK(key != engine::kernel_choice_key(**tales, 2));
}

TEST_CASE("each variant of vectors is timed") {
  const auto file = draft_file();
  engine::Team team(1);
  const auto times = engine::time_kernels(*file, team);
  for (const engine::KernelTime& time : times) CHECK(time.seconds > 0);
  CHECK(times.size() + 2 == kernels::supported_tables().size());  // all but reference and scalar
}

}  // namespace
}  // namespace troupe::test
