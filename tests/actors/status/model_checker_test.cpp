// The thread that checks models: what is due, what is asked for, and whom it tells.
#include "actors/status/model_checker.h"

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "engine/weights/weight_visitor.h"
#include "tests/engine/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using troupe::test::TempFolder;
using troupe::test::TinyLlama;

template <class T>
T soon(std::future<T>&& answer) {
  if (answer.wait_for(std::chrono::minutes(1)) != std::future_status::ready) FAIL("nothing happened for a minute");
  return answer.get();
}

// One tiny model, watched.
struct Watched {
  explicit Watched(const TempFolder& folder) {
    engine::LoadOptions options;
    options.memory = 64u << 20;
    options.context = 64;
    auto file = engine::open_gguf(folder.write("tiny.gguf", TinyLlama{}.writer().bytes()));
    REQUIRE(file);
    auto loaded = engine::LoadedModel::load(*file, options);
    REQUIRE(loaded);
    model = *loaded;
    engine::Team team(1);
    REQUIRE_FALSE(integrity.watch(
        ServedModel(model), {}, team, [](const auto& pass) { pass(); }, "", [](bool, const std::string&) {}));
  }
  CheckedModel checked() {
    return {.name = "tiny",
            .owner = {},
            .integrity = is_out ? nullptr : &integrity,
            .is_wanted = [this] { return !is_unloading; },
            .take_out =
                [this](const std::string& what) {
                  if (!is_out.exchange(true)) out.set_value(what);
                }};
  }
  void damage() const {
    struct Find final : engine::WeightVisitor {
      void matrix(const engine::PackedMatrix& matrix) override { last = matrix.bytes(); }
      void vector(std::span<const float>) override {}
      std::span<const std::byte> last;
    } found;
    model->model().visit_weights(found);
    const_cast<std::byte&>(found.last.back()) ^= std::byte{0x40};
  }

  std::shared_ptr<engine::LoadedModel> model;
  ModelIntegrity integrity;
  std::atomic<bool> is_out = false;
  std::atomic<bool> is_unloading = false;
  std::promise<std::string> out;
};

TEST_CASE("checker: damaged weights are found in the background, and the model is taken out") {
  const TempFolder folder;
  Watched watched(folder);
  watched.damage();
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = milliseconds(0), .scrub_rate = 64u << 20}, pool,
      [&] { return std::vector{watched.checked()}; }, [](const auto&, const auto&) {}, {});
  CHECK_THAT(soon(watched.out.get_future()), Catch::Contains("is not what was loaded"));
  CHECK(watched.integrity.counts().weight_failures == 1);
  CHECK(watched.integrity.counts().canary_runs == 1);  // that of its load
}

TEST_CASE("checker: a canary that differs is found at its interval, without reading weights") {
  const TempFolder folder;
  Watched watched(folder);
  watched.damage();
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = milliseconds(1), .scrub_rate = 0}, pool, [&] { return std::vector{watched.checked()}; },
      [](const auto&, const auto&) {}, {});
  CHECK_THAT(soon(watched.out.get_future()), Catch::Contains("its canary is "));
  CHECK(watched.integrity.counts().canary_failures == 1);
  CHECK(watched.integrity.counts().checked_bytes == 0);
}

TEST_CASE("checker: sound models are served on, and a file that changed is told once") {
  const TempFolder folder;
  Watched watched(folder);
  engine::Team team(1);
  // Watched again, with a stamp that the file does not have.
  REQUIRE_FALSE(watched.integrity.watch(
      ServedModel(watched.model), {{folder.path("tiny.gguf"), {.inode = 1, .bytes = 2}}}, team,
      [](const auto& pass) { pass(); }, "", [](bool, const std::string&) {}));
  std::promise<std::string> told;
  std::atomic<int> num_told = 0;
  ComputePool pool(1, {});
  std::promise<void> ran;
  std::atomic<std::uint64_t> looks = 0;
  ModelChecker checker(
      {.canary_interval = milliseconds(1), .scrub_rate = 1}, pool,
      [&] {
        if (watched.integrity.counts().canary_runs > 6 && looks.exchange(1) == 0) ran.set_value();
        return std::vector{watched.checked()};
      },
      [&](const std::string& model, const std::string& what) {
        if (num_told++ == 0) told.set_value(model + ": " + what);
      },
      {});
  CHECK_THAT(soon(told.get_future()), Catch::StartsWith("tiny: ") && Catch::Contains("and had 2 when it was loaded"));
  soon(ran.get_future());
  checker.stop();
  CHECK(num_told == 1);
  CHECK_FALSE(watched.is_out);
  CHECK(watched.integrity.counts().checked_bytes ==
        watched.integrity.counts().weight_bytes);  // one pass, and then a rest
}

TEST_CASE("checker: what is asked for is checked at once, beside jobs, and told") {
  const TempFolder folder;
  Watched watched(folder);
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = hours(1), .scrub_rate = 0}, pool, [] { return std::vector<CheckedModel>(); },
      [](const auto&, const auto&) {}, {});
  const auto check = [&](std::vector<ModelChecker::Asked> models) {
    std::promise<std::vector<ModelCheck>> answer;
    REQUIRE(
        checker.check(std::move(models), [&](std::vector<ModelCheck> checks) { answer.set_value(std::move(checks)); }));
    return soon(answer.get_future());
  };
  const auto sound = check({[&] { return watched.checked(); }, [] { return CheckedModel{.name = "gone"}; }});
  REQUIRE(sound.size() == 2);
  CHECK(sound[0].canary_ok);
  CHECK(sound[0].weights_ok);
  CHECK(sound[0].bytes == watched.integrity.counts().weight_bytes);
  CHECK(sound[0].seconds > 0);
  CHECK(sound[0].problem.empty());
  CHECK(sound[1].problem == "it is not loaded");
  watched.damage();
  const auto damaged = check({[&] { return watched.checked(); }});
  REQUIRE(damaged.size() == 1);
  CHECK_FALSE(damaged[0].weights_ok);
  CHECK_FALSE(damaged[0].problem.empty());
  CHECK(watched.is_out);
}

TEST_CASE("checker: it ends at once, and what waits is not answered") {
  const TempFolder folder;
  Watched watched(folder);
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = hours(1), .scrub_rate = 64u << 20}, pool, [&] { return std::vector{watched.checked()}; },
      [](const auto&, const auto&) {}, {});
  checker.stop();
  pool.stop();
  CHECK_FALSE(watched.is_out);
}

TEST_CASE("checker: a check of a model that is unloaded ends at once, and what waits keeps no model") {
  const TempFolder folder;
  Watched watched(folder);
  watched.is_unloading = true;
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = hours(1), .scrub_rate = 0}, pool, [] { return std::vector<CheckedModel>(); },
      [](const auto&, const auto&) {}, {});
  std::promise<std::vector<ModelCheck>> answer;
  REQUIRE(checker.check({[&] { return watched.checked(); }},
                        [&](std::vector<ModelCheck> checks) { answer.set_value(std::move(checks)); }));
  const auto checks = soon(answer.get_future());
  CHECK(checks.front().problem == "it was unloaded meanwhile");
  CHECK(checks.front().bytes == 0);
  CHECK_FALSE(watched.is_out);
}

TEST_CASE("checker: at most so many checks wait; when it ends they are let go unanswered, and no other is taken") {
  const TempFolder folder;
  Watched watched(folder);
  ComputePool pool(1, {});
  ModelChecker checker(
      {.canary_interval = hours(1), .scrub_rate = 0}, pool, [] { return std::vector<CheckedModel>(); },
      [](const auto&, const auto&) {}, {});
  std::promise<void> begun, go_on;
  const auto held = go_on.get_future().share();
  REQUIRE(checker.check({[&] {
                          begun.set_value();
                          held.wait();
                          return watched.checked();
                        }},
                        [](const std::vector<ModelCheck>&) {}));
  begun.get_future().wait();
  const auto kept = std::make_shared<int>();
  const auto ask = [&] {
    return checker.check({[kept] { return CheckedModel{.name = "x"}; }},
                         [kept](const std::vector<ModelCheck>&) { FAIL("answered"); });
  };
  for (std::size_t i = 0; i < ModelChecker::kMaxQueuedChecks; ++i) CHECK(ask());
  CHECK_FALSE(ask());
  CHECK(kept.use_count() > 64);
  std::thread ends([&] { checker.stop(); });
  while (!checker.is_stopping()) std::this_thread::yield();
  go_on.set_value();
  ends.join();
  CHECK(kept.use_count() == 1);
  CHECK_FALSE(ask());
}

}  // namespace
}  // namespace troupe::actors
