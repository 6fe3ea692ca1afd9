// The actors' protocol, event by event, on CAF's deterministic scheduler.
#include <catch2/catch.hpp>

#include "actors/batching/batch.h"
#include "actors/unit/cache_keeper.h"
#include "actors/unit/telemetry.h"
#include "tests/actors/stage.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

Request request_for(std::string text, std::uint32_t max_tokens) {
  Request request;
  request.tenant.is_owner = true;
  request.prompt = std::move(text);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.credit = ~std::uint64_t{0};
  return request;
}

TEST_CASE("protocol: requests before, during and after loading get the same answers") {
  Stage stage;
  auto early = std::make_shared<Listener>();
  stage.submit(request_for("Once upon a time", 8), early);
  stage.run();
  CHECK_FALSE(early->end_);
  stage.serve(load_model(32));
  auto between = std::make_shared<Listener>();
  stage.submit(request_for("Once upon a time", 8), between);
  stage.run();
  auto late = std::make_shared<Listener>();
  stage.submit(request_for("Once upon a time", 8), late);
  stage.run();
  REQUIRE(early->end_);
  CHECK(early->end_->outcome == Outcome::length);
  CHECK(early->ids.size() == 8);
  CHECK(between->ids == early->ids);
  CHECK(late->ids == early->ids);
}

TEST_CASE("protocol: while loading, requests wait until their deadline, and at most max_queued_requests") {
  GatewayOptions options;
  options.max_queued_requests = 1;
  Stage stage(options);
  Request request = request_for("Once", 8);
  request.deadline = std::chrono::milliseconds(500);
  auto waiting = std::make_shared<Listener>();
  stage.submit(request, waiting);
  auto too_many = std::make_shared<Listener>();
  stage.submit(request, too_many);
  stage.run();
  REQUIRE(too_many->end_);
  CHECK(too_many->end_->outcome == Outcome::queue_full);
  stage.scheduler().advance_time(std::chrono::milliseconds(499));
  stage.run();
  CHECK_FALSE(waiting->end_);
  stage.scheduler().advance_time(std::chrono::milliseconds(1));
  stage.run();
  REQUIRE(waiting->end_);
  CHECK(waiting->end_->outcome == Outcome::loading);
  CHECK(waiting->end_->retry_after);
}

TEST_CASE("protocol: a deadline ends a parked stream at its time and gives its blocks back") {
  Stage stage;
  stage.serve(load_model(32));
  Request request = request_for("Once upon a time", 40);
  request.credit = 4;
  request.deadline = std::chrono::milliseconds(500);
  auto sink = std::make_shared<Listener>();
  stage.submit(request, sink);
  stage.run();
  CHECK(sink->ids.size() == 4);
  CHECK_FALSE(sink->end_);
  CHECK(stage.status().count("blocks_referenced") > 0);
  stage.scheduler().advance_time(std::chrono::milliseconds(500));
  stage.run();
  REQUIRE(sink->end_);
  CHECK(sink->end_->outcome == Outcome::deadline);
  CHECK(sink->end_->usage.completion_tokens == 4);
  CHECK(stage.status().count("blocks_referenced") == 0);
}

Request request_of_ids(std::size_t length, TokenId salt, std::uint32_t max_tokens) {
  Request request = request_for("", max_tokens);
  std::vector<TokenId> ids = {1};
  while (ids.size() < length) ids.push_back(300 + (static_cast<TokenId>(ids.size()) * 7 + salt * 31) % 900);
  request.prompt = std::move(ids);
  return request;
}

TEST_CASE("protocol: parked streams are preempted for a new request also while another one runs without a pause") {
  Stage stage;
  stage.serve(load_model(12));
  for (TokenId salt = 1; salt <= 3; ++salt) {  // three blocks each
    Request slow = request_of_ids(80, salt, 40);
    slow.credit = 1;
    stage.submit(slow, std::make_shared<Listener>());
  }
  stage.run();
  auto busy = std::make_shared<Listener>();
  stage.submit(request_of_ids(20, 4, 70), busy);
  while (busy->ids.size() < 5) stage.scheduler().run_once();
  auto next = std::make_shared<Listener>();
  stage.submit(request_of_ids(80, 5, 4), next);
  while (!next->end_ && !busy->end_) stage.scheduler().run_once();
  CHECK_FALSE(busy->end_);
  CHECK(next->ids.size() == 4);
}

TEST_CASE("protocol: an urgent request preempts while others run without a pause, also when one waits for blocks") {
  Stage stage;
  stage.serve(load_model(8));
  std::vector<std::shared_ptr<Listener>> busy;
  for (TokenId salt = 1; salt <= 2; ++salt) {
    busy.push_back(std::make_shared<Listener>());
    stage.submit(request_of_ids(80, salt, 40), busy.back());
  }
  auto patient = std::make_shared<Listener>();
  Request unhurried = request_of_ids(80, 3, 40);
  unhurried.priority = 1;
  stage.submit(unhurried, patient);
  while (busy[1]->ids.size() < 5) stage.scheduler().run_once();
  auto urgent = std::make_shared<Listener>();
  Request first = request_of_ids(80, 4, 4);
  first.priority = -1;
  stage.submit(first, urgent);
  while (!urgent->end_ && !busy[0]->end_) stage.scheduler().run_once();
  CHECK(urgent->ids.size() == 4);
  CHECK_FALSE(busy[0]->end_);
  CHECK(patient->ids.empty());
  stage.run();
  for (const auto& sink : busy) CHECK(sink->ids.size() == 40);
  CHECK(patient->ids.size() == 40);
}

TEST_CASE("protocol: a step costs at most six messages") {
  Stage stage;
  stage.serve(load_model(64));
  std::vector<std::shared_ptr<Listener>> sinks;
  for (int i = 0; i < 4; ++i) {
    sinks.push_back(std::make_shared<Listener>());
    stage.submit(request_for("The dog number " + std::to_string(i), 100), sinks.back());
  }
  while (stage.status().count("steps") < 10) stage.scheduler().run_once();  // all are admitted
  std::size_t events = 0;
  while (stage.status().count("steps") < 90) {
    stage.scheduler().run_once();
    ++events;
  }
  CHECK(events <= 80 * 6);
  stage.run();
  for (const auto& sink : sinks) CHECK(sink->ids.size() == 100);
}

TEST_CASE("protocol: an idle server has no event") {
  Stage stage;
  stage.serve(load_model(32));
  auto sink = std::make_shared<Listener>();
  stage.submit(request_for("Once", 5), sink);
  stage.run();
  CHECK_FALSE(stage.scheduler().has_job());
  CHECK_FALSE(stage.scheduler().has_pending_timeout());
}

TEST_CASE("protocol: cancelled at any event, a stream ends at once and all blocks come back") {
  const auto model = load_model(32);
  for (std::size_t when = 0; when < 120; when += 3 * kThinning) {
    INFO("after " << when << " events");
    Stage stage;
    stage.serve(model);
    auto cancelled = std::make_shared<Listener>();
    auto other = std::make_shared<Listener>();
    const RequestId id = stage.submit(request_for("Once upon a time there was a dog and a cat", 30), cancelled);
    stage.submit(request_for("Once upon a time there was a dog and a cat", 30), other);
    stage.scheduler().run(when);
    stage.cancel(id);
    stage.run();
    REQUIRE(cancelled->end_);
    if (cancelled->ids.size() < 30) CHECK(cancelled->end_->outcome == Outcome::cancelled);
    CHECK(other->ids.size() == 30);
    CHECK(stage.status().count("blocks_referenced") == 0);
  }
}

// What three streams get when `role` dies after `when` events: one greedy, one drawn with a stop string, one that
// runs out of credit on the way.
struct Outcomes {
  std::vector<std::vector<TokenId>> ids;
  std::vector<std::string> texts;
  std::size_t events = 0;
  bool operator==(const Outcomes& other) const { return ids == other.ids && texts == other.texts; }
};

Outcomes serve_three(const std::shared_ptr<engine::LoadedModel>& model, std::optional<Role> role, std::size_t when) {
  GatewayOptions options;
  options.max_step_tokens = 16;
  Stage stage(options);
  stage.serve(model);
  stage.run();
  Request drawn = request_for("The little cat", 24);
  drawn.sampling.temperature = 1;
  drawn.sampling.seed = 5;
  drawn.stop_strings = {"zzz", " the"};
  Request slow = request_for("Once upon a time there was a little girl who had a red ball and a dog", 20);
  slow.credit = 7;
  std::vector<std::shared_ptr<Listener>> sinks;
  for (int i = 0; i < 3; ++i) sinks.push_back(std::make_shared<Listener>());
  stage.submit(request_for("Once upon a time there was a little girl who had a red ball and a dog", 40), sinks[0]);
  stage.submit(drawn, sinks[1]);
  const RequestId slow_id = stage.submit(slow, sinks[2]);

  Outcomes outcomes;
  outcomes.events = stage.scheduler().run(when);
  if (role) caf::anon_send(stage.supervisor(), msg::Crash{*role});
  stage.run_with_time();
  CHECK(sinks[2]->ids.size() == 7);
  stage.credit(slow_id, 13);
  stage.run_with_time();
  for (const auto& sink : sinks) {
    CHECK(sink->end_);
    outcomes.ids.push_back(sink->ids);
    outcomes.texts.push_back(sink->text);
  }
  const StatusSnapshot after = stage.status();
  CHECK(after.count("worker_restarts") == (role ? 1 : 0));
  CHECK(after.count("blocks_referenced") == 0);
  CHECK(after.count("blocks_free") + after.count("blocks_cached") == after.count("blocks_total"));
  return outcomes;
}

TEST_CASE("protocol: when any actor dies after any event, every stream gets the answer that it gets without") {
  const auto model = load_model(12);  // few enough to preempt
  const Outcomes undisturbed = serve_three(model, std::nullopt, ~std::size_t{0});
  for (const Role role : {Role::intake, Role::keeper, Role::worker, Role::batcher}) {
    for (std::size_t when = 0; when < undisturbed.events; when += 5 * kThinning) {
      INFO("role " << static_cast<int>(role) << " after " << when << " events");
      CHECK(serve_three(model, role, when) == undisturbed);
    }
  }
}

TEST_CASE("protocol: a status is asked for through the batcher and the keeper, and answered if they are dead") {
  Stage stage;
  stage.serve(load_model(32));
  stage.run();
  int answered = 0;
  const auto ask = [&] {
    stage.ask_status([&](StatusSnapshot snapshot) {
      CHECK(snapshot.model == "tales");
      ++answered;
    });
  };
  ask();
  stage.run();
  CHECK(answered == 1);
  stage.scheduler().trigger_timeouts();
  stage.run();
  CHECK(answered == 1);  // the fence's time limit changes nothing then
  ask();
  caf::anon_send(stage.supervisor(), msg::Crash{Role::keeper});
  stage.scheduler().run_once();
  stage.run_with_time();
  CHECK(answered == 2);
  // Telemetry dies while it holds one query and has one in its mailbox.
  ask();
  stage.scheduler().run_once();
  stage.scheduler().run_once();
  caf::anon_send(stage.supervisor(), msg::Crash{Role::telemetry});
  ask();
  stage.run_with_time();
  CHECK(answered == 4);
}

// Calls back into the unit from within the calls of its sink.
struct CallingBack final : Listener {
  std::function<void()> on_call;
  void tokens(TokenRun run) override {
    Listener::tokens(std::move(run));
    on_call();
  }
  void end(End end) override {
    Listener::end(std::move(end));
    on_call();
  }
};

TEST_CASE("protocol: a sink asks for the status, submits and cancels within its calls, also while telemetry is down") {
  for (const bool telemetry_is_down : {false, true}) {
    INFO(telemetry_is_down);
    Stage stage;
    stage.serve(load_model(32));
    stage.run();
    if (telemetry_is_down) {
      caf::anon_send(stage.supervisor(), msg::Crash{Role::telemetry});
      stage.run();  // its successor comes after a while, which does not pass
    }
    int num_asked = 0, num_answered = 0;
    const auto ask = [&] {
      ++num_asked;
      stage.ask_status([&](StatusSnapshot) { ++num_answered; });
    };
    const auto asking = std::make_shared<CallingBack>();
    asking->on_call = ask;
    const auto cancelling = std::make_shared<CallingBack>(), second = std::make_shared<CallingBack>();
    second->on_call = ask;
    RequestId own = 0;
    cancelling->on_call = [&] {
      if (cancelling->ids.size() == 2 && !cancelling->end_) {
        stage.submit(request_for("Once", 4), second);
        stage.unit.cancel(own, stage.now());
      }
      ask();
    };
    stage.submit(request_for("Once upon a time", 6), asking);
    own = stage.submit(request_for("Once upon", 50), cancelling);
    stage.run();
    CHECK(asking->end_->outcome == Outcome::length);
    CHECK(asking->ids.size() == 6);
    CHECK(cancelling->end_->outcome == Outcome::cancelled);
    CHECK(second->end_->outcome == Outcome::length);
    if (telemetry_is_down) CHECK(num_answered == num_asked);  // at once, by the askers
    stage.run_with_time();
    CHECK(num_answered == num_asked);
    CHECK(num_asked > 12);
  }
}

TEST_CASE("protocol: questions to a keeper or telemetry that dies are answered once") {
  Stage stage;
  stage.serve(load_model(32));
  stage.run();
  int num_known = 0, num_unknown = 0;
  const auto ask = [&] {
    stage.unit.ask(std::make_shared<CacheQuestion>(
        cache::scopes_for(TenantId{1}, {}), std::vector<std::uint64_t>{1, 2},
        [&](const std::vector<bool>& cached) { ++(cached.empty() ? num_unknown : num_known); }));
  };
  ask();
  stage.run();
  CHECK(num_known == 1);
  caf::anon_send(stage.supervisor(), msg::Crash{Role::keeper});
  stage.scheduler().run_once();
  ask();  // behind what kills it
  stage.run();
  CHECK(num_unknown == 1);
  ask();  // there is none
  CHECK(num_unknown == 2);
  stage.run_with_time();
  ask();
  stage.run();
  CHECK(num_known == 2);
  CHECK(num_unknown == 2);
}

TEST_CASE("protocol: while loading a user's requests count against the quota, and prompts' bytes have a bound") {
  GatewayOptions options;
  options.max_requests_per_user = 1;
  options.max_queued_tokens = 8;  // 32 bytes
  Stage stage(options);
  Request request = request_for(std::string(20, 'a'), 8);
  const auto submit = [&](std::uint32_t uid) {
    auto sink = std::make_shared<Listener>();
    request.tenant.id = TenantId{uid};
    stage.submit(request, sink);
    stage.run();
    return sink;
  };
  CHECK_FALSE(submit(1)->end_);
  request.prompt = "b";
  const auto second = submit(1);
  REQUIRE(second->end_);
  CHECK(second->end_->outcome == Outcome::quota);
  CHECK_FALSE(submit(2)->end_);
  request.prompt = std::string(20, 'c');
  const auto large = submit(3);
  REQUIRE(large->end_);
  CHECK(large->end_->outcome == Outcome::queue_full);
  CHECK(large->end_->field == "max_queued_tokens");
}

TEST_CASE("protocol: the timers of requests that have ended are gone within a second") {
  Stage stage;
  stage.serve(load_model(32));
  for (int i = 0; i < 50; ++i) {
    Request request = request_for("Once", i % 2 == 0 ? 0 : 2);  // refused, and answered
    request.deadline = std::chrono::milliseconds::max();
    stage.submit(request, std::make_shared<Listener>());
  }
  stage.run();
  CHECK(stage.streams.live().empty());
  stage.scheduler().advance_time(std::chrono::seconds(1));
  stage.run();
  CHECK_FALSE(stage.scheduler().has_pending_timeout());
}

TEST_CASE("protocol: a tokenizer that dies is replaced, and its texts are encoded") {
  GatewayOptions options;
  options.tokenizer_threads = 1;
  Stage stage(options);
  stage.serve(load_model(32));
  stage.run();
  for (int i = 0; i < 3; ++i) {
    auto sink = std::make_shared<Listener>();
    caf::anon_send(stage.supervisor(), msg::Crash{Role::tokenizer});
    stage.submit(request_for("Once upon a time", 8), sink);
    stage.run_with_time();
    CHECK(sink->ids.size() == 8);
  }
  CHECK(stage.status().count("worker_restarts") == 3);
}

TEST_CASE("protocol: a submission that reaches an intake and its successor is handled once") {
  const auto model = load_model(32);
  for (std::size_t when = 0; when < 60; when += 3) {
    INFO("after " << when << " events");
    Stage stage;
    stage.serve(model);
    auto sink = std::make_shared<Listener>();
    Request request = request_for("Once upon a time", 8);
    request.credit = 4;
    const RequestId id = stage.submit(request, sink);
    stage.scheduler().run(when);
    stage.unit.submit(id);
    stage.run();
    CHECK(sink->ids.size() == 4);
    CHECK(stage.streams.state(id) == RequestState::parked);
    stage.credit(id, 4);
    stage.run();
    CHECK(sink->ids.size() == 8);
  }
}

// A batch without actors around it: messages in an order that two mailboxes can produce.
TEST_CASE("protocol: credit and ends that overtake their assignment are not lost") {
  StreamTable streams({.max_requests_per_user = 10});
  const auto add = [&](std::uint64_t credit) {
    Request request = request_of_ids(20, 1, 8);
    request.credit = credit;
    return streams.add(std::move(request), std::make_shared<Listener>(), TimePoint{});
  };
  BatchOptions options;
  options.capacity = {.context = 512, .groups = {{.num_blocks = 8}}};
  scheduler::FairShares shares;
  Batch batch(options, streams, shares);
  const RequestId poor = add(0), ended = add(8);
  for (const RequestId id : {poor, ended}) CHECK_FALSE(streams.admit(id, TimePoint{}));
  const auto poor_task = streams.assign(poor, std::vector<TokenId>(20, 5)).at(0);
  const auto ended_task = streams.assign(ended, std::vector<TokenId>(20, 5)).at(0);
  batch.credit(poor, *streams.grant(poor, 8, TimePoint{}));
  End end;
  end.outcome = Outcome::cancelled;
  CHECK(streams.end(ended, end, TimePoint{}));
  batch.forget(ended);
  batch.enqueue(ended_task, TimePoint{});
  CHECK(batch.num_requests() == 0);
  batch.enqueue(poor_task, TimePoint{});
  batch.decide(TimePoint{});
  CHECK(batch.take_leases().size() == 1);  // it asks for blocks: it has credit
  CHECK(streams.end(poor, end, TimePoint{}));
}

// Receives the answers of the keeper.
class Ear : public ActorBase {
 public:
  Ear(caf::actor_config& cfg, std::vector<std::shared_ptr<const LeaseReply>>& heard)
      : ActorBase(cfg, "ear"), heard_(heard) {}
  caf::behavior make_behavior() override {
    return {[this](const msg::Leased& leased) { heard_.push_back(leased.reply); },
            [this](const msg::Lease& lease) { send(keeper, lease); }};
  }
  caf::actor keeper;

 private:
  std::vector<std::shared_ptr<const LeaseReply>>& heard_;
};

TEST_CASE("keeper: answers leases and predictions in one message, and sends none when there is no answer") {
  TestConfig config;
  caf::actor_system system(config);
  auto& scheduler = dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  Counters counters{TimePoint{}};
  std::vector<std::shared_ptr<const LeaseReply>> heard;
  const caf::actor keeper = system.spawn<CacheKeeper>(cache::LeaseBookOptions{.groups = {{.num_blocks = 8}}}, counters);
  const caf::actor ear = system.spawn<Ear>(heard);
  caf::actor_cast<Ear*>(ear)->keeper = keeper;
  const auto tokens = std::make_shared<const std::vector<TokenId>>(40, 7);

  const auto say = [&](std::vector<scheduler::LeaseMessage> messages) {
    caf::anon_send(ear, msg::Lease{std::make_shared<const std::vector<scheduler::LeaseMessage>>(std::move(messages))});
    scheduler.run();
  };
  say({scheduler::StepEnded{1, 1}});
  CHECK(heard.empty());
  say({cache::Acquire{{1, 1, 1, 0}, {}, {cache::kPublicScope}, tokens, 2, 0},
       scheduler::Predict{9, {cache::kPublicScope}, tokens}});
  REQUIRE(heard.size() == 1);
  CHECK(std::holds_alternative<cache::Acquired>(heard[0]->effects.answers.at(0).body));
  REQUIRE(heard[0]->predictions.size() == 1);
  CHECK(heard[0]->predictions[0].tokens == 32);  // being computed by sequence 1
  const auto referenced = [&] {
    MetricList metrics;
    counters.append_metrics(metrics, TimePoint{});
    return metrics.find("blocks_referenced")->value;
  };
  CHECK(referenced() == 2);

  say({cache::Release{{1, 1, 2, 1}, 0}});
  CHECK(referenced() == 0);
  caf::anon_send(ear, caf::exit_msg{ear.address(), caf::exit_reason::user_shutdown});
  caf::actor_cast<Ear*>(ear)->keeper = nullptr;
  caf::anon_send_exit(keeper, caf::exit_reason::user_shutdown);
  scheduler.run();
}

}  // namespace
}  // namespace troupe::actors
