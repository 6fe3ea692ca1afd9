#include "bench/load/report/report_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace troupe::load {
namespace {

std::string of_total(std::size_t part, std::size_t whole) {
  return fmt::format("{} of {}", grouped(part), grouped(whole));
}

std::string with_reasons(std::size_t total, const std::map<std::string, std::size_t>& reasons) {
  return grouped(total) + (reasons.empty() ? "" : ": " + counts(reasons));
}

std::string ends(const Summary& s) {
  if (s.ended_exactly_once()) return "every request exactly once";
  return fmt::format("{} never, {} more than once: the server is at fault", grouped(s.never_ended),
                     grouped(s.ended_twice));
}

std::string verification(const Summary& s) {
  if (s.verified + s.mismatched == 0) return "not asked for";
  return of_total(s.verified, s.verified + s.mismatched) + " answers equal to the same request run alone" +
         (s.mismatched > 0 ? fmt::format("; {} DIFFER", grouped(s.mismatched)) : "");
}

std::string overhead(const Run& run) {
  const double share = run.duration_s > 0 ? run.own_cpu_seconds / run.duration_s : 0;
  return fmt::format("{} s of CPU time ({} of one core); sent at most {} ms late", fixed(run.own_cpu_seconds, 2),
                     percent(share), brief(1e3 * run.max_send_lag_s));
}

std::string account(const ServerAccount& a) {
  std::string text = fmt::format("{} received, {} ended; ", grouped(a.received), grouped(a.ended));
  if (a.at_rest)
    text += "at rest, no block held";
  else
    text += fmt::format("{} requests left, {} blocks held", grouped(a.requests_left), grouped(a.blocks_held));
  if (a.evictions > 0) text += fmt::format("; {} evictions", grouped(a.evictions));
  if (a.worker_restarts > 0) text += fmt::format("; {} actors started again", grouped(a.worker_restarts));
  return text;
}

std::string garbage(const GarbageCount& g) {
  return fmt::format("{} connections: {} closed by the server, {} refused, {} ignored", grouped(g.sent),
                     grouped(g.closed), grouped(g.refused), grouped(g.ignored));
}

}  // namespace

std::string fixed(double value, int decimals) { return fmt::format("{:.{}f}", value, decimals); }

std::string grouped(std::uint64_t count) {
  std::string digits = fmt::to_string(count);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string brief(double value) {
  const double size = std::abs(value);
  if (size >= 999.5) return (value < 0 ? "-" : "") + grouped(static_cast<std::uint64_t>(std::llround(size)));
  return fixed(value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.0995 || size < 0.0005 ? 2 : 3);
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

std::string counts(const std::map<std::string, std::size_t>& by_name) {
  std::vector<std::pair<std::string, std::size_t>> sorted(by_name.begin(), by_name.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, count] : sorted) text += (text.empty() ? "" : ", ") + name + " " + grouped(count);
  return text;
}

std::string limits(const Goodput& goodput) {
  std::string text;
  const auto add = [&](const char* name, std::optional<double> limit) {
    if (limit) text += (text.empty() ? "" : ", ") + std::string(name) + " <= " + brief(*limit) + " ms";
  };
  add("TTFT", goodput.ttft_ms);
  add("TPOT", goodput.tpot_ms);
  add("E2EL", goodput.e2el_ms);
  return text;
}

// What the answers of each tenant were held against.
static std::string limits_of(const Run& run, const Goodput& goodput) {
  std::vector<std::string> texts;
  for (const Tenant& tenant : run.tenants) texts.push_back(limits(tenant.limits));
  if (texts.empty()) return limits(goodput);
  if (std::equal(texts.begin() + 1, texts.end(), texts.begin())) return texts.front();
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!texts[i].empty()) all += (all.empty() ? "" : "; ") + run.tenants[i].name + ": " + texts[i];
  return all;
}

std::vector<LatencyRow> latency_rows(const Summary& s) {
  std::vector<LatencyRow> rows = {
      {"TTFT", "ttft", "Time to first token", "intended send to the first token", &s.ttft},
      {"TPOT", "tpot", "Time per output token", "(E2EL - TTFT) / (tokens - 1), one value for each answer", &s.tpot},
      {"ITL", "itl", "Inter-token latency", "every gap between arrivals; tokens that one read brought end one gap",
       &s.itl},
      {"E2EL", "e2el", "End-to-end latency", "intended send to the end", &s.e2el}};
  if (s.queue.count > 0)
    rows.push_back({"queue", "server_queue", "Queue", "arrival to first step, as the server counts", &s.queue});
  return rows;
}

std::vector<std::pair<std::string, std::string>> findings(const Run& run, const Summary& s, const Goodput& goodput) {
  std::vector<std::pair<std::string, std::string>> lines = {
      {"completed", of_total(s.completed, s.num_requests) + " requests in " + brief(s.duration_s) + " s"},
      {"refused", with_reasons(s.refused, s.refusals)},
      {"failed", with_reasons(s.failed, s.failures)}};
  if (s.cut > 0)
    lines.emplace_back("cut short", grouped(s.cut) + ": cancelled, past a deadline, or given up by a fault");
  if (!s.faults.empty()) lines.emplace_back("faults", "injected: " + counts(s.faults));
  if (s.retries > 0) lines.emplace_back("retries", grouped(s.retries) + " after a refusal");
  lines.emplace_back("ended", ends(s));
  if (run.stray_frames > 0) lines.emplace_back("stray frames", grouped(run.stray_frames) + " after an end");
  if (run.account) lines.emplace_back("server", account(*run.account));
  if (run.garbage.sent > 0) lines.emplace_back("garbage", garbage(run.garbage));
  lines.emplace_back("verified", verification(s));
  if (s.request_goodput)
    lines.emplace_back("goodput",
                       fmt::format("{} requests/s within {} ({} of the undisturbed)", brief(*s.request_goodput),
                                   limits_of(run, goodput), percent(s.good_share)));
  lines.emplace_back("tokens", fmt::format("{} in, {} out, {} per arrival", grouped(s.input_tokens),
                                           grouped(s.output_tokens), brief(s.tokens_per_arrival)));
  lines.emplace_back("prefix hits",
                     fmt::format("{} of the tokens in ({})", grouped(s.cached_tokens), percent(s.cached_share())));
  if (s.preemptions > 0) lines.emplace_back("preemptions", grouped(s.preemptions));
  if (s.steps > 0) lines.emplace_back("steps", grouped(s.steps) + " of " + brief(s.mean_step_ms) + " ms each");
  lines.emplace_back("overhead", overhead(run));
  if (run.interrupted) lines.emplace_back("interrupted", "the run ended before its plan");
  return lines;
}

}  // namespace troupe::load
