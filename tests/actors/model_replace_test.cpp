// Models that are replaced under their names: what requests meet before, at and after the switch.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/actors/machine.h"
#include "tests/engine/gguf_copy.h"
#include "tests/engine/metadata_file.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors::test {
namespace {

using Catch::Matchers::Contains;
using scheduler::Outcome;

const std::string kOther = std::string(TROUPE_MODELS) + "/tales-draft-q8_0.gguf";  // other weights, the same vocabulary

std::vector<TokenId> answer_of(const std::string& path) {
  Machine machine;
  machine.add(path, "alone");
  machine.run();
  const auto sink = std::make_shared<Listener>();
  machine.submit(story("alone", 30), sink);
  machine.run();
  REQUIRE(sink->ids.size() == 30);
  return sink->ids;
}

// Its client reads three tokens.
Request unread_story(const std::string& model) {
  Request request = story(model, 30);
  request.credit = 3;
  return request;
}

std::shared_ptr<Listener> ask_now(Machine& machine, const std::string& model) {
  const auto sink = std::make_shared<Listener>();
  machine.submit(story(model, 30), sink);
  machine.run_now();
  return sink;
}

std::vector<std::string> states(Machine& machine) {
  std::vector<std::string> all;
  for (const ModelHealth& each : machine.models.health(machine.now()))
    all.push_back(each.name + (each.retiring ? " retiring" : each.replacing ? " replacing" : ""));
  return all;
}

// It loads until its template is looked for.
ModelSource broken(const std::string& name) {
  ModelSource wanted = source(name, kOther);
  wanted.chat_template.name = "nope";
  return wanted;
}

void finish_held(Machine& machine) {
  machine.compute.hold = false;
  while (machine.compute.is_computing()) machine.compute.run_one();
  machine.run_now();
}

}  // namespace

TEST_CASE(
    "replace: the name switches when the new model is loaded, and an old stream that no one reads holds nothing up") {
  const std::vector<TokenId> old_answer = answer_of(kTales), new_answer = answer_of(kOther);
  REQUIRE(old_answer != new_answer);
  Machine machine;
  machine.add(kTales, "a");
  machine.add(kTales, "b");
  machine.run();
  const auto unread = std::make_shared<Listener>(), queued = std::make_shared<Listener>();
  const RequestId id = machine.submit(unread_story("a"), unread);
  machine.run_now();
  REQUIRE(unread->ids.size() == 3);
  const std::uint64_t left = machine.models.budget().left();

  machine.compute.hold = true;
  machine.submit(story("a", 30), queued);  // begins with the old model, and waits for its first step
  Wish wish;
  machine.replace(source("a", kOther), Replace::beside, wish.callback());
  machine.run_now();
  CHECK(wish.count == 0);
  CHECK(states(machine) == std::vector<std::string>{"a", "b", "a replacing"});
  CHECK(machine.models.names() == std::vector<std::string>{"a", "b"});
  finish_held(machine);
  REQUIRE(wish.health);
  CHECK(wish.health->name == "a");
  CHECK(wish.health->readiness == Readiness::ready);
  CHECK(queued->ids == old_answer);
  CHECK(states(machine) == std::vector<std::string>{"a", "b", "a retiring"});
  CHECK(machine.models.health(machine.now()).back().readiness == Readiness::draining);
  CHECK(machine.models.budget().left() < left);
  CHECK(ask_now(machine, "a")->ids == new_answer);
  CHECK(ask_now(machine, "")->ids == new_answer);
  CHECK(ask_now(machine, "b")->ids == old_answer);
  CHECK_FALSE(unread->end_);

  const auto unit = machine.models.find(*machine.streams.unit(id));
  REQUIRE(unit);
  const auto granted = machine.streams.grant(id, 100, machine.now());
  REQUIRE(granted);
  unit->credit(id, *granted);
  machine.run_now();
  CHECK(unread->ids == old_answer);
  CHECK(unread->end_->outcome == Outcome::length);
  CHECK(states(machine) == std::vector<std::string>{"a", "b"});
  CHECK(wish.count == 1);
}

TEST_CASE("replace: one that retires gives its memory back, and metrics tell it from the one of its name") {
  Machine machine;
  machine.add(kTales, "a");
  machine.run();
  const auto unread = std::make_shared<Listener>();
  const RequestId id = machine.submit(unread_story("a"), unread);
  machine.run_now();
  Wish wish;
  machine.replace(source("a"), Replace::beside, wish.callback());
  machine.run_now();
  REQUIRE(wish.health);
  std::optional<StatusSnapshot> status;
  machine.models.ask_status(machine.context(), [&](StatusSnapshot answer) { status = std::move(answer); });
  machine.run_now();
  REQUIRE(status);
  REQUIRE(status->models.size() == 2);
  CHECK(status->models[1].health.retiring);
  CHECK(status->models[1].states.parked == 1);
  CHECK(status->readiness == Readiness::ready);
  for (auto one = status->metrics.begin(); one != status->metrics.end(); ++one)
    for (auto other = std::next(one); other != status->metrics.end(); ++other) {
      INFO(one->name);
      CHECK((one->name != other->name || one->labels != other->labels));
    }
  const auto all_but = [&](std::uint64_t bytes) { return machine.models.budget().total() - bytes; };
  CHECK(machine.models.budget().left() < all_but(machine.models.find("a")->budget_bytes()));
  machine.models.find(*machine.streams.unit(id))->cancel(id, machine.now());
  machine.run_now();
  CHECK(machine.models.budget().left() == all_but(machine.models.find("a")->budget_bytes()));
}

TEST_CASE("replace: what does not fit beside the old model is refused with the numbers, and the old one serves on") {
  const std::vector<TokenId> old_answer = answer_of(kTales);
  Machine machine;
  machine.add(kTales, "a");
  machine.run();
  ModelSource large = source("a");
  large.load.memory = machine.models.budget().left() + 1;
  Wish beside, never;
  machine.replace(large, Replace::beside, beside.callback());
  machine.run_now();
  REQUIRE(beside.refused);
  CHECK(beside.refused->outcome == Outcome::never_fits);
  CHECK_THAT(beside.refused->message, Contains("model a is to have ") && Contains("a has ") &&
                                          Contains("replace = \"unload-first\"") && Contains("which stays"));
  large.load.memory = machine.models.budget().total() + 1;
  machine.replace(large, Replace::unload_first, never.callback());
  machine.run_now();
  REQUIRE(never.refused);
  CHECK_THAT(never.refused->message, Contains("also once the one that serves is unloaded, which stays"));
  CHECK(ask_now(machine, "a")->ids == old_answer);
  CHECK(states(machine) == std::vector<std::string>{"a"});
}

TEST_CASE("replace: a load that fails beside the old model changes nothing") {
  Machine machine;
  machine.add(kTales, "a");
  machine.run();
  const UnitId before = machine.models.find("a")->id();
  const std::uint64_t left = machine.models.budget().left();
  for (ModelSource wanted : {broken("a"), source("a", "/nowhere.gguf")}) {
    Wish wish;
    machine.replace(wanted, Replace::beside, wish.callback());
    machine.run_now();
    REQUIRE(wish.refused);
    CHECK_THAT(wish.refused->message, Contains("nope") || Contains("/nowhere.gguf"));
    CHECK(machine.models.find("a")->id() == before);
    CHECK(machine.models.budget().left() == left);
    CHECK(states(machine) == std::vector<std::string>{"a"});
    CHECK(machine.models.find("a")->state().readiness() == Readiness::ready);
  }
  machine.models.find("a")->state().failed({ErrorCode::io, "its weights are damaged"});
  Wish beside_damaged;
  machine.replace(broken("a"), Replace::beside, beside_damaged.callback());
  machine.run_now();
  REQUIRE(beside_damaged.refused);
  CHECK_THAT(beside_damaged.refused->message,
             Contains("; and the model before it is not served: its weights are damaged"));
  Wish again;
  machine.replace(source("a", kOther), Replace::beside, again.callback());
  machine.run_now();
  CHECK(again.health);
}

TEST_CASE("replace unload-first: requests wait for the new model, which loads when the old one's memory is back") {
  const std::vector<TokenId> new_answer = answer_of(kOther);
  Machine machine;
  machine.options.drain_timeout = std::chrono::seconds(30);
  machine.add(kTales, "a");
  machine.run();
  const auto unread = std::make_shared<Listener>();
  machine.submit(unread_story("a"), unread);
  machine.run_now();
  ModelSource large = source("a", kOther);
  large.load.memory = machine.models.budget().left() + 1;
  Wish wish;
  machine.replace(large, Replace::unload_first, wish.callback());
  machine.run_now();
  CHECK(wish.count == 0);
  CHECK(states(machine) == std::vector<std::string>{"a", "a retiring"});
  CHECK(machine.models.find("a")->state().readiness() == Readiness::loading);
  const auto waits = ask_now(machine, "a");
  CHECK_FALSE(waits->end_);
  CHECK_FALSE(unread->end_);
  machine.scheduler().advance_time(std::chrono::seconds(31));
  machine.run_now();
  REQUIRE(unread->end_);
  CHECK(unread->end_->outcome == Outcome::model_unloaded);
  REQUIRE(wish.health);
  CHECK(waits->ids == new_answer);
  CHECK(states(machine) == std::vector<std::string>{"a"});
}

TEST_CASE("replace unload-first: after a load that fails the old model is loaded again, once, and the reason is told") {
  const std::vector<TokenId> old_answer = answer_of(kTales);
  Machine machine;
  ModelSource first = source("a");
  first.aliases = {"old"};
  Wish loaded, wish, taken;
  machine.add(kTales, "z");
  machine.load(first, loaded.callback());
  machine.run_now();
  machine.compute.hold = true;
  machine.replace(broken("a"), Replace::unload_first, wish.callback());
  machine.run_now();
  ModelSource thief = source("thief");
  thief.aliases = {"old"};
  machine.load(thief, taken.callback());
  machine.run_now();
  REQUIRE(taken.refused);
  CHECK(taken.refused->field == "aliases");
  const auto waits = ask_now(machine, "a");
  machine.compute.run_one();  // the load that fails
  machine.run_now();
  REQUIRE(waits->end_);  // nothing is behind the name: told with a time, not sent to another model
  CHECK(waits->end_->outcome == Outcome::model_unloaded);
  CHECK(waits->end_->retry_after);
  const auto meanwhile = ask_now(machine, "a");
  CHECK_FALSE(meanwhile->end_);
  finish_held(machine);
  REQUIRE(wish.refused);
  CHECK(wish.count == 1);
  CHECK_THAT(wish.refused->message, Contains("nope") && Contains("is loaded again, and serves"));
  CHECK(meanwhile->ids == old_answer);
  CHECK(ask_now(machine, "old")->ids == old_answer);
  CHECK(states(machine) == std::vector<std::string>{"z", "a"});
}

TEST_CASE("replace: aliases move with the name, and those of a replacement are its own from the beginning") {
  const std::vector<TokenId> old_answer = answer_of(kTales), new_answer = answer_of(kOther);
  Machine machine;
  ModelSource first = source("a"), second = source("a", kOther);
  first.aliases = {"same", "old"};
  second.aliases = {"same", "new"};
  Wish loaded, wish, taken, by_alias, of_other;
  machine.add(kTales, "z");
  machine.load(first, loaded.callback());
  machine.run_now();
  machine.replace(source("old", kOther), Replace::beside, by_alias.callback());
  ModelSource greedy = source("a");
  greedy.aliases = {"z"};
  machine.replace(greedy, Replace::beside, of_other.callback());
  machine.run_now();
  REQUIRE(by_alias.refused);
  CHECK_THAT(by_alias.refused->message, Contains("\"old\" is an alias of the model \"a\""));
  REQUIRE(of_other.refused);
  CHECK(of_other.refused->field == "aliases");

  machine.compute.hold = true;
  machine.replace(second, Replace::beside, wish.callback());
  machine.run_now();
  machine.load(source("new"), taken.callback());
  machine.run_now();
  CHECK(taken.refused);
  CHECK(machine.models.find("new") == nullptr);
  CHECK(machine.models.find("old"));
  finish_held(machine);
  REQUIRE(wish.health);
  CHECK(wish.health->aliases == second.aliases);
  for (const char* name : {"a", "same", "new"}) CHECK(ask_now(machine, name)->ids == new_answer);
  CHECK(machine.models.find("old") == nullptr);
  CHECK(machine.models.all_names() == std::vector<std::string>{"z", "a", "same", "new"});
}

TEST_CASE("replace: a second one of a name at the same time is refused, and so is one of no model") {
  Machine machine;
  machine.add(kTales, "a");
  machine.run();
  for (const Replace how : {Replace::beside, Replace::unload_first}) {
    machine.compute.hold = true;
    Wish first, second, none;
    machine.replace(source("a", kOther), how, first.callback());
    machine.replace(source("a"), Replace::beside, second.callback());
    machine.replace(source("b"), how, none.callback());
    machine.run_now();
    REQUIRE(second.refused);
    CHECK(second.refused->outcome == Outcome::loading);
    CHECK_THAT(second.refused->message, Contains("is being replaced already"));
    REQUIRE(none.refused);
    CHECK(none.refused->outcome == Outcome::unknown_model);
    finish_held(machine);
    CHECK(first.health);
    Wish third;
    machine.replace(source("a"), Replace::beside, third.callback());
    machine.run_now();
    CHECK(third.health);
  }
}

TEST_CASE("replace: a model that is unloaded meanwhile is given up with its replacement, and each is told once") {
  for (const Replace how : {Replace::beside, Replace::unload_first}) {
    Machine machine;
    machine.options.drain_timeout = std::chrono::seconds(30);
    machine.add(kTales, "z");
    machine.add(kTales, "a");
    machine.run();
    const std::uint64_t left = machine.models.budget().left() + machine.models.find("a")->budget_bytes();
    const auto unread = std::make_shared<Listener>();
    machine.submit(unread_story("a"), unread);
    machine.run_now();
    machine.compute.hold = true;
    Wish wish, unloaded;
    machine.replace(source("a", kOther), how, wish.callback());
    machine.run_now();
    const auto waits = ask_now(machine, "a");
    machine.models.unload("a", std::chrono::seconds(10), unloaded.callback());
    machine.run_now();
    finish_held(machine);
    machine.scheduler().advance_time(std::chrono::seconds(11));
    machine.run_now();
    CHECK(wish.count == 1);
    CHECK(wish.refused);
    CHECK(unloaded.count == 1);
    CHECK(unloaded.health);
    REQUIRE(waits->end_);
    CHECK(waits->end_->outcome == (how == Replace::beside ? Outcome::length : Outcome::model_unloaded));
    REQUIRE(unread->end_);
    CHECK(unread->end_->outcome == Outcome::model_unloaded);
    CHECK(states(machine) == std::vector<std::string>{"z"});
    CHECK(machine.models.budget().left() == left);
  }
}

TEST_CASE(
    "replace: the default stays the default, and a model that failed at the start is replaced by one that serves") {
  const std::vector<TokenId> new_answer = answer_of(kOther);
  Machine machine;
  machine.add("/nowhere.gguf", "a");
  machine.add(kTales, "b");
  machine.run();
  REQUIRE(ask_now(machine, "")->end_);
  Wish wish;
  machine.replace(source("a", kOther), Replace::beside, wish.callback());
  machine.run_now();
  REQUIRE(wish.health);
  CHECK(machine.models.default_unit()->name() == "a");
  CHECK(ask_now(machine, "")->ids == new_answer);
  CHECK(states(machine) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("replace: a drain that begins meanwhile ends all streams, and further replacements are refused") {
  Machine machine;
  machine.options.drain_timeout = std::chrono::seconds(5);
  machine.add(kTales, "a");
  machine.run();
  const auto unread = std::make_shared<Listener>();
  machine.submit(unread_story("a"), unread);
  machine.run_now();
  Wish first, second, late;
  machine.replace(source("a", kOther), Replace::beside, first.callback());
  machine.run_now();
  machine.compute.hold = true;
  machine.replace(source("a"), Replace::beside, second.callback());
  machine.run_now();
  machine.models.close();
  for (const auto& unit : machine.models.units()) unit->drain(std::chrono::seconds(5));
  machine.replace(source("a"), Replace::beside, late.callback());
  finish_held(machine);
  CHECK(first.health);
  CHECK(second.count == 1);
  REQUIRE(late.refused);
  CHECK(late.refused->outcome == Outcome::draining);
  machine.scheduler().advance_time(std::chrono::seconds(6));
  machine.run_now();
  REQUIRE(unread->end_);
  CHECK(unread->end_->outcome == Outcome::cancelled);
}

TEST_CASE("replace: a stream that is being added to the old model when the name switches is ended by it") {
  const std::vector<TokenId> old_answer = answer_of(kTales);
  Machine machine;
  machine.add(kTales, "a");
  machine.run();
  Wish wish;
  const auto sink = std::make_shared<Listener>();
  std::shared_ptr<ModelUnit> old;
  const RequestId id = machine.models.route("a", [&](const std::shared_ptr<ModelUnit>& unit) {
    old = unit;
    machine.replace(source("a", kOther), Replace::beside, wish.callback());
    machine.run_now();
    REQUIRE(wish.health);
    CHECK(states(machine) == std::vector<std::string>{"a", "a retiring"});
    Request request = story("a", 30);
    return machine.streams.add(std::move(request), sink, machine.now(), unit->id());
  });
  REQUIRE_FALSE(machine.streams.take_queue_room(id, machine.now()));
  old->submit(id);
  old = nullptr;
  machine.run_now();
  REQUIRE(sink->end_);
  CHECK(sink->ids == old_answer);
  CHECK(states(machine) == std::vector<std::string>{"a"});
}

TEST_CASE("replace unload-first: the model that comes back has the name that it had, whatever its file is called now") {
  const troupe::test::TempFolder folder;
  const std::string path = folder.path("m.gguf");
  std::filesystem::copy_file(kTales, path);
  Machine machine;
  std::vector<CatalogEntry> entries;
  entries.push_back(describe({.path = path, .load = {.num_blocks = 32}}));  // called by its file
  const std::string name = entries.front().name;
  machine.models.add(machine.context(), std::move(entries));
  machine.run();
  std::filesystem::remove(path);
  std::filesystem::copy_file(TROUPE_TEST_DATA "/golden/llama-Q4_K.gguf", path);
  REQUIRE(describe({.path = path}).name != name);
  Wish wish;
  machine.replace(broken(name), Replace::unload_first, wish.callback());
  machine.run_now();
  REQUIRE(wish.refused);
  CHECK(machine.models.names() == std::vector<std::string>{name});
  REQUIRE(machine.models.default_unit());
  CHECK(machine.models.default_unit()->state().readiness() == Readiness::ready);
}

TEST_CASE("replace unload-first: the memory that it waits for goes to no other load, and the last that serves stays") {
  Machine machine;
  machine.options.max_sequences = 1024;
  machine.options.drain_timeout = std::chrono::seconds(30);
  const auto sized = [](const std::string& name, std::uint64_t mebibytes) {
    ModelSource wanted = source(name);
    wanted.load.num_blocks = 0;
    wanted.load.memory = mebibytes << 20;
    return wanted;
  };
  machine.add(kBert, "z");
  Wish a, b;
  machine.load(sized("a", 400), a.callback());
  machine.load(sized("b", 300), b.callback());
  machine.run_now();
  REQUIRE(b.health);
  const auto unread = std::make_shared<Listener>();
  machine.submit(unread_story("a"), unread);
  machine.run_now();
  Wish larger, shares, none, gone;
  machine.replace(sized("a", 600), Replace::unload_first, larger.callback());
  ModelSource rest = source("x");
  rest.load.num_blocks = 0;
  Wish second;
  machine.replace(sized("a", 500), Replace::unload_first, second.callback());
  machine.load(rest, shares.callback());  // needs little, and would take half of what is left
  machine.models.unload("z", std::chrono::seconds(1), gone.callback());
  machine.run_now();
  CHECK(gone.health);
  REQUIRE(second.refused);
  CHECK(second.refused->outcome == Outcome::loading);
  machine.scheduler().advance_time(std::chrono::seconds(31));
  machine.run_now();
  REQUIRE(larger.count == 1);
  CHECK(larger.health);
}

TEST_CASE("models: the last one that serves makes no room for another while the default is being replaced") {
  Machine machine;
  machine.options.max_sequences = 1024;
  machine.options.drain_timeout = std::chrono::seconds(30);
  std::vector<CatalogEntry> entries;
  for (const char* name : {"a", "b"}) {
    ModelSource wanted = source(name);
    wanted.load.num_blocks = 0;
    wanted.load.memory = std::uint64_t{400} << 20;
    entries.push_back(describe(wanted));
  }
  machine.models.add(machine.context(), std::move(entries));
  machine.run_now();
  const auto unread = std::make_shared<Listener>();
  machine.submit(unread_story("a"), unread);
  machine.run_now();
  ModelSource large = source("c");
  large.load.memory = std::uint64_t{500} << 20;
  Wish replaced, wish;
  machine.replace(source("a"), Replace::unload_first, replaced.callback());
  machine.load(large, wish.callback());
  machine.run_now();
  REQUIRE(wish.refused);
  CHECK(wish.refused->outcome == Outcome::never_fits);
  CHECK(machine.models.find("b")->state().readiness() == Readiness::ready);
  machine.scheduler().advance_time(std::chrono::seconds(31));
  machine.run_now();
  CHECK(replaced.health);
}

TEST_CASE("models: one that was taken out does not count as served, and is loaded again under its name") {
  Machine machine;
  machine.add(kTales, "a");
  machine.add(kTales, "b");
  machine.run();
  const std::vector<TokenId> answer = ask_now(machine, "a")->ids;
  const UnitId damaged = machine.models.find("a")->id();
  machine.models.find("a")->state().failed({ErrorCode::io, "its weights are damaged"});
  Wish only, again, late;
  machine.models.unload("b", std::chrono::seconds(1), only.callback());
  REQUIRE(only.refused);
  CHECK_THAT(only.refused->message, Contains("the only model"));
  machine.models.load_again(machine.context(), damaged, again.callback());
  machine.run_now();
  REQUIRE(again.health);
  CHECK(machine.models.default_unit()->name() == "a");
  CHECK(machine.models.find("a")->source().after_damage);
  CHECK(ask_now(machine, "a")->ids == answer);
  machine.models.load_again(machine.context(), damaged, late.callback());
  machine.run_now();
  CHECK(late.refused);
  CHECK(states(machine) == std::vector<std::string>{"a", "b"});

  // A file that cannot be loaded any more: that is tried once.
  const troupe::test::TempFolder folder;
  const auto file = engine::open_gguf(kOther);
  REQUIRE(file);
  troupe::test::MetadataFile metadata((*file)->metadata());
  metadata["tokenizer.chat_template.mine"] = std::string("{{ messages[0].content }}");
  ModelSource with_template = source("c", folder.write("c.gguf", troupe::test::model_with(**file, metadata)));
  with_template.chat_template.name = "mine";
  Wish loaded, once;
  machine.load(with_template, loaded.callback());
  machine.run_now();
  REQUIRE(loaded.health);
  std::filesystem::copy_file(kOther, with_template.path, std::filesystem::copy_options::overwrite_existing);
  const UnitId out = machine.models.find("c")->id();
  machine.models.find("c")->state().failed({ErrorCode::io, "its weights are damaged"});
  machine.models.load_again(machine.context(), out, once.callback());
  machine.run_now();
  REQUIRE(once.refused);
  CHECK_THAT(once.refused->message, Contains("mine") && !Contains("the model before it"));
  CHECK(machine.models.find("c")->id() == out + 1);

  Machine alone;  // nothing is expected of one that is out: a watchdog would restart the server again and again
  alone.add(kTales, "a");
  alone.run();
  alone.models.find("a")->checked().take_out("a test damaged it");
  alone.run();
  CHECK(alone.models.readiness() == Readiness::failed);
  CHECK(alone.models.is_making_progress(alone.now()));
}

}  // namespace troupe::actors::test
