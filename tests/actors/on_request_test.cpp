// Models that are loaded on request: what becomes of the requests, and of the models, on a deterministic scheduler.
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "actors/on_request.h"
#include "tests/actors/machine.h"

namespace troupe::actors::test {
namespace {

using Catch::Matchers::Contains;
using scheduler::Outcome;
using namespace std::chrono_literals;

const scheduler::Tenant kOwner{.id = TenantId{1}, .is_owner = true}, kGuest{.id = TenantId{2}};

// Models that are on request, each of which takes most of the memory.
struct Server {
  explicit Server(std::vector<ModelSource> sources) {
    std::vector<CatalogEntry> entries;
    for (ModelSource& each : sources) {
      each.on_request = true;
      each.load.memory = std::uint64_t{1023} << 20;  // what it takes is less, and more than is left for another
      entries.push_back(describe(std::move(each)));
    }
    machine.models.add(machine.context(), std::move(entries));
    on_request = std::make_unique<OnRequest>(machine.models, machine.context(), machine.system);
    machine.run_now();
  }
  ~Server() {
    on_request->stop();
    End end;
    end.outcome = Outcome::cancelled;
    machine.streams.end_all(end, end, machine.now());
    machine.run_now();
  }

  // As the gateway does.
  std::shared_ptr<Listener> ask(const std::string& model, const scheduler::Tenant& tenant = kOwner,
                                std::optional<std::chrono::milliseconds> deadline = {}, std::uint64_t credit = 1000) {
    Request request = story(model, 12);
    request.tenant = tenant;
    request.deadline = deadline;
    request.credit = credit;
    const auto listener = std::make_shared<Listener>();
    std::shared_ptr<StreamSink> sink = listener;
    std::shared_ptr<ModelUnit> unit;
    std::optional<End> not_now;
    {
      OnRequest::Arrival arrival = on_request->arrive();
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

TEST_CASE("on request: a guest does not put out what another uses") {
  Server server({source("a"), source("b")});
  const auto own = server.ask("a");
  server.machine.run_now();
  REQUIRE(own->end_);
  const auto guest = server.ask("b", kGuest);
  server.machine.run();
  REQUIRE(guest->end_);
  CHECK(guest->end_->outcome == Outcome::loading);
  CHECK_THAT(guest->end_->message, Contains("others use the memory"));
  CHECK(server.is_loaded("a"));
  const auto of_both = server.ask("a", kGuest);
  server.machine.run_now();
  REQUIRE(of_both->end_);
  CHECK(of_both->end_->outcome == Outcome::length);
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

TEST_CASE("on request: such models are known from the start on, and not replaced") {
  Server server({source("a")});
  ModelSource more = source("b");
  more.on_request = true;
  Wish new_one, instead;
  server.machine.load(more, new_one.callback());
  server.machine.replace(source("a"), Replace::beside, instead.callback());
  server.machine.run_now();
  REQUIRE(new_one.refused);
  CHECK(new_one.refused->field == "load");
  REQUIRE(instead.refused);
  CHECK_THAT(instead.refused->message, Contains("is loaded on request"));
  CHECK(server.machine.models.names() == std::vector<std::string>{"a"});
}

TEST_CASE("on request: an operator puts a model out of memory, and its name stays") {
  Server server({source("a")});
  Wish early, wish;
  server.on_request->put_out(*server.machine.models.find("a"), 0ms, early.callback());
  REQUIRE(early.refused);
  const auto first = server.ask("a");
  server.machine.run_now();
  REQUIRE(first->end_);
  server.on_request->put_out(*server.machine.models.find("a"), 0ms, wish.callback());
  REQUIRE(wish.health);
  server.machine.run_now();
  CHECK_FALSE(server.is_loaded("a"));
  const auto second = server.ask("a");
  server.machine.run_now();
  REQUIRE(second->end_);
  CHECK(second->end_->outcome == Outcome::length);
}

}  // namespace troupe::actors::test
