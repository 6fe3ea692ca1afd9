// Seeded random events on a server with too few of all resources: streams are cancelled, parked, preempted, overdue or
// lose an actor, and what a stream gets is a beginning of what it gets alone.
#include <catch2/catch.hpp>
#include <random>

#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

class Life {
 public:
  Life(unsigned seed, const std::shared_ptr<engine::LoadedModel>& model) : random_(seed), stage_(tight(seed)) {
    stage_.serve(model);
  }

  void live(int num_acts) {
    for (int i = 0; i < num_acts; ++i) act();
    for (const Client& client : clients_) stage_.credit(client.id, kLongest);
    stage_.run_with_time();
  }

  void check(Reference& reference) {
    for (const Client& client : clients_) {
      check_answer(client, reference);
      const Outcome outcome = client.sink->end_->outcome;
      const bool known = outcome == Outcome::length || outcome == Outcome::cancelled || outcome == Outcome::deadline ||
                         outcome == Outcome::queue_full || outcome == Outcome::quota ||
                         outcome == Outcome::deadline_unmeetable;
      CHECK(known);
    }
    check_all_came_back(stage_);
  }
  std::uint64_t preemptions() const { return stage_.streams.counts().preemptions; }

 private:
  // Every third seed without drafts, the others with two kinds.
  static GatewayOptions tight(unsigned seed) {
    GatewayOptions options;
    constexpr engine::DraftSource kSources[] = {engine::DraftSource::off, engine::DraftSource::ngram,
                                                engine::DraftSource::suffix};
    options.speculation.source = kSources[seed % 3];
    options.verify_all_drafts = true;
    options.max_sequences = 3;
    options.max_step_tokens = 24;
    options.max_queued_requests = 10;
    return options;
  }

  void act() {
    switch (random_() % 12) {
      case 0:
      case 1:
      case 2:
        return submit();
      case 3:
        if (!clients_.empty()) stage_.cancel(any().id);
        return;
      case 4:
      case 5:
        if (!clients_.empty()) stage_.credit(any().id, 1 + random_() % 10);
        return;
      case 6:
        stage_.scheduler().advance_time(std::chrono::milliseconds(random_() % 50));
        return;
      case 7:
        if (random_() % 4 == 0) crash();
        return;
      default:
        stage_.scheduler().run(random_() % 40);
    }
  }

  void submit() {
    Client client{.id = 0,
                  .sink = std::make_shared<Listener>(),
                  .prompt = some_prompt(random_),
                  .drawn = random_() % 2 == 0,
                  .max_tokens = 1 + static_cast<std::uint32_t>(random_() % kLongest)};
    Request request = request_for(client);
    request.priority = static_cast<std::int32_t>(random_() % 3);
    if (random_() % 3 == 0) request.credit = random_() % 12;
    if (random_() % 6 == 0) request.deadline = std::chrono::milliseconds(1 + random_() % 200);
    client.id = stage_.submit(std::move(request), client.sink);
    clients_.push_back(std::move(client));
  }

  // Rarely enough for the service to go on: a killed actor has been replaced, and has worked, before the fourth kill.
  void crash() {
    constexpr Role kRoles[] = {Role::telemetry, Role::intake,  Role::keeper,
                               Role::worker,    Role::batcher, Role::tokenizer};
    if (crashes_++ % 4 == 3) stage_.run_with_time();
    caf::anon_send(stage_.supervisor(), msg::Crash{kRoles[random_() % std::size(kRoles)]});
  }

  const Client& any() { return clients_[random_() % clients_.size()]; }

  std::mt19937 random_;
  Stage stage_;
  std::vector<Client> clients_;
  int crashes_ = 0;
};

TEST_CASE("stress: with random events, streams get a beginning of what they get alone and all resources come back") {
  const auto plenty = load_model(256);
  Reference reference(plenty);
  const auto scarce = load_model(8);  // two sequences at most
  std::uint64_t preemptions = 0;
  for (unsigned seed = 1; seed <= 24 / kThinning; ++seed) {
    INFO("seed " << seed);
    Life life(seed, scarce);
    life.live(150);
    life.check(reference);
    preemptions += life.preemptions();
  }
  if (kThinning == 1) CHECK(preemptions > 10);  // so blocks were short
}

TEST_CASE("stress: the same with windows, and with recurrent state whose snapshots do not suffice") {
  for (const char* name : kOtherModels) {
    INFO(name);
    const auto plenty = load_golden(name, 256);
    if (!plenty) return;
    Reference reference(plenty);
    const auto scarce = load_golden(name, 8, 4);
    std::uint64_t preemptions = 0;
    for (unsigned seed = 1; seed <= 12 / kThinning; ++seed) {
      INFO("seed " << seed);
      Life life(seed, scarce);
      life.live(150);
      life.check(reference);
      preemptions += life.preemptions();
    }
    if (kThinning == 1) CHECK(preemptions > 5);
  }
}

}  // namespace
}  // namespace troupe::actors
