#include "cli/top_screen.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/text.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using client::LiveRequest;
using client::ServerStatus;

// 12 -> "12 s", 75 -> "1:15", 4000 -> "1:06:40"
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, seconds));
  char text[48];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%llu:%02u", static_cast<unsigned long long>(whole / 60),
                  static_cast<unsigned>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%llu:%02u:%02u", static_cast<unsigned long long>(whole / 3600),
                  static_cast<unsigned>(whole / 60 % 60), static_cast<unsigned>(whole % 60));
  }
  return text;
}

// "#####-----     ": `dark` and `light` of `whole`, in `width` characters.
std::string bar(double dark, double light, double whole, std::size_t width) {
  const auto cells = [&](double part) {
    return static_cast<std::size_t>(whole > 0 ? std::clamp(part / whole, 0.0, 1.0) * static_cast<double>(width) + 0.5
                                              : 0.0);
  };
  const std::size_t full = cells(dark);
  const std::size_t upto = std::clamp(cells(dark + light), full, width);
  return std::string(full, '#') + std::string(upto - full, '-') + std::string(width - upto, ' ');
}

std::string milliseconds(std::optional<double> seconds) {
  if (!seconds) return "-";
  return fixed(1e3 * *seconds, *seconds < 0.01 ? 2 : 0) + " ms";
}

const client::LatencyHistogram* find(const ServerStatus& status, const std::string& name) {
  for (const client::LatencyHistogram& histogram : status.histograms)
    if (histogram.name == name) return &histogram;
  return nullptr;
}

// Differences of counters since `before`.
struct Since {
  const ServerStatus& now;
  const std::optional<ServerStatus>& before;

  template <class T>
  double of(T ServerStatus::*counter) const {
    return static_cast<double>(now.*counter) - (before ? static_cast<double>((*before).*counter) : 0.0);
  }
  double per_second(std::uint64_t ServerStatus::*counter) const {
    const double seconds = of(&ServerStatus::uptime_seconds);
    return seconds > 0 ? of(counter) / seconds : 0;
  }
};

std::vector<std::string> head(const ServerStatus& now, const std::optional<ServerStatus>& before) {
  using std::to_string;
  const Since since{now, before};
  const double steps = since.of(&ServerStatus::steps);
  const double step_ms = steps > 0 ? 1e3 * since.of(&ServerStatus::step_seconds) / steps : 0;
  const double prompt = since.of(&ServerStatus::prompt_tokens);
  const double cached = since.of(&ServerStatus::cached_tokens);
  const auto latency = [&](const char* name) {
    return milliseconds(quantile(now, before, name, 0.5)) + " / " + milliseconds(quantile(now, before, name, 0.99));
  };
  const std::uint32_t only_cached = now.blocks_total - now.blocks_free - now.blocks_referenced;
  return {
      now.server + "  " + now.model + "  " + name_of(now.health) + "  up " + clock_text(now.uptime_seconds) + "  " +
          now.kernels + " x " + to_string(now.num_threads),
      "requests  " + to_string(now.requests_running) + " running, " + to_string(now.requests_waiting) + " waiting, " +
          to_string(now.requests_parked) + " parked; " + to_string(now.connections) + " connections, " +
          to_string(now.requests_received) + " requests so far",
      "speed     " + fixed(since.per_second(&ServerStatus::generated_tokens), 1) + " tokens/s generated, " +
          fixed(since.per_second(&ServerStatus::prompt_tokens), 1) + " of prompts (" +
          fixed(prompt > 0 ? 100 * cached / prompt : 0, 0) + " % cached)",
      "steps     " + fixed(since.per_second(&ServerStatus::steps), 1) + " /s of " + fixed(step_ms, 2) + " ms, " +
          latency("step_overhead") + " between two (p50 / p99)",
      "latency   first token " + latency("time_to_first_token") + ", next " + latency("inter_token_latency") +
          " (p50 / p99)",
      "cache     [" + bar(now.blocks_referenced, only_cached, now.blocks_total, 30) + "] " +
          to_string(now.blocks_referenced) + " in use, " + to_string(only_cached) + " cached of " +
          to_string(now.blocks_total),
  };
}

// "memory    42 MiB resident, at most 43: weights 2.02 MiB, ...", largest first, as many as fit into a line.
std::string memory(const ServerStatus& now, std::size_t columns) {
  std::vector<client::MemoryUse> uses = now.memory;
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string line = "memory    " + human_bytes(now.resident_bytes) + ":";
  for (const client::MemoryUse& use : uses) {
    const std::string next = " " + use.kind + " " + human_bytes(use.bytes);
    if (line.size() + next.size() + 1 > columns) break;
    line += (line.back() == ':' ? "" : ",") + next;
  }
  return line;
}

// The table of live requests, running ones first.
std::vector<std::string> table(const ServerStatus& now, std::size_t rows) {
  std::vector<LiveRequest> live = now.live_requests;
  std::stable_partition(live.begin(), live.end(), [](const LiveRequest& r) { return r.state == "running"; });
  char line[160];
  std::vector<std::string> lines;
  std::snprintf(line, sizeof line, "%9s %7s %-9s %8s %8s %10s %9s %8s", "REQUEST", "UID", "PHASE", "PROMPT", "CACHED",
                "GENERATED", "PREEMPTED", "AGE");
  lines.emplace_back(line);
  for (const LiveRequest& r : live) {
    if (lines.size() == rows) break;
    const std::string phase = r.state != "running" ? r.state : r.generated_tokens > 0 ? "decode" : "prefill";
    std::snprintf(line, sizeof line, "%9llu %7u %-9s %8u %8u %10u %9u %8s", static_cast<unsigned long long>(r.request),
                  r.uid, phase.c_str(), r.prompt_tokens, r.cached_tokens, r.generated_tokens, r.preemptions,
                  clock_text(r.age_seconds).c_str());
    lines.emplace_back(line);
  }
  const std::uint64_t all = now.requests_waiting + now.requests_running + now.requests_parked;
  const std::uint64_t shown = lines.size() - 1;
  if (shown < all && lines.size() > 1 && lines.size() == rows) {
    lines.back() = "      ... and " + std::to_string(all - shown + 1) + " more";
  } else if (shown < all && lines.size() < rows) {
    lines.push_back("      ... and " + std::to_string(all - shown) + " of other users");
  }
  return lines;
}

}  // namespace

std::optional<double> quantile(const ServerStatus& now, const std::optional<ServerStatus>& before,
                               const std::string& histogram, double share) {
  const client::LatencyHistogram* counted = find(now, histogram);
  if (!counted) return std::nullopt;
  std::vector<std::uint64_t> counts = counted->counts;
  const client::LatencyHistogram* old = before ? find(*before, histogram) : nullptr;
  for (std::size_t i = 0; old && i < std::min(counts.size(), old->counts.size()); ++i) counts[i] -= old->counts[i];
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double below = 0;
  for (std::size_t i = 0; total > 0 && i < std::min(counts.size(), now.histogram_bounds.size()); ++i) {
    below += static_cast<double>(counts[i]);
    if (below >= share * total) return now.histogram_bounds[i];
  }
  return std::nullopt;
}

std::vector<std::string> top_screen(const ServerStatus& now, const std::optional<ServerStatus>& before,
                                    ScreenSize size) {
  std::vector<std::string> lines = head(now, before);
  lines.push_back(memory(now, size.columns));
  lines.emplace_back();
  if (lines.size() + 2 < size.rows) {
    const std::vector<std::string> requests = table(now, size.rows - lines.size() - 1);
    lines.insert(lines.end(), requests.begin(), requests.end());
  }
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = Printable(line, size.columns).text();
  return lines;
}

}  // namespace troupe::cli
