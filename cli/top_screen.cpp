#include "cli/top_screen.h"

#include <pwd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <utility>

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

std::uint64_t num_live(const ServerStatus& now) {
  return now.count("requests_waiting") + now.count("requests_running") + now.count("requests_parked");
}

// Differences of counters since `before`.
struct Since {
  const ServerStatus& now;
  const std::optional<ServerStatus>& before;

  double of(std::string_view key) const { return now.value(key) - (before ? before->value(key) : 0.0); }
  double per_second(std::string_view key) const {
    const double seconds = of("uptime_seconds");
    return seconds > 0 ? of(key) / seconds : 0;
  }
};

std::vector<std::string> head(const ServerStatus& now, const std::optional<ServerStatus>& before) {
  using std::to_string;
  const Since since{now, before};
  const double steps = since.of("steps");
  const double step_ms = steps > 0 ? 1e3 * since.of("step_seconds") / steps : 0;
  const double prompt = since.of("prompt_tokens");
  const double cached = since.of("cached_tokens");
  const auto latency = [&](const char* name) {
    return milliseconds(quantile(now, before, name, 0.5)) + " / " + milliseconds(quantile(now, before, name, 0.99));
  };
  const auto count = [&](std::string_view key) { return to_string(now.count(key)); };
  const double total = now.value("blocks_total"), referenced = now.value("blocks_referenced");
  const double only_cached = total - now.value("blocks_free") - referenced;
  return {
      now.server + "  " + now.model + "  " + name_of(now.health) + "  up " + clock_text(now.value("uptime_seconds")) +
          "  " + now.kernels + " x " + to_string(now.num_threads),
      "requests  " + count("requests_running") + " running, " + count("requests_waiting") + " waiting, " +
          count("requests_parked") + " parked; " + count("connections") + " connections, " +
          count("requests_received") + " requests so far",
      "speed     " + fixed(since.per_second("generated_tokens"), 1) + " tokens/s generated, " +
          fixed(since.per_second("prompt_tokens"), 1) + " of prompts (" +
          fixed(prompt > 0 ? 100 * cached / prompt : 0, 0) + " % cached)",
      "steps     " + fixed(since.per_second("steps"), 1) + " /s of " + fixed(step_ms, 2) + " ms, " +
          latency("step_overhead") + " between two (p50 / p99)",
      "latency   first token " + latency("time_to_first_token") + ", next " + latency("inter_token_latency") +
          " (p50 / p99)",
      "cache     [" + bar(referenced, only_cached, total, 30) + "] " + count("blocks_referenced") + " in use, " +
          fixed(only_cached, 0) + " cached of " + count("blocks_total"),
  };
}

// "memory    42 MiB resident, at most 43: weights 2.02 MiB, ...", largest first, as many as fit into a line.
std::string memory(const ServerStatus& now, std::size_t columns) {
  std::vector<client::MemoryUse> uses = now.memory;
  std::stable_sort(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  std::string line = "memory    " + human_bytes(now.count("resident_bytes")) + ":";
  for (const client::MemoryUse& use : uses) {
    const std::string next = " " + use.kind + " " + human_bytes(use.bytes);
    if (line.size() + next.size() + 1 > columns) break;
    line += (line.back() == ':' ? "" : ",") + next;
  }
  return line;
}

// The prompt's tokens; while they are computed, how many of them are.
std::string prompt_text(const LiveRequest& request) {
  if (request.state != "running" || request.generated_tokens > 0) return std::to_string(request.prompt_tokens);
  return std::to_string(request.computed_tokens) + "/" + std::to_string(request.prompt_tokens);
}

}  // namespace

std::optional<double> quantile(const ServerStatus& now, const std::optional<ServerStatus>& before,
                               const std::string& histogram, double share) {
  const Metric* const counted = now.metrics.find(histogram);
  if (!counted) return std::nullopt;
  std::vector<std::uint64_t> counts = counted->counts;
  const Metric* const old = before ? before->metrics.find(histogram) : nullptr;
  for (std::size_t i = 0; old && i < std::min(counts.size(), old->counts.size()); ++i) counts[i] -= old->counts[i];
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double below = 0;
  for (std::size_t i = 0; total > 0 && i < std::min(counts.size(), now.histogram_bounds.size()); ++i) {
    below += static_cast<double>(counts[i]);
    if (below >= share * total) return now.histogram_bounds[i];
  }
  return std::nullopt;
}

void TopScreen::show(ServerStatus status) {
  before_ = std::exchange(now_, std::move(status));
  if (before_ && before_->value("uptime_seconds") > now_->value("uptime_seconds"))
    before_.reset();  // another server has come
  away_.clear();
}

void TopScreen::show_away(const std::string& why) { away_ = why; }

TopScreen::Act TopScreen::press(char key) {
  news_.clear();
  if (std::exchange(asks_to_cancel_, false)) return key == 'y' && selected() ? Act::cancel : Act::none;
  switch (key) {
    case 'q':
    case 'Q':
      return Act::stop;
    case ' ':
      return Act::look;
    case 's':
      order_ = order_ == Order::user ? Order::phase : static_cast<Order>(static_cast<int>(order_) + 1);
      return Act::none;
    case 'j':
      choose(1);
      return Act::none;
    case 'k':
      choose(-1);
      return Act::none;
    case 'c':
      asks_to_cancel_ = selected().has_value();
      if (!asks_to_cancel_) say("choose a request first, with j and k");
      return Act::none;
    default:
      return Act::none;
  }
}

std::optional<std::uint64_t> TopScreen::selected() const {
  if (!now_ || !selected_) return std::nullopt;
  const bool lives = std::any_of(now_->live_requests.begin(), now_->live_requests.end(),
                                 [&](const LiveRequest& request) { return request.request == *selected_; });
  return lives ? selected_ : std::nullopt;
}

void TopScreen::choose(int step) {
  if (!now_) return;
  const std::vector<LiveRequest> requests = sorted();
  if (requests.empty()) return;
  const auto chosen = selected();
  std::ptrdiff_t row = step > 0 ? -1 : static_cast<std::ptrdiff_t>(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (chosen == requests[i].request) row = static_cast<std::ptrdiff_t>(i);
  row = std::clamp<std::ptrdiff_t>(row + step, 0, static_cast<std::ptrdiff_t>(requests.size()) - 1);
  selected_ = requests[static_cast<std::size_t>(row)].request;
}

std::vector<LiveRequest> TopScreen::sorted() const {
  std::vector<LiveRequest> live = now_->live_requests;  // oldest first
  const auto tokens = [](const LiveRequest& r) { return std::uint64_t{r.computed_tokens} + r.generated_tokens; };
  switch (order_) {
    case Order::phase:  // those that run first
      std::stable_partition(live.begin(), live.end(), [](const LiveRequest& r) { return r.state == "running"; });
      break;
    case Order::age:
      break;
    case Order::tokens:
      std::stable_sort(live.begin(), live.end(), [&](const auto& a, const auto& b) { return tokens(a) > tokens(b); });
      break;
    case Order::user:
      std::stable_sort(live.begin(), live.end(),
                       [&](const auto& a, const auto& b) { return user_name_(a.uid) < user_name_(b.uid); });
      break;
  }
  return live;
}

std::vector<std::string> TopScreen::table(std::size_t rows) const {
  const std::vector<LiveRequest> requests = sorted();
  const auto chosen = selected();
  char line[200];
  std::vector<std::string> lines;
  std::snprintf(line, sizeof line, "%10s %-10s %-8s %13s %7s %9s %9s %7s", "REQUEST", "USER", "PHASE", "PROMPT",
                "CACHED", "GENERATED", "PREEMPTED", "AGE");
  lines.emplace_back(line);
  // The chosen one is on the screen: the rows begin further down if it must be so.
  std::size_t first = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (chosen == requests[i].request && rows > 3 && i + 3 > rows) first = i + 3 - rows;
  for (std::size_t i = first; i < requests.size() && lines.size() < rows; ++i) {
    const LiveRequest& r = requests[i];
    const std::string phase = r.state != "running" ? r.state : r.generated_tokens > 0 ? "decode" : "prefill";
    std::snprintf(line, sizeof line, "%s%8llu %-10s %-8s %13s %7u %9u %9u %7s", chosen == r.request ? "> " : "  ",
                  static_cast<unsigned long long>(r.request), Printable(user_name_(r.uid), 10).text().c_str(),
                  Printable(phase, 8).text().c_str(), prompt_text(r).c_str(), r.cached_tokens, r.generated_tokens,
                  r.preemptions, clock_text(r.age_seconds).c_str());
    lines.emplace_back(line);
  }
  const std::uint64_t listed = requests.size(), last = first + lines.size() - 1;
  const std::uint64_t all = std::max(listed, num_live(*now_));
  if (lines.size() == rows && last < all && lines.size() > 1)
    lines.back() = "      ... and " + std::to_string(all - last + 1) + " more";
  else if (lines.size() < rows && listed < all)
    lines.push_back("      ... and " + std::to_string(all - listed) + " of other users");
  return lines;
}

std::string TopScreen::bottom() const {
  constexpr const char* kOrders[] = {"phase", "age", "tokens", "user"};
  if (const auto chosen = selected(); asks_to_cancel_ && chosen) {
    std::string whose;
    for (const LiveRequest& request : now_->live_requests)
      if (request.request == *chosen) whose = user_name_(request.uid);
    return "cancel request " + std::to_string(*chosen) + " of " + whose + "?   y: yes   any other key: no";
  }
  if (!news_.empty()) return news_;
  return std::string("q: end   space: look now   s: sort (") + kOrders[static_cast<int>(order_)] +
         ")   j, k: choose   c: cancel";
}

std::vector<std::string> TopScreen::lines(ScreenSize size, bool with_keys) const {
  std::vector<std::string> lines;
  const std::size_t rows = size.rows - std::min<std::size_t>(with_keys, size.rows);
  if (now_) lines = head(*now_, before_);
  if (!away_.empty()) lines.insert(lines.begin(), "no answer (" + away_ + "); trying again. What was seen last:");
  if (now_) {
    lines.push_back(memory(*now_, size.columns));
    lines.emplace_back();
    if (lines.size() + 2 <= rows) {
      const std::vector<std::string> requests = table(rows - lines.size());
      lines.insert(lines.end(), requests.begin(), requests.end());
    }
  }
  if (with_keys && size.rows > 1) {
    lines.resize(rows);
    lines.push_back(bottom());
  }
  if (lines.size() > size.rows) lines.resize(size.rows);
  for (std::string& line : lines) line = Printable(line, size.columns).text();
  return lines;
}

std::string user_name(std::uint32_t uid) {
  std::vector<char> buffer(4096);  // a record that is longer has an unusual field, and is shown by its number
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &record, buffer.data(), buffer.size(), &found) == 0 && found) return found->pw_name;
  return std::to_string(uid);
}

}  // namespace troupe::cli
