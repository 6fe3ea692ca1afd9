#include "scheduler/models/residency.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::scheduler;

namespace {

using Answer = ModelResidency::Answer;
using State = ModelResidency::State;

constexpr TenantId kUma{1}, kVic{2}, kWen{3};

// Models of 10 bytes that load in 10 seconds, and what was decided since one last looked.
struct Memory {
  explicit Memory(ResidencyOptions options = {.budget_bytes = 10}) : residency(options, served) {}

  void add(ModelNumber model, ModelFacts facts = {}) {
    if (facts.name.empty()) facts.name = "model-" + std::to_string(model);
    if (facts.bytes == 0) facts.bytes = 10;
    if (facts.load_seconds == 0) facts.load_seconds = 10;
    bytes[model] = facts.bytes;
    residency.add(model, facts);
  }
  std::variant<Answer, Refusal> try_ask(ModelNumber model, TenantId tenant, MayLoad may_load = MayLoad::turns,
                                        double work = 1, double weight = 1) {
    const auto policy = std::make_shared<const TenantPolicy>(TenantPolicy{.name = {}, .weight = weight});
    const auto answer = residency.ask({.request = ++last,
                                       .model = model,
                                       .tenant = {.id = tenant, .is_owner = true, .policy = policy},
                                       .may_load = may_load,
                                       .work_seconds = work},
                                      now);
    decide();
    return answer;
  }
  RequestNumber ask(ModelNumber model, TenantId tenant, MayLoad may_load = MayLoad::turns, double work = 1) {
    const auto answer = try_ask(model, tenant, may_load, work);
    REQUIRE(std::holds_alternative<Answer>(answer));
    if (std::get<Answer>(answer) == Answer::serve) serving.insert(last);
    return last;
  }
  Refusal refusal_of(ModelNumber model, TenantId tenant, MayLoad may_load = MayLoad::turns) {
    const auto answer = try_ask(model, tenant, may_load);
    REQUIRE(std::holds_alternative<Refusal>(answer));
    return std::get<Refusal>(answer);
  }
  void end(RequestNumber request) {
    serving.erase(request);
    residency.ended(request, now);
    decide();
  }
  // Until then nothing else happens.
  void wait_until(double time) {
    while (ask_at <= time) {
      now = ask_at;
      decide();
    }
    now = time;
    decide();
  }
  void loaded(ModelNumber model, double seconds = 10) {
    wait_until(now + seconds);
    residency.load_ended(model, bytes.at(model), seconds, now);
    decide();
  }
  void failed(ModelNumber model, double seconds = 1) {
    wait_until(now + seconds);
    residency.load_failed(model, "it is damaged", seconds, now);
    decide();
  }
  void unloaded(ModelNumber model) {
    residency.unload_ended(model, now);
    decide();
  }
  // Loads it for a request that ends at once.
  void bring_in(ModelNumber model, TenantId tenant, double seconds = 10) {
    const RequestNumber request = ask(model, tenant);
    loaded(model, seconds);
    end(request);
    events.clear();
  }
  std::string take_events() { return std::exchange(events, {}); }

  void decide() {
    Decisions decisions = residency.decide(now);
    for (const RequestNumber request : decisions.serve) serving.insert(request);
    for (auto& refused : decisions.refuse) {
      events += "refused " + std::to_string(refused.request) + ";";
      last_refusal = refused.refusal;
    }
    for (const auto& unload : decisions.unload)
      events += (unload.has_running ? "cut off " : "out ") + std::to_string(unload.model) + ";";
    for (const auto& load : decisions.load)
      events += "load " + std::to_string(load.model) + " for " +
                std::to_string(static_cast<std::uint64_t>(load.tenant)) + ";";
    ask_at = decisions.ask_at;
    REQUIRE(ask_at > now);
  }

  std::shared_ptr<ServedTime> served = std::make_shared<ServedTime>();
  ModelResidency residency;
  std::map<ModelNumber, std::uint64_t> bytes;
  double now = 0, ask_at = kForever;
  RequestNumber last = 0;
  std::set<RequestNumber> serving;
  std::string events;
  Refusal last_refusal;
};

}  // namespace

TEST_CASE("residency: the first request has the model loaded, later ones wait for the same load") {
  Memory memory;
  memory.add(1);
  const RequestNumber first = memory.ask(1, kUma);
  CHECK(memory.take_events() == "load 1 for 1;");
  const RequestNumber second = memory.ask(1, kVic, MayLoad::never);
  CHECK(memory.serving.empty());
  CHECK(memory.residency.num_waiting(1) == 2);
  memory.loaded(1);
  CHECK(memory.serving == std::set{first, second});
  CHECK(memory.residency.num_running(1) == 2);
  CHECK(memory.ask(1, kWen, MayLoad::never) == 3);
  CHECK(memory.serving.contains(3));
  CHECK(memory.take_events().empty());
}

TEST_CASE("residency: a request that ends while it waits has nothing loaded") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  memory.bring_in(1, kUma);
  memory.ask(1, kUma);
  memory.end(memory.ask(2, kVic));
  memory.wait_until(1000);
  CHECK(memory.take_events().empty());
  CHECK(memory.residency.state(1) == State::loaded);
}

TEST_CASE("residency: a model that is used keeps its turn for as long as its load is worth") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  const RequestNumber first = memory.ask(1, kUma);
  memory.loaded(1);  // at 10
  memory.ask(2, kVic);
  memory.take_events();
  // Another request now and then: what is between them is less than a quarter of the load.
  memory.wait_until(40);
  memory.end(first);
  memory.wait_until(42);
  const RequestNumber second = memory.ask(1, kUma);
  CHECK(memory.serving.contains(second));
  memory.served->charge(kUma, 40);
  memory.wait_until(49.9);
  CHECK(memory.ask(1, kUma) == memory.last);
  CHECK(memory.serving.contains(memory.last));
  CHECK(memory.residency.state(1) == State::loaded);
  memory.wait_until(50);
  CHECK(memory.residency.state(1) == State::closing);
}

TEST_CASE("residency: a model that stands unused for a while in its turn goes earlier") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  const RequestNumber first = memory.ask(1, kUma);
  memory.loaded(1);  // at 10
  memory.wait_until(15);
  memory.end(first);
  memory.ask(2, kVic);
  memory.take_events();
  memory.wait_until(17.4);
  CHECK(memory.take_events().empty());
  memory.wait_until(17.5);
  CHECK(memory.take_events() == "out 1;");
  memory.unloaded(1);
  CHECK(memory.take_events() == "load 2 for 2;");
}

TEST_CASE("residency: a turn goes on while its tenants were served less, but not for ever") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  memory.served->begin(kUma, 1, 0);
  memory.ask(1, kUma);
  memory.loaded(1);  // at 10; its tenant is charged 10 s
  memory.served->begin(kVic, 1, 0);
  memory.served->charge(kVic, 100);
  memory.ask(2, kVic);
  memory.wait_until(60);
  CHECK(memory.residency.state(1) == State::loaded);
  SECTION("until they were served more") {
    memory.served->charge(kUma, 100);
    memory.wait_until(70);
    CHECK(memory.residency.state(1) == State::closing);
  }
  SECTION("at most kMaxTurnLoads loads") {
    memory.wait_until(169.9);
    CHECK(memory.residency.state(1) == State::loaded);
    memory.wait_until(170);
    CHECK(memory.residency.state(1) == State::closing);
  }
}

TEST_CASE("residency: at the end of a turn new requests wait, and those that run end") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  const RequestNumber runs = memory.ask(1, kUma);
  memory.loaded(1);
  const RequestNumber other = memory.ask(2, kVic);
  memory.take_events();
  memory.wait_until(60);
  const RequestNumber late = memory.ask(1, kUma);
  CHECK_FALSE(memory.serving.contains(late));
  SECTION("then the other model is loaded") {
    memory.end(runs);
    CHECK(memory.take_events() == "out 1;");
    memory.unloaded(1);
    CHECK(memory.take_events() == "load 2 for 2;");
    memory.loaded(2);
    CHECK(memory.serving == std::set{other});
    CHECK(memory.residency.num_waiting(1) == 1);
  }
  SECTION("those that take too long are cut off") {
    memory.wait_until(109.9);
    CHECK(memory.take_events().empty());
    memory.wait_until(110);
    CHECK(memory.take_events() == "cut off 1;");
    memory.end(runs);
    memory.unloaded(1);
    CHECK(memory.take_events() == "load 2 for 2;");
  }
  SECTION("if the wait ends, the model is open again") {
    memory.end(other);
    CHECK(memory.residency.state(1) == State::loaded);
    CHECK(memory.serving == std::set{runs, late});
    CHECK(memory.take_events().empty());
  }
}

TEST_CASE("residency: idle models go first, the least recently used of them, and as few as suffice") {
  Memory memory({.budget_bytes = 40});
  for (ModelNumber model = 1; model <= 4; ++model) memory.add(model);
  memory.add(5, {.name = {}, .bytes = 20});
  memory.bring_in(2, kUma);
  memory.bring_in(1, kUma);
  memory.bring_in(3, kUma);
  memory.ask(4, kUma);
  memory.loaded(4);
  memory.take_events();
  memory.wait_until(200);
  SECTION("by their last use") {
    memory.ask(5, kVic);
    CHECK(memory.take_events() == "out 2;out 1;");
  }
  SECTION("a use counts from its end") {
    memory.end(memory.ask(2, kUma));
    memory.ask(5, kVic);
    CHECK(memory.take_events() == "out 1;out 3;");
  }
  SECTION("one that is large enough goes alone") {
    memory.add(6, {.name = {}, .bytes = 5});
    memory.ask(6, kVic);
    CHECK(memory.take_events() == "out 2;");
  }
  SECTION("one that is in use stays") {
    memory.add(6, {.name = {}, .bytes = 30});
    memory.ask(6, kVic);
    CHECK(memory.take_events() == "out 2;out 1;out 3;");
    CHECK(memory.residency.state(4) == State::loaded);
  }
}

TEST_CASE("residency: a small model that went too early is left where a larger one goes anyway") {
  Memory memory({.budget_bytes = 30});
  memory.add(1, {.name = {}, .bytes = 5});
  memory.add(2, {.name = {}, .bytes = 25});
  memory.add(3, {.name = {}, .bytes = 20});
  memory.bring_in(1, kUma);
  memory.bring_in(2, kUma);
  memory.wait_until(200);
  memory.ask(3, kVic);
  CHECK(memory.take_events() == "out 2;");
}

TEST_CASE("residency: the next turn is of the tenant that was served least, and loads count") {
  Memory memory;
  for (ModelNumber model = 1; model <= 3; ++model) memory.add(model);
  const RequestNumber runs = memory.ask(1, kUma);
  memory.loaded(1);
  SECTION("by what was computed") {
    memory.served->begin(kVic, 1, 0);
    memory.served->begin(kWen, 1, 0);
    memory.served->charge(kVic, 100);
    memory.ask(2, kVic);
    memory.ask(3, kWen);
    memory.wait_until(100);
    memory.take_events();
    memory.end(runs);
    memory.unloaded(1);
    CHECK(memory.take_events() == "out 1;load 3 for 3;");
  }
  SECTION("the load was charged to who asked") {
    CHECK(memory.served->served(kUma) == 10);
    memory.served->begin(kVic, 1, 0);
    memory.ask(2, kVic);
    memory.wait_until(60);
    memory.end(runs);
    memory.unloaded(1);
    const double before = memory.served->served(kVic);
    memory.loaded(2, 7);
    CHECK(memory.served->served(kVic) == before + 7);
  }
}

TEST_CASE("residency: a tenant is active until the model has taken its request over") {
  Memory memory;
  memory.add(1);
  const RequestNumber request = memory.ask(1, kUma);
  memory.residency.began(request);  // it still waits
  memory.loaded(1);
  CHECK(memory.served->served(kUma) == 10);
  SECTION("told so") { memory.residency.began(request); }
  SECTION("not told") { memory.end(request); }
  CHECK(memory.served->served(kUma) == 0);  // nobody is active: forgotten
}

TEST_CASE("residency: of tenants that were served alike, the model with the most work for its load is next") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  memory.add(3, {.name = {}, .load_seconds = 2});
  const RequestNumber runs = memory.ask(1, kUma);
  memory.loaded(1);
  memory.ask(2, kVic, MayLoad::turns, 5);
  SECTION("the load is shorter") {
    memory.ask(3, kWen, MayLoad::turns, 2);
    memory.wait_until(100);
    memory.take_events();
    memory.end(runs);
    memory.unloaded(1);
    CHECK(memory.take_events() == "out 1;load 3 for 3;");
  }
  SECTION("more waits") {
    memory.ask(3, kWen, MayLoad::turns, 0.9);
    memory.wait_until(100);
    memory.take_events();
    memory.end(runs);
    memory.unloaded(1);
    CHECK(memory.take_events() == "out 1;load 2 for 2;");
  }
}

TEST_CASE("residency: no model is loaded twice before one that waits") {
  Memory memory;
  for (ModelNumber model = 1; model <= 3; ++model) memory.add(model);
  for (const TenantId tenant : {kUma, kVic, kWen}) memory.served->begin(tenant, 1, 0);
  memory.served->charge(kVic, 1e6);  // by its share it would never be next
  const auto next_turn = [&](RequestNumber runs, ModelNumber model) {
    memory.wait_until(memory.now + 41);
    memory.end(runs);
    memory.unloaded(model);
    return memory.take_events();
  };
  const RequestNumber first = memory.ask(1, kUma);
  memory.loaded(1);
  const RequestNumber waits = memory.ask(2, kVic), second = memory.ask(3, kWen);
  memory.take_events();
  CHECK(next_turn(first, 1) == "out 1;load 3 for 3;");
  const RequestNumber third = memory.ask(1, kUma);
  memory.loaded(3);
  CHECK(next_turn(second, 3) == "out 3;load 1 for 1;");  // the first time since the other one waits
  memory.ask(3, kWen);
  memory.loaded(1);
  CHECK(next_turn(third, 1) == "out 1;load 2 for 2;");
  memory.loaded(2);
  CHECK(memory.serving == std::set{waits});
}

TEST_CASE("residency: memory that the next model does not need is for those behind it") {
  Memory memory({.budget_bytes = 20});
  memory.add(1);
  memory.add(2, {.name = {}, .bytes = 15});
  memory.add(3, {.name = {}, .bytes = 5});
  memory.add(4, {.name = {}, .bytes = 6});
  memory.ask(1, kUma);
  memory.loaded(1);
  memory.take_events();
  memory.ask(2, kVic);  // needs that of 1, whose turn is not over, and 5 of what is free
  CHECK(memory.take_events().empty());
  memory.ask(4, kVic);
  CHECK(memory.take_events().empty());
  memory.ask(3, kWen);
  CHECK(memory.take_events() == "load 3 for 3;");
}

TEST_CASE("residency: a model goes when it had no request for its keep-alive, unless it is pinned") {
  Memory memory({.budget_bytes = 30});
  memory.add(1, {.name = {}, .keep_alive = 600});
  memory.add(2, {.name = {}, .keep_alive = 600, .pinned = true});
  memory.add(3);
  for (ModelNumber model = 1; model <= 3; ++model) memory.bring_in(model, kUma);
  memory.wait_until(500);
  memory.end(memory.ask(1, kUma));
  memory.wait_until(1099);
  CHECK(memory.take_events().empty());
  memory.wait_until(1100);
  CHECK(memory.take_events() == "out 1;");
  // A request that comes while it goes waits, and has it loaded again.
  const RequestNumber late = memory.ask(1, kUma);
  CHECK(memory.take_events().empty());
  memory.unloaded(1);
  CHECK(memory.take_events() == "load 1 for 1;");
  memory.loaded(1);
  CHECK(memory.serving == std::set{late});
  memory.wait_until(1e6);  // it is in use
  CHECK(memory.take_events().empty());
}

TEST_CASE("residency: a tenant that may load into idle memory puts out only what no other has used of late") {
  Memory memory({.budget_bytes = 10, .max_wait_seconds = 1e6});
  memory.add(1, {.name = {}, .keep_alive = 200});
  memory.add(2, {.name = {}, .keep_alive = 200});
  memory.add(3);
  SECTION("not what another has used within its keep-alive") {
    memory.bring_in(1, kUma);
    memory.wait_until(100);
    const RequestNumber guest = memory.ask(2, kVic, MayLoad::idle);
    CHECK(memory.residency.wait_of(guest, memory.now).why == ModelWait::Why::room);
    CHECK(memory.residency.wait_of(guest, memory.now).seconds == kForever);
    memory.wait_until(209);
    CHECK(memory.take_events().empty());
    SECTION("it goes with its keep-alive") {
      memory.wait_until(210);
      CHECK(memory.take_events() == "out 1;");
      memory.unloaded(1);
      CHECK(memory.take_events() == "load 2 for 2;");
    }
    SECTION("it holds up nobody who may") {
      memory.ask(3, kWen);
      CHECK(memory.take_events() == "out 1;");
      memory.unloaded(1);
      CHECK(memory.take_events() == "load 3 for 3;");
    }
  }
  SECTION("its own") {
    const RequestNumber own = memory.ask(1, kVic, MayLoad::idle);
    memory.loaded(1);
    memory.end(own);
    memory.take_events();
    memory.wait_until(100);
    memory.ask(2, kVic, MayLoad::idle);
    CHECK(memory.take_events() == "out 1;");
  }
  SECTION("what another uses now and then, while it uses it itself") {
    memory.bring_in(1, kUma);  // until 10
    memory.ask(1, kVic, MayLoad::idle);
    memory.ask(2, kVic, MayLoad::idle);
    memory.wait_until(100);
    CHECK(memory.residency.state(1) == State::loaded);
    CHECK(memory.ask_at == 210);
    memory.wait_until(210);
    CHECK(memory.residency.state(1) == State::closing);
    memory.ask(1, kUma);  // it is wanted by another again
    CHECK(memory.residency.state(1) == State::loaded);
    CHECK(memory.serving.contains(memory.last));
  }
}

TEST_CASE("residency: what stood unused for five minutes is idle memory, whatever its keep-alive") {
  Memory memory({.budget_bytes = 10, .max_wait_seconds = 1e6});
  memory.add(1);  // for ever
  memory.add(2);
  memory.bring_in(1, kUma);  // until 10
  memory.ask(2, kVic, MayLoad::idle);
  CHECK(memory.ask_at == 10 + ModelResidency::kIdleSeconds);
  memory.wait_until(10 + ModelResidency::kIdleSeconds - 1);
  CHECK(memory.take_events().empty());
  memory.wait_until(10 + ModelResidency::kIdleSeconds);
  CHECK(memory.take_events() == "out 1;");
}

TEST_CASE("residency: a wait for idle memory is behind all that have turns, however long it lasts") {
  Memory memory({.budget_bytes = 20, .max_wait_seconds = 1e6});
  for (const ModelNumber model : {1u, 2u, 3u, 4u}) memory.add(model, {.name = {}, .keep_alive = 600});
  memory.bring_in(2, kUma);
  memory.wait_until(100);
  memory.ask(1, kVic, MayLoad::idle);
  memory.loaded(1);
  memory.take_events();
  memory.ask(3, kVic, MayLoad::idle);  // its own model may go for it, whose turn is not over
  CHECK(memory.take_events().empty());
  const RequestNumber other = memory.ask(4, kWen);
  CHECK(memory.take_events() == "out 2;");
  CHECK(memory.residency.wait_of(other, memory.now).models_before == 0);
  memory.unloaded(2);
  CHECK(memory.take_events() == "load 4 for 3;");
}

TEST_CASE("residency: models that drain for a wait for idle memory are for one that has turns and comes meanwhile") {
  Memory memory({.budget_bytes = 10, .max_wait_seconds = 1e6, .drain_seconds = 30});
  for (const ModelNumber model : {1u, 2u, 3u}) memory.add(model, {.name = {}, .keep_alive = 600});
  const RequestNumber own = memory.ask(1, kVic, MayLoad::idle);
  memory.loaded(1);
  memory.ask(2, kVic, MayLoad::idle);
  memory.wait_until(60);  // its turn is over
  REQUIRE(memory.residency.state(1) == State::closing);
  memory.ask(3, kWen);
  memory.take_events();
  memory.end(own);
  CHECK(memory.take_events() == "out 1;");
  memory.unloaded(1);
  CHECK(memory.take_events() == "load 3 for 3;");
}

TEST_CASE("residency: who may have nothing loaded uses what is loaded, or waited for by others") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  CHECK(memory.refusal_of(1, kVic, MayLoad::never).outcome == Outcome::permission);
  CHECK(memory.take_events().empty());
  memory.ask(1, kUma);
  const RequestNumber joins = memory.ask(1, kVic, MayLoad::never);
  memory.loaded(1);
  CHECK(memory.serving.contains(joins));
  memory.take_events();
  // It waits behind one that may, who goes away.
  const RequestNumber may = memory.ask(2, kUma);
  const RequestNumber alone = memory.ask(2, kVic, MayLoad::never);
  memory.end(may);
  CHECK(memory.take_events() == "refused " + std::to_string(alone) + ";");
  CHECK(memory.last_refusal.outcome == Outcome::permission);
}

TEST_CASE("residency: a model that cannot fit is refused with the numbers") {
  Memory memory({.budget_bytes = 20ull << 20, .max_models = 2});
  memory.add(1, {.name = "large", .bytes = 21ull << 20});
  memory.add(2, {.name = "half", .bytes = 11ull << 20});
  memory.add(3, {.name = {}, .bytes = 10ull << 20, .pinned = true});
  memory.add(4, {.name = {}, .bytes = 1, .pinned = true});
  memory.add(5, {.name = {}, .bytes = 1});
  const Refusal refusal = memory.refusal_of(1, kUma);
  CHECK(refusal.outcome == Outcome::never_fits);
  CHECK(refusal.message.find("model large needs 21 MiB, and 20 MiB of the memory budget of 20 MiB") == 0);
  CHECK(refusal.limit == 20ull << 20);
  memory.bring_in(3, kUma);
  CHECK(memory.refusal_of(2, kUma).outcome == Outcome::never_fits);
  memory.bring_in(4, kUma);
  CHECK(memory.refusal_of(5, kUma).field == "models-max");
  CHECK(memory.take_events().empty());
}

TEST_CASE("residency: what fits no more beside a pinned model that is loaded now is refused at once") {
  Memory memory({.budget_bytes = 14});
  memory.add(1, {.name = {}, .pinned = true});
  memory.add(2, {.name = {}, .bytes = 6});
  memory.add(3, {.name = {}, .bytes = 4});
  memory.ask(3, kUma);
  memory.ask(1, kUma);
  const RequestNumber waits = memory.ask(2, kUma);
  memory.take_events();
  memory.loaded(3);
  CHECK(memory.take_events() == "refused " + std::to_string(waits) + ";load 1 for 1;");
}

TEST_CASE("residency: with max_models in memory one goes for the next") {
  Memory memory({.budget_bytes = 1000, .max_models = 1});
  memory.add(1);
  memory.add(2);
  memory.bring_in(1, kUma);
  memory.wait_until(100);
  memory.ask(2, kUma);
  CHECK(memory.take_events() == "out 1;");
}

TEST_CASE("residency: a smaller budget refuses what waits and fits no more") {
  Memory memory;
  memory.add(1);
  memory.add(2);
  memory.ask(1, kUma);
  memory.loaded(1);
  const RequestNumber waits = memory.ask(2, kVic);
  memory.take_events();
  memory.residency.set_budget(9);
  memory.decide();
  CHECK(memory.take_events() == "refused " + std::to_string(waits) + ";");
  CHECK(memory.last_refusal.outcome == Outcome::never_fits);
  CHECK(memory.residency.state(1) == State::loaded);
}

TEST_CASE("residency: a load that fails is not tried again at once, and later each time") {
  Memory memory;
  memory.add(1, {.name = "broken"});
  memory.ask(1, kUma);
  memory.ask(1, kVic);
  memory.take_events();
  memory.failed(1);
  CHECK(memory.take_events() == "refused 1;refused 2;");
  CHECK(memory.last_refusal.outcome == Outcome::loading);
  CHECK(memory.last_refusal.message == "model broken could not be loaded: it is damaged; it is tried again in 5 s");
  CHECK(memory.last_refusal.retry_after == 5.0);
  CHECK(memory.residency.bytes_in_memory() == 0);
  double wait = 5;
  for (int i = 0; i < 8; ++i) {
    memory.wait_until(memory.now + wait - 0.5);
    CHECK(memory.refusal_of(1, kUma).retry_after == Approx(0.5));
    memory.wait_until(memory.now + 0.5);
    memory.ask(1, kUma);
    CHECK(memory.take_events() == "load 1 for 1;");
    memory.failed(1);
    wait = std::min(2 * wait, 300.0);
    CHECK(memory.last_refusal.retry_after == wait);
    memory.take_events();
  }
  memory.wait_until(memory.now + wait);
  memory.bring_in(1, kUma);
  memory.residency.unload_began(1, memory.now);
  memory.unloaded(1);
  memory.ask(1, kUma);
  memory.failed(1);
  CHECK(memory.last_refusal.retry_after == 5.0);
}

TEST_CASE("residency: waiting requests are limited, as a number and in time") {
  Memory memory({.budget_bytes = 10, .max_waiting = 4, .max_wait_seconds = 30});
  memory.add(1);
  memory.add(2);
  memory.ask(1, kUma);
  memory.loaded(1);
  memory.take_events();
  for (int i = 0; i < 3; ++i) memory.ask(2, kVic);
  CHECK(memory.refusal_of(2, kVic).outcome == Outcome::quota);
  CHECK(memory.take_events().empty());
  memory.wait_until(39.9);
  CHECK(memory.take_events().empty());
  memory.wait_until(40);
  CHECK(memory.take_events() == "refused 2;refused 3;refused 4;");
  CHECK(memory.last_refusal.outcome == Outcome::loading);
  CHECK(memory.last_refusal.retry_after == 20.0);  // what is left of the turn, and the load
  memory.ask(2, kVic);                             // they have given their places back
}

TEST_CASE("residency: those that wait for idle memory leave half of the places to others") {
  Memory memory({.budget_bytes = 10, .max_waiting = 8, .max_wait_seconds = 30});
  memory.add(1);
  memory.add(2);
  memory.ask(1, kUma);
  memory.loaded(1);
  memory.take_events();
  for (int i = 0; i < 3; ++i) memory.ask(2, kVic, MayLoad::idle);
  CHECK(memory.refusal_of(2, kVic, MayLoad::idle).outcome == Outcome::quota);
  memory.ask(2, kUma, MayLoad::idle);
  CHECK(memory.refusal_of(2, kUma, MayLoad::idle).outcome == Outcome::queue_full);
  memory.wait_until(40);
  CHECK(memory.take_events() == "refused 2;refused 3;refused 4;refused 6;");
  CHECK(memory.last_refusal.retry_after == ModelResidency::kUnknownWaitSeconds);
  for (int i = 0; i < 3; ++i) memory.ask(2, kVic, MayLoad::idle);  // they have given their places back
  for (int i = 0; i < 4; ++i) memory.ask(2, kWen);                 // with turns
}

TEST_CASE("residency: what a wait is for, and how long it may be") {
  Memory memory;
  for (ModelNumber model = 1; model <= 3; ++model) memory.add(model);
  const RequestNumber first = memory.ask(1, kUma);
  memory.wait_until(4);
  ModelWait wait = memory.residency.wait_of(first, 4);
  CHECK(wait.why == ModelWait::Why::load);
  CHECK(wait.seconds == 6);
  CHECK(wait.progress == Approx(0.4));
  CHECK(memory.residency.wait_of(first, 100).progress == 1);
  memory.loaded(1, 6);  // its turn is 24 s
  const RequestNumber second = memory.ask(2, kVic), third = memory.ask(3, kVic);
  memory.wait_until(14);
  wait = memory.residency.wait_of(second, 14);
  CHECK(wait.why == ModelWait::Why::turn);
  CHECK(wait.on == 1);
  CHECK(wait.seconds == 20 + 10);
  wait = memory.residency.wait_of(third, 14);
  CHECK(wait.why == ModelWait::Why::queue);
  CHECK(wait.models_before == 1);
  CHECK(wait.seconds == 30 + 40 + 10);
}

TEST_CASE("residency: how much of the time goes into loading") {
  Memory memory;
  memory.add(1);
  CHECK(memory.residency.loading_share(0) == 0);
  memory.ask(1, kUma);
  CHECK(memory.residency.loading_share(3000) > 0.99);
  memory.wait_until(300);
  memory.residency.load_ended(1, 10, 300, 300);
  CHECK(memory.residency.loading_share(300) == Approx(1 - std::exp(-1.0)));
  CHECK(memory.residency.loading_share(600) == Approx((1 - std::exp(-1.0)) * std::exp(-1.0)));
}

TEST_CASE("residency: what was measured is what the next load is expected to take") {
  Memory memory;
  memory.add(1);
  memory.bring_in(1, kUma, 20);
  CHECK(memory.residency.load_seconds(1) == 20);
  memory.residency.unload_began(1, memory.now);
  memory.unloaded(1);
  memory.bring_in(1, kUma, 2);
  CHECK(memory.residency.load_seconds(1) == 11);
}

TEST_CASE("residency: an operator loads and unloads, and takes models away") {
  Memory memory({.budget_bytes = 20});
  memory.add(1);
  memory.add(2);
  memory.residency.load_began(1, 0);
  const RequestNumber joins = memory.ask(1, kVic, MayLoad::never);
  memory.loaded(1);
  CHECK(memory.serving.contains(joins));
  CHECK(memory.served->served(kVic) == 0);
  memory.residency.unload_began(1, memory.now);
  const RequestNumber waits = memory.ask(1, kUma);
  memory.end(joins);
  memory.residency.unload_ended(1, memory.now);
  CHECK(memory.residency.remove(1) == std::vector{waits});
  memory.add(1);
  memory.bring_in(1, kUma);
  CHECK(memory.residency.bytes_in_memory() == 10);
}

TEST_CASE("residency: under random events each request ends once, and nothing stays behind") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u;
    const auto random = [&](std::uint64_t below) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % below;
    };
    const auto served = std::make_shared<ServedTime>();
    ModelResidency residency({.budget_bytes = 10 + random(30),
                              .max_models = 1 + static_cast<std::uint32_t>(random(5)),
                              .max_loading = 1 + static_cast<std::uint32_t>(random(2)),
                              .max_waiting = 40,
                              .max_wait_seconds = 50,
                              .drain_seconds = 10},
                             served);
    const auto num_models = static_cast<ModelNumber>(2 + random(6));
    std::map<RequestNumber, ModelNumber> waiting, running;
    std::set<ModelNumber> loading, leaving, pinned;
    const auto add = [&](ModelNumber model) {
      if (random(8) == 0) pinned.insert(model);
      residency.add(model, {.name = "m",
                            .bytes = 1 + random(12),
                            .load_seconds = 1 + static_cast<double>(random(10)),
                            .keep_alive = static_cast<double>(random(60)),
                            .pinned = pinned.contains(model)});
    };
    for (ModelNumber model = 0; model < num_models; ++model) add(model);
    double now = 0;
    RequestNumber last = 0;
    const auto end = [&](auto& from, std::size_t at) {
      const RequestNumber request = std::next(from.begin(), static_cast<std::ptrdiff_t>(at))->first;
      from.erase(request);
      residency.ended(request, now);
    };
    const auto step = [&](bool asks) {
      const auto model = static_cast<ModelNumber>(random(num_models));
      switch (random(asks ? 9 : 6)) {
        case 0:
          if (!waiting.empty() && random(4) == 0) end(waiting, random(waiting.size()));
          break;
        case 1:
          if (!running.empty()) end(running, random(running.size()));
          break;
        case 2:
          if (loading.erase(model) == 0) break;
          if (random(5) == 0)
            residency.load_failed(model, "it is damaged", 1, now);
          else
            residency.load_ended(model, 1 + random(12), static_cast<double>(random(9)), now);
          break;
        case 3:
          if (residency.num_running(model) == 0 && leaving.erase(model) > 0) residency.unload_ended(model, now);
          break;
        case 4:
          now += static_cast<double>(random(8));
          break;
        case 5:
          if (!asks || random(4) > 0) break;
          if (residency.state(model) == State::loaded || residency.state(model) == State::closing) {
            residency.unload_began(model, now);
            leaving.insert(model);
          } else if (residency.state(model) == State::out && random(2) == 0) {
            residency.load_began(model, now);
            loading.insert(model);
          } else if (residency.state(model) == State::out) {
            for (const RequestNumber request : residency.remove(model)) REQUIRE(waiting.erase(request) == 1);
            pinned.erase(model);
            add(model);
          } else {
            residency.set_budget(5 + random(40));
          }
          break;
        default: {
          const auto answer = residency.ask({.request = ++last,
                                             .model = model,
                                             .tenant = {.id = TenantId{random(4)}},
                                             .may_load = static_cast<MayLoad>(random(3)),
                                             .work_seconds = 1 + static_cast<double>(random(5))},
                                            now);
          if (std::holds_alternative<Refusal>(answer)) break;
          if (std::get<Answer>(answer) == Answer::serve)
            running[last] = model;
          else
            waiting[last] = model;
          if (waiting.contains(last)) REQUIRE(residency.wait_of(last, now).seconds >= 0);
        }
      }
      const Decisions decisions = residency.decide(now);
      for (const RequestNumber request : decisions.serve) {
        REQUIRE(waiting.contains(request));
        if (random(2) == 0) residency.began(request);
        running[request] = waiting.at(request);
        waiting.erase(request);
      }
      for (const auto& refused : decisions.refuse) REQUIRE(waiting.erase(refused.request) == 1);
      for (const auto& unload : decisions.unload) {
        REQUIRE(!pinned.contains(unload.model));
        REQUIRE(leaving.insert(unload.model).second);
      }
      for (const auto& load : decisions.load) REQUIRE(loading.insert(load.model).second);
      REQUIRE(decisions.ask_at > now);
      bool holds = true;
      for (ModelNumber each = 0; each < num_models; ++each) {
        const State state = residency.state(each);
        const auto is_of_it = [&](const auto& entry) { return entry.second == each; };
        holds = holds && (state == State::loading) == loading.contains(each) &&
                (state == State::leaving) == leaving.contains(each) &&
                residency.num_running(each) == std::ranges::count_if(running, is_of_it) &&
                residency.num_waiting(each) == static_cast<std::size_t>(std::ranges::count_if(waiting, is_of_it)) &&
                (state != State::loaded || residency.num_waiting(each) == 0) &&
                (residency.num_running(each) == 0 || state != State::loading);
      }
      REQUIRE(holds);
    };
    for (int i = 0; i < 1500; ++i) step(true);
    for (int i = 0; i < 20000 && !(waiting.empty() && running.empty() && loading.empty() && leaving.empty()); ++i)
      step(false);
    REQUIRE((waiting.empty() && running.empty() && loading.empty() && leaving.empty()));
    // No tenant is left active: all counters are forgotten with the next one that is.
    served->begin(TenantId{9}, 1, 0);
    served->end(TenantId{9}, 0);
    for (std::uint64_t tenant = 0; tenant < 4; ++tenant) REQUIRE(served->served(TenantId{tenant}) == 0);
  }
}
