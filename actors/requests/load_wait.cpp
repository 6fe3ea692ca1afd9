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
      if (wait.progress >= 1) return fmt::format("loading {}, longer than the last time", name);
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

}  // namespace troupe::actors
