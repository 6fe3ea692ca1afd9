// What the actors of one unit have in common. It outlives them, so that a restarted actor goes on from it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "actors/serving/compute_shares.h"
#include "actors/serving/model_state.h"
#include "actors/status/counters.h"
#include "actors/unit/messages.h"

namespace troupe::actors {

// Each part is thread-safe by itself.
struct UnitParts {
  UnitParts(UnitId unit, std::string model_name) : id(unit), model(std::move(model_name)) {}

  const UnitId id;
  ModelState model;
  Counters counters{std::chrono::steady_clock::now()};
  const std::shared_ptr<ComputeShares> shares = std::make_shared<ComputeShares>();
  Mailboxes mailboxes;
  UnitQuestions questions;
};

}  // namespace troupe::actors
