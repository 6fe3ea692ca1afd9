#include "actors/requests/load_wait.h"

#include <fmt/format.h>

#include <cmath>

#include "config/printable.h"

namespace troupe::actors {

std::string to_text(const LoadWait& wait) {
  const std::string name = Printable(wait.model).text();
  const std::string left =
      std::isfinite(wait.left_seconds) ? fmt::format("; about {:.0f} s more", std::ceil(wait.left_seconds)) : "";
  switch (wait.why) {
    case LoadWait::Why::load: {
      // Of the load alone: progress is its part of the time that it should take.
      const double all = wait.progress < 1 ? wait.left_seconds / (1 - wait.progress) : wait.left_seconds;
      if (wait.progress >= 1) return fmt::format("loading {}, longer than was expected", name);
      return fmt::format("loading {}, {:.0f} s of about {:.0f} s", name, std::floor(all * wait.progress),
                         std::ceil(all));
    }
    case LoadWait::Why::turn:
      return fmt::format("waiting to load {}: the turn of another model is not over{}", name, left);
    case LoadWait::Why::queue:
      return wait.models_before > 0
                 ? fmt::format("waiting to load {}: {} models are loaded before{}", name, wait.models_before, left)
                 : fmt::format("waiting to load {}: it is put out of memory first{}", name, left);
    case LoadWait::Why::room:
      return fmt::format("waiting to load {}: others use the memory", name);
  }
  return name;
}

void OnRequestCounts::append_metrics(MetricList& out) const {
  const auto number = [](std::uint64_t count) { return static_cast<double>(count); };
  out.gauge("models_on_request", "Models that are loaded when a request asks for them.", number(num_known));
  out.gauge("models_on_request_loaded", "Of those, models that are in memory.", number(num_loaded));
  out.gauge("model_load_waiting", "Requests that wait for such a model to be loaded.", number(num_waiting));
  out.counter("model_loads_on_request", "How often such a model was loaded.", number(num_loads));
  out.counter("model_loads_on_request_failed", "How often such a load failed.", number(num_failed_loads));
  out.counter("model_load_on_request_seconds", "Seconds that these loads took, also those that failed.", load_seconds);
  out.gauge("model_loading_share",
            "The part of the last minutes in which such a model was being loaded, 0 to 1: a mean that decays over five "
            "minutes.",
            loading_share);
}

}  // namespace troupe::actors
