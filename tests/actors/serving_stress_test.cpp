// Seeded random lives of a server with far too little of everything: whatever is cancelled, parked, preempted,
// overdue or killed, what a stream gets is a beginning of what it gets alone.
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/actors/stage.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

constexpr std::uint32_t kLongest = 40;

struct Client {
  RequestId id;
  std::shared_ptr<Listener> sink;
  std::vector<TokenId> prompt;
  bool drawn;
  std::uint32_t max_tokens;
};

// Prompts that share prefixes of two or three blocks.
std::vector<TokenId> some_prompt(std::mt19937& random) {
  std::vector<TokenId> ids = {1};
  const auto family = static_cast<TokenId>(random() % 3);
  const std::size_t shared = 40 + 20 * static_cast<std::size_t>(family);
  while (ids.size() < shared) ids.push_back(300 + (static_cast<TokenId>(ids.size()) * 7 + family * 31) % 900);
  for (std::size_t own = random() % 4; own > 0; --own) ids.push_back(500 + static_cast<TokenId>(random() % 4));
  return ids;
}

Request request_for(const Client& client) {
  Request request;
  request.prompt = client.prompt;
  request.sampling.temperature = client.drawn ? 1 : 0;
  request.sampling.seed = 9;
  request.sampling.max_tokens = client.max_tokens;
  request.sampling.ignore_eos = true;
  request.credit = ~std::uint64_t{0};
  return request;
}

class Reference {
 public:
  explicit Reference(std::shared_ptr<engine::LoadedModel> model) { stage_.serve(std::move(model)); }

  const std::vector<TokenId>& of(Client client) {
    const auto [known, is_new] = known_.try_emplace({client.prompt, client.drawn});
    if (is_new) {
      client.max_tokens = kLongest;
      const auto sink = std::make_shared<Listener>();
      stage_.submit(request_for(client), sink);
      stage_.run();
      known->second = sink->ids;
    }
    return known->second;
  }

 private:
  Stage stage_;
  std::map<std::pair<std::vector<TokenId>, bool>, std::vector<TokenId>> known_;
};

class Life {
 public:
  Life(unsigned seed, const std::shared_ptr<engine::LoadedModel>& model) : random_(seed), stage_(tight()) {
    stage_.serve(model);
  }

  void live(int num_acts) {
    for (int i = 0; i < num_acts; ++i) act();
    for (const Client& client : clients_) stage_.credit(client.id, kLongest);
    stage_.run_with_time();
  }

  void check(Reference& reference) {
    for (const Client& client : clients_) {
      REQUIRE(client.sink->end_);
      const Outcome outcome = client.sink->end_->outcome;
      const std::vector<TokenId>& whole = reference.of(client);
      REQUIRE(client.sink->ids.size() <= client.max_tokens);
      CHECK(std::equal(client.sink->ids.begin(), client.sink->ids.end(), whole.begin()));
      if (outcome == Outcome::length) CHECK(client.sink->ids.size() == client.max_tokens);
      const bool known = outcome == Outcome::length || outcome == Outcome::cancelled || outcome == Outcome::deadline ||
                         outcome == Outcome::queue_full;
      CHECK(known);
    }
    const StatusSnapshot after = stage_.status();
    CHECK(after.blocks_referenced == 0);
    CHECK(after.blocks_free + after.blocks_cached == after.blocks_total);
    CHECK(stage_.streams.live().empty());
  }
  std::uint64_t preemptions() const { return stage_.streams.counts().preemptions; }

 private:
  static GatewayOptions tight() {
    GatewayOptions options;
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
        if (!clients_.empty()) caf::anon_send(stage_.supervisor, msg::Cancel{any().id});
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

  // Rarely enough for the service to go on.
  void crash() {
    constexpr Role kRoles[] = {Role::intake, Role::keeper, Role::worker, Role::batcher};
    if (crashes_++ % 4 == 3) stage_.scheduler().advance_time(kRestartWindow + std::chrono::seconds(1));
    caf::anon_send(stage_.supervisor, msg::Crash{kRoles[random_() % 4]});
  }

  const Client& any() { return clients_[random_() % clients_.size()]; }

  std::mt19937 random_;
  Stage stage_;
  std::vector<Client> clients_;
  int crashes_ = 0;
};

TEST_CASE("stress: whatever happens, streams get a beginning of what they get alone and everything comes back") {
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
  if (kThinning == 1) CHECK(preemptions > 10);  // so the scarcity is real
}

}  // namespace
}  // namespace troupe::actors
