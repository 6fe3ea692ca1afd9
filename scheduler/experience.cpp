#include "scheduler/experience.h"

#include <algorithm>

namespace troupe::scheduler {
namespace {

constexpr double kMostSlowdown = 4, kSlowdownDecay = 1.0 / 64;

}  // namespace

void Experience::learn_slowdown(double wall, double step) {
  if (step > 0) slowdown += (std::clamp(wall / step, 1.0, kMostSlowdown) - slowdown) * kSlowdownDecay;
}

}  // namespace troupe::scheduler
