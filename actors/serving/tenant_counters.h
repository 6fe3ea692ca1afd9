// What each tenant asked for and was served since the start of the server: the metrics with the label `tenant`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/requests/latency.h"
#include "actors/requests/request.h"
#include "actors/requests/status_snapshot.h"
#include "config/metric.h"
#include "scheduler/shares/tenant.h"

namespace troupe::actors {

// So many tenants, the first that come, have counters of their own; all others share one set.
inline constexpr std::size_t kMaxCountedTenants = 4096;
// Values of the label `tenant`, scheduler::label_of(). A tenant keeps the label that it got when it came, so that
// counters never fall: the first 63 have one each, and the sum of all others is `other`.
inline constexpr std::size_t kMaxTenantLabels = 64;
// Names of limits that are counted for one tenant; refusals for any further one count as `other`.
inline constexpr std::size_t kMaxCountedLimits = 32;

// Thread-safe. O(1) for each event, but for all().
class TenantCounters {
 public:
  using Row = std::uint32_t;  // of a tenant, for the events of its requests

  // A request arrived, in state `received`; each choice counts.
  Row arrived(const scheduler::Tenant& tenant);
  void state_changed(Row row, RequestState from, RequestState to);
  // Its first step is planned.
  void started(Row row, std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  // what: time_to_first_token or inter_token_latency.
  void tokens_emitted(Row row, std::size_t num_tokens, Latency what, double seconds);
  void ended(Row row, const End& end);
  // The tenant had `seconds` of a step or a pass over texts.
  void charged(TenantId tenant, double seconds);

  // The tenants in the order in which they came, and last the one without an id that stands for all others, if there
  // are any. O(tenants).
  [[nodiscard]] std::vector<TenantUse> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<TenantUse> uses_;  // by Row
  std::unordered_map<TenantId, Row> rows_;
};

// Appends the metrics that the caller may see: an owner those of all tenants, any other tenant its own.
void append_tenant_metrics(const std::vector<TenantUse>& tenants, const scheduler::Tenant& caller, MetricList& metrics);

}  // namespace troupe::actors
