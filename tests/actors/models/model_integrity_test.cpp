// Whether a model still is what was loaded: its canary, its checksums, its files.
#include "actors/models/model_integrity.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/model/canary_file.h"
#include "tests/engine/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

namespace fs = std::filesystem;
using troupe::test::TempFolder;
using troupe::test::TinyLlama;

struct Loaded {
  explicit Loaded(const std::string& file) : path(file) {
    engine::LoadOptions options;
    options.memory = 64u << 20;
    options.context = 64;
    auto opened = engine::open_gguf(path);
    REQUIRE(opened);
    stamp = (*opened)->stamp();
    auto model = engine::LoadedModel::load(*opened, options);
    REQUIRE(model);
    served.emplace(*model);
  }
  std::optional<std::string> watch(ModelIntegrity& integrity, const std::string& canary_file) {
    notes.clear();
    return integrity.watch(
        *served, {{path, stamp}}, team, [](const auto& pass) { pass(); }, canary_file,
        [this](bool is_warning, const std::string& text) { notes.push_back((is_warning ? "warning: " : "") + text); });
  }
  bool was_noted(std::string_view part) const {
    return std::ranges::any_of(notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
  }
  // Flips the lowest bit of a byte of the weights.
  void flip(std::size_t vector, std::size_t at) const {
    struct Find final : engine::WeightVisitor {
      void matrix(const engine::PackedMatrix&) override {}
      void vector(std::span<const float> numbers) override { all.push_back(std::as_bytes(numbers)); }
      std::vector<std::span<const std::byte>> all;
    } found;
    served->language_model()->model().visit_weights(found);
    *const_cast<std::byte*>(found.all.at(vector).data() + at) ^= std::byte{1};
  }

  std::string path;
  engine::FileStamp stamp;
  engine::Team team{1};
  std::optional<ServedModel> served;
  std::vector<std::string> notes;
};

std::string tiny_file(const TempFolder& folder) { return folder.write("tiny.gguf", TinyLlama{}.writer().bytes()); }

std::uint64_t whole_pass(ModelIntegrity& integrity) {
  std::uint64_t seen = 0;
  while (const std::size_t bytes = integrity.check_piece()) seen += bytes;
  return seen;
}

TEST_CASE("integrity: the first canary is recorded, later loads compare with it") {
  const TempFolder folder;
  Loaded loaded(tiny_file(folder));
  const std::string record = folder.path("state/canaries.json");
  ModelIntegrity first, second, third, without;
  CHECK_FALSE(first.is_watching());
  CHECK_FALSE(loaded.watch(first, record));
  CHECK(first.is_watching());
  CHECK(loaded.was_noted("is recorded in " + record));
  CHECK(first.counts().canary_runs == 1);
  CHECK(first.counts().last_canary > 1'600'000'000);
  CHECK(first.counts().weight_bytes > 10'000);
  CHECK_FALSE(loaded.watch(second, record));
  CHECK(loaded.was_noted("as recorded on 20"));
  CHECK_FALSE(loaded.watch(without, ""));
  CHECK(loaded.notes.empty());
  // Another value: of a kernel, memory or CPU that computes something else.
  const std::string id = loaded.served->numerics_id();
  REQUIRE(engine::keep_canary(record, id, {17, 1'700'000'000}));
  const auto wrong = loaded.watch(third, record);
  REQUIRE(wrong);
  CHECK_THAT(*wrong, Catch::Contains("and 0000000000000011 was recorded in " + record + " on 2023-11-14 22:13 UTC"));
  CHECK_FALSE(third.is_watching());
  CHECK(third.counts().canary_failures == 1);
  CHECK((*engine::find_canary(record, id))->value == 17);  // is not replaced by what differs
}

TEST_CASE("integrity: a damaged record is said, and begun anew") {
  const TempFolder folder;
  Loaded loaded(tiny_file(folder));
  const std::string record = folder.write("canaries.json", "{]");
  ModelIntegrity integrity;
  CHECK_FALSE(loaded.watch(integrity, record));
  CHECK(loaded.was_noted("warning: " + record + ": is damaged"));
  CHECK((*engine::find_canary(record, loaded.served->numerics_id())).has_value());
  const std::string nowhere = folder.path("canaries.json/below");
  CHECK_FALSE(loaded.watch(integrity, nowhere));
  CHECK(loaded.was_noted("warning: the canary is not recorded: "));
}

TEST_CASE("integrity: a weight that changes is found by the canary, and by the next pass over the weights") {
  const TempFolder folder;
  Loaded loaded(tiny_file(folder));
  ModelIntegrity integrity;
  REQUIRE_FALSE(loaded.watch(integrity, ""));
  const auto run = [](const std::function<void()>& pass) { pass(); };
  CHECK_FALSE(integrity.run_canary(loaded.team, run));
  CHECK(whole_pass(integrity) == integrity.counts().weight_bytes);
  CHECK(integrity.counts().last_pass > 1'600'000'000);
  CHECK(integrity.counts().checked_bytes == integrity.counts().weight_bytes);
  loaded.flip(0, 2);
  const auto wrong = integrity.run_canary(loaded.team, run);
  REQUIRE(wrong);
  CHECK_THAT(*wrong, Catch::Contains(", and was "));
  CHECK_FALSE(integrity.damage());
  (void)whole_pass(integrity);
  REQUIRE(integrity.damage());
  CHECK_THAT(*integrity.damage(), Catch::StartsWith("vector 1 of ") && Catch::EndsWith("is not what was loaded"));
  CHECK(integrity.counts().weight_failures == 1);
  CHECK(integrity.counts().canary_failures == 1);
  CHECK(integrity.counts().canary_runs == 3);
}

TEST_CASE("integrity: a check of all weights ends when it is told to") {
  const TempFolder folder;
  Loaded loaded(tiny_file(folder));
  ModelIntegrity integrity;
  REQUIRE_FALSE(loaded.watch(integrity, ""));
  CHECK(integrity.check_all([] { return true; }) == 0);
  CHECK(integrity.check_all([] { return false; }) == integrity.counts().weight_bytes);
}

TEST_CASE("integrity: counts go on from those of before") {
  const TempFolder folder;
  Loaded loaded(tiny_file(folder));
  ModelIntegrity integrity;
  integrity.go_on_from(
      {.canary_runs = 7, .canary_failures = 1, .weight_bytes = 5, .checked_bytes = 9, .file_changed = true});
  CHECK(integrity.counts().weight_bytes == 0);
  CHECK_FALSE(integrity.counts().file_changed);
  REQUIRE_FALSE(loaded.watch(integrity, ""));
  CHECK(integrity.counts().canary_runs == 8);
  CHECK(integrity.counts().canary_failures == 1);
  CHECK(integrity.counts().checked_bytes == 9);
}

TEST_CASE("integrity: a file that changed on disk is told, and no damage") {
  const TempFolder folder;
  const std::string path = tiny_file(folder);
  Loaded loaded(path);
  ModelIntegrity integrity;
  REQUIRE_FALSE(loaded.watch(integrity, ""));
  CHECK(integrity.look_at_files().empty());
  CHECK_FALSE(integrity.counts().file_changed);
  const auto written = fs::last_write_time(path);
  fs::last_write_time(path, written + std::chrono::seconds(2));
  CHECK_THAT(integrity.look_at_files(), Catch::Contains("was written to since it was loaded"));
  CHECK(integrity.counts().file_changed);
  fs::last_write_time(path, written);
  CHECK(integrity.look_at_files().empty());
  CHECK_FALSE(integrity.counts().file_changed);
  // Another file with the same contents and time.
  fs::copy_file(path, path + ".copy");
  fs::rename(path + ".copy", path);
  fs::last_write_time(path, written);
  CHECK_THAT(integrity.look_at_files(), Catch::Contains("is another file than the one that was loaded"));
  fs::copy_file(TROUPE_TEST_DATA "/golden/llama.gguf", path, fs::copy_options::overwrite_existing);
  CHECK_THAT(integrity.look_at_files(), Catch::Contains("when it was loaded"));
  fs::remove(path);
  CHECK_THAT(integrity.look_at_files(), Catch::Contains("there is no such model file"));
  const auto run = [](const std::function<void()>& pass) { pass(); };
  CHECK_FALSE(integrity.run_canary(loaded.team, run));
}

}  // namespace
}  // namespace troupe::actors
