// Models that are loaded when a request asks for them, as requests and the status see it.
#pragma once

#include <cstdint>
#include <string>

#include "config/metric.h"

namespace troupe::actors {

// Why a request waits for its model.
struct LoadWait {
  enum class Why : std::uint8_t {
    load,   // it is being loaded
    turn,   // another model's turn is not over, or its requests end
    queue,  // other models are loaded before
    room,   // others use the memory, and its tenant may not put their models out
  };
  std::string model{};
  Why why = Why::load;
  double waited_seconds = 0;
  double left_seconds = 0;          // an estimate, until the model is loaded; infinite: there is none
  double progress = 0;              // of the load, 0 to 1
  std::uint32_t models_before = 0;  // queue: that are loaded before
};
// One line: "loading tales, 12 s of about 40 s". It names no other model.
[[nodiscard]] std::string to_text(const LoadWait& wait);

// Counts since the server's start, and what is so now.
struct OnRequestCounts {
  std::uint64_t num_loads = 0, num_failed_loads = 0;
  double load_seconds = 0;
  double loading_share = 0;                     // ModelResidency::loading_share()
  std::uint64_t num_waiting = 0;                // requests
  std::uint64_t num_known = 0, num_loaded = 0;  // models

  void append_metrics(MetricList& out) const;
};

}  // namespace troupe::actors
