#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <ostream>

#include "bench/load/report/fairness.h"
#include "bench/load/report/report_format.h"

namespace troupe::load {
namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

// Strings from the server may hold any bytes: those that are not UTF-8 become U+FFFD.
std::string dump(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// By EndKind.
constexpr std::array<const char*, 5> kEndNames = {"none", "done", "refused", "failed", "lost"};

ordered_json gaps(const RequestRecord& record) {
  ordered_json seconds = ordered_json::array();
  for (std::size_t i = 1; i < record.arrivals.size(); ++i)
    seconds.push_back(record.arrivals[i].at_s - record.arrivals[i - 1].at_s);
  return seconds;
}

void add_distribution(ordered_json& report, const std::string& key, const Distribution& d) {
  for (const auto& [statistic, value] :
       {std::pair{"mean", d.mean}, std::pair{"median", d.median}, std::pair{"std", d.std}, std::pair{"p50", d.median},
        std::pair{"p90", d.p90}, std::pair{"p95", d.p95}, std::pair{"p99", d.p99}, std::pair{"max", d.max}})
    report[fmt::format("{}_{}_ms", statistic, key)] = value;
}

// The lists of `vllm bench serve`: one entry per request in order, in seconds; zero or empty if it did not complete.
void add_lists(ordered_json& report, const Run& run) {
  for (const char* key :
       {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors"})
    report[key] = ordered_json::array();
  for (const RequestRecord& record : run.records) {
    const bool completed = verdict(record) == Verdict::completed;
    report["input_lens"].push_back(record.prompt_tokens);
    report["output_lens"].push_back(completed ? record.completion_tokens : 0);
    report["ttfts"].push_back(completed ? ttft_s(record).value_or(0) : 0.0);
    report["itls"].push_back(completed ? gaps(record) : ordered_json::array());
    report["latencies"].push_back(completed ? e2el_s(record) : 0.0);
    report["start_times"].push_back(record.sent_s);
    report["queue_times"].push_back(record.sent_s - record.intended_s);
    report["errors"].push_back(completed ? "" : record.outcome + ": " + record.message);
  }
}

ordered_json vllm_part(const ReportHead& head, const Run& run, const Summary& s) {
  ordered_json report{{"date", head.date},
                      {"endpoint_type", head.backend},
                      {"backend", head.backend},
                      {"label", nullptr},
                      {"model_id", head.model},
                      {"tokenizer_id", head.model},
                      {"num_prompts", s.num_requests},
                      {"request_rate", head.request_rate ? ordered_json(*head.request_rate) : ordered_json("inf")},
                      {"burstiness", head.burstiness},
                      {"max_concurrency", or_null(head.concurrency)},
                      {"duration", s.duration_s},
                      {"completed", s.completed},
                      {"failed", s.num_requests - s.completed},
                      {"total_input_tokens", s.input_tokens},
                      {"total_output_tokens", s.output_tokens},
                      {"request_throughput", s.request_throughput},
                      {"request_goodput", or_null(s.request_goodput)},
                      {"output_throughput", s.output_throughput},
                      {"total_token_throughput", s.total_throughput},
                      {"max_output_tokens_per_s", s.peak_output_throughput},
                      {"max_concurrent_requests", s.peak_concurrency}};
  for (const LatencyRow& row : latency_rows(s)) add_distribution(report, row.key, *row.values);
  add_lists(report, run);
  return report;
}

ordered_json row_of(const ServerAccount& a) {
  return {{"at_rest", a.at_rest},
          {"received", a.received},
          {"ended", a.ended},
          {"prompt_tokens", a.prompt_tokens},
          {"cached_tokens", a.cached_tokens},
          {"prefix_blocks_computed", a.prefix_blocks_computed},
          {"evictions", a.evictions},
          {"preemptions", a.preemptions},
          {"worker_restarts", a.worker_restarts},
          {"connections_accepted", a.connections_accepted},
          {"connections_refused", a.connections_refused},
          {"connections_broken", a.connections_broken},
          {"requests_before", a.requests_before},
          {"requests_left", a.requests_left},
          {"blocks_held", a.blocks_held}};
}

ordered_json figures(const Summary& s) {
  ordered_json part{{"requests", s.num_requests},
                    {"completed", s.completed},
                    {"cut", s.cut},
                    {"refused", s.refused},
                    {"failed", s.failed},
                    {"refusals", s.limits_met},
                    {"refused_without_retry_after", s.without_advice},
                    {"retries", s.retries},
                    {"retries_admitted", s.retries_admitted},
                    {"preemptions", s.preemptions},
                    {"duration", s.duration_s},
                    {"request_throughput", s.request_throughput},
                    {"request_goodput", or_null(s.request_goodput)},
                    {"good_share", s.request_goodput ? ordered_json(s.good_share) : ordered_json(nullptr)},
                    {"input_tokens", s.input_tokens},
                    {"cached_tokens", s.cached_tokens},
                    {"output_tokens", s.output_tokens},
                    {"input_throughput", s.input_throughput},
                    {"output_throughput", s.output_throughput}};
  for (const LatencyRow& row : latency_rows(s)) add_distribution(part, row.key, *row.values);
  return part;
}

ordered_json limits_part(const Goodput& limits) {
  return {
      {"ttft_ms", or_null(limits.ttft_ms)}, {"tpot_ms", or_null(limits.tpot_ms)}, {"e2el_ms", or_null(limits.e2el_ms)}};
}

ordered_json tenants_part(const ReportHead& head, const Run& run) {
  ordered_json all = ordered_json::array();
  for (std::size_t i = 0; i < run.tenants.size(); ++i) {
    const Tenant& tenant = run.tenants[i];
    ordered_json description = ordered_json::object();
    for (const auto& [key, value] : tenant.description) description[key] = value;
    const bool compared = i < head.alone.size() && head.alone[i];
    all.push_back({{"name", tenant.name},
                   {"uid", or_null(tenant.uid)},
                   {"weight", tenant.weight},
                   {"first_request", tenant.first},  // of "requests" below, which lie tenant by tenant
                   {"goodput", limits_part(tenant.limits)},
                   {"description", std::move(description)},
                   {"together", figures(summarize_tenant(run, tenant))},
                   {"alone", compared ? figures(*head.alone[i]) : ordered_json(nullptr)}});
  }
  return all;
}

ordered_json fairness_part(const Run& run) {
  const auto fairness = fairness_of(run);
  if (!fairness) return nullptr;
  const auto served_part = [](const Served& served) {
    return ordered_json{{"per_s", served.per_s}, {"share", served.share}, {"deviation", served.deviation}};
  };
  const auto evenness_part = [&](const Evenness& of, Served Share::*part) {
    const Share& worst = fairness->shares[of.worst];
    return ordered_json{{"jain", of.jain},
                        {"worst_tenant", run.tenants[worst.tenant].name},
                        {"worst_deviation", (worst.*part).deviation}};
  };
  ordered_json shares = ordered_json::object();
  for (const Share& share : fairness->shares) {
    ordered_json& of = shares[run.tenants[share.tenant].name];
    of = {{"due", share.due}, {"tokens", served_part(share.tokens)}, {"compute_time", nullptr}};
    if (fairness->of_time) of["compute_time"] = served_part(share.time);
  }
  return {{"from_s", fairness->from_s},
          {"to_s", fairness->to_s},
          {"tokens", evenness_part(fairness->of_tokens, &Share::tokens)},
          {"compute_time", fairness->of_time ? evenness_part(*fairness->of_time, &Share::time) : ordered_json(nullptr)},
          {"shares", std::move(shares)}};
}

ordered_json own_part(const ReportHead& head, const Run& run, const Summary& s) {
  ordered_json description = ordered_json::object();
  for (const auto& [key, value] : run.description) description[key] = value;
  return {{"endpoint", head.endpoint},
          {"seed", head.seed},
          {"description", std::move(description)},
          {"definitions",
           "latencies in ms from the intended send, of completed requests without an injected fault; "
           "percentiles interpolate linearly (numpy); tokens that came together end one inter-token gap"},
          {"outcomes", {{"completed", s.completed}, {"cut", s.cut}, {"refused", s.refused}, {"failed", s.failed}}},
          {"refusals", s.refusals},
          {"failures", s.failures},
          {"faults", s.faults},
          {"retries", s.retries},
          {"preemptions", s.preemptions},
          {"exactly_once", {{"held", s.ended_exactly_once()}, {"never", s.never_ended}, {"twice", s.ended_twice}}},
          {"verification", {{"equal", s.verified}, {"different", s.mismatched}}},
          {"goodput",
           {{"ttft_ms", or_null(head.goodput.ttft_ms)},
            {"tpot_ms", or_null(head.goodput.tpot_ms)},
            {"e2el_ms", or_null(head.goodput.e2el_ms)},
            {"share", s.good_share}}},
          {"input_throughput", s.input_throughput},
          {"cached_tokens", s.cached_tokens},
          {"cached_share", s.cached_share()},
          {"tokens_per_arrival", s.tokens_per_arrival},
          {"steps", s.steps},
          {"mean_step_ms", s.mean_step_ms},
          {"tenants", tenants_part(head, run)},
          {"fairness", fairness_part(run)},
          {"server", run.account ? row_of(*run.account) : ordered_json(nullptr)},
          {"garbage",
           {{"sent", run.garbage.sent},
            {"closed", run.garbage.closed},
            {"refused", run.garbage.refused},
            {"ignored", run.garbage.ignored}}},
          {"stray_frames", run.stray_frames},
          {"interrupted", run.interrupted},
          {"own_cpu_seconds", run.own_cpu_seconds},
          {"max_send_lag_ms", 1e3 * run.max_send_lag_s}};
}

ordered_json row_of(const RequestRecord& r) {
  ordered_json arrivals = ordered_json::array();
  for (const Arrival& arrival : r.arrivals) arrivals.push_back({arrival.at_s, arrival.num_tokens});
  return {{"index", r.index},
          {"client", r.client},
          {"prefix", or_null(r.prefix)},
          {"intended_s", r.intended_s},
          {"sent_s", r.sent_s},
          {"end_s", r.end_s},
          {"queue_s", or_null(r.queue_s)},
          {"prompt_tokens", r.prompt_tokens},
          {"cached_tokens", r.cached_tokens},
          {"compute_s", or_null(r.compute_s)},
          {"completion_tokens", r.completion_tokens},
          {"preemptions", r.preemptions},
          {"retries", r.retries},
          {"num_ends", r.num_ends},
          {"kind", kEndNames.at(static_cast<std::size_t>(r.kind))},
          {"outcome", r.outcome},
          {"message", r.message},
          {"limit", r.limit},
          {"retry_after_s", or_null(r.retry_after_s)},
          {"fault", name(r.fault)},
          {"fault_at_s", or_null(r.fault_at_s)},
          {"verified", or_null(r.verified)},
          {"arrivals", std::move(arrivals)}};
}

ordered_json row_of(const ServerSample& s) {
  return {{"at_s", s.at_s},
          {"running", s.running},
          {"waiting", s.waiting},
          {"parked", s.parked},
          {"generated_tokens", s.generated_tokens},
          {"steps", s.steps},
          {"step_seconds", s.step_seconds},
          {"blocks_free", s.blocks_free},
          {"blocks_total", s.blocks_total}};
}

// Writes the members of an object, one per line; the caller writes the braces.
void write_members(const ordered_json& object, const std::string& indent, std::ostream& out) {
  bool first = true;
  for (const auto& [key, value] : object.items()) {
    out << (first ? "" : ",\n") << indent << dump(key) << ": " << dump(value);
    first = false;
  }
}

template <class Row>
void write_rows(const char* key, const std::vector<Row>& rows, std::ostream& out) {
  out << ",\n    \"" << key << "\": [";
  for (std::size_t i = 0; i < rows.size(); ++i) out << (i ? ",\n      " : "\n      ") << dump(row_of(rows[i]));
  out << ']';
}

}  // namespace

void write_json(const ReportHead& head, const Run& run, const Summary& summary, std::ostream& out) {
  out << "{\n";
  write_members(vllm_part(head, run, summary), "  ", out);
  out << ",\n  \"troupe\": {\n";
  write_members(own_part(head, run, summary), "    ", out);
  write_rows("requests", run.records, out);
  write_rows("samples", run.samples, out);
  out << "\n  }\n}\n";
}

}  // namespace troupe::load
