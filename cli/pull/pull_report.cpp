#include "cli/pull/pull_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/pull/quant.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/status_line.h"
#include "config/printable.h"

namespace troupe::cli {
namespace {

constexpr std::chrono::seconds kRateOver{10};
constexpr std::chrono::milliseconds kDrawEvery{250}, kEventEvery{1000};
constexpr const char* kWhere = "troupe pull";

void print_event(const nlohmann::ordered_json& event) {
  std::cout << printable_json(event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) << '\n'
            << std::flush;
}

}  // namespace

void TransferRate::add(Time now, std::uint64_t done) {
  if (!points_.empty() && done < points_.back().second) points_.clear();  // begun anew
  points_.emplace_back(now, done);
  while (points_.size() > 2 && points_[1].first + kRateOver < now) points_.pop_front();
}

double TransferRate::bytes_per_second() const {
  if (points_.size() < 2) return 0;
  const std::chrono::duration<double> time = points_.back().first - points_.front().first;
  if (time.count() < 0.5) return 0;
  return static_cast<double>(points_.back().second - points_.front().second) / time.count();
}

std::string time_text(std::uint64_t seconds) {
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min {} s", seconds / 60, seconds % 60);
  return fmt::format("{} h {} min", seconds / 3600, seconds % 3600 / 60);
}

std::string progress_text(std::uint64_t done, std::uint64_t total, double bytes_per_second) {
  const double fraction = total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total);
  std::string text = fmt::format("{}  {} of {}", Progress::bar(fraction), size_text(done), size_text(total));
  if (bytes_per_second < 1) return text;
  text += fmt::format("  {}/s", size_text(static_cast<std::uint64_t>(bytes_per_second)));
  if (done >= total) return text;
  const double left = static_cast<double>(total - done) / bytes_per_second;
  return left > 1e7 ? text : text + fmt::format("  {} left", time_text(static_cast<std::uint64_t>(left + 0.5)));
}

void PullReport::begin(const PullPlan& plan) {
  name_ = plan.model.name;
  rate_ = {};
  tenths_ = 0;
  told_end_ = false;
  if (style_ == Style::json)
    print_event({{"event", "chosen"},
                 {"name", plan.model.name},
                 {"quant", plan.model.quant},
                 {"bytes", plan.bytes()},
                 {"files", plan.files.size()},
                 {"why", plan.why}});
  else if (style_ != Style::quiet)
    complain(kWhere, plan.why.empty()
                         ? fmt::format("{}{}", name_, plan.bytes() == 0 ? "" : ", " + size_text(plan.bytes()))
                         : fmt::format("{}: {}", name_, plan.why));
}

void PullReport::update(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_end = total != 0 && done >= total;
  if (style_ == Style::quiet || total == 0 || told_end_) return;
  if (!is_end && now < shown_ + (style_ == Style::json ? kEventEvery : kDrawEvery)) return;
  shown_ = now;
  told_end_ = is_end;
  rate_.add(now, done);
  if (style_ == Style::line) return StatusLine::of_stderr().draw(progress_text(done, total, rate_.bytes_per_second()));
  if (style_ == Style::json)
    return print_event({{"event", "progress"},
                        {"done", done},
                        {"total", total},
                        {"bytes_per_second", static_cast<std::uint64_t>(rate_.bytes_per_second())}});
  const std::uint64_t tenths = done / std::max<std::uint64_t>(1, total / 10);
  if (tenths <= tenths_) return;
  tenths_ = tenths;
  complain(kWhere, fmt::format("{}: {} % of {}", name_, std::min<std::uint64_t>(100, tenths * 10), size_text(total)));
}

void PullReport::note(const std::string& text) {
  if (style_ == Style::json) return print_event({{"event", "note"}, {"text", text}});
  erase();
  if (style_ != Style::quiet) complain(kWhere, text);
}

void PullReport::pulled(const StoredModel& model, const std::string& path, bool is_new) {
  erase();
  if (style_ == Style::json)
    return print_event({{"event", "pulled"},
                        {"name", model.name},
                        {"bytes", model.bytes()},
                        {"family", model.family},
                        {"path", path},
                        {"new", is_new}});
  if (style_ == Style::quiet) return;
  std::cout << fmt::format("{}{}{}: {}{}{}; troupe serve -m {}\n", is_new ? "pulled " : "", model.name,
                           is_new ? "" : " is up to date", size_text(model.bytes()), model.family.empty() ? "" : ", ",
                           model.family, model.name);
}

void PullReport::erase() const {
  if (style_ == Style::line) StatusLine::of_stderr().erase();
}

}  // namespace troupe::cli
