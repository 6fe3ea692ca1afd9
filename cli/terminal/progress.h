// Shows the progress of what takes long, as loading a model: a bar on a terminal, log lines elsewhere, nothing if it
// takes under a second.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::cli {

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `on_terminal`: stderr is a terminal and may be drawn on.
  Progress(bool on_terminal, Clock::time_point start, std::string what = "loading")
      : on_terminal_(on_terminal), start_(start), what_(std::move(what)) {}

  bool on_terminal() const { return on_terminal_; }

  // Shows that `fraction` (0 to 1) is done at `now`: redraws the bar, or logs each full tenth once.
  void update(double fraction, Clock::time_point now);
  // Erases the bar.
  void finish() const;

  // "[#########...........]  45 %"
  static std::string bar(double fraction);

 private:
  bool on_terminal_;
  Clock::time_point start_;
  std::string what_;
  int tenths_logged_ = 0;
};

// Calls engine::LoadedModel::load and shows its progress.
[[nodiscard]] Result<std::shared_ptr<engine::LoadedModel>> load_showing(const std::string& path,
                                                                        engine::LoadOptions load, Progress progress);

}  // namespace troupe::cli
