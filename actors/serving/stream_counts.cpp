#include "actors/serving/stream_counts.h"

namespace troupe::actors {

void StreamTimes::fill(Usage& usage, TimePoint now) const {
  usage.queue_seconds = seconds_between(submitted, first_step.value_or(now));
  if (!first_token) return;
  usage.prefill_seconds = seconds_between(*first_step, *first_token);
  usage.decode_seconds = seconds_between(*first_token, *last_token);
  usage.ttft_seconds = seconds_between(submitted, *first_token);
}

void StreamCounts::append_metrics(MetricList& metrics, TimePoint now) const {
  StateMetrics{waiting(), in(RequestState::running), in(RequestState::parked)}.append_metrics(metrics);
  TokenMetrics{prompt_tokens, cached_tokens, generated_tokens}.append_metrics(metrics);
  metrics.counter("num_preemptions", "Sequences that gave way to older ones.", preemptions, {.key = "preemptions"});
  latencies.append_metrics(metrics, Latency::time_to_first_token, Latency::request_inference_time);
  append_recent(metrics, "time_to_first_token", first_token, now);
  append_recent(metrics, "inter_token_latency", next_token, now);
  append_recent(metrics, "request_queue_time", queued, now);
  append_recent(metrics, "e2e_request_latency", whole, now);
}

void StreamCounts::state_changed(RequestState from, RequestState to) {
  --in_state[static_cast<std::size_t>(from)];
  ++in_state[static_cast<std::size_t>(to)];
}

std::pair<Latency, double> StreamCounts::tokens_emitted(StreamTimes& times, std::size_t num_tokens, TimePoint now) {
  std::pair<Latency, double> latency{Latency::time_to_first_token, seconds_between(times.submitted, now)};
  if (times.first_token) {
    const double gap = seconds_between(*times.last_token, now);
    latency = {Latency::inter_token_latency, gap / static_cast<double>(num_tokens)};
  } else {
    times.first_token = now;
  }
  latencies.add(latency.first, latency.second);
  (latency.first == Latency::time_to_first_token ? first_token : next_token).add(latency.second, now);
  times.last_token = now;
  generated_tokens += num_tokens;
  return latency;
}

void StreamCounts::stream_ended(const StreamTimes& times, const Usage& usage, TimePoint now) {
  if (!times.first_token) return;
  queued.add(usage.queue_seconds, now);
  whole.add(seconds_between(times.submitted, now), now);
  latencies.add(Latency::e2e_request_latency, seconds_between(times.submitted, now));
  latencies.add(Latency::request_queue_time, usage.queue_seconds);
  latencies.add(Latency::request_prefill_time, usage.prefill_seconds);
  latencies.add(Latency::request_decode_time, usage.decode_seconds);
  latencies.add(Latency::request_inference_time, seconds_between(*times.first_step, now));
}

void UnitStreams::count(RequestState state, int change) {
  if (state == RequestState::ended) return;
  std::uint64_t& states = state == RequestState::running  ? counts_.states.running
                          : state == RequestState::parked ? counts_.states.parked
                                                          : counts_.states.waiting;
  states += static_cast<std::uint64_t>(change);  // wraps around for -1
}

void UnitStreams::stream_arrived(TimePoint now) {
  last_arrival_ = now;
  ++ends_pending_;
  if (!has_work()) work_since_ = now;
  count(RequestState::received, 1);
  publish();
}

std::vector<std::function<void()>> UnitStreams::stream_left() {
  count(RequestState::received, -1);
  publish();
  return end_told();
}

void UnitStreams::state_changed(RequestState from, RequestState to) {
  count(from, -1);
  count(to, 1);
  publish();
}

void UnitStreams::granted(TimePoint now) {
  if (!has_work()) work_since_ = now;  // only if all its streams are parked
}

void UnitStreams::started(std::uint64_t prompt_tokens, std::uint64_t cached_tokens) {
  counts_.tokens.prompt += prompt_tokens;
  counts_.tokens.cached += cached_tokens;
}

}  // namespace troupe::actors
