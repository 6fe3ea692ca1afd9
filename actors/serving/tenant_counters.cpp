#include "actors/serving/tenant_counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

constexpr const char* kOthers = "other";

std::uint64_t& count_in(StateMetrics& states, RequestState state) {
  if (state == RequestState::running) return states.running;
  return state == RequestState::parked ? states.parked : states.waiting;
}

// Whether the server refused the request for a limit that it could meet at another time.
bool met_a_limit(Outcome outcome) {
  return outcome == Outcome::quota || outcome == Outcome::queue_full || outcome == Outcome::deadline_unmeetable;
}

void add_refused(TenantUse& use, const std::string& limit, std::uint64_t count) {
  const auto found = std::ranges::find(use.refused, limit, &std::pair<std::string, std::uint64_t>::first);
  if (found != use.refused.end()) {
    found->second += count;
  } else if (use.refused.size() < kMaxCountedLimits - 1 || limit == kOthers) {
    use.refused.emplace_back(limit, count);
  } else {
    add_refused(use, kOthers, count);
  }
}

void add_to(TenantUse& sum, const TenantUse& use) {
  sum.received += use.received;
  for (std::size_t kind = 0; kind < sum.ended.size(); ++kind) sum.ended[kind] += use.ended[kind];
  sum.states.waiting += use.states.waiting;
  sum.states.running += use.states.running;
  sum.states.parked += use.states.parked;
  sum.tokens.prompt += use.tokens.prompt;
  sum.tokens.cached += use.tokens.cached;
  sum.tokens.generated += use.tokens.generated;
  sum.compute_seconds += use.compute_seconds;
  sum.time_to_first_token.add(use.time_to_first_token);
  sum.inter_token_latency.add(use.inter_token_latency);
  for (const auto& [limit, count] : use.refused) add_refused(sum, limit, count);
}

void append_histogram(MetricList& metrics, const std::string& tenant, std::string name, std::string help,
                      const Histogram& histogram) {
  metrics.append({.name = std::move(name),
                  .help = std::move(help),
                  .kind = MetricKind::histogram,
                  .value = histogram.sum_seconds,
                  .labels = {{"tenant", tenant}},
                  .counts = {histogram.counts.begin(), histogram.counts.end()}});
}

// `use.label` is not that of an earlier call.
void append_use(const TenantUse& use, MetricList& metrics) {
  using Label = std::pair<const char*, std::string>;
  const auto append = [&](MetricKind kind, const char* name, const char* help, double value, Label more = {}) {
    Metric metric{.name = name, .help = help, .kind = kind, .value = value, .labels = {{"tenant", use.label}}};
    if (more.first) metric.labels.emplace_back(more.first, std::move(more.second));
    metrics.append(std::move(metric));
  };
  constexpr MetricKind counter = MetricKind::counter, gauge = MetricKind::gauge;
  append(counter, "tenant_requests_received", "Requests of the tenant, admitted or not.", use.received);
  for (const auto& [kind, name] : {std::pair{scheduler::OutcomeKind::done, "done"},
                                   {scheduler::OutcomeKind::refused, "refused"},
                                   {scheduler::OutcomeKind::failed, "failed"}})
    append(counter, "tenant_requests_ended", "Its requests that ended, by how.",
           use.ended[static_cast<std::size_t>(kind)], {"kind", name});
  for (const auto& [limit, count] : use.refused)
    append(counter, "tenant_requests_refused", "Its requests that were refused, by the limit or the outcome.", count,
           {"limit", limit});
  for (const auto& [state, count] :
       {std::pair{"waiting", use.states.waiting}, {"running", use.states.running}, {"parked", use.states.parked}})
    append(gauge, "tenant_requests", "Its live requests.", count, {"state", state});
  append(counter, "tenant_prompt_tokens", "Tokens of its prompts that were begun.", use.tokens.prompt);
  append(counter, "tenant_cached_tokens", "Of those, found in the prefix cache.", use.tokens.cached);
  append(counter, "tenant_generation_tokens", "Tokens that were generated for it.", use.tokens.generated);
  append(counter, "tenant_compute_seconds", "Its part of the time of all steps and passes.", use.compute_seconds);
  append_histogram(metrics, use.label, "tenant_time_to_first_token",
                   "Histogram of the tenant's time to first token in seconds.", use.time_to_first_token);
  append_histogram(metrics, use.label, "tenant_inter_token_latency",
                   "Histogram of the tenant's inter token latency in seconds.", use.inter_token_latency);
}

}  // namespace

TenantCounters::Row TenantCounters::arrived(const scheduler::Tenant& tenant) {
  const std::lock_guard lock(mutex_);
  const auto next = static_cast<Row>(std::min(uses_.size(), kMaxCountedTenants));
  Row row = next;
  if (const auto found = rows_.find(tenant.id); found != rows_.end()) {
    row = found->second;
  } else if (next < kMaxCountedTenants) {
    rows_.emplace(tenant.id, next);
    uses_.push_back({.tenant = tenant.id, .label = scheduler::label_of(tenant)});
  } else if (uses_.size() == kMaxCountedTenants) {
    uses_.push_back({.label = kOthers});
  }
  ++uses_[row].received;
  ++uses_[row].states.waiting;
  return row;
}

void TenantCounters::state_changed(Row row, RequestState from, RequestState to) {
  const std::lock_guard lock(mutex_);
  StateMetrics& states = uses_[row].states;
  if (from != RequestState::ended) --count_in(states, from);
  if (to != RequestState::ended) ++count_in(states, to);
}

void TenantCounters::started(Row row, std::uint32_t prompt_tokens, std::uint32_t cached_tokens) {
  const std::lock_guard lock(mutex_);
  uses_[row].tokens.prompt += prompt_tokens;
  uses_[row].tokens.cached += cached_tokens;
}

void TenantCounters::tokens_emitted(Row row, std::size_t num_tokens, Latency what, double seconds) {
  TROUPE_ASSERT(what == Latency::time_to_first_token || what == Latency::inter_token_latency);
  const std::lock_guard lock(mutex_);
  TenantUse& use = uses_[row];
  use.tokens.generated += num_tokens;
  (what == Latency::time_to_first_token ? use.time_to_first_token : use.inter_token_latency).add(seconds);
}

void TenantCounters::ended(Row row, const End& end) {
  const scheduler::OutcomeInfo& how = scheduler::info(end.outcome);
  const std::lock_guard lock(mutex_);
  ++uses_[row].ended[static_cast<std::size_t>(how.kind)];
  if (how.kind != scheduler::OutcomeKind::refused) return;
  // Other fields than limits are named by the client.
  const bool names_limit = met_a_limit(end.outcome) && !end.field.empty();
  add_refused(uses_[row], names_limit ? end.field : std::string(how.name), 1);
}

void TenantCounters::charged(TenantId tenant, double seconds) {
  const std::lock_guard lock(mutex_);
  if (const auto found = rows_.find(tenant); found != rows_.end())
    uses_[found->second].compute_seconds += seconds;
  else if (uses_.size() > kMaxCountedTenants)
    uses_.back().compute_seconds += seconds;
}

std::vector<TenantUse> TenantCounters::all() const {
  const std::lock_guard lock(mutex_);
  return uses_;
}

void append_tenant_metrics(const std::vector<TenantUse>& tenants, const scheduler::Tenant& caller,
                           MetricList& metrics) {
  if (!caller.is_owner) {
    const auto own = std::ranges::find(tenants, caller.id, &TenantUse::tenant);
    if (own != tenants.end()) append_use(*own, metrics);
    return;
  }
  std::vector<TenantUse> labelled;  // equal labels, as a reload of the rules may bring, are one
  std::unordered_map<std::string, std::size_t> index;
  for (const TenantUse& use : tenants) {
    const bool has_label = use.tenant && (index.contains(use.label) || index.size() + 1 < kMaxTenantLabels);
    const std::string label = has_label ? use.label : kOthers;
    const auto [found, is_new] = index.try_emplace(label, labelled.size());
    if (is_new) labelled.push_back({.label = label});
    add_to(labelled[found->second], use);
  }
  for (const TenantUse& use : labelled) append_use(use, metrics);
}

}  // namespace troupe::actors
