// Models that are loaded on request: what becomes of the requests, and of the models, on a deterministic scheduler.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "actors/on_request.h"
#include "tests/actors/machine.h"
#include "tests/support/temp_folder.h"

namespace troupe::actors::test {
namespace {

using Catch::Matchers::Contains;
using scheduler::Outcome;
using namespace std::chrono_literals;

const scheduler::Tenant kOwner{.id = TenantId{1}, .is_owner = true}, kGuest{.id = TenantId{2}};

// Models that are on request.
struct Server {
  // alone: what one takes is less than this limit, and more than is left for another.
  explicit Server(std::vector<ModelSource> sources, bool alone = true, scheduler::ResidencyOptions options = {}) {
    std::vector<CatalogEntry> entries;
    for (ModelSource& each : sources) {
      each.on_request = true;
      if (alone) each.load.memory = std::uint64_t{1023} << 20;
      entries.push_back(describe(std::move(each)));
    }
    machine.models.add(machine.context(), std::move(entries));
    on_request = std::make_unique<OnRequest>(machine.models, machine.context(), machine.system, options);
    machine.run_now();
  }
  ~Server() {
    on_request->stop();
    End end;
    end.outcome = Outcome::cancelled;
    machine.streams.end_all(end, end, machine.now());
    machine.run_now();
    on_request->drop_units();
  }

  // As the gateway does.
  std::shared_ptr<Listener> ask(const std::string& model, const scheduler::Tenant& tenant = kOwner,
                                std::optional<std::chrono::milliseconds> deadline = {}, std::uint64_t credit = 1000) {
    Request request = story(model, 12);
    request.tenant = tenant;
    request.deadline = deadline;
    request.credit = credit;
    return ask(std::move(request));
  }
  std::shared_ptr<Listener> ask(Request request) {
    const std::string model = request.model;
    const scheduler::Tenant tenant = request.tenant;
    const auto listener = std::make_shared<Listener>();
    std::shared_ptr<StreamSink> sink = listener;
    std::shared_ptr<ModelUnit> unit;
    std::optional<End> not_now;
    {
      OnRequest::Arrival arrival(*on_request);
      last = machine.models.route(model, [&](const std::shared_ptr<ModelUnit>& serving) {
        unit = serving;
        sink = arrival.watch(*unit, request, std::move(sink));
        return machine.streams.add(std::move(request), std::move(sink), machine.now(), unit->id());
      });
      not_now = arrival.added(*unit, tenant, last);
    }
    if (not_now)
      machine.streams.end(last, *not_now, machine.now());
    else if (auto full = machine.streams.take_queue_room(last, machine.now()))
      machine.streams.end(last, refused(*std::move(full)), machine.now());
    else
      unit->submit(last);
    on_request->decide();
    return listener;
  }
  bool is_loaded(const std::string& model) { return machine.models.find(model)->state().model() != nullptr; }

  Machine machine;
  std::unique_ptr<OnRequest> on_request;
  RequestId last = 0;
};

// Its client reads three tokens, so it does not end by itself.
constexpr std::uint64_t kUnread = 3;

}  // namespace

TEST_CASE("on request: a model is loaded for the first request, and later ones wait for the same load") {
  Server server({source("a"), source("b")});
  CHECK_FALSE(server.is_loaded("a"));
  CHECK(server.machine.models.readiness() == Readiness::ready);
  server.machine.compute.hold = true;
  const auto first = server.ask("a"), second = server.ask("a", kGuest);
  server.machine.run_now();
  CHECK(server.on_request->counts().num_waiting == 2);
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  server.machine.run_now();
  REQUIRE(first->end_);
  REQUIRE(second->end_);
  CHECK(first->end_->outcome == Outcome::length);
  CHECK(second->ids == first->ids);
  CHECK(server.is_loaded("a"));
  CHECK_FALSE(server.is_loaded("b"));
  CHECK(server.on_request->counts().num_loads == 1);
  CHECK(server.on_request->counts().num_waiting == 0);
}

TEST_CASE("on request: models that do not fit together have turns, and every request ends once") {
  Server server({source("a"), source("b")});
  std::vector<std::shared_ptr<Listener>> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(server.ask(i % 2 == 0 ? "a" : "b", i % 3 == 0 ? kGuest : kOwner));
    server.machine.run_now();
  }
  server.machine.run();
  for (const auto& each : all) {
    REQUIRE(each->end_);
    CHECK(each->end_->outcome == Outcome::length);
    CHECK(each->ids == all.front()->ids);
  }
  CHECK(server.is_loaded("a") != server.is_loaded("b"));
  CHECK(server.on_request->counts().num_loads >= 2);
  CHECK(server.machine.models.units().size() == 2);
}

TEST_CASE("on request: a model whose turn is over ends what it has begun, and new requests for it wait") {
  Server server({source("a"), source("b")});
  const auto unread = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  REQUIRE(unread->ids.size() == 3);
  const auto other = server.ask("b");
  server.machine.run_now();
  while (server.machine.models.units().size() == 2) {
    REQUIRE(server.machine.scheduler().clock().trigger_timeout());
    server.machine.run_now();
  }
  const auto again = server.ask("a");
  server.machine.run_now();
  CHECK_FALSE(unread->end_);
  CHECK(again->ids.empty());
  server.machine.run();
  REQUIRE(unread->end_);
  CHECK(unread->end_->outcome == Outcome::model_unloaded);
  CHECK(other->end_->outcome == Outcome::length);
  CHECK(again->end_->outcome == Outcome::length);
}

TEST_CASE("on request: a model goes when nothing has asked for it within its keep-alive") {
  ModelSource kept = source("a");
  kept.keep_alive = 60;
  Server server({kept});
  const std::uint64_t before = server.machine.models.budget().left();
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->end_);
  CHECK(server.is_loaded("a"));
  CHECK(server.machine.models.budget().left() < before);
  const TimePoint start = server.machine.now();
  while (server.is_loaded("a")) {
    REQUIRE(server.machine.scheduler().clock().trigger_timeout());
    server.machine.run_now();
  }
  CHECK(server.machine.now() - start >= 60s);
  CHECK(server.machine.models.budget().left() == before);
  const auto second = server.ask("a");
  server.machine.run_now();
  REQUIRE(second->end_);
  CHECK(second->ids == first->ids);
}

TEST_CASE("on request: a model that cannot be loaded is refused with the reason, and tried again later") {
  ModelSource wrong = source("a");
  wrong.chat_template.name = "nope";
  Server server({wrong, source("b")});
  const auto first = server.ask("a"), second = server.ask("a");
  server.machine.run_now();
  for (const auto& each : {first, second}) {
    REQUIRE(each->end_);
    CHECK(each->end_->outcome == Outcome::loading);
    CHECK_THAT(each->end_->message, Contains("model a could not be loaded") && Contains("it is tried again in 5 s"));
  }
  const auto early = server.ask("a");
  REQUIRE(early->end_);
  CHECK(early->end_->outcome == Outcome::loading);
  CHECK(server.on_request->counts().num_failed_loads == 1);
  CHECK(server.machine.models.readiness() == Readiness::ready);
  server.machine.scheduler().clock().advance_time(6s);
  const auto later = server.ask("a");
  server.machine.run_now();
  REQUIRE(later->end_);
  CHECK(server.on_request->counts().num_failed_loads == 2);
  const auto other = server.ask("b");
  server.machine.run_now();
  REQUIRE(other->end_);
  CHECK(other->end_->outcome == Outcome::length);
}

TEST_CASE("on request: a request that is cancelled while it waits, or is too late, has nothing put out") {
  Server server({source("a"), source("b")});
  const auto unread = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  const auto other = server.ask("b", kOwner, 1ms);
  server.machine.run_now();
  CHECK(server.on_request->counts().num_waiting == 1);
  SECTION("cancelled") {
    server.machine.models.find("b")->cancel(server.last, server.machine.now());
    REQUIRE(other->end_);
    CHECK(other->end_->outcome == Outcome::cancelled);
  }
  SECTION("too late") {
    server.machine.scheduler().clock().advance_time(1ms);
    server.machine.run_now();
    REQUIRE(other->end_);
    CHECK(other->end_->outcome == Outcome::loading);
  }
  CHECK(server.on_request->counts().num_waiting == 0);
  server.machine.scheduler().clock().advance_time(1s);
  server.machine.run_now();
  CHECK(server.is_loaded("a"));
  CHECK(server.machine.models.units().size() == 2);
}

TEST_CASE("on request: a guest does not put out what another has used a short while ago") {
  Server server({source("a"), source("b")});
  const auto own = server.ask("a");
  server.machine.run_now();
  REQUIRE(own->end_);
  const auto guest = server.ask("b", kGuest);
  server.machine.scheduler().clock().advance_time(299s);
  server.machine.run_now();
  CHECK_FALSE(guest->end_);
  CHECK(server.is_loaded("a"));
  server.machine.scheduler().clock().advance_time(2s);
  server.machine.run_now();
  REQUIRE(guest->end_);
  CHECK(guest->end_->outcome == Outcome::length);
  CHECK_FALSE(server.is_loaded("a"));
}

TEST_CASE("on request: a model whose file is missing at the start holds up no other") {
  Server server({source("a", "/nowhere/a.gguf"), source("b")});
  const auto missing = server.ask("a");
  server.machine.run_now();
  REQUIRE(missing->end_);
  CHECK(missing->end_->outcome == Outcome::loading);
  CHECK_THAT(missing->end_->message, Contains("/nowhere/a.gguf"));
  const auto other = server.ask("b");
  server.machine.run_now();
  REQUIRE(other->end_);
  CHECK(other->end_->outcome == Outcome::length);
}

TEST_CASE("on request: an operator puts a model out of memory, and its name stays") {
  Server server({source("a")});
  const std::uint64_t before = server.machine.models.budget().left();
  Wish early, wish, twice;
  server.on_request->put_out(server.machine.models.find("a"), 0ms, early.callback());
  REQUIRE(early.health);
  CHECK(early.health->readiness == Readiness::on_request);
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->end_);
  server.on_request->put_out(server.machine.models.find("a"), 0ms, wish.callback());
  server.on_request->put_out(server.machine.models.find("a"), 0ms, twice.callback());
  CHECK(wish.count == 0);
  server.machine.run_now();
  REQUIRE(wish.health);
  CHECK(wish.health->readiness == Readiness::on_request);
  CHECK(twice.count == 1);
  CHECK(server.machine.models.budget().left() == before);
  CHECK_FALSE(server.is_loaded("a"));
  const auto second = server.ask("a");
  server.machine.run_now();
  REQUIRE(second->end_);
  CHECK(second->end_->outcome == Outcome::length);
}

TEST_CASE("on request: a model that is put out while it is loaded serves those that wait before it goes") {
  Server server({source("a")});
  server.machine.compute.hold = true;
  const auto first = server.ask("a");
  server.machine.run_now();
  CHECK(server.machine.models.find("a")->state().readiness() == Readiness::loading);
  CHECK(server.machine.models.readiness() == Readiness::ready);
  Wish wish;
  server.on_request->put_out(server.machine.models.find("a"), 60s, wish.callback());
  server.machine.run_now();
  CHECK(wish.count == 0);
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  server.machine.run_now();
  REQUIRE(wish.health);
  REQUIRE(first->end_);
  CHECK(first->end_->outcome == Outcome::length);
  CHECK_FALSE(server.is_loaded("a"));
}

TEST_CASE("on request: a model that is added while the server runs is loaded when it is asked for") {
  Server server({source("a")});
  ModelSource more = source("b");
  more.on_request = true;
  Wish wish, twice;
  server.machine.load(more, wish.callback());
  server.machine.load(more, twice.callback());
  server.machine.run_now();
  REQUIRE(wish.health);
  CHECK(wish.health->readiness == Readiness::on_request);
  REQUIRE(twice.refused);
  CHECK_THAT(twice.refused->message, Contains("there is a model \"b\" already"));
  CHECK(server.machine.models.names() == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(server.is_loaded("b"));
  const auto first = server.ask("b");
  server.machine.run_now();
  REQUIRE(first->end_);
  CHECK(first->end_->outcome == Outcome::length);
}

TEST_CASE("on request: a name is taken away with its model, whether that is loaded or not") {
  Server server({source("a"), source("b")});
  const std::uint64_t before = server.machine.models.budget().left();
  const bool is_in = GENERATE(true, false);
  CAPTURE(is_in);
  std::shared_ptr<Listener> first, waits;
  if (is_in) first = server.ask("a");
  server.machine.run_now();
  Wish wish, last;
  server.on_request->remove(server.machine.models.find("a"), 0ms, wish.callback());
  server.machine.run_now();
  CHECK(wish.health);
  CHECK(server.machine.models.names() == std::vector<std::string>{"b"});
  CHECK(server.machine.models.default_unit() == server.machine.models.find("b"));
  CHECK(server.machine.models.budget().left() == before);
  CHECK(server.on_request->counts().num_known == 1);
  server.on_request->remove(server.machine.models.find("b"), 0ms, last.callback());
  REQUIRE(last.refused);
  const auto other = server.ask("b");
  server.machine.run_now();
  REQUIRE(other->end_);
  CHECK(other->end_->outcome == Outcome::length);
}

TEST_CASE("on request: what waits for a model whose name is taken away is ended at once") {
  Server server({source("a"), source("b")});
  const auto unread = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  const auto waits = server.ask("b");
  server.machine.run_now();
  CHECK_FALSE(waits->end_);
  Wish wish;
  server.on_request->remove(server.machine.models.find("b"), 60s, wish.callback());
  REQUIRE(waits->end_);
  CHECK(waits->end_->outcome == Outcome::model_unloaded);
  CHECK(server.on_request->counts().num_waiting == 0);
  server.machine.run_now();
  CHECK(wish.health);
}

TEST_CASE("on request: a model is replaced by another source, loaded or not") {
  Server server({source("a"), source("b")});
  const bool is_in = GENERATE(true, false);
  const bool stays_on_request = GENERATE(true, false);
  CAPTURE(is_in, stays_on_request);
  if (is_in) static_cast<void>(server.ask("a"));
  server.machine.run_now();
  ModelSource other = source("a", kBert);
  other.on_request = stays_on_request;
  Wish wish;
  server.machine.replace(other, Replace::beside, wish.callback());
  server.machine.run_now();
  REQUIRE(wish.health);
  CHECK(wish.health->readiness == (stays_on_request ? Readiness::on_request : Readiness::ready));
  CHECK(server.machine.models.find("a")->source().path == kBert);
  CHECK(server.machine.models.units().size() == 2);
  CHECK(server.on_request->counts().num_known == (stays_on_request ? 2 : 1));
  const auto story = server.ask("a");
  server.machine.run_now();
  REQUIRE(story->end_);
  CHECK(story->end_->outcome == Outcome::unsupported);  // an encoder tells none
  Wish back;
  ModelSource first = source("a");
  first.on_request = true;
  server.machine.replace(first, Replace::unload_first, back.callback());
  server.machine.run_now();
  REQUIRE(back.health);
  const auto again = server.ask("a");
  server.machine.run_now();
  REQUIRE(again->end_);
  CHECK(again->end_->outcome == Outcome::length);
}

TEST_CASE("on request: requests that wait for a model that is replaced are answered by the one that has its name") {
  const bool stays_on_request = GENERATE(true, false);
  Server server({source("a"), source("b")}, false, {.max_models = 1});
  const auto reader = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  const auto waits = server.ask("b");
  const RequestId first = server.last;
  const auto hurried = server.ask("b", kOwner, 50ms);
  const auto cancelled = server.ask("b");
  server.machine.run_now();
  CHECK(server.on_request->counts().num_waiting == 3);
  ModelSource other = source("b", kBert);
  other.on_request = stays_on_request;
  Wish wish;
  server.machine.replace(other, Replace::beside, wish.callback());
  if (stays_on_request) {
    server.machine.run_now();
    CHECK(wish.health);
    CHECK(server.machine.streams.unit(first) == server.machine.models.find("b")->id());
    CHECK(server.on_request->counts().num_waiting == 3);
    server.machine.models.find("b")->cancel(server.last, server.machine.now());
    server.machine.scheduler().clock().advance_time(60ms);
    server.machine.run_now();
    REQUIRE(hurried->end_);
    CHECK(hurried->end_->outcome == Outcome::loading);
    REQUIRE(cancelled->end_);
    CHECK(cancelled->end_->outcome == Outcome::cancelled);
    CHECK_FALSE(waits->end_);
    CHECK(server.on_request->counts().num_waiting == 1);
    server.machine.run();
  } else {
    server.machine.run_now();
    CHECK(server.on_request->counts().num_waiting == 0);
    CHECK_FALSE(reader->end_);
  }
  REQUIRE(waits->end_);
  CHECK(waits->end_->outcome == Outcome::unsupported);  // an encoder tells none
}

TEST_CASE("on request: a model is back when what was to replace it cannot be loaded") {
  Server server({source("a"), source("b")});
  static_cast<void>(server.ask("a"));
  server.machine.run_now();
  ModelSource wrong = source("a");
  wrong.chat_template.name = "nope";
  Wish wish;
  server.machine.replace(wrong, Replace::unload_first, wish.callback());
  server.machine.run_now();
  REQUIRE(wish.refused);
  CHECK_THAT(wish.refused->message, Contains("the model before it is loaded when a request asks for it"));
  const auto again = server.ask("a");
  server.machine.run_now();
  REQUIRE(again->end_);
  CHECK(again->end_->outcome == Outcome::length);
  Wish second;
  server.machine.replace(source("a"), Replace::beside, second.callback());
  server.machine.run_now();
  CHECK(second.health);
}

TEST_CASE("on request: a damaged model is put out, and comes back when it is asked for") {
  Server server({source("a"), source("b")});
  const auto first = server.ask("a");
  server.machine.run_now();
  {
    const auto unit = server.machine.models.find("a");
    unit->take_out("a test says so");
    server.on_request->drop_damaged(unit);
  }
  CHECK(server.machine.models.find("a")->source().after_damage);
  const auto again = server.ask("a");
  server.machine.run_now();
  REQUIRE(again->end_);
  CHECK(again->ids == first->ids);
  Wish out;
  server.on_request->put_out(server.machine.models.find("a"), 0ms, out.callback());
  server.machine.run_now();
  CHECK_FALSE(server.machine.models.find("a")->source().after_damage);
}

TEST_CASE("on request: requests for other models do not wait for its lock") {
  Server server({source("a")});
  Wish wish;
  server.machine.load(source("start"), wish.callback());
  server.machine.run_now();
  REQUIRE(wish.health);
  OnRequest::Arrival arrives(*server.on_request);
  const auto unit = server.machine.models.find("a");
  const auto listener = std::make_shared<Listener>();
  CHECK(arrives.watch(*unit, story("a"), listener) != listener);  // holds it
  Request request = story("start");
  const auto other = std::make_shared<Listener>();
  OnRequest::Arrival beside(*server.on_request);
  const auto start = server.machine.models.find("start");
  CHECK(beside.watch(*start, request, other) == other);
  CHECK_FALSE(beside.added(*start, kOwner, 1));
}

TEST_CASE("on request: a large model waits for one that is being loaded, and is not refused for what that holds") {
  ModelSource small = source("small"), large = source("large");
  small.on_request = large.on_request = true;
  large.load.memory = std::uint64_t{1} << 30;  // all
  Server server({small}, false);
  Wish wish;
  server.machine.load(large, wish.callback());
  server.machine.run_now();
  server.machine.compute.hold = true;
  const auto first = server.ask("small");
  server.machine.run_now();
  REQUIRE(server.machine.compute.is_computing());
  REQUIRE(server.machine.models.find("small")->memory()->reserve());  // as the loader does
  const auto second = server.ask("large");
  CHECK_FALSE(second->end_);
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  server.machine.run();
  REQUIRE(second->end_);
  CHECK(second->end_->outcome == Outcome::length);
}

TEST_CASE("on request: a model without a limit leaves memory for others") {
  Server server({source("a"), source("b")}, false);
  const std::uint64_t all = server.machine.models.budget().left();
  for (const char* name : {"a", "b"}) {
    const auto first = server.ask(name);
    server.machine.run_now();
    REQUIRE(first->end_);
    const MemoryDemand demand = server.machine.models.find(name)->demand();
    CHECK(server.machine.models.find(name)->budget_bytes() <= demand.least() + demand.most_on_request());
  }
  CHECK(server.machine.models.budget().left() > all / 2);
  CHECK(server.is_loaded("a"));
}

TEST_CASE("on request: memory that other models wait for is not for those on request") {
  Server server({source("a")}, false);
  MemoryBudget& budget = server.machine.models.budget();
  const std::uint64_t all = budget.for_requests();
  const auto part = budget.expect({.model = "start", .weights = 1000});
  CHECK(budget.for_requests() == all - 1000);
  CHECK(budget.is_settling());
  REQUIRE(part->reserve());
  part->settle(400);
  CHECK(budget.for_requests() == all - 400);
  CHECK_FALSE(budget.is_settling());
}

TEST_CASE("on request: a file that has changed is loaded as it is by then") {
  const troupe::test::TempFolder folder;
  const std::string path = folder.path("changing.gguf");
  std::filesystem::copy_file(kBert, path, std::filesystem::copy_options::overwrite_existing);
  Server server({source("a", path)}, false);
  const std::uint64_t before = server.machine.models.find("a")->demand().least();
  std::filesystem::copy_file(kTales, path, std::filesystem::copy_options::overwrite_existing);
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->end_);
  CHECK(first->end_->outcome == Outcome::length);
  CHECK(server.machine.models.find("a")->demand().least() != before);
}

TEST_CASE("on request: an answer comes with what is known of the model that computes it, also the first one") {
  Server server({source("a"), source("b", kBert)}, false);
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->admitted_);
  REQUIRE(first->admitted_->model);
  CHECK(first->admitted_->model->name == "a");
  CHECK(first->admitted_->model->numerics_id == server.machine.models.find("a")->state().model()->numerics_id());
  CHECK(first->admitted_->model->tokenizer != nullptr);
  Request request;
  request.model = "b";
  request.embed.emplace();
  request.embed->texts = EmbedIds{{1, 2, 3}};
  const auto vectors = server.ask(std::move(request));
  server.machine.run_now();
  REQUIRE(vectors->end_);
  CHECK(vectors->end_->outcome == Outcome::eos);
  CHECK(vectors->end_->embeddings);
  REQUIRE(vectors->admitted_);
  CHECK(vectors->admitted_->model->name == "b");
}

TEST_CASE("on request: a request knows why it waits") {
  Server server({source("a"), source("b")});
  server.machine.compute.hold = true;
  const auto first = server.ask("a");
  const RequestId of_first = server.last;
  const auto second = server.ask("b");
  const auto wait = server.on_request->wait_of(of_first);
  REQUIRE(wait);
  CHECK(wait->model == "a");
  CHECK(wait->why == LoadWait::Why::load);
  CHECK_THAT(to_text(*wait), Contains("loading a, 0 s of about 1 s"));
  const auto behind = server.on_request->wait_of(server.last);
  REQUIRE(behind);
  CHECK(behind->model == "b");
  CHECK(behind->why != LoadWait::Why::load);
  CHECK_FALSE(server.on_request->wait_of(server.last + 1));
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  server.machine.run();
  CHECK_FALSE(server.on_request->wait_of(of_first));
}

TEST_CASE("on request: idle models make room for one that an operator loads") {
  ModelSource pinned = source("pinned");
  pinned.pinned = true;
  Server server({source("a"), source("b"), pinned}, false);
  const std::uint64_t all = server.machine.models.budget().left();
  for (const char* name : {"a", "b", "pinned"}) static_cast<void>(server.ask(name));
  server.machine.run_now();
  ModelSource large = source("large"), larger = source("larger");
  large.load.memory = all - server.machine.models.find("pinned")->budget_bytes();
  larger.load.memory = all;
  Wish refused_one, wish;
  server.machine.load(larger, refused_one.callback());
  server.machine.run_now();
  REQUIRE(refused_one.refused);
  CHECK(server.is_loaded("a"));
  server.machine.load(large, wish.callback());
  server.machine.run_now();
  CHECK(wish.health);
  CHECK_FALSE(server.is_loaded("a"));
  CHECK_FALSE(server.is_loaded("b"));
  CHECK(server.is_loaded("pinned"));
}

TEST_CASE("on request: a refusal for want of memory names no other model") {
  Server server({source("a")}, false);
  const auto part = server.machine.models.budget().expect({.model = "secret", .weights = std::uint64_t{1} << 30});
  REQUIRE(part->reserve());
  const auto listener = server.ask("a", kGuest);
  server.machine.run_now();
  REQUIRE(listener->end_);
  CHECK(listener->end_->outcome == Outcome::loading);  // "secret" may take less once it is loaded
  CHECK_THAT(listener->end_->message, !Contains("secret"));
}

TEST_CASE("on request: an unload that waits for a load is answered when the server drains") {
  Server server({source("a")});
  server.machine.compute.hold = true;
  const auto first = server.ask("a");
  server.machine.run_now();
  Wish wish;
  server.on_request->put_out(server.machine.models.find("a"), 60s, wish.callback());
  CHECK(wish.count == 0);
  server.on_request->drain();
  REQUIRE(wish.refused);
  CHECK(wish.refused->outcome == Outcome::draining);
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  server.machine.run_now();
  CHECK(wish.count == 1);
}

TEST_CASE("on request: a model that is put out behind its load is loaded again for those that come meanwhile") {
  Server server({source("a")});
  server.machine.compute.hold = true;
  const auto unread = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  Wish wish;
  server.on_request->put_out(server.machine.models.find("a"), 60s, wish.callback());
  server.machine.compute.hold = false;
  while (server.machine.compute.is_computing()) server.machine.compute.run_one();
  CHECK_FALSE(server.is_loaded("a"));  // its name went to another unit
  const auto later = server.ask("a", kGuest);
  CHECK(server.on_request->counts().num_waiting == 1);
  server.machine.run();
  CHECK(wish.health);
  REQUIRE(unread->end_);
  CHECK(unread->end_->outcome == Outcome::model_unloaded);
  REQUIRE(later->end_);
  CHECK(later->end_->outcome == Outcome::length);
}

TEST_CASE("on request: others go for a file that needs more than the one before it") {
  const troupe::test::TempFolder folder;
  const std::string path = folder.path("growing.gguf");
  std::filesystem::copy_file(kBert, path);
  Server server({source("a", path), source("b")}, false);
  static_cast<void>(server.ask("b"));
  server.machine.run_now();
  const std::uint64_t least = describe(source("a")).demand.least();
  MemoryBudget& budget = server.machine.models.budget();
  const auto part = budget.expect({.model = "start", .weights = budget.left() - least / 2});
  REQUIRE(part->reserve());
  part->settle(part->bytes());
  std::filesystem::copy_file(kTales, path, std::filesystem::copy_options::overwrite_existing);
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->end_);
  CHECK(first->end_->outcome == Outcome::loading);
  CHECK(server.machine.models.find("a")->demand().least() == least);
  CHECK(server.is_loaded("b"));
  server.machine.scheduler().clock().advance_time(6s);
  const auto second = server.ask("a");
  server.machine.run();
  REQUIRE(second->end_);
  CHECK(second->end_->outcome == Outcome::length);
  CHECK_FALSE(server.is_loaded("b"));
}

TEST_CASE("on request: a drain refuses what waits, and loads nothing more") {
  Server server({source("a"), source("b")});
  const auto unread = server.ask("a", kOwner, {}, kUnread);
  server.machine.run_now();
  const auto waits = server.ask("b");
  server.on_request->drain();
  REQUIRE(waits->end_);
  CHECK(waits->end_->outcome == Outcome::draining);
  CHECK_FALSE(unread->end_);
  const auto late = server.ask("b");
  REQUIRE(late->end_);
  CHECK(late->end_->outcome == Outcome::draining);
}

}  // namespace troupe::actors::test
