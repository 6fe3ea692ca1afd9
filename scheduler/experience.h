// What a model's batchers learn of its requests and steps.
#pragma once

#include <cstdint>

#include "scheduler/bookings.h"
#include "scheduler/cost_model.h"
#include "scheduler/deadline_forecast.h"
#include "scheduler/promises.h"

namespace troupe::scheduler {

// What the batchers of one model learn; the next one goes on with it. Not thread-safe.
struct Experience {
  CostModel costs;
  AnswerLengths answers;
  PromiseMargins first_margins, last_margins;  // of promised first and last tokens
  Bookings bookings;                           // of requests that were refused for their deadlines
  RecentUse use;
  double slowdown = 1;                               // ForecastServer::slowdown, a decayed mean
  std::uint64_t promised = 0, kept = 0, missed = 0;  // deadlines; the rest is open, or was cancelled

  // From the end of one step to the end of the next, which it followed without a pause, `wall` seconds passed; the step
  // itself took `step` of them.
  void learn_slowdown(double wall, double step);
};

}  // namespace troupe::scheduler
