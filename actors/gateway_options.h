// The options of a server: its model, limits and timeouts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/requests/request.h"
#include "actors/requests/session_info.h"
#include "actors/serving/served_model.h"
#include "config/metric.h"
#include "config/options/server_limits.h"
#include "engine/compute/profiler.h"
#include "engine/engine.h"

namespace troupe::actors {

struct GatewayOptions : config::GatewayLimits, SessionsPlace {
  std::string model_path;
  std::string draft_path;            // a draft model; empty: none
  std::string model_alias;           // what clients call it; empty: general.name or the file's stem
  ChatTemplateChoice chat_template;  // instead of the model's own; empty: that
  engine::LoadOptions load;          // ModelUnit sets `team`, `memory` and `progress`
  engine::Speculation speculation;   // of requests that do not choose another
  bool verify_all_drafts = false;    // PlannerOptions::verify_all_drafts
  std::uint32_t num_threads = 0;     // of the compute team; 0: engine::default_num_threads()
  // Steps are measured for so long when the model is loaded, or for a twentieth of the loading if that is longer; 0:
  // not at all. Until then deadlines are not checked, and prompts not cut (serving/measure_steps.h).
  std::chrono::milliseconds max_measuring{200};
  // For measuring: called with the result of every step before its tokens are delivered, on a thread of the server.
  // Must not block. May be empty.
  std::function<void(const engine::StepResult&)> on_step;
  // Called for every choice that has ended, however it ended, before its client knows of it, and for computing charged
  // after an end: on any thread. Must not block nor call back. May be empty.
  std::function<void(const UsageEntry&)> on_usage;
  // Records the operations of every step (engine/compute/profiler.h). May be null.
  std::shared_ptr<engine::Profiler> profiler;
  // Adds what the program counts outside of the gateway to every status. Must not block. May be empty.
  std::function<void(MetricList&)> append_metrics;
};

}  // namespace troupe::actors
