// Two models in one process: units side by side, on one stream table, one compute pool and one memory budget.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/machine.h"

namespace troupe::actors::test {
namespace {

using scheduler::Outcome;
using Labels = std::vector<std::pair<std::string, std::string>>;

Request vector_of(const std::string& model) {
  Request request;
  request.model = model;
  request.embed.emplace().texts = EmbedIds{{2, 9, 3}};
  return request;
}

}  // namespace

TEST_CASE("models: requests go to the unit of their model, and each answers as if it were alone") {
  Machine alone;
  alone.add(kTales, "tales");
  alone.run();
  const auto expected = std::make_shared<Listener>();
  alone.submit(story("tales"), expected);
  alone.run();
  REQUIRE(expected->ids.size() == 12);

  Machine machine;
  const ModelUnit& tales = machine.add(kTales, "tales");
  const ModelUnit& bert = machine.add(kBert, "bert");
  machine.run();
  CHECK(tales.state().readiness() == Readiness::ready);
  CHECK(bert.state().readiness() == Readiness::ready);
  CHECK(machine.models.names() == std::vector<std::string>{"tales", "bert"});
  CHECK(machine.models.find("")->id() == tales.id());
  CHECK(machine.models.find("bert")->id() == bert.id());
  CHECK(machine.models.find("cats") == nullptr);

  const auto first = std::make_shared<Listener>(), second = std::make_shared<Listener>(),
             vectors = std::make_shared<Listener>(), refused = std::make_shared<Listener>();
  machine.submit(story("tales"), first);
  machine.submit(story(""), second);
  machine.submit(vector_of("bert"), vectors);
  machine.submit(story("bert"), refused);
  machine.run();
  CHECK(first->ids == expected->ids);
  CHECK(second->ids == expected->ids);
  REQUIRE(vectors->end_);
  CHECK(vectors->end_->embeddings->values.size() == 64);
  REQUIRE(refused->end_);
  CHECK(refused->end_->outcome == Outcome::unsupported);
}

TEST_CASE("models: what a user was served by one model counts in the others") {
  Machine machine;
  const ModelUnit& tales = machine.add(kTales, "tales");
  const ModelUnit& bert = machine.add(kBert, "bert");
  machine.run();
  const auto stays = std::make_shared<Listener>(), story_sink = std::make_shared<Listener>(),
             vectors = std::make_shared<Listener>();
  Request waits = story("tales", 30);  // active until the end: counters are forgotten when there is no such tenant
  waits.tenant.id = TenantId{7};
  machine.submit(waits, stays);
  machine.submit(story("tales"), story_sink);
  const auto served = [](const ModelUnit& unit, TenantId tenant) {
    const auto lock = unit.parts().shares->lock();
    return unit.parts().shares->shares().served(tenant);
  };
  machine.scheduler().run(60);
  REQUIRE_FALSE(stays->end_);
  CHECK(served(tales, TenantId{7}) > 0);
  CHECK(served(bert, TenantId{7}) == served(tales, TenantId{7}));
  const double before = served(tales, TenantId{8});
  Request text = vector_of("bert");
  text.tenant.id = TenantId{8};
  machine.submit(text, vectors);
  while (!vectors->end_) REQUIRE(machine.scheduler().run(1) == 1);
  REQUIRE_FALSE(stays->end_);
  CHECK(served(tales, TenantId{8}) > before);
  machine.run();
}

TEST_CASE("models: units take their memory from one budget and give it back") {
  Machine machine;
  const std::uint64_t before = machine.models.budget().left();
  machine.add(kTales, "first");
  machine.run();
  const std::uint64_t with_one = machine.models.budget().left();
  CHECK(with_one < before);
  machine.add(kTales, "second");
  machine.run();
  const std::uint64_t of_one = before - with_one;  // without what the allocator adds to a vocabulary
  CHECK(before - machine.models.budget().left() == Approx(2 * of_one).epsilon(0.01));

  const std::uint64_t enough = of_one + of_one / 2;
  MemoryBudget budget(enough);
  const auto start = [&](UnitId id, const std::string& name) {
    CatalogEntry entry = describe({.path = kTales, .name = name, .load = {.num_blocks = 32}});
    auto part = budget.expect(entry.demand);
    return ModelUnit::start(machine.system, machine.context(), id, std::move(entry), std::move(part));
  };
  auto fits = start(7, "fits");
  machine.run();
  CHECK(fits->state().readiness() == Readiness::ready);
  auto refused = start(8, "refused");
  machine.run();
  REQUIRE(refused->state().error());
  CHECK(refused->state().error()->code == ErrorCode::out_of_memory);
  CHECK_THAT(refused->state().error()->message, Catch::Contains("fits has "));
  fits->stop();
  refused->stop();
  machine.run();
  fits = refused = nullptr;
  CHECK(budget.left() == enough);
}

TEST_CASE("models: an actor that dies in one unit, or a model that fails to load, does not affect the other unit") {
  for (const Role role : {Role::batcher, Role::keeper, Role::worker, Role::intake, Role::embedder}) {
    Machine machine;
    const ModelUnit& tales = machine.add(kTales, "tales");
    machine.add(kTales, "others");
    machine.run();
    const auto first = std::make_shared<Listener>(), second = std::make_shared<Listener>();
    machine.submit(story("tales", 30), first);
    machine.submit(story("others", 30), second);
    machine.scheduler().run(40);
    caf::anon_send(tales.supervisor(), msg::Crash{role});
    machine.run();
    CHECK(first->ids.size() == 30);
    CHECK(second->ids == first->ids);
    CHECK(machine.models.find("others")->parts().counters.num_ended() > 0);
  }
  Machine machine;
  machine.add(kTales, "tales");
  machine.add("/nowhere.gguf", "missing");
  machine.run();
  const auto served = std::make_shared<Listener>(), failed = std::make_shared<Listener>();
  machine.submit(story("tales"), served);
  machine.submit(story("missing"), failed);
  machine.run();
  CHECK(served->ids.size() == 12);
  REQUIRE(failed->end_);
  CHECK(failed->end_->outcome == Outcome::model_unloaded);
}

TEST_CASE("models: an idle model beside a busy one is healthy, and only the one whose work waits is stalled") {
  Machine machine;
  machine.options.progress_timeout = std::chrono::seconds(10);
  const ModelUnit& busy = machine.add(kTales, "busy");
  const ModelUnit& idle = machine.add(kTales, "idle");
  machine.run();
  const auto stalled = [&] {
    std::vector<bool> all;
    for (const ModelHealth& each : machine.models.health(machine.now())) all.push_back(each.stalled);
    return all;
  };
  const auto wait = [&](int seconds) { machine.scheduler().advance_time(std::chrono::seconds(seconds)); };
  machine.compute.hold = true;
  const auto sink = std::make_shared<Listener>();
  machine.submit(story("busy", 30), sink);
  machine.scheduler().run();
  for (int step = 0; step < 5; ++step) {
    REQUIRE(machine.compute.is_computing());
    wait(9);
    CHECK(stalled() == std::vector{false, false});
    CHECK(machine.models.is_making_progress(machine.now()));
    machine.compute.run_one();
    machine.scheduler().run();
  }
  wait(11);
  CHECK(stalled() == std::vector{true, false});
  CHECK_FALSE(busy.is_making_progress(machine.now()));
  CHECK(idle.is_making_progress(machine.now()));
  CHECK_FALSE(machine.models.is_making_progress(machine.now()));

  const StatusSnapshot status =
      take_snapshot(machine.context(), {busy.shared_parts(), idle.shared_parts()}, machine.now());
  CHECK(status.stalled);
  REQUIRE(status.models.size() == 2);
  CHECK(status.models[0].health.stalled);
  CHECK(status.models[0].states.running == 1);
  CHECK(status.models[0].tokens.prompt == 3);
  CHECK(status.models[0].tokens.generated > 0);
  CHECK_FALSE(status.models[1].health.stalled);
  CHECK(status.models[1].states.running == 0);
  CHECK(status.models[1].tokens.generated == 0);
  CHECK(status.models[1].numerics_id == busy.state().model()->numerics_id());
  CHECK(status.models[1].weight_bytes == status.weight_bytes);
  const auto value = [&](const std::string& name, const Labels& labels) {
    double sum = 0;
    int found = 0;
    for (const Metric& metric : status.metrics)
      if (metric.name == name && metric.labels == labels) sum += metric.value, ++found;
    CHECK(found == 1);
    return sum;
  };
  CHECK(value("model_stalled", {{"model", "busy"}}) == 1);
  CHECK(value("model_stalled", {{"model", "idle"}}) == 0);
  CHECK(value("model_requests", {{"model", "busy"}, {"state", "running"}}) == 1);
  CHECK(value("steps", {{"model", "busy"}}) == 5);
  CHECK(value("steps", {{"model", "idle"}}) == 0);
  CHECK(status.count("steps") == 5);
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run();
  CHECK(sink->ids.size() == 30);
  CHECK(stalled() == std::vector{false, false});
}

TEST_CASE("models: the default one is healthy while another's work waits") {
  Machine machine;
  machine.options.progress_timeout = std::chrono::seconds(10);
  machine.add(kTales, "idle");
  machine.add(kTales, "busy");
  machine.run();
  machine.compute.hold = true;
  const auto sink = std::make_shared<Listener>();
  machine.submit(story("busy"), sink);
  machine.scheduler().run();
  machine.scheduler().advance_time(std::chrono::seconds(11));
  const std::vector<ModelHealth> health = machine.models.health(machine.now());
  CHECK_FALSE(health.at(0).stalled);
  CHECK(health.at(1).stalled);
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run();
  CHECK(sink->ids.size() == 12);
}

TEST_CASE("models: one that fails to load is told, and the others serve") {
  for (const bool first_fails : {false, true}) {
    Machine machine;
    for (const bool fails : {first_fails, !first_fails})
      machine.add(fails ? "/nowhere.gguf" : kTales, fails ? "no" : "yes");
    CHECK(machine.models.readiness() == Readiness::loading);
    machine.run();
    CHECK(machine.models.readiness() == Readiness::ready);
    CHECK(machine.models.is_making_progress(machine.now()));
    const std::vector<ModelHealth> health = machine.models.health(machine.now());
    REQUIRE(health.size() == 2);
    const ModelHealth &yes = health[first_fails ? 1 : 0], &no = health[first_fails ? 0 : 1];  // the default one first
    CHECK(machine.models.names().front() == (first_fails ? "no" : "yes"));
    CHECK(no.name == "no");
    CHECK(no.readiness == Readiness::failed);
    CHECK(no.problem.find("/nowhere.gguf") != std::string::npos);
    CHECK(yes.readiness == Readiness::ready);
    CHECK(yes.load_fraction == 1);
    CHECK(yes.problem.empty());
    const auto sink = std::make_shared<Listener>();
    machine.submit(story("yes"), sink);
    const auto unnamed = std::make_shared<Listener>();
    machine.submit(story(""), unnamed);
    machine.run();
    CHECK(sink->ids.size() == 12);
    // The default is a name: if it has failed, no other model answers for it.
    REQUIRE(unnamed->end_);
    CHECK(unnamed->end_->outcome == (first_fails ? Outcome::model_unloaded : Outcome::length));
    if (first_fails) CHECK_THAT(unnamed->end_->message, Catch::Contains("/nowhere.gguf"));
    if (!first_fails) CHECK(unnamed->ids == sink->ids);
  }
  Machine none;
  none.add("/nowhere.gguf", "no");
  none.add("/nowhere.gguf", "nor");
  none.run();
  CHECK(none.models.readiness() == Readiness::failed);
  CHECK_FALSE(none.models.is_making_progress(none.now()));
  CHECK(none.models.default_unit()->is_making_progress(none.now()));  // nothing waits for it
}

TEST_CASE("models: a status is asked of all of them, and each one's memory is its own") {
  Machine machine;
  machine.add(kTales, "tales");
  const ModelUnit& bert = machine.add(kBert, "bert");
  machine.run();
  std::optional<StatusSnapshot> answer;
  machine.models.ask_status(machine.context(), [&](StatusSnapshot status) { answer = std::move(status); });
  machine.run();
  REQUIRE(answer);
  CHECK(answer->models.size() == 2);
  CHECK(answer->model == "tales");
  CHECK(machine.models.with_numerics(bert.state().model()->numerics_id()).get() == &bert);
  CHECK(machine.models.with_numerics("others") == nullptr);
  KnownMemory sum;
  const MemoryOfUnits memory = machine.models.measure_memory(sum);
  REQUIRE(memory.size() == 2);
  CHECK(memory[0].second.weights > memory[1].second.weights);
  CHECK(memory[1].second.weights > 0);
  CHECK(sum.weights == memory[0].second.weights + memory[1].second.weights);
}

TEST_CASE("models: a loader that dies is started again, and the model is loaded once") {
  Machine machine;
  machine.compute.hold = true;
  const ModelUnit& unit = machine.add(kTales, "tales");
  machine.scheduler().run();
  REQUIRE(machine.compute.is_computing());
  caf::anon_send(unit.supervisor(), msg::Crash{Role::loader});
  machine.run();
  const std::uint64_t before = machine.models.budget().left();
  while (machine.compute.is_computing()) {
    machine.compute.run_one();
    machine.run();
  }
  CHECK(unit.state().readiness() == Readiness::ready);
  const std::uint64_t taken = before - machine.models.budget().left();
  CHECK(taken == unit.state().model()->budget_bytes());
  const auto sink = std::make_shared<Listener>();
  machine.compute.hold = false;
  machine.submit(story("tales"), sink);
  machine.run();
  CHECK(sink->ids.size() == 12);
}

TEST_CASE("models: one is loaded and one unloaded while a stream of another runs, and its memory is given back") {
  Machine machine;
  machine.add(kTales, "tales");
  machine.run();
  const std::uint64_t left = machine.models.budget().left();
  const auto beside = std::make_shared<Listener>();
  machine.submit(story("tales", 30), beside);
  machine.scheduler().run(30);

  Wish loaded, unloaded;
  machine.load(source("second"), loaded.callback());
  machine.run_now();
  REQUIRE(loaded.health);
  CHECK(loaded.health->name == "second");
  CHECK(loaded.health->readiness == Readiness::ready);
  CHECK(machine.models.names() == std::vector<std::string>{"tales", "second"});
  CHECK(machine.models.budget().left() < left);
  const auto served = std::make_shared<Listener>();
  machine.submit(story("second", 30), served);
  machine.run_now();
  CHECK(served->ids.size() == 30);
  CHECK(served->ids == beside->ids);

  machine.models.unload("second", std::chrono::seconds(30), unloaded.callback());
  machine.run_now();  // no time passes: nothing of it waits for a timer
  REQUIRE(unloaded.health);
  CHECK(unloaded.count == 1);
  CHECK(machine.models.names() == std::vector<std::string>{"tales"});
  CHECK(machine.models.budget().left() == left);
  CHECK(loaded.count == 1);
}

TEST_CASE("models: of one that is unloaded, new requests end at once and running ones have the time of the timeout") {
  for (const bool in_time : {true, false}) {
    Machine machine;
    machine.add(kTales, "tales");
    machine.add(kTales, "second");
    machine.run();
    machine.compute.hold = true;
    const auto running = std::make_shared<Listener>(), late = std::make_shared<Listener>();
    machine.submit(story("second", 30), running);
    machine.scheduler().run();
    REQUIRE(machine.compute.is_computing());
    Wish unloaded;
    machine.models.unload("second", std::chrono::seconds(30), unloaded.callback());
    machine.run_now();
    machine.submit(story("second"), late);
    machine.run_now();
    REQUIRE(late->end_);
    CHECK(late->end_->outcome == Outcome::model_unloaded);
    CHECK_FALSE(running->end_);
    CHECK(unloaded.count == 0);
    Wish again;
    machine.models.unload("second", std::chrono::seconds(30), again.callback());
    REQUIRE(again.refused);
    CHECK(again.refused->outcome == Outcome::model_unloaded);
    if (!in_time) machine.scheduler().advance_time(std::chrono::seconds(31));
    machine.compute.hold = false;
    while (machine.compute.is_computing()) machine.compute.run_one();
    machine.run_now();
    REQUIRE(running->end_);
    CHECK(running->end_->outcome == (in_time ? Outcome::length : Outcome::model_unloaded));
    CHECK(unloaded.count == 1);
    CHECK(machine.models.find("second") == nullptr);
  }
}

TEST_CASE("models: when the default one is unloaded, the next that serves is the default, and stays it") {
  Machine machine;
  machine.add(kTales, "first");
  machine.add("/nowhere.gguf", "lost");
  machine.add(kTales, "third");
  machine.run();
  machine.compute.hold = true;
  const auto running = std::make_shared<Listener>();
  machine.submit(story("", 30), running);
  machine.scheduler().run();
  REQUIRE(machine.compute.is_computing());
  Wish unloaded;
  machine.models.unload("first", std::chrono::seconds(30), unloaded.callback());
  CHECK(machine.models.default_unit()->name() == "third");
  CHECK(machine.models.health(machine.now()).front().name == "third");
  const auto unnamed = std::make_shared<Listener>();
  machine.submit(story(""), unnamed);
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run_now();
  CHECK(running->ids.size() == 30);
  CHECK(unnamed->ids.size() == 12);
  CHECK(unloaded.health);
  Wish again;
  machine.load(source("first"), again.callback());
  machine.run_now();
  CHECK(again.health);
  CHECK(machine.models.default_unit()->name() == "third");
}

TEST_CASE("models: one that is unloaded before it is loaded is given up, and requests that wait for it end") {
  Machine machine;
  machine.add(kTales, "tales");
  machine.run();
  machine.compute.hold = true;
  Wish loaded, unloaded;
  machine.load(source("second"), loaded.callback());
  machine.run_now();
  const auto waits = std::make_shared<Listener>();
  machine.submit(story("second"), waits);
  machine.run_now();
  CHECK_FALSE(waits->end_);
  machine.models.unload("second", std::chrono::seconds(30), unloaded.callback());
  machine.run_now();
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run_now();
  REQUIRE(loaded.refused);
  CHECK_THAT(loaded.refused->message, Catch::Contains("unloaded before it was loaded"));
  REQUIRE(waits->end_);
  CHECK(waits->end_->outcome == Outcome::model_unloaded);
  CHECK(unloaded.health);
  CHECK(loaded.count + unloaded.count == 2);
  CHECK(machine.models.names() == std::vector<std::string>{"tales"});
}

TEST_CASE("models: a load that cannot be is refused with the reason, and leaves nothing behind") {
  Machine machine;
  machine.add(kTales, "tales");
  machine.run();
  const std::uint64_t left = machine.models.budget().left();
  const auto refused = [&](ModelSource wanted) {
    Wish wish;
    machine.load(std::move(wanted), wish.callback());
    machine.run_now();
    CHECK(wish.count == 1);
    REQUIRE(wish.refused);
    CHECK(machine.models.names() == std::vector<std::string>{"tales"});
    CHECK(machine.models.budget().left() == left);
    return wish.refused->message;
  };
  CHECK_THAT(refused(source("tales")), Catch::Contains("there is a model \"tales\" already"));
  CHECK_THAT(refused(source("x", "/nowhere.gguf")), Catch::Contains("/nowhere.gguf"));
  ModelSource large = source("large");
  large.load.memory = std::uint64_t{2} << 30;
  CHECK_THAT(refused(large), Catch::Contains("model large is to have 2048 MiB"));
  ModelSource wrong_template = source("x");
  wrong_template.chat_template.name = "nope";
  CHECK_THAT(refused(wrong_template), Catch::Contains("nope"));
  Wish only;
  machine.models.unload("tales", std::chrono::seconds(1), only.callback());
  REQUIRE(only.refused);
  CHECK_THAT(only.refused->message, Catch::Contains("the only model"));
  Wish unknown;
  machine.models.unload("cats", std::chrono::seconds(1), unknown.callback());
  REQUIRE(unknown.refused);
  CHECK(unknown.refused->outcome == Outcome::unknown_model);
  machine.models.close();
  CHECK_THAT(refused(source("late")), Catch::Contains("shutting down"));
}

TEST_CASE("models: one with several names is found, asked and unloaded by each, and no other gets one of them") {
  Machine machine;
  machine.add(kTales, "tales");
  machine.run();
  ModelSource several = source("one");
  several.aliases = {"two", "three"};
  Wish loaded;
  machine.load(several, loaded.callback());
  machine.run_now();
  REQUIRE(loaded.health);
  CHECK(loaded.health->name == "one");
  CHECK(loaded.health->aliases == several.aliases);
  for (const char* name : {"one", "two", "three"}) CHECK(machine.models.find(name)->name() == "one");
  CHECK(machine.models.find("four") == nullptr);
  CHECK(machine.models.names() == std::vector<std::string>{"tales", "one"});
  CHECK(machine.models.all_names() == std::vector<std::string>{"tales", "one", "two", "three"});

  const auto refused = [&](const std::string& name, const std::vector<std::string>& aliases) {
    ModelSource wanted = source(name);
    wanted.aliases = aliases;
    Wish wish;
    machine.load(std::move(wanted), wish.callback());
    machine.run_now();
    REQUIRE(wish.refused);
    CHECK(wish.refused->outcome == Outcome::invalid_argument);
    return wish.refused->field + ": " + wish.refused->message;
  };
  CHECK_THAT(refused("two", {}), Catch::StartsWith("name: there is a model \"two\" already"));
  CHECK_THAT(refused("new", {"three"}), Catch::StartsWith("aliases: there is a model \"three\" already"));
  CHECK_THAT(refused("new", {"newer", "tales"}), Catch::StartsWith("aliases: there is a model \"tales\" already"));
  CHECK_THAT(refused("new", {"new"}), Catch::StartsWith("aliases: the name \"new\" is there twice"));

  Wish unloaded;
  machine.models.unload("three", std::chrono::seconds(30), unloaded.callback());
  machine.run_now();
  REQUIRE(unloaded.health);
  CHECK(unloaded.health->name == "one");
  CHECK(machine.models.find("two") == nullptr);
}

TEST_CASE("models: the last one that is served stays, also while others are unloaded or could not be loaded") {
  Machine machine;
  machine.add(kTales, "first");
  machine.add(kTales, "second");
  machine.add("/nowhere.gguf", "failed");
  machine.run();
  machine.compute.hold = true;
  const auto running = std::make_shared<Listener>();
  machine.submit(story("first"), running);
  machine.scheduler().run();
  Wish first, second, failed;
  machine.models.unload("first", std::chrono::seconds(30), first.callback());
  machine.models.unload("second", std::chrono::seconds(30), second.callback());
  machine.models.unload("failed", std::chrono::seconds(30), failed.callback());
  REQUIRE(second.refused);
  CHECK_THAT(second.refused->message, Catch::Contains("the only model that this server serves"));
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run_now();
  CHECK(first.health);
  CHECK(failed.health);
  CHECK(machine.models.names() == std::vector<std::string>{"second"});
  CHECK(machine.models.default_unit()->name() == "second");
}

TEST_CASE("models: idle ones make room, the least recently used first, never the default, a pinned or a busy one") {
  Machine machine;
  const auto add = [&](const std::string& name, bool pinned) {
    ModelSource wanted = source(name);
    wanted.pinned = pinned;
    wanted.load.memory = std::uint64_t{240} << 20;  // of 1 GiB: four fit
    wanted.load.num_blocks = 0;
    wanted.load.max_sequences = 1024;
    Wish wish;
    machine.load(wanted, wish.callback());
    machine.run_now();
    machine.scheduler().advance_time(std::chrono::seconds(1));
    return wish;
  };
  machine.options.max_sequences = 1024;
  machine.add(kTales, "default");
  machine.run_now();
  CHECK(add("pinned", true).health);
  CHECK(add("busy", false).health);
  CHECK(add("used", false).health);
  CHECK(add("idle", false).health);
  const auto sink = std::make_shared<Listener>();
  machine.submit(story("used"), sink);
  machine.run_now();
  machine.compute.hold = true;
  const auto running = std::make_shared<Listener>();
  machine.submit(story("busy", 30), running);
  machine.scheduler().run();
  machine.compute.hold = false;

  CHECK(add("one", false).health);
  CHECK(machine.models.names() == std::vector<std::string>{"default", "pinned", "busy", "used", "one"});
  CHECK(add("two", false).health);
  CHECK(machine.models.names() == std::vector<std::string>{"default", "pinned", "busy", "used", "two"});
  const auto again = std::make_shared<Listener>();
  machine.submit(story("two"), again);
  machine.run_now();
  ModelSource larger = source("larger");
  larger.load.memory = std::uint64_t{900} << 20;
  Wish refused;
  machine.load(larger, refused.callback());
  machine.run_now();
  REQUIRE(refused.refused);  // no model goes in vain
  CHECK(machine.models.names() == std::vector<std::string>{"default", "pinned", "busy", "used", "two"});
  CHECK(add("three", false).health);
  CHECK(machine.models.names() == std::vector<std::string>{"default", "pinned", "busy", "two", "three"});
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run_now();
  CHECK(running->ids.size() == 30);
}

TEST_CASE("models: loads that are asked for at once divide the memory, and no idle model goes for a share") {
  for (const bool in_one_call : {true, false}) {
    Machine machine;
    machine.options.max_sequences = 1024;  // whose cache would be three times the budget
    machine.add(kTales, "default");
    machine.run_now();
    Wish idle;
    machine.load(source("idle"), idle.callback());
    machine.run_now();
    REQUIRE(idle.health);
    const std::uint64_t left = machine.models.budget().left();

    const std::vector<std::string> names{"a", "b", "c"};
    std::vector<Wish> wishes(4);
    std::vector<ModelLoad> loads;
    for (std::size_t i = 0; i < names.size(); ++i) {
      loads.push_back({source(names[i]), wishes[i].callback()});
      loads.back().source.load.num_blocks = 0;
    }
    loads.push_back({source("lost", "/nowhere.gguf"), wishes[3].callback()});
    if (in_one_call)
      machine.models.load(machine.context(), std::move(loads));
    else
      for (ModelLoad& each : loads) machine.load(std::move(each.source), std::move(each.done));
    machine.run_now();

    CHECK(wishes[3].refused);
    CHECK(machine.models.names() == std::vector<std::string>{"default", "idle", "a", "b", "c"});
    for (const std::string& name : names)
      CHECK(static_cast<double>(machine.models.find(name)->budget_bytes()) ==
            Approx(static_cast<double>(left) / 4).epsilon(0.03));
    CHECK(static_cast<double>(machine.models.budget().left()) ==
          Approx(static_cast<double>(left) / 4).epsilon(0.03));  // for one that is loaded later
  }
}

TEST_CASE("models: beside the only one, whose cache could take all of the memory, another one fits") {
  Machine machine;
  machine.options.max_sequences = 1024;
  std::vector<CatalogEntry> entries;
  entries.push_back(describe({.path = kTales, .name = "only"}));
  machine.models.add(machine.context(), std::move(entries));
  machine.run_now();
  ModelSource second = source("second");
  second.load.num_blocks = 0;
  Wish wish;
  machine.load(second, wish.callback());
  machine.run_now();
  CHECK(wish.health);
}

TEST_CASE("models: one that could not be loaded has no share of the memory") {
  const auto blocks_of = [](const std::vector<std::pair<std::string, std::string>>& models, const std::string& name) {
    Machine machine;
    machine.options.max_sequences = 1024;
    std::vector<CatalogEntry> entries;
    for (const auto& [of, path] : models) entries.push_back(describe({.path = path, .name = of}));
    machine.models.add(machine.context(), std::move(entries));
    machine.run_now();
    return machine.models.find(name)->state().model()->language_model()->arena()->num_blocks();
  };
  const std::uint32_t alone = blocks_of({{"a", kTales}}, "a");
  CHECK(alone > 32);
  CHECK(blocks_of({{"lost", "/nowhere.gguf"}, {"a", kTales}}, "a") == alone);
  CHECK(blocks_of({{"a", kTales}, {"lost", "/nowhere.gguf"}}, "a") == alone);
}

}  // namespace troupe::actors::test
