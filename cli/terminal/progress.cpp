#include "cli/terminal/progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "cli/terminal/status_line.h"

namespace troupe::cli {

void Progress::update(double fraction, Clock::time_point now) {
  if (now - start_ < std::chrono::seconds(1)) return;
  if (on_terminal_) return StatusLine::of_stderr().draw(what_ + " " + bar(fraction));
  const int tenths = static_cast<int>(fraction * 10);
  if (tenths > tenths_logged_) {
    tenths_logged_ = tenths;
    spdlog::info("{}: {} %", what_, tenths * 10);
  }
}

void Progress::finish() const {
  if (on_terminal_) StatusLine::of_stderr().erase();
}

std::string Progress::bar(double fraction) {
  constexpr int kWidth = 40;
  const double clamped = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(clamped * kWidth);
  return fmt::format("[{}{}] {:3} %", std::string(filled, '#'), std::string(kWidth - filled, '.'),
                     static_cast<int>(clamped * 100));
}

Result<std::shared_ptr<engine::LoadedModel>> load_showing(const std::string& path, engine::LoadOptions load,
                                                          Progress progress) {
  if (progress.on_terminal()) log_above(StatusLine::of_stderr(), *spdlog::default_logger());
  load.progress = [&progress](double fraction) { progress.update(fraction, Progress::Clock::now()); };
  auto model = engine::LoadedModel::load(path, load);
  progress.finish();
  return model;
}

}  // namespace troupe::cli
