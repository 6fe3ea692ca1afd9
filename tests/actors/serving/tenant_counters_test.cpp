#include "actors/serving/tenant_counters.h"

#include <catch2/catch.hpp>
#include <map>
#include <numeric>
#include <set>

#include "actors/serving/stream_table.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;
using scheduler::Tenant;

const Tenant kRoot{.id = TenantId{0}, .is_owner = true};

Tenant user(std::uint32_t uid) { return {.id = TenantId{uid}}; }

Tenant named(std::uint64_t id, const std::string& name) {
  auto policy = std::make_shared<scheduler::TenantPolicy>();
  policy->name = name;
  return {.id = TenantId{id}, .policy = std::move(policy)};
}

End ended_with(Outcome outcome, const std::string& field = {}) {
  End end;
  end.outcome = outcome;
  end.field = field;
  return end;
}

// Values by "name{tenant,other label}"; of a histogram the number of its values.
std::map<std::string, double> seen_by(const Tenant& caller, const TenantCounters& counters) {
  MetricList metrics;
  append_tenant_metrics(counters.all(), caller, metrics);
  std::map<std::string, double> values;
  for (const Metric& metric : metrics) {
    REQUIRE(metric.labels.front().first == "tenant");
    std::string name = metric.name + "{" + metric.labels.front().second;
    if (metric.labels.size() > 1) name += "," + metric.labels[1].second;
    const auto count = std::accumulate(metric.counts.begin(), metric.counts.end(), 0.0);
    REQUIRE(values.emplace(name + "}", metric.counts.empty() ? metric.value : count).second);
  }
  return values;
}

TEST_CASE("tenants: a request's events are counted for its tenant, which sees its own alone, and an owner all") {
  TenantCounters counters;
  const auto ann = counters.arrived(named(1ull << 40, "students"));
  const auto ben = counters.arrived(user(1000));
  CHECK(counters.arrived(user(1000)) == ben);
  counters.state_changed(ann, RequestState::received, RequestState::encoding);
  counters.state_changed(ann, RequestState::encoding, RequestState::running);
  counters.started(ann, 40, 32);
  counters.tokens_emitted(ann, 1, Latency::time_to_first_token, 0.5);
  counters.tokens_emitted(ann, 3, Latency::inter_token_latency, 0.1);
  counters.charged(TenantId{1ull << 40}, 0.25);
  counters.charged(TenantId{1ull << 40}, 0.5);
  counters.charged(TenantId{77}, 9);  // no request of it was ever there
  counters.state_changed(ben, RequestState::received, RequestState::ended);
  counters.ended(ben, ended_with(Outcome::quota, "max_queued_requests"));
  counters.ended(ben, ended_with(Outcome::invalid_argument, "a field of the client's"));
  counters.state_changed(ben, RequestState::received, RequestState::parked);

  const std::map<std::string, double> of_ann{
      {"tenant_requests_received{students}", 1},      {"tenant_requests_ended{students,done}", 0},
      {"tenant_requests_ended{students,refused}", 0}, {"tenant_requests_ended{students,failed}", 0},
      {"tenant_requests{students,waiting}", 0},       {"tenant_requests{students,running}", 1},
      {"tenant_requests{students,parked}", 0},        {"tenant_prompt_tokens{students}", 40},
      {"tenant_cached_tokens{students}", 32},         {"tenant_generation_tokens{students}", 4},
      {"tenant_compute_seconds{students}", 0.75},     {"tenant_time_to_first_token{students}", 1},
      {"tenant_inter_token_latency{students}", 1}};
  CHECK(seen_by(named(1ull << 40, "students"), counters) == of_ann);
  CHECK(seen_by(user(1001), counters).empty());
  const auto of_ben = seen_by(user(1000), counters);
  CHECK(of_ben.at("tenant_requests_received{1000}") == 2);
  CHECK(of_ben.at("tenant_requests_ended{1000,refused}") == 2);
  CHECK(of_ben.at("tenant_requests_refused{1000,max_queued_requests}") == 1);
  CHECK(of_ben.at("tenant_requests_refused{1000,invalid_argument}") == 1);  // the outcome, not the client's word
  CHECK(of_ben.at("tenant_requests{1000,parked}") == 1);
  CHECK(of_ben.size() == of_ann.size() + 2);

  auto all = of_ann;
  all.insert(of_ben.begin(), of_ben.end());
  CHECK(seen_by(kRoot, counters) == all);
}

TEST_CASE("tenants: the first 63 have labels of their own, the sum of the rest is `other`, and each sees its own") {
  TenantCounters counters;
  for (std::uint32_t uid = 1; uid <= 100; ++uid)
    for (std::uint32_t i = 0; i < uid; ++i) counters.arrived(user(uid));
  const auto all = seen_by(kRoot, counters);
  std::set<std::string> labels;
  double received = 0;
  for (const auto& [name, value] : all) {
    if (name.find("requests_received") == std::string::npos) continue;
    labels.insert(name);
    received += value;
  }
  CHECK(labels.size() == kMaxTenantLabels);
  CHECK(received == 5050);
  CHECK(all.at("tenant_requests_received{63}") == 63);
  CHECK_FALSE(all.contains("tenant_requests_received{64}"));
  CHECK(all.at("tenant_requests_received{other}") == 5050 - 63 * 64 / 2);
  // A tenant's own metrics do not tell how many others there were before.
  CHECK(seen_by(user(100), counters).at("tenant_requests_received{100}") == 100);
}

TEST_CASE("tenants: beyond those that are counted one by one nothing is lost, and memory is bounded") {
  TenantCounters counters;
  for (std::uint32_t uid = 1; uid <= kMaxCountedTenants + 500; ++uid) {
    const auto row = counters.arrived(user(uid));
    counters.state_changed(row, RequestState::received, RequestState::ended);
    counters.ended(row, ended_with(Outcome::eos));
    counters.charged(TenantId{uid}, 1);
  }
  CHECK(counters.all().size() == kMaxCountedTenants + 1);
  const auto all = seen_by(kRoot, counters);
  CHECK(all.at("tenant_requests_ended{other,done}") == kMaxCountedTenants + 500 - 63);
  CHECK(all.at("tenant_compute_seconds{other}") == kMaxCountedTenants + 500 - 63);
  CHECK(seen_by(user(kMaxCountedTenants + 1), counters).empty());
}

TEST_CASE("tenants: labels that are equal are one series, and names of limits are bounded") {
  TenantCounters counters;
  counters.arrived(named(1ull << 33, "guests"));
  counters.arrived(named(1ull << 34, "guests"));
  CHECK(seen_by(kRoot, counters).at("tenant_requests_received{guests}") == 2);
  const auto row = counters.arrived(named(1ull << 35, "other"));
  for (std::size_t i = 0; i < 2 * kMaxCountedLimits; ++i)
    counters.ended(row, ended_with(Outcome::queue_full, "limit" + std::to_string(i)));
  counters.ended(row, ended_with(Outcome::too_long, "prompt"));
  counters.ended(row, ended_with(Outcome::deadline_unmeetable));
  const auto refused = counters.all().back().refused;
  CHECK(refused.size() == kMaxCountedLimits);
  CHECK(refused.back() == std::pair<std::string, std::uint64_t>("other", kMaxCountedLimits + 3));
  CHECK(seen_by(kRoot, counters).at("tenant_requests_ended{other,refused}") == 2 * kMaxCountedLimits + 2);
}

struct Unread : StreamSink {
  void tokens(TokenRun) override {}
  void end(End) override {}
};

TEST_CASE("tenants: the stream table counts every event of a request for its tenant, and only there") {
  const auto at = [](int ms) { return TimePoint{} + std::chrono::milliseconds(ms); };
  StreamTable table({});
  Request request;
  request.tenant = user(1000);
  const RequestId id = table.add(request, std::make_shared<Unread>(), at(0));
  request.tenant = user(1001);
  const RequestId other = table.add(request, std::make_shared<Unread>(), at(0));
  REQUIRE_FALSE(table.admit(id, at(0)));
  const AssignmentPtr task = table.assign(id, {1, 2, 3}).at(0);
  CHECK(table.tenants().all().at(0).states.waiting == 1);
  REQUIRE(table.started(id, task->generation, 2, at(1)));
  CHECK(table.tenants().all().at(0).states.running == 1);
  const auto emit = [&](std::uint64_t first, std::vector<TokenId> ids, int ms) {
    REQUIRE(table.deliver({.request = id, .generation = task->generation, .first_index = first, .ids = std::move(ids)},
                          at(ms)));
  };
  emit(0, {7}, 100);
  emit(1, {8, 9}, 120);
  REQUIRE(table.park(id, task->generation, at(130)).is_live);
  CHECK(table.tenants().all().at(0).states.parked == 1);
  REQUIRE(table.end(id, ended_with(Outcome::length), at(140)));
  REQUIRE(table.end(other, ended_with(Outcome::queue_full, "max_queued_requests"), at(140)));
  const std::vector<TenantUse> uses = table.tenants().all();
  REQUIRE(uses.size() == 2);
  CHECK(uses[0].ended == std::array<std::uint64_t, 3>{1, 0, 0});
  CHECK(uses[0].states.waiting + uses[0].states.running + uses[0].states.parked == 0);
  CHECK(uses[0].tokens.prompt == 3);
  CHECK(uses[0].tokens.cached == 2);
  CHECK(uses[0].tokens.generated == 3);
  CHECK(uses[0].time_to_first_token.sum_seconds == Approx(0.1));
  CHECK(uses[0].inter_token_latency.sum_seconds == Approx(0.01));
  CHECK(uses[1].ended == std::array<std::uint64_t, 3>{0, 1, 0});
  CHECK(uses[1].received == 1);
  CHECK(uses[1].tokens.prompt + uses[1].tokens.generated == 0);
}

}  // namespace
}  // namespace troupe::actors
