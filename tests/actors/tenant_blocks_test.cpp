// Tenants with floors and ceilings in KV blocks, through the real actors.
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "tests/actors/clients.h"

namespace troupe::actors {
namespace {

using namespace test;
using scheduler::Outcome;

scheduler::Tenant tenant_with(std::uint64_t id, std::optional<std::uint32_t> floor,
                              std::optional<std::uint32_t> ceiling, std::uint32_t floors_of_others = 0) {
  auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->limits.min_kv_blocks = floor;
  policy->limits.max_kv_blocks = ceiling;
  policy->limits.others_min_kv_blocks = floors_of_others;
  return {.id = TenantId{id}, .is_owner = false, .policy = policy};
}

void submit(Stage& stage, Client& client, const scheduler::Tenant& tenant) {
  Request request = request_for(client);
  request.tenant = tenant;
  client.id = stage.submit(std::move(request), client.sink);
}

}  // namespace

TEST_CASE("blocks of tenants: whatever floors and ceilings, all requests end, with the tokens that each gets alone") {
  const auto scarce = load_model(12);
  Reference reference(load_model(64));
  std::uint64_t preemptions = 0;
  for (unsigned seed = 1; seed <= 40 / kThinning; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    GatewayOptions options;
    options.max_sequences = 4;
    options.max_step_tokens = 32;
    Stage stage(options);
    stage.serve(scarce);
    // The longest request has 89 + 20 tokens: 4 blocks.
    const std::uint32_t first = random() % 5, second = random() % (9 - first);
    const auto ceiling = [&] {
      return random() % 2 == 0 ? std::nullopt : std::optional<std::uint32_t>(4 + random() % 6);
    };
    const std::vector<scheduler::Tenant> tenants = {tenant_with(1, first, ceiling(), second),
                                                    tenant_with(2, second, ceiling(), first),
                                                    tenant_with(3, std::nullopt, ceiling(), first + second)};
    std::vector<Client> clients;
    for (TokenId i = 0; i < 24; ++i) {
      clients.push_back(client_with(20 + random() % 70, static_cast<TokenId>(random() % 8),
                                    4 + static_cast<std::uint32_t>(random() % 17)));
      submit(stage, clients.back(), tenants[random() % 3]);
      stage.scheduler().run(random() % 100);
    }
    stage.run_with_time();
    for (const Client& client : clients) {
      check_answer(client, reference);
      CHECK(client.sink->end_->outcome == Outcome::length);
    }
    check_all_came_back(stage);
    preemptions += stage.streams.counts().preemptions;
  }
  if (kThinning == 1) CHECK(preemptions > 0);
}

TEST_CASE(
    "blocks of tenants: a tenant at its ceiling runs one request after the other, and keeps no one else waiting") {
  Stage stage;
  stage.serve(load_model(40));
  const scheduler::Tenant bounded = tenant_with(1, std::nullopt, 3), other = tenant_with(2, std::nullopt, std::nullopt);
  std::vector<Client> clients;
  for (TokenId i = 0; i < 4; ++i) {
    clients.push_back(client_with(60, i, 30));
    submit(stage, clients.back(), bounded);
  }
  stage.compute.hold = true;
  // Their second is no older than the second of the bounded tenant, and still does not wait for it.
  Client beside = client_with(60, 9, 30), second = client_with(60, 8, 30);
  submit(stage, beside, other);
  submit(stage, second, other);
  const auto runs = [&](const Client& client) { return stage.streams.state(client.id) == RequestState::running; };
  for (stage.run(); !runs(second); stage.run()) {
    REQUIRE(stage.compute.is_computing());
    stage.compute.run_one();
  }
  CHECK((runs(clients[0]) && runs(beside)));
  CHECK_FALSE(runs(clients[1]));
  stage.compute.hold = false;
  while (stage.compute.is_computing()) stage.compute.run_one();
  stage.run_with_time();
  Reference reference(load_model(64));
  for (const Client& client : clients) check_answer(client, reference);
  check_all_came_back(stage);
}

TEST_CASE("blocks of tenants: what exceeds its tenant's ceiling is refused with the limit, and runs for another") {
  Stage stage;
  stage.serve(load_model(16));
  Client client = client_with(100, 1, 20);
  submit(stage, client, tenant_with(1, std::nullopt, 3));
  stage.run();
  REQUIRE(client.sink->end_);
  CHECK(client.sink->end_->outcome == Outcome::never_fits);
  CHECK(client.sink->end_->limit == 3u);
  Client same = client_with(100, 1, 20);
  submit(stage, same, tenant_with(2, std::nullopt, std::nullopt));
  stage.run_with_time();
  CHECK(same.sink->end_->outcome == Outcome::length);
}

}  // namespace troupe::actors
