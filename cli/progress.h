// How far a model is loaded: a bar on a terminal, log lines elsewhere, and nothing if it takes under a second.
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

  // Shows that `fraction` (0 to 1) is done at `now`: redraws the bar, or logs each full tenth once.
  void update(double fraction, Clock::time_point now);
  // Takes the bar off the screen.
  void finish();

  // "[#########...........]  45 %"
  static std::string bar(double fraction);

 private:
  bool on_terminal_;
  Clock::time_point start_;
  bool drawn_ = false;
  int tenths_logged_ = 0;
};

// engine::LoadedModel::load, with `progress` showing how far it is.
[[nodiscard]] Result<std::shared_ptr<engine::LoadedModel>> load_showing(const std::string& path,
                                                                        engine::LoadOptions load,
                                                                        LoadProgress progress);

}  // namespace troupe::cli
