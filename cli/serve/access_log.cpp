#include "cli/serve/access_log.h"

#include <fmt/format.h>
#include <spdlog/details/log_msg.h>
#include <spdlog/sinks/sink.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "actors/requests/usage_report.h"
#include "cli/terminal/log_queue.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

using scheduler::OutcomeKind;

// A line of text, or an object of JSON, of the same fields.
class LineWriter {
 public:
  explicit LineWriter(bool json) : json_(json), line_(json ? "{" : kRequestLogger) {}

  void number(std::string_view name, std::uint64_t value) { add(name, fmt::format("{}", value)); }
  void milliseconds(std::string_view name, double seconds) { add(name, fmt::format("{:.3f}", seconds * 1000)); }
  // Empty: there is none.
  void text(std::string_view name, std::string_view value) {
    if (value.empty()) return none(name);
    // Cut off before, as a client may send a name of megabytes.
    const Printable shown(value.substr(0, kMaxAccessTextBytes + 1), kMaxAccessTextBytes);
    add(name, json_ || !is_plain(shown) ? nlohmann::json(shown.text()).dump() : shown.text());
  }
  void none(std::string_view name) { add(name, json_ ? "null" : "-"); }

  [[nodiscard]] std::string end() && { return std::move(json_ ? line_ += '}' : line_); }

 private:
  // Other text is quoted, so that it cannot be taken for further fields.
  static bool is_plain(std::string_view text) {
    return text != "-" && std::ranges::all_of(text, [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    std::string_view("-_.:/+@").find(c) != std::string_view::npos;
           });
  }
  void add(std::string_view name, std::string_view value) {
    if (!json_)
      fmt::format_to(std::back_inserter(line_), " {}={}", name, value);
    else
      fmt::format_to(std::back_inserter(line_), "{}\"{}\":{}", line_.size() == 1 ? "" : ",", name, value);
  }

  const bool json_;
  std::string line_;
};

std::string_view ended_how(scheduler::Outcome outcome) {
  if (actors::counts_as_cancelled(outcome)) return "cancelled";
  const OutcomeKind kind = scheduler::info(outcome).kind;
  return kind == OutcomeKind::refused ? "refused" : kind == OutcomeKind::failed ? "failed" : "done";
}

}  // namespace

std::string access_line(const actors::EndedRequest& request, std::uint64_t left_out, bool json) {
  LineWriter line(json);
  const actors::Usage& usage = request.usage;
  request.request == 0 ? line.none("id") : line.number("id", request.request);
  line.text("client_id", request.client_id);
  line.text("tenant", scheduler::label_of(request.tenant));
  line.text("protocol", request.protocol == actors::Protocol::http ? "http" : "frames");
  line.text("kind", request.kind);
  line.number("choice", request.choice);
  line.text("model", request.model);
  line.text("outcome", ended_how(request.outcome));
  line.text("code", scheduler::info(request.outcome).name);
  line.number("prompt_tokens", usage.prompt_tokens);
  line.number("cached_tokens", usage.cached_tokens);
  line.number("answer_tokens", usage.completion_tokens);
  request.request == 0 ? line.none("queue_ms") : line.milliseconds("queue_ms", usage.queue_seconds);
  usage.completion_tokens == 0 ? line.none("ttft_ms") : line.milliseconds("ttft_ms", usage.ttft_seconds);
  line.milliseconds("total_ms", request.total_seconds);
  if (usage.tool_calls > 0) line.number("tool_calls", usage.tool_calls);
  if (left_out > 0) line.number("left_out", left_out);
  return std::move(line).end();
}

AccessLog::~AccessLog() {
  const std::lock_guard lock(mutex_);
  tell_left_out();
}

Status AccessLog::open(const config::LogOptions& options) {
  auto opened = open_request_lines(options);
  if (!opened) return opened.error();
  RequestLines before;  // ends without the lock: its queue is written
  const std::lock_guard lock(mutex_);
  tell_left_out();
  if (lines_.own_queue) num_dropped_ += lines_.own_queue->num_dropped();
  before = std::exchange(lines_, std::move(*opened));
  is_json_ = options.log_format == "json";
  quota_.reset();
  if (lines_.sink) quota_.emplace(options.max_access_lines_per_second);
  return Ok{};
}

void AccessLog::add(const actors::EndedRequest& request, actors::TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (!lines_.sink) return;
  const bool is_refused = scheduler::info(request.outcome).kind == OutcomeKind::refused;
  const double seconds = std::chrono::duration<double>(now.time_since_epoch()).count();
  if (const auto left_out = quota_->take(request.tenant, is_refused, seconds))
    lines_.sink->log({kRequestLogger, spdlog::level::info, access_line(request, *left_out, is_json_)});
  else
    ++num_left_out_;
}

// With the lock held: those that no later line tells of.
void AccessLog::tell_left_out() {
  if (!lines_.sink || quota_->num_untold() == 0) return;
  lines_.sink->log(
      {"troupe", spdlog::level::warn,
       fmt::format("{} lines about requests were left out (max-access-lines-per-second)", quota_->num_untold())});
}

void AccessLog::append_metrics(MetricList& metrics) const {
  const std::lock_guard lock(mutex_);
  append_log_metrics(metrics, num_dropped_ + (lines_.own_queue ? lines_.own_queue->num_dropped() : 0));
  metrics.counter("access_lines_left_out", "Lines about requests that max-access-lines-per-second left out.",
                  num_left_out_);
}

}  // namespace troupe::cli
