// What the actors of one unit have in common. It outlives them, so that a restarted actor goes on from it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "actors/models/model_integrity.h"
#include "actors/serving/model_state.h"
#include "actors/serving/stream_counts.h"
#include "actors/status/counters.h"
#include "actors/threads/compute_shares.h"
#include "actors/unit/messages.h"
#include "engine/drafting/earlier_answers.h"

namespace troupe::actors {

// Each part is thread-safe by itself.
struct UnitParts {
  // policy: of the buffers of its passes. accounts: of all units. weight: of its computing beside that of other units.
  UnitParts(UnitId unit, std::string model_name, std::vector<std::string> aliases,
            std::shared_ptr<engine::MemoryPolicy> policy, std::shared_ptr<const WorkClock> clock,
            std::shared_ptr<ServedAccounts> accounts, double weight)
      : id(unit),
        source{.unit = unit, .weight = weight},
        memory_policy(std::move(policy)),
        work(std::move(clock)),
        model(std::move(model_name), std::move(aliases)),
        shares(std::make_shared<ComputeShares>(std::move(accounts), weight)) {}

  // How long its work has waited with nothing done; 0 while it has none, and until its model is loaded. Takes no lock
  // but that of its counters.
  TimePoint::duration without_progress(TimePoint now) const { return counters.without_progress(work->since(), now); }
  // It has no model, and will get none.
  bool failed_to_load() const { return model.readiness() == Readiness::failed && !model.model(); }

  const UnitId id;
  bool on_request = false;            // its model is loaded on request: set before its actors begin
  const scheduler::JobSource source;  // of its jobs
  const std::shared_ptr<engine::MemoryPolicy> memory_policy;  // of the buffers of its passes
  const std::shared_ptr<const WorkClock> work;
  ModelState model;
  Counters counters{std::chrono::steady_clock::now()};
  const std::shared_ptr<ComputeShares> shares;
  // For the batcher alone.
  const std::shared_ptr<engine::EarlierAnswers> earlier_answers = std::make_shared<engine::EarlierAnswers>();
  ModelIntegrity integrity;
  Mailboxes mailboxes;
  UnitQuestions questions;
};

}  // namespace troupe::actors
