// Shows the progress of loading a model: a bar on a terminal, log lines elsewhere, nothing if it takes under a second.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "config/result.h"
#include "engine/engine.h"

namespace troupe::cli {

class LoadProgress {
 public:
  using Clock = std::chrono::steady_clock;

  // `on_terminal`: stderr is a terminal and may be drawn on.
  LoadProgress(bool on_terminal, Clock::time_point start) : on_terminal_(on_terminal), start_(start) {}

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
  int tenths_logged_ = 0;
};

// Calls engine::LoadedModel::load and shows its progress.
[[nodiscard]] Result<std::shared_ptr<engine::LoadedModel>> load_showing(const std::string& path,
                                                                        engine::LoadOptions load,
                                                                        LoadProgress progress);

}  // namespace troupe::cli
