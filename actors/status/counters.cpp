#include "actors/status/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace troupe::actors {
namespace {

// Adds the gauges NAME, one for each state, and NAME_capacity.
void append_pool(MetricList& metrics, const cache::PoolCounters& pool, const std::string& name, const std::string& what,
                 const std::string& help, const std::string& key) {
  const auto in_state = [&](const std::string& state, double count) {
    metrics.gauge(name, what + help, count, {.labels = {{"state", state}}, .key = key + "_" + state});
  };
  in_state("free", pool.free);
  in_state("cached", pool.cached);
  in_state("referenced", pool.referenced());
  metrics.gauge(name + "_capacity", what + " there are.", pool.total, {.key = key + "_total"});
}

}  // namespace

Counters::Counters(TimePoint start) : last_progress_(start) {}

void Counters::step_ended(const engine::StepResult& step, bool continues, TimePoint now) {
  const std::lock_guard lock(mutex_);
  last_progress_ = now;
  ++steps_;
  step_seconds_ += step.compute_seconds;
  latencies_.add(Latency::step_duration, step.compute_seconds);
  if (continues) {
    const double seconds = seconds_between(kernels_ended_, step.kernels_began);
    latencies_.add(Latency::step_overhead, seconds);
    step_overhead_.add(seconds, now);
  }
  kernels_ended_ = step.kernels_ended;
  workspace_bytes_ = step.workspace_bytes;
}

void Counters::drafted(const DraftCountsByDrafter& counts) {
  const std::lock_guard lock(mutex_);
  for (std::size_t source = 0; source < counts.size(); ++source) {
    drafts_[source].drafts += counts[source].drafts;
    drafts_[source].tokens += counts[source].tokens;
    drafts_[source].accepted += counts[source].accepted;
  }
}

void Counters::append_drafts(MetricList& metrics, const std::string& model) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < drafts_.size(); ++i) {
    const DraftCounts& counts = drafts_[i];
    if (counts.drafts == 0) continue;
    const std::string drafter(kDrafterNames[i]);
    const auto add = [&](const std::string& name, std::string_view help, std::uint64_t count) {
      const std::string key = name + "_" + drafter;
      metrics.counter(name, help, static_cast<double>(count),
                      {.labels = {{"drafter", drafter}, {"model", model}}, .key = key});
    };
    add("spec_decode_num_drafts", "Drafts that steps verified.", counts.drafts);
    add("spec_decode_num_draft_tokens", "Tokens of these drafts.", counts.tokens);
    add("spec_decode_num_accepted_tokens", "Of these tokens, those that became tokens of answers.", counts.accepted);
  }
}

std::string Counters::drafts_gained() const {
  const std::lock_guard lock(mutex_);
  DraftCounts all;
  for (const DraftCounts& counts : drafts_) {
    all.tokens += counts.tokens;
    all.accepted += counts.accepted;
  }
  if (all.tokens == 0) return {};
  return fmt::format("drafts: {} tokens came without a step of their own, of {} proposed", all.accepted, all.tokens);
}

void Counters::keeper_restarted() {
  const std::lock_guard lock(mutex_);
  before_.published += std::exchange(cache_.published, 0);
  for (GroupId group = 0; group < cache::kMaxGroups; ++group)
    before_.groups[group].evictions += std::exchange(cache_.groups[group].evictions, 0);
  before_.snapshots.evictions += std::exchange(cache_.snapshots.evictions, 0);
  before_.snapshot_hits += std::exchange(cache_.snapshot_hits, 0);
}

TimePoint::duration Counters::without_progress(std::optional<TimePoint> work_since, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  if (!has_model_ || !work_since) return {};
  return now - std::min(now, std::max(last_progress_, *work_since));
}

void Counters::append_metrics(MetricList& metrics, TimePoint now) const {
  const std::lock_guard lock(mutex_);
  metrics.counter("steps", "Passes over a batch.", steps_);
  metrics.counter("step_seconds", "Time of all passes over a batch.", step_seconds_);
  metrics.counter("worker_restarts", "Actors that died and were started again.", restarts_);
  latencies_.append_metrics(metrics, Latency::step_duration, Latency::cancel_latency);
  append_recent(metrics, "step_overhead", step_overhead_, now);

  const cache::PoolCounters& pool = cache_.groups[0];
  const double referenced_share = pool.total > 0 ? static_cast<double>(pool.referenced()) / pool.total : 0;
  metrics.gauge("kv_cache_usage_perc", "Share of the KV blocks held by sequences, 0 to 1.", referenced_share);
  append_pool(metrics, pool, "kv_blocks", "KV blocks", "; a block can be cached and referenced at once.", "blocks");
  metrics.counter("prefix_blocks_computed", "Blocks that were published to the prefix cache.",
                  before_.published + cache_.published);
  metrics.counter("kv_block_evictions", "Blocks that were dropped from the prefix cache.",
                  before_.groups[0].evictions + pool.evictions, {.key = "evictions"});

  cache::PoolCounters windows;  // of all groups with a window
  std::uint64_t window_evictions = 0;
  for (GroupId group = 1; group < cache::kMaxGroups; ++group) {
    const cache::PoolCounters& each = cache_.groups[group];
    windows.total += each.total;
    windows.free += each.free;
    windows.cached += each.cached;
    windows.available += each.available;
    window_evictions += before_.groups[group].evictions + cache_.groups[group].evictions;
  }
  if (windows.total > 0) {
    append_pool(metrics, windows, "kv_window_blocks", "KV blocks of layers with a window",
                "; one can be cached and referenced at once.", "window_blocks");
    metrics.counter("kv_window_block_evictions", "Of those, dropped from the prefix cache.", window_evictions,
                    {.key = "window_block_evictions"});
  }
  if (cache_.snapshots.total > 0) {
    metrics.gauge("state_snapshots", "Snapshots of recurrent state in the prefix cache.", cache_.snapshots.cached,
                  {.key = "snapshots_cached"});
    metrics.gauge("state_snapshots_capacity", "Snapshots of recurrent state there is room for.", cache_.snapshots.total,
                  {.key = "snapshots_total"});
    metrics.counter("state_snapshot_hits", "Sequences that went on from a snapshot.",
                    before_.snapshot_hits + cache_.snapshot_hits, {.key = "snapshot_hits"});
    metrics.counter("state_snapshot_evictions", "Snapshots that were dropped from the prefix cache.",
                    before_.snapshots.evictions + cache_.snapshots.evictions, {.key = "snapshot_evictions"});
  }
}

void append_experience(MetricList& metrics, const scheduler::Experience& learned, std::chrono::milliseconds max_stall) {
  const scheduler::CostError error = learned.costs.error();
  metrics.counter("step_predicted_seconds", "Time that all passes over a batch were predicted to take.",
                  learned.costs.predicted_seconds());
  const auto quantile = [&](const std::string& name, const std::string& key, double value) {
    metrics.gauge("step_prediction_error", "Relative error of the predictions of the last steps, at most 512.", value,
                  {.labels = {{"quantile", name}}, .key = key});
  };
  quantile("0.5", "step_prediction_error_p50", error.median);
  quantile("0.95", "step_prediction_error_p95", error.p95);
  metrics.gauge("max_stall_seconds", "What a step may take by its prediction while answers run (--max-stall).",
                std::chrono::duration<double>(max_stall).count());
  const auto deadlines = [&](const std::string& result, std::uint64_t count) {
    metrics.counter("deadlines", "Deadlines that were promised; of those, kept and missed.", static_cast<double>(count),
                    {.labels = {{"result", result}}, .key = "deadlines_" + result});
  };
  deadlines("promised", learned.promised);
  deadlines("kept", learned.kept);
  deadlines("missed", learned.missed);
}

}  // namespace troupe::actors
