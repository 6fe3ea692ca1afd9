// Models whose layers see a window, or have recurrent state, through the whole troupe: real forward passes on the
// deterministic scheduler. No answer depends on what was served from the cache.
#include <catch2/catch.hpp>
#include <stdexcept>

#include "cache/group.h"
#include "tests/actors/clients.h"
#include "tests/engine/plain_decoder.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr std::uint32_t kWindow = 16;  // of the models

// What a client gets from a server that has nothing in its cache.
std::vector<TokenId> cold_answer(const std::shared_ptr<engine::LoadedModel>& model, const Client& client) {
  Stage stage;
  stage.serve(model);
  const auto sink = std::make_shared<Listener>();
  stage.submit(request_for(client), sink);
  stage.run();
  CHECK(stage.streams.counts().cached_tokens == 0);
  return sink->ids;
}

// 150 tokens that all prompts share, and some of its own.
Client client_of_family(TokenId own, std::size_t num_own) {
  Client client = client_with(150, 3, 20);
  for (std::size_t i = 0; i < num_own; ++i) client.prompt.push_back(10 + (own * 37 + static_cast<TokenId>(i)) % 200);
  return client;
}

GatewayOptions small_steps() {
  GatewayOptions options;
  options.max_step_tokens = 48;
  return options;
}

void require_warm_is_cold(const std::shared_ptr<engine::LoadedModel>& model, std::uint64_t cached_tokens) {
  Stage stage(small_steps());
  stage.serve(model);
  std::vector<Client> clients;
  for (TokenId own = 0; own < 4; ++own) clients.push_back(client_of_family(own, own == 0 ? 0 : 10 + 9 * own));
  clients.push_back(client_of_family(0, 0));  // the first one's prompt again
  for (Client& client : clients) {
    client.id = stage.submit(request_for(client), client.sink);
    stage.run();
  }
  for (const Client& client : clients) CHECK(client.sink->ids == cold_answer(model, client));
  CHECK(stage.streams.counts().cached_tokens == 4 * cached_tokens);
  check_all_came_back(stage);
}

TEST_CASE("windows: an answer from a cached prefix equals the one computed without the cache") {
  for (const char* name : kWindowModels) {
    INFO(name);
    if (const auto model = load_golden(name, 64)) require_warm_is_cold(model, 128);
  }
}

TEST_CASE("states: an answer from a snapshot of a shared prefix equals the one computed without the cache") {
  for (const char* name : kRecurrentModels) {
    INFO(name);
    if (const auto model = load_golden(name, 64)) require_warm_is_cold(model, 128);
  }
}

TEST_CASE("states: rounded states are snapshot at multiples only, and answers equal those computed without the cache") {
  for (const char* name : kRecurrentModels) {
    INFO(name);
    const auto model = load_golden(name, 64, 32, engine::StateType::f16);
    if (!model) return;
    require_warm_is_cold(model, 128);
    Stage stage;
    stage.serve(model);
    for (int i = 0; i < 2; ++i) {
      stage.submit(request_for(client_with(120, 5, 4)), std::make_shared<Listener>());
      stage.run();
    }
    CHECK(stage.streams.counts().cached_tokens == 64);  // not 96, where an exact state would have a snapshot
  }
}

TEST_CASE("states: the same prompt again goes on from the snapshot at its end, and counts as a hit") {
  for (const char* name : kRecurrentModels) {
    INFO(name);
    const auto model = load_golden(name, 64);
    if (!model) return;
    Stage stage;
    stage.serve(model);
    const Client client = client_with(120, 5, 4);
    std::vector<std::vector<TokenId>> answers;
    for (int i = 0; i < 3; ++i) {
      const auto sink = std::make_shared<Listener>();
      stage.submit(request_for(client), sink);
      stage.run();
      answers.push_back(sink->ids);
    }
    CHECK(stage.streams.counts().cached_tokens == 2 * 96);
    CHECK(stage.status().count("snapshot_hits") == 2);
    CHECK(stage.status().count("snapshots_cached") == 2);  // after 64 and after 96
    CHECK(answers[1] == answers[0]);
    CHECK(answers[2] == answers[0]);
    check_all_came_back(stage);
  }
}

TEST_CASE("windows and states: a preempted sequence goes on, and its answer is the one it gets alone") {
  for (const char* name : kOtherModels) {
    INFO(name);
    const auto plenty = load_golden(name, 64);
    if (!plenty) return;
    Stage stage(small_steps());
    stage.serve(load_golden(name, 14));
    std::vector<Client> clients{client_with(40, 1, 220), client_with(140, 2, 140), client_with(70, 3, 100)};
    for (Client& client : clients) client.id = stage.submit(request_for(client), client.sink);
    stage.run_with_time();
    CHECK(stage.streams.counts().preemptions > 0);
    for (const Client& client : clients) CHECK(client.sink->ids == cold_answer(plenty, client));
    if (stage.status().count("snapshots_total") > 0) CHECK(stage.status().count("snapshot_hits") > 0);
    check_all_came_back(stage);
  }
}

TEST_CASE("windows and states: when any one step fails once, every stream gets the answer that it gets alone") {
  for (const char* name : kOtherModels) {
    INFO(name);
    const auto plenty = load_golden(name, 64);
    if (!plenty) return;
    const auto model = load_golden(name, 16);
    std::vector<std::vector<TokenId>> expected;
    for (int broken = 0; broken < 24; broken += static_cast<int>(kThinning)) {
      INFO("step " << broken);
      int step = 0;
      FaultPoints faults;
      faults.before_step = [&](const engine::StepBatch&) {
        if (step++ == broken) throw std::runtime_error("chance");
      };
      Stage stage(small_steps(), faults);
      stage.serve(model);
      std::vector<Client> clients{client_with(100, 1, 20), client_with(37, 2, 20), client_with(100, 1, 12)};
      for (Client& client : clients) client.id = stage.submit(request_for(client), client.sink);
      stage.run_with_time();
      if (expected.empty())
        for (const Client& client : clients) expected.push_back(cold_answer(plenty, client));
      for (std::size_t i = 0; i < clients.size(); ++i) CHECK(clients[i].sink->ids == expected[i]);
      CHECK(stage.status().count("worker_restarts") == 0);
      check_all_came_back(stage);
    }
  }
}

TEST_CASE("windows: a text of eight windows holds the blocks of one window and the next two") {
  for (const char* name : kWindowModels) {
    INFO(name);
    const auto model = load_golden(name, 64);
    if (!model) return;
    std::uint32_t told = 0;  // the worker: entries before this one are behind the window
    FaultPoints faults;
    faults.before_step = [&](const engine::StepBatch& batch) { told = batch.items[0].rewind_floor; };
    Stage stage({}, faults);
    stage.serve(model);
    const Client client = client_with(20, 1, 8 * kWindow);
    stage.submit(request_for(client), client.sink);
    std::uint64_t most = 0;
    while (stage.scheduler().try_run_once()) most = std::max(most, stage.status().count("window_blocks_referenced"));
    CHECK(client.sink->ids.size() == 8 * kWindow);
    CHECK(most >= 2);
    CHECK(most <= cache::most_window_blocks(kWindow) + 1);
    CHECK(told == 128);  // 147 tokens were computed, four blocks of them committed
    CHECK(client.sink->ids == cold_answer(model, client));
    check_all_came_back(stage);
  }
}

TEST_CASE("states: when many clients stop reading, there are no more states than the budget has room for") {
  constexpr std::uint32_t kStates = 3;
  for (const char* name : kRecurrentModels) {
    INFO(name);
    const auto path = troupe::test::shared_file("golden/" + std::string(name) + ".gguf");
    if (!path) return;
    engine::LoadOptions load;
    load.num_blocks = 256;
    load.num_snapshots = 8;
    load.snapshot_every = 64;
    load.max_sequences = kStates;
    const auto model = load_model(*path, load);
    REQUIRE(model->num_states() == kStates);
    const std::uint64_t state_bytes = model->cache_spec().state.bytes();
    Stage stage;  // 64 sequences at most
    stage.serve(model);
    std::vector<Client> clients;
    const auto submit = [&](TokenId salt) {
      clients.push_back(client_with(40, salt, 6));
      Request request = request_for(clients.back());
      request.credit = 1;
      clients.back().id = stage.submit(std::move(request), clients.back().sink);
    };
    for (TokenId salt = 0; salt < static_cast<TokenId>(kStates); ++salt) submit(salt);
    stage.run();
    const std::uint64_t with_all_states = stage.counters.step_buffer_bytes();
    for (TokenId salt = kStates; salt < 40; ++salt) {
      submit(salt);
      stage.run();
    }
    CHECK(stage.counters.step_buffer_bytes() < with_all_states + state_bytes);
    for (const Client& client : clients) CHECK(client.sink->ids.size() == 1);
    // One token at a time for some, all at once for others: a sequence that has lost its state goes on from a snapshot.
    for (int more = 0; more < 2; ++more) {
      for (const Client& client : clients) stage.credit(client.id, 1);
      stage.run();
    }
    for (const Client& client : clients) stage.credit(client.id, 100);
    stage.run();
    CHECK(stage.counters.step_buffer_bytes() < with_all_states + kStates * state_bytes);  // more rows in a step
    for (const Client& client : clients) {
      REQUIRE(client.sink->end_);
      CHECK(client.sink->end_->outcome == Outcome::length);
      CHECK(client.sink->ids == cold_answer(model, client));
    }
    check_all_came_back(stage);
  }
}

struct Choices : StreamSink {
  explicit Choices(std::size_t count) : each(count) {}
  void tokens(TokenRun run) override { each.at(run.choice).tokens(std::move(run)); }
  void end(End end) override { each.at(end.choice).end(std::move(end)); }
  std::vector<Listener> each;
};

TEST_CASE(
    "windows: equal sequences swap their blocks for each other's while blocks are scarce, and answers stay the same") {
  // Of 100 positions, so that swapped blocks are read for many steps.
  troupe::test::PlainDecoder plain;
  plain.vocab = 512;
  plain.more_metadata = [](troupe::test::GgufWriter& w, const std::string& prefix) {
    w.add(prefix + "attention.sliding_window", 100u);
  };
  const troupe::test::TemporaryFile file(plain.bytes());
  const auto load = [&](std::uint32_t num_blocks) {
    engine::LoadOptions options;
    options.num_blocks = num_blocks;
    return load_model(file.path(), options);
  };
  const auto plenty = load(64);
  const Client like = client_with(40, 5, 150), other = client_with(40, 6, 150);
  const std::vector<TokenId> alone = cold_answer(plenty, like), other_alone = cold_answer(plenty, other);
  for (std::uint32_t num_blocks = 10; num_blocks <= 30; ++num_blocks) {
    INFO(num_blocks << " blocks");
    Stage stage(small_steps());
    stage.serve(load(num_blocks));
    std::vector<Client> clients{like, like, other, like, other, like};
    for (Client& client : clients) {
      client.sink = std::make_shared<Listener>();
      client.id = stage.submit(request_for(client), client.sink);
    }
    stage.run_with_time();
    for (const Client& client : clients)
      CHECK(client.sink->ids == (client.prompt == like.prompt ? alone : other_alone));
    check_all_came_back(stage);
  }
}

TEST_CASE("windows and states: each of several answers to one prompt equals the one it is alone") {
  for (const char* name : kOtherModels) {
    for (const std::size_t prompt_tokens : {70u, 96u, 97u}) {
      INFO(name << ", " << prompt_tokens << " tokens");
      const auto model = load_golden(name, 64);
      if (!model) return;
      Stage stage;
      stage.serve(model);
      const Client client = client_with(prompt_tokens, 4, 40);
      Request request = request_for(client);
      request.num_choices = 3;
      const auto choices = std::make_shared<Choices>(3);
      const RequestId id = stage.streams.add(std::move(request), choices, stage.now());
      stage.unit.submit(id);
      stage.run();
      const std::vector<TokenId> alone = cold_answer(model, client);
      for (const Listener& choice : choices->each) CHECK(choice.ids == alone);
      CHECK(stage.streams.counts().cached_tokens > 0);
      check_all_came_back(stage);
    }
  }
}

}  // namespace
}  // namespace troupe::actors
