#include "cli/progress.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>

namespace troupe::cli {

void LoadProgress::update(double fraction, Clock::time_point now) {
  if (now - start_ < std::chrono::seconds(1)) return;
  if (on_terminal_) {
    std::fprintf(stderr, "\rloading %s", bar(fraction).c_str());
    std::fflush(stderr);
    drawn_ = true;
    return;
  }
  const int tenths = static_cast<int>(fraction * 10);
  if (tenths > tenths_logged_) {
    tenths_logged_ = tenths;
    spdlog::info("loading: {} %", tenths * 10);
  }
}

void LoadProgress::finish() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

std::string LoadProgress::bar(double fraction) {
  constexpr int kWidth = 40;
  const double clamped = std::clamp(fraction, 0.0, 1.0);
  const int filled = static_cast<int>(clamped * kWidth);
  char percent[8];
  std::snprintf(percent, sizeof percent, "%3d %%", static_cast<int>(clamped * 100));
  return "[" + std::string(filled, '#') + std::string(kWidth - filled, '.') + "] " + percent;
}

Result<std::shared_ptr<engine::LoadedModel>> load_showing(const std::string& path, engine::LoadOptions load,
                                                          LoadProgress progress) {
  load.progress = [&progress](double fraction) { progress.update(fraction, LoadProgress::Clock::now()); };
  auto model = engine::LoadedModel::load(path, load);
  progress.finish();
  return model;
}

}  // namespace troupe::cli
