#include "cli/status/top_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cli/status/refused_most.h"
#include "cli/status/status_report.h"
#include "cli/terminal/text.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using client::LiveRequest;
using client::ServerStatus;

constexpr std::size_t kMaxShownId = 36;  // a UUID
constexpr std::size_t kMaxShownModel = 24;

// 12 -> "12 s", 75 -> "1:15", 4000 -> "1:06:40"
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, seconds));
  if (whole < 60) return fmt::format("{:.1f} s", seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
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

// "tales", or of several models "tales, bert (failed), cats (loading)"; without those that are out of memory.
std::string models_of(const ServerStatus& now) {
  if (now.health.models.size() < 2) return now.model;
  std::string text;
  for (const client::Health::Model& model : now.health.models) {
    if (model.replacing || model.retiring) continue;  // beside the one of that name: model_lines()
    if (model.readiness == client::Readiness::on_request) continue;
    text += (text.empty() ? "" : ", ") + model.name;
    const std::string state = name_of(client::Health{.readiness = model.readiness, .stalled = model.stalled});
    if (state != "ready") text += " (" + state + ")";
  }
  return text.empty() ? now.model : text;
}

// Of the unit that serves the model's name; 0: the server says nothing of it.
double of_model(const ServerStatus& now, std::string_view metric, const std::string& model) {
  for (const Metric& each : now.metrics) {
    const auto has = [&](std::string_view label) {
      return std::ranges::find(each.labels, label, [](const auto& pair) { return std::string_view(pair.first); });
    };
    if (each.name != metric || has("unit") != each.labels.end()) continue;
    if (const auto found = has("model"); found != each.labels.end() && found->second == model) return each.value;
  }
  return 0;
}

// "its canary differed 2 times, its weights 1 time; its file changed on disk"; empty: nothing is wrong with it.
std::string damage_of(const ServerStatus& now, const std::string& model) {
  std::string text;
  const auto add = [&](std::string_view metric, const char* what) {
    const double count = of_model(now, metric, model);
    if (count > 0) text += fmt::format("; {} {} time{}", what, count, count == 1 ? "" : "s");
  };
  add("model_canary_failures", "its canary differed");
  add("model_weights_failures", "its weights were damaged");
  if (of_model(now, "model_file_changed", model) > 0) text += "; its file changed on disk";
  return text;
}

// A line for each model, where there are several, or one that does not simply serve; one for all that are on request,
// out of memory and not asked for.
std::vector<std::string> model_lines(const ServerStatus& now, std::size_t most) {
  const std::vector<client::Health::Model>& models = now.health.models;
  std::vector<std::string> lines;
  bool is_usual = models.size() < 2;
  std::size_t num_out = 0, width = 0;
  for (const client::Health::Model& model : models)
    width = std::max(width, Printable(model.name, kMaxShownModel).text().size());
  for (std::size_t i = 0; i < models.size(); ++i) {
    const client::Health::Model& model = models[i];
    const ServerStatus::ModelUse use =  // in the order of the health
        i < now.models.size() ? now.models[i] : ServerStatus::ModelUse{};
    const bool is_out = model.readiness == client::Readiness::on_request;
    const bool is_other = model.replacing || model.retiring;  // what is counted by its name is not its own
    const std::string damage = is_other ? "" : damage_of(now, model.name);
    is_usual &= model.readiness == client::Readiness::ready && !model.stalled && !is_other && damage.empty();
    if (is_out && use.requests_waiting == 0) {
      ++num_out;
      continue;
    }
    std::string line = fmt::format("{:<{}}  {}", Printable(model.name, kMaxShownModel).text(), width, state_of(model));
    if (i < now.models.size() && !now.own_only)
      line += fmt::format("; {} running, {} waiting, {} parked", use.requests_running, use.requests_waiting,
                          use.requests_parked);
    lines.push_back(line + damage);
  }
  if (is_usual || most == 0) return {};
  if (num_out > 0)
    lines.push_back(fmt::format("{} on request, not in memory; {} requests wait for a load", num_out,
                                now.count("model_load_waiting")));
  if (lines.size() > most) {
    const std::size_t num_left_out = lines.size() - most + 1;
    lines.resize(most);
    lines.back() = fmt::format("... and {} more", num_left_out);
  }
  for (std::size_t i = 0; i < lines.size(); ++i) lines[i] = fmt::format("{:10}{}", i == 0 ? "models" : "", lines[i]);
  return lines;
}

std::vector<std::string> head(const ServerStatus& now, const std::optional<ServerStatus>& before) {
  const Since since{now, before};
  const double steps = since.of("steps");
  const double prompt = since.of("prompt_tokens");
  const double total = now.value("blocks_total"), referenced = now.value("blocks_referenced");
  const double only_cached = total - now.value("blocks_free") - referenced;
  return {
      fmt::format("{}  {}  {}  up {}  {} x {}", now.server, models_of(now), name_of(now.health),
                  clock_text(now.value("uptime_seconds")), now.kernels, now.num_threads),
      fmt::format("requests  {} running, {} waiting, {} parked; {} connections, {} requests so far",
                  now.count("requests_running"), now.count("requests_waiting"), now.count("requests_parked"),
                  now.count("connections"), now.count("requests_received")),
      fmt::format("speed     {:.1f} tokens/s generated, {:.1f} of prompts ({:.0f} % cached)",
                  since.per_second("generated_tokens"), since.per_second("prompt_tokens"),
                  prompt > 0 ? 100 * since.of("cached_tokens") / prompt : 0),
      fmt::format("steps     {:.1f} /s of {:.2f} ms, {} between two (p50 / p99)", since.per_second("steps"),
                  steps > 0 ? 1e3 * since.of("step_seconds") / steps : 0, recent_latency(now, "step_overhead")),
      fmt::format("latency   first token {}, next {} (p50 / p99)", recent_latency(now, "time_to_first_token"),
                  recent_latency(now, "inter_token_latency")),
      fmt::format("cache     [{}] {} in use, {:.0f} cached of {}", bar(referenced, only_cached, total, 30),
                  now.count("blocks_referenced"), only_cached, now.count("blocks_total")),
  };
}

// "memory    42.1 MiB: weights 2.02 MiB, ...", largest first, as many as fit into a line.
std::string memory(const ServerStatus& now, std::size_t columns) {
  std::string line = fmt::format("memory    {}:", human_bytes(now.count("resident_bytes")));
  for (const client::MemoryUse& use : largest_first(now.memory)) {
    const std::string next = fmt::format(" {} {}", use.kind, human_bytes(use.bytes));
    if (line.size() + next.size() + 1 > columns) break;
    line += (line.back() == ':' ? "" : ",") + next;
  }
  return line;
}

// The prompt's tokens; while they are computed, how many of them are.
std::string prompt_text(const LiveRequest& request) {
  if (request.state != "running" || request.generated_tokens > 0) return fmt::format("{}", request.prompt_tokens);
  return fmt::format("{}/{}", request.computed_tokens, request.prompt_tokens);
}

}  // namespace

void TopScreen::show(ServerStatus status) {
  before_ = std::exchange(now_, std::move(status));
  if (before_ && before_->value("uptime_seconds") > now_->value("uptime_seconds")) before_.reset();  // a new server
  away_.clear();
}

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
    case 'k':
      choose(key == 'j' ? 1 : -1);
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

std::string TopScreen::whose(const LiveRequest& request) const {
  return request.tenant.empty() ? user_name_(request.uid) : tenant_name(request.tenant, user_name_);
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
      std::stable_sort(live.begin(), live.end(), [&](const auto& a, const auto& b) { return whose(a) < whose(b); });
      break;
  }
  return live;
}

std::vector<std::string> TopScreen::table(std::size_t rows) const {
  const std::vector<LiveRequest> requests = sorted();
  const auto chosen = selected();
  const bool have_ids = std::ranges::any_of(requests, [](const LiveRequest& r) { return !r.client_id.empty(); });
  std::vector<std::string> lines{fmt::format("{:>10} {:<10} {:<8} {:>13} {:>7} {:>9} {:>9} {:>7}{}", "REQUEST", "USER",
                                             "PHASE", "PROMPT", "CACHED", "GENERATED", "PREEMPTED", "AGE",
                                             have_ids ? "  ID" : "")};
  // The rows begin further down if the chosen one would not be on the screen.
  std::size_t first = 0;
  for (std::size_t i = 0; i < requests.size(); ++i)
    if (chosen == requests[i].request && rows > 3 && i + 3 > rows) first = i + 3 - rows;
  for (std::size_t i = first; i < requests.size() && lines.size() < rows; ++i) {
    const LiveRequest& r = requests[i];
    const std::string phase = r.state != "running" ? r.state : r.generated_tokens > 0 ? "decode" : "prefill";
    lines.push_back(fmt::format("{}{:>8} {:<10} {:<8} {:>13} {:>7} {:>9} {:>9} {:>7}{}",
                                chosen == r.request ? "> " : "  ", r.request, Printable(whose(r), 10).text(),
                                Printable(phase, 8).text(), prompt_text(r), r.cached_tokens, r.generated_tokens,
                                r.preemptions, clock_text(r.age_seconds),
                                r.client_id.empty() ? "" : "  " + Printable(r.client_id, kMaxShownId).text()));
  }
  const std::uint64_t listed = requests.size(), last = first + lines.size() - 1;
  const std::uint64_t all = std::max(listed, num_live(*now_));
  if (lines.size() == rows && last < all && lines.size() > 1)
    lines.back() = fmt::format("      ... and {} more", all - last + 1);
  else if (lines.size() < rows && listed < all)
    lines.push_back(fmt::format("      ... and {} of other users", all - listed));
  return lines;
}

std::string TopScreen::bottom() const {
  constexpr const char* kOrders[] = {"phase", "age", "tokens", "user"};
  if (const auto chosen = selected(); asks_to_cancel_ && chosen) {
    std::string owner;
    for (const LiveRequest& request : now_->live_requests)
      if (request.request == *chosen) owner = whose(request);
    return fmt::format("cancel request {} of {}?   y: yes   any other key: no", *chosen, owner);
  }
  if (!news_.empty()) return news_;
  return fmt::format("q: end   space: look now   s: sort ({})   j, k: choose   c: cancel",
                     kOrders[static_cast<int>(order_)]);
}

std::vector<std::string> TopScreen::lines(ScreenSize size, bool with_keys) const {
  std::vector<std::string> lines;
  const std::size_t rows = size.rows - std::min<std::size_t>(with_keys, size.rows);
  if (now_) lines = head(*now_, before_);
  if (!away_.empty()) lines.insert(lines.begin(), "no answer (" + away_ + "); trying again. What was seen last:");
  if (now_) {
    lines.push_back(memory(*now_, size.columns));
    if (const std::string refused = refused_text(*now_, user_name_); !refused.empty())
      lines.push_back("refused   " + refused);
    const std::vector<std::string> models = model_lines(*now_, rows / 3);
    lines.insert(lines.end(), models.begin(), models.end());
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

std::vector<std::string> TopScreen::colored_lines(ScreenSize size) const {
  std::vector<std::string> all = lines(size, /*with_keys=*/true);
  if (all.empty()) return all;
  if (asks_to_cancel_ && all.size() > 1) all.back() = colored(all.back(), Color::yellow);
  std::size_t first = 0;
  if (!away_.empty()) all[first++] = colored(all[0], Color::yellow);
  if (!now_ || first >= all.size()) return all;
  const std::string name = name_of(now_->health);
  std::string& head = all[first];
  if (const std::size_t state = head.find("  " + name + "  up "); state != std::string::npos)
    head.replace(state + 2, name.size(), colored(name, color_of(now_->health)));
  return all;
}

}  // namespace troupe::cli
