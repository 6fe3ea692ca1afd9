// What of a snapshot of the server reaches a guest.
#include "ipc/frames/status_frame.h"

#include <catch2/catch.hpp>
#include <string>

#include "actors/serving/tenant_counters.h"

namespace troupe::ipc {
namespace {

constexpr TenantId kBusyTenant{1000}, kAskingTenant{1001};

// What a server would say while the asking tenant has one request and the other one `others`.
actors::StatusSnapshot snapshot_beside(std::uint32_t others) {
  actors::StatusSnapshot status;
  status.readiness = actors::Readiness::ready;
  status.model = "fake";
  for (const char* name : {"steps", "evictions", "num_requests_running", "kv_blocks"})
    status.metrics.counter(name, "Moved by all.", others);
  status.metrics.gauge("labelled", "Moved by all.", others, {.labels = {{"state", "free"}}});
  status.metrics.gauge("uptime_seconds", "For all.", 5, {.for_guests = true});
  actors::ModelReport report{.health = {.name = "fake", .readiness = actors::Readiness::ready, .load_fraction = 1}};
  report.memory.step_buffers = others;
  report.states.running = others;
  report.tokens.prompt = others;
  status.models = {report,
                   {.health = {.name = "no", .readiness = actors::Readiness::failed, .problem = "/a/b.gguf: no"}}};
  actors::Latencies latencies;
  for (std::uint32_t i = 0; i < others; ++i) latencies.add(actors::Latency::time_to_first_token, 0.5);
  latencies.append_metrics(status.metrics, actors::Latency::time_to_first_token, actors::Latency::cancel_latency);
  status.memory = {{.kind = "heap", .bytes = others, .peak_bytes = others}};
  if (others > 0) status.profile.emplace();
  actors::TenantCounters tenants;
  for (std::uint32_t i = 0; i < others; ++i) {
    tenants.arrived({.id = kBusyTenant});
    tenants.charged(kBusyTenant, 3);
    status.requests.push_back({.request = 1 + i,
                               .tenant = kBusyTenant,
                               .state = static_cast<actors::RequestState>(i % actors::kNumRequestStates),
                               .generated_tokens = i});
  }
  tenants.arrived({.id = kAskingTenant});
  status.tenants = tenants.all();
  status.requests.push_back({.request = 1000, .tenant = kAskingTenant, .state = actors::RequestState::running});
  return status;
}

v1::ServerFrame frame_for(const scheduler::Tenant& tenant, std::uint32_t others) {
  return status_frame(7, snapshot_beside(others),
                      {.tenant = tenant, .list_requests = true, .profile = true, .own = {{1000, {.number = 1}}}});
}

TEST_CASE("a Status has a row for each model; a guest's has no folder, and none of what others do") {
  const v1::Status owner = frame_for({.id = kAskingTenant, .is_owner = true}, 7).status();
  const v1::Status guest = frame_for({.id = kAskingTenant}, 7).status();
  REQUIRE(owner.models_size() == 2);
  CHECK(owner.models(0).requests_running() == 7);
  CHECK(owner.models(0).prompt_tokens() == 7);
  REQUIRE(owner.models(0).memory_size() == 6);
  CHECK(owner.models(0).memory(3).kind() == "step_buffers");
  CHECK(owner.models(0).memory(3).bytes() == 7);
  CHECK(owner.health().models(1).problem() == "/a/b.gguf: no");
  REQUIRE(guest.models_size() == 2);
  CHECK(guest.models(0).name() == "fake");
  CHECK(guest.models(0).memory_size() == 0);
  CHECK(guest.health().models(0).readiness() == v1::READINESS_READY);
  CHECK(guest.health().models(1).name() == "no");
  CHECK(guest.health().models(1).readiness() == v1::READINESS_FAILED);
  CHECK(guest.health().models(1).problem() == "b.gguf: no");
}

TEST_CASE("a guest's Status is the same bytes whatever other tenants do, and has its own series by tenant") {
  const scheduler::Tenant guest{.id = kAskingTenant};
  const v1::ServerFrame alone = frame_for(guest, 0);
  for (const std::uint32_t others : {1, 7, 300})
    CHECK(frame_for(guest, others).SerializeAsString() == alone.SerializeAsString());
  CHECK(alone.status().live_requests_size() == 1);
  std::size_t by_tenant = 0;
  for (const v1::Metric& metric : alone.status().metrics()) {
    if (metric.labels_size() == 0 || metric.labels(0).name() != "tenant") continue;
    CHECK(metric.labels(0).value() == "1001");
    ++by_tenant;
  }
  CHECK(by_tenant > 0);

  const scheduler::Tenant owner{.id = TenantId{0}, .is_owner = true};
  CHECK(frame_for(owner, 7).status().live_requests_size() == 8);
  CHECK(frame_for(owner, 7).SerializeAsString() != frame_for(owner, 0).SerializeAsString());
  CHECK(frame_for(owner, 7).status().histograms_size() == static_cast<int>(actors::kLatencyNames.size()));
}

TEST_CASE("a Status that does not fit loses its explanations first, then the series by tenant") {
  const v1::ServerFrame whole = frame_for({.id = TenantId{0}, .is_owner = true}, 3);
  const auto fitted = [&](std::size_t max_bytes) {
    v1::ServerFrame frame = whole;
    fit_status(frame, static_cast<std::uint32_t>(max_bytes));
    return frame;
  };
  const std::size_t bytes = whole.ByteSizeLong();
  CHECK(fitted(bytes).SerializeAsString() == whole.SerializeAsString());
  const v1::ServerFrame without_help = fitted(bytes - 1);
  CHECK(without_help.status().metrics_size() == whole.status().metrics_size());
  CHECK(without_help.status().metrics(0).help().empty());
  const v1::ServerFrame without_tenants = fitted(without_help.ByteSizeLong() - 1);
  CHECK(without_tenants.status().metrics_size() < whole.status().metrics_size());
  bool has_labelled = false;
  for (const v1::Metric& metric : without_tenants.status().metrics()) {
    has_labelled |= metric.name() == "labelled";
    for (const v1::Metric::Label& label : metric.labels()) CHECK(label.name() != "tenant");
  }
  CHECK(has_labelled);
}

}  // namespace
}  // namespace troupe::ipc
