// What a stream holds in each phase of its life, and when it gives it back: cancelled, or not read by its client.
#include <catch2/catch.hpp>
#include <functional>
#include <random>

#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr std::uint32_t kBlocks = 16;

// A stream that runs all the time, so that a step is always under way, and one that gets cancelled.
class Scene {
 public:
  explicit Scene(std::uint32_t max_sequences = 4, std::uint32_t num_blocks = kBlocks) : stage(tight(max_sequences)) {
    stage.serve(load_model(num_blocks));
    stage.run();
    stage.compute.hold = true;
    other = client_with(20, 9, kLongest);
    submit(other);
    compute_until([&] { return other.sink->ids.size() == 3; });
  }
  ~Scene() {
    stage.compute.hold = false;
    while (stage.compute.is_computing()) stage.compute.run_one();
    stage.run_with_time();
    CHECK(other.sink->ids.size() == kLongest);
    check_all_came_back(stage);
  }

  void submit(Client& client, std::uint64_t credit = ~std::uint64_t{0}) {
    Request request = request_for(client);
    request.credit = credit;
    client.id = stage.submit(std::move(request), client.sink);
  }
  // Goes on to the middle of the first step at which the condition holds.
  void compute_until(const std::function<bool()>& condition) {
    for (stage.run(); !condition(); stage.run()) {
      REQUIRE(stage.compute.is_computing());
      stage.compute.run_one();
    }
  }
  void end_step() {
    stage.compute.run_one();
    stage.run();
  }
  void cancel(const Client& client) {
    stage.cancel(client.id);
    stage.run();
    REQUIRE(client.sink->end_);  // at once, also during a step
    CHECK(client.sink->end_->outcome == Outcome::cancelled);
  }
  RequestState state(const Client& client) const { return stage.streams.state(client.id); }
  std::uint64_t referenced() { return stage.status().count("blocks_referenced"); }

  Stage stage;
  Client other;

 private:
  static GatewayOptions tight(std::uint32_t max_sequences) {
    GatewayOptions options;
    options.max_sequences = max_sequences;
    options.max_step_tokens = 40;
    return options;
  }
};

TEST_CASE("cancel: received or encoding, a stream holds nothing") {
  Scene scene;
  const std::uint32_t before = scene.referenced();
  Client client = client_with(80, 1, 10);
  scene.submit(client);  // the intake has not handled it
  scene.cancel(client);
  CHECK(scene.referenced() == before);

  client = client_with(80, 1, 10);
  Request text = request_for(client);
  text.prompt = "Once upon a time";
  client.id = scene.stage.submit(text, client.sink);
  while (scene.state(client) != RequestState::encoding) REQUIRE(scene.stage.scheduler().try_run_once());
  scene.cancel(client);
  CHECK(scene.referenced() == before);
}

TEST_CASE("cancel: queued, a stream holds nothing") {
  Scene scene(1);
  const std::uint32_t before = scene.referenced();
  Client client = client_with(80, 1, 10);
  scene.submit(client);
  scene.stage.run();
  CHECK(scene.state(client) == RequestState::queued);
  scene.cancel(client);
  CHECK(scene.referenced() == before);
}

TEST_CASE("cancel: in the middle of a step of prefill or decoding, blocks are back when that step ends") {
  for (const std::size_t tokens : {0u, 1u, 5u}) {
    INFO("after " << tokens << " tokens");
    Scene scene;
    Client client = client_with(80, 1, 30);
    scene.submit(client);
    const std::uint32_t before = scene.referenced();
    scene.compute_until([&] { return scene.state(client) == RequestState::running; });
    scene.end_step();  // its first chunk is computed now
    scene.compute_until([&] { return client.sink->ids.size() == tokens; });
    CHECK(scene.referenced() >= before + 2);
    scene.cancel(client);
    CHECK(scene.referenced() >= before + 2);  // the step may still write them
    scene.end_step();
    CHECK(scene.referenced() <= before + 1);  // one, if the other stream has begun its second
  }
}

TEST_CASE("cancel: parked, a stream's blocks are back at once, also during a step") {
  Scene scene;
  const std::uint32_t before = scene.referenced();
  Client client = client_with(80, 1, 30);
  scene.submit(client, 2);
  scene.compute_until([&] { return scene.state(client) == RequestState::parked; });
  CHECK(scene.referenced() >= before + 3);
  scene.cancel(client);
  CHECK(scene.referenced() <= before + 1);
}

TEST_CASE("cancel: preempted, a stream holds nothing, waiting or out of credit") {
  for (const bool is_parked : {false, true}) {
    INFO("parked " << is_parked);
    Scene scene(4, 8);
    Client client = client_with(80, 1, 30);
    scene.submit(client, is_parked ? 2 : ~std::uint64_t{0});
    scene.compute_until([&] { return client.sink->ids.size() == 2; });
    Client urgent = client_with(120, 2, 2);
    Request request = request_for(urgent);
    request.priority = -1;
    urgent.id = scene.stage.submit(request, urgent.sink);
    scene.compute_until([&] { return scene.stage.streams.counts().preemptions > 0; });
    scene.compute_until([&] { return scene.state(urgent) == RequestState::running; });
    CHECK(scene.state(client) == (is_parked ? RequestState::parked : RequestState::queued));
    const std::uint32_t before = scene.referenced();
    scene.cancel(client);
    CHECK(scene.referenced() == before);
    scene.compute_until([&] { return urgent.sink->end_.has_value(); });
  }
}

TEST_CASE("cancel: waiting for a leader, a stream holds nothing; the leader cancelled, its follower goes on") {
  for (const bool the_leader : {false, true}) {
    INFO("leader " << the_leader);
    Scene scene;
    Client leader = client_with(120, 1, 4), follower = client_with(120, 1, 4);
    follower.prompt.push_back(700);
    const std::uint32_t idle = scene.referenced();
    scene.submit(leader);
    scene.stage.run();  // it has a place, and the step of another goes on
    CHECK(scene.state(leader) == RequestState::queued);
    const std::uint32_t before = scene.referenced();
    CHECK(before > idle);
    scene.submit(follower);
    scene.stage.run();
    CHECK(scene.state(follower) == RequestState::queued);
    CHECK(scene.referenced() == before);
    scene.cancel(the_leader ? leader : follower);
    const Client& left = the_leader ? follower : leader;
    scene.compute_until([&] { return left.sink->end_.has_value(); });
    CHECK(left.sink->end_->outcome == Outcome::length);
  }
}

TEST_CASE("slow readers: a parked stream keeps its blocks while no other needs them, and goes on without a pause") {
  Stage stage;
  stage.serve(load_model(kBlocks));
  Client slow = client_with(80, 1, 20);
  Request request = request_for(slow);
  request.credit = 3;
  slow.id = stage.submit(request, slow.sink);
  stage.run();
  const std::uint64_t held = stage.status().count("blocks_referenced");
  CHECK(held >= 3);
  const Client other = client_with(80, 2, 20);
  stage.submit(request_for(other), other.sink);
  stage.run();
  CHECK(other.sink->ids.size() == 20);
  CHECK(stage.status().count("blocks_referenced") == held);
  stage.credit(slow.id, 17);
  stage.run();
  CHECK(slow.sink->ids.size() == 20);
  CHECK(stage.streams.counts().preemptions == 0);
}

TEST_CASE("slow readers: a user with a whole share of parked requests is refused new ones until one goes on or ends") {
  GatewayOptions options;
  options.max_parked_requests = 2;
  Stage stage(options);
  stage.serve(load_model(kBlocks));
  const auto submit = [&](TokenId salt) {
    Client client = client_with(20, salt, 4);
    Request request = request_for(client);
    request.credit = 1;
    client.id = stage.submit(request, client.sink);
    stage.run();
    return client;
  };
  const Client first = submit(1), second = submit(2), third = submit(3);
  CHECK(stage.streams.counts().in(RequestState::parked) == 2);
  REQUIRE(third.sink->end_);
  CHECK(third.sink->end_->outcome == Outcome::quota);
  CHECK(third.sink->end_->field == "max_parked_requests");
  stage.credit(first.id, 3);
  stage.run();
  CHECK(first.sink->end_);
  const Client fourth = submit(4);
  CHECK_FALSE(fourth.sink->end_);
  for (const Client* client : {&second, &fourth}) stage.credit(client->id, 3);
  stage.run();
}

TEST_CASE(
    "slow readers: when blocks are short they are preempted, no request waits for them, and they get the same tokens") {
  const auto scarce = load_model(10);
  Reference reference(load_model(64));
  std::uint64_t preemptions = 0;
  for (unsigned seed = 1; seed <= 40 / kThinning; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    GatewayOptions options;
    options.max_sequences = 3;
    options.max_step_tokens = 32;
    Stage stage(options);
    stage.serve(scarce);
    std::vector<Client> slow;
    for (TokenId i = 0; i < 4; ++i) {
      slow.push_back(client_with(40 + random() % 50, i, 8 + static_cast<std::uint32_t>(random() % 20)));
      Request request = request_for(slow.back());
      request.credit = 1 + random() % 6;
      slow.back().id = stage.submit(request, slow.back().sink);
    }
    for (int round = 0; round < 8; ++round) {
      stage.scheduler().run(random() % 200);
      const Client fast = client_with(30 + random() % 60, 10 + round, 10);
      stage.submit(request_for(fast), fast.sink);
      for (std::size_t i = random() % 3; i > 0; --i) stage.credit(slow[random() % slow.size()].id, random() % 5);
      stage.run_with_time();
      check_answer(fast, reference);
      CHECK(fast.sink->end_->outcome == Outcome::length);
    }
    for (const Client& client : slow) stage.credit(client.id, kLongest);
    stage.run_with_time();
    for (const Client& client : slow) {
      check_answer(client, reference);
      CHECK(client.sink->end_->outcome == Outcome::length);
    }
    check_all_came_back(stage);
    preemptions += stage.streams.counts().preemptions;
  }
  if (kThinning == 1) CHECK(preemptions > 40);
}

}  // namespace
}  // namespace troupe::actors
