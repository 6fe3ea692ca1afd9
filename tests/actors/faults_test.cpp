// Work that throws: steps, texts, handlers. Only the request that causes it loses tokens.
#include <algorithm>
#include <catch2/catch.hpp>
#include <new>
#include <random>
#include <stdexcept>

#include "actors/saboteur.h"
#include "actors/unit/supervisor.h"
#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

// Breaks every step that computes one certain sequence: the one whose first row has `prompt_tokens` tokens, from its
// `first_bad`th row on.
struct Poison {
  std::uint32_t prompt_tokens;
  int first_bad;
  bool out_of_memory = false;
  int num_broken = 0;
  int num_rows = 0;
  SequenceId guilty = 0;

  void operator()(const engine::StepBatch& batch) {
    for (const engine::StepItem& item : batch.items) {
      if (guilty == 0 && item.num_tokens == prompt_tokens) guilty = item.sequence;
      if (item.sequence != guilty || ++num_rows <= first_bad) continue;
      ++num_broken;
      if (out_of_memory) throw std::bad_alloc();
      throw std::runtime_error("the kernel met a NaN");
    }
  }
};

// On a slow machine prompts would be computed in parts, and Poison knows its request by the whole.
GatewayOptions with_whole_prompts() {
  GatewayOptions options;
  options.max_stall = std::chrono::hours(1);
  return options;
}

FaultPoints before_steps(std::function<void(const engine::StepBatch&)> fault) {
  FaultPoints faults;
  faults.before_step = std::move(fault);
  return faults;
}

constexpr std::uint32_t kGuiltyPrompt = 37;

std::vector<Client> serve_with(Stage& stage, const std::shared_ptr<engine::LoadedModel>& model) {
  stage.serve(model);
  std::vector<Client> clients{client_with(50, 1, 20), client_with(kGuiltyPrompt, 2, 20), client_with(21, 3, 20)};
  for (Client& client : clients) client.id = stage.submit(request_for(client), client.sink);
  stage.run_with_time();
  return clients;
}

TEST_CASE("faults: a request that breaks every step it is in is given up, and the others go on") {
  const auto model = load_model(32);
  Reference reference(load_model(32));
  for (const bool out_of_memory : {false, true}) {
    for (const int first_bad : {0, 1, 7}) {
      INFO("from row " << first_bad << " on");
      Poison poison{.prompt_tokens = kGuiltyPrompt, .first_bad = first_bad, .out_of_memory = out_of_memory};
      Stage stage(with_whole_prompts(), before_steps(std::ref(poison)));
      const std::vector<Client> clients = serve_with(stage, model);
      for (const Client& client : clients) check_answer(client, reference);
      const End& end = *clients[1].sink->end_;
      CHECK(end.outcome == (out_of_memory ? Outcome::out_of_memory : Outcome::quarantined));
      CHECK(end.message.find(out_of_memory ? "try again later" : "the kernel met a NaN") != std::string::npos);
      CHECK(end.retry_after.has_value() == out_of_memory);
      CHECK(clients[1].sink->ids.size() == static_cast<std::size_t>(first_bad));
      CHECK(poison.num_broken == 2);
      for (const std::size_t innocent : {0u, 2u}) CHECK(clients[innocent].sink->end_->outcome == Outcome::length);
      CHECK(stage.status().count("worker_restarts") == 0);
      check_all_came_back(stage);
    }
  }
}

TEST_CASE("faults: when any one step fails once, every stream gets the answer that it gets alone") {
  const auto model = load_model(12);
  Reference reference(load_model(32));
  for (int broken = 0; broken < 40; broken += static_cast<int>(kThinning)) {
    INFO("step " << broken);
    int step = 0;
    Stage stage(with_whole_prompts(), before_steps([&](const engine::StepBatch&) {
                  if (step++ == broken) throw std::runtime_error("chance");
                }));
    for (const Client& client : serve_with(stage, model)) {
      check_answer(client, reference);
      CHECK(client.sink->end_->outcome == Outcome::length);
    }
    CHECK(stage.status().count("worker_restarts") == 0);
    check_all_came_back(stage);
  }
}

TEST_CASE("faults: suspects are computed alone, and together again once they are past the step that broke") {
  std::vector<std::size_t> rows;
  Stage stage(with_whole_prompts(), before_steps([&](const engine::StepBatch& batch) {
                rows.push_back(batch.items.size());
                if (rows.size() == 8) throw std::runtime_error("chance");
              }));
  serve_with(stage, load_model(32));
  REQUIRE(rows.size() > 12);
  CHECK(rows[7] == 3);
  CHECK(std::vector<std::size_t>(rows.begin() + 8, rows.begin() + 12) == std::vector<std::size_t>{1, 1, 1, 3});
}

TEST_CASE("faults: a request whose results kill the batcher does so twice, then it is given up") {
  const auto model = load_model(32);
  Reference reference(load_model(32));
  RequestId guilty = 0;
  int rows = 0;
  FaultPoints faults;
  faults.before_row = [&](RequestId request) {
    if (request == guilty && ++rows > 5) throw std::runtime_error("a test asked for it");
  };
  Stage stage(with_whole_prompts(), faults);
  guilty = 2;  // numbers are given in order
  const std::vector<Client> clients = serve_with(stage, model);
  for (const Client& client : clients) check_answer(client, reference);
  CHECK(clients[1].id == guilty);
  CHECK(clients[1].sink->end_->outcome == Outcome::quarantined);
  for (const std::size_t innocent : {0u, 2u}) CHECK(clients[innocent].sink->end_->outcome == Outcome::length);
  CHECK(stage.status().count("worker_restarts") == 2);
  check_all_came_back(stage);
}

TEST_CASE("faults: a text that cannot be encoded ends its own request and restarts no actor") {
  int times = 0, harmless_after = 1000;
  FaultPoints faults;
  faults.before_encode = [&](const Request& request) {
    if (std::get<std::string>(request.prompt) == "poison" && times++ < harmless_after)
      throw std::runtime_error("no such piece");
  };
  Stage stage(with_whole_prompts(), faults);
  stage.serve(load_model(32));
  Request request = request_for(client_with(1, 0, 6));
  const auto ask = [&](const std::string& text) {
    const auto sink = std::make_shared<Listener>();
    request.prompt = text;
    stage.submit(request, sink);
    stage.run_with_time();
    REQUIRE(sink->end_);
    return sink;
  };
  for (int i = 0; i < 10; ++i) {  // more than actors may die
    CHECK(ask("poison")->end_->outcome == Outcome::quarantined);
    CHECK(ask("Once upon a time")->end_->outcome == Outcome::length);
  }
  CHECK(times == 20);
  times = 0;
  harmless_after = 1;
  CHECK(ask("poison")->end_->outcome == Outcome::length);
  CHECK(stage.status().count("worker_restarts") == 0);
  check_all_came_back(stage);
}

TEST_CASE("faults: with random deaths and broken steps, every stream gets the answer that it gets alone") {
  const auto scarce = load_model(10);
  Reference reference(load_model(64));
  constexpr std::optional<Role> kTargets[] = {Role::telemetry, Role::intake,    Role::keeper, Role::worker,
                                              Role::batcher,   Role::tokenizer, std::nullopt};
  std::uint64_t restarts = 0, preemptions = 0;
  for (unsigned seed = 1; seed <= 60 / kThinning; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    bool break_next = false;
    GatewayOptions options;
    options.max_sequences = 3;
    options.max_step_tokens = 24;
    Stage stage(options, before_steps([&](const engine::StepBatch&) {
                  if (std::exchange(break_next, false)) throw std::runtime_error("chance");
                }));
    stage.serve(scarce);
    std::vector<Client> clients;
    for (int i = 0; i < 6; ++i) {
      Client client{.id = 0,
                    .sink = std::make_shared<Listener>(),
                    .prompt = some_prompt(random),
                    .drawn = random() % 2 == 0,
                    .max_tokens = 1 + static_cast<std::uint32_t>(random() % kLongest)};
      Request request = request_for(client);
      request.credit = random() % 3 == 0 ? random() % 8 : kLongest;
      client.id = stage.submit(std::move(request), client.sink);
      clients.push_back(std::move(client));
    }
    for (int i = 0; i < 12; ++i) {
      stage.scheduler().run(random() % 120);
      const std::optional<Role>& target = kTargets[random() % std::size(kTargets)];
      if (target) {
        caf::anon_send(stage.supervisor(), msg::Crash{*target});
      } else {
        break_next = true;
      }
      stage.scheduler().run(random() % 60);
      if (random() % 2 == 0) stage.run_with_time();
      stage.credit(clients[random() % clients.size()].id, random() % 8);
    }
    for (const Client& client : clients) stage.credit(client.id, kLongest);
    stage.run_with_time();
    for (const Client& client : clients) {
      check_answer(client, reference);
      CHECK(client.sink->end_->outcome == Outcome::length);
    }
    check_all_came_back(stage);
    restarts += stage.status().count("worker_restarts");
    preemptions += stage.streams.counts().preemptions;
  }
  if (kThinning == 1) {
    CHECK(restarts > 300);
    CHECK(preemptions > 20);
  }
}

TEST_CASE("faults: deaths without a step between them end the service, deaths between steps do not") {
  Stage stage;
  stage.serve(load_model(32));
  const auto die = [&] {
    caf::anon_send(stage.supervisor(), msg::Crash{Role::telemetry});
    stage.run_with_time();
  };
  for (int i = 0; i < 20; ++i) die();  // no request waits
  const Client alone = client_with(20, 1, 40);
  Request request = request_for(alone);
  request.credit = 1;
  const RequestId id = stage.submit(request, alone.sink);
  for (int i = 0; i < 20; ++i) {
    stage.run_with_time();
    die();
    stage.credit(id, 1);
  }
  CHECK(stage.model.readiness() == Readiness::ready);
  // Now a request waits, and nothing is computed.
  stage.run_with_time();
  stage.compute.hold = true;
  stage.credit(id, 1);
  for (std::size_t i = 0; i < kMaxRestarts; ++i) die();
  CHECK_FALSE(alone.sink->end_);
  die();
  die();
  REQUIRE(alone.sink->end_);
  CHECK(alone.sink->end_->outcome == Outcome::worker_lost);
  CHECK_THAT(alone.sink->end_->message, Catch::Contains("unload the model and load it again"));
  CHECK(stage.model.readiness() == Readiness::failed);
  const Client late = client_with(20, 2, 5);
  stage.submit(request_for(late), late.sink);
  stage.run_with_time();
  REQUIRE(late.sink->end_);
  CHECK(late.sink->end_->outcome == Outcome::model_unloaded);
  stage.compute.hold = false;
  while (stage.compute.is_computing()) stage.compute.run_one();
}

TEST_CASE("faults: a server that makes no progress while work waits reports a stall") {
  GatewayOptions options;
  options.progress_timeout = std::chrono::seconds(10);
  Stage stage(options);
  const auto look = [&] { return take_snapshot(stage.context(), {stage.unit.shared_parts()}, stage.now()); };
  const auto wait = [&](int seconds) { stage.scheduler().advance_time(std::chrono::seconds(seconds)); };
  const Client client = client_with(20, 1, 5);
  stage.submit(request_for(client), client.sink);
  stage.run();
  wait(100);
  CHECK_FALSE(look().stalled);  // loading
  stage.compute.hold = true;
  stage.serve(load_model(32));
  stage.run();
  wait(10);
  CHECK_FALSE(look().stalled);
  wait(1);
  CHECK(look().stalled);
  CHECK(look().value("last_step_age_seconds") == Approx(11));
  stage.compute.hold = false;
  while (stage.compute.is_computing()) stage.compute.run_one();
  CHECK_FALSE([&] {
    stage.run();
    return look().stalled;
  }());
  CHECK(client.sink->end_);
  wait(100);
  CHECK_FALSE(look().stalled);  // idle
  const Client parked = client_with(20, 1, 5);
  Request request = request_for(parked);
  request.credit = 1;
  const RequestId id = stage.submit(request, parked.sink);
  stage.run();
  wait(100);
  CHECK_FALSE(look().stalled);  // its client is slow, not the server
  stage.compute.hold = true;
  stage.credit(id, 5);
  stage.run();
  CHECK_FALSE(look().stalled);
  wait(11);
  CHECK(look().stalled);
  stage.compute.hold = false;
  while (stage.compute.is_computing()) stage.compute.run_one();
  stage.run();
}

TEST_CASE("faults: TROUPE_TEST_KILL is parsed, and a wrong value is refused by name") {
  const auto plan = parse_kill_plan("period=2s,seed=7,targets=worker+step");
  REQUIRE(plan);
  CHECK(plan->period == std::chrono::seconds(2));
  CHECK(plan->seed == 7);
  CHECK(plan->targets == std::vector<std::optional<Role>>{Role::worker, std::nullopt});
  const auto all = parse_kill_plan("period=50ms");
  CHECK(all->targets.size() == kRoles.size() + 1);
  for (const RoleInfo& each : kRoles) {
    INFO(each.name);
    CHECK(std::ranges::count(all->targets, std::optional(each.role)) == 1);
    const auto one = parse_kill_plan("period=50ms,targets=" + std::string(each.name));
    REQUIRE(one);
    CHECK(one->targets == std::vector<std::optional<Role>>{each.role});
  }
  for (const char* wrong : {"", "seed=1", "period=soon", "period=1ms", "period=1s,targets=king", "often",
                            "period=1s,often", "period=1s,seed=x"}) {
    const auto refused = parse_kill_plan(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == ErrorCode::bad_config);
  }
}

}  // namespace
}  // namespace troupe::actors
