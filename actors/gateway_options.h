// The options of a server: its models, limits and timeouts.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/requests/request.h"
#include "actors/requests/session_info.h"
#include "actors/requests/status_snapshot.h"
#include "actors/serving/served_model.h"
#include "config/metric.h"
#include "config/options/model_keys.h"
#include "config/options/server_limits.h"
#include "config/result.h"
#include "engine/compute/profiler.h"
#include "engine/engine.h"

namespace troupe::actors {

struct CatalogEntry;

// A model to serve, and how.
struct ModelSource {
  std::string path{};
  std::string name{};                  // what clients call it; empty: general.name or the file's stem
  std::vector<std::string> aliases{};  // other names that clients may call it by; at most config::kMaxModelAliases
  std::string draft_path{};            // a draft model; empty: none
  ChatTemplateChoice chat_template{};  // instead of the model's own; empty: that
  // `memory`: all that the model may take, weights and cache; 0: its weights and a part of what is left of the server's
  // (MemoryBudget). `max_sequences`, `team` and `progress` are set when it is loaded.
  engine::LoadOptions load{};
  // It is loaded again after its weights or what they compute turned out to be damaged: without the weights cache, and
  // for the last time. What was counted before.
  std::optional<IntegrityCounts> after_damage{};
  double weight = 1;    // of its computing beside other models' (scheduler/job_queue.h)
  bool pinned = false;  // never unloaded to make room for another
  // Loaded when a request asks for it, and put out for others (actors/on_request.h).
  bool on_request = false;
  double keep_alive = std::numeric_limits<double>::infinity();  // of it: seconds without a request, then it is put out
  // Tokens of an answer where neither its request nor a rule for its tenant says how many; none: as the protocol has
  // it.
  std::optional<std::uint32_t> predict{};
  config::ModelDefaults defaults{};  // of its answers, before those that its file names
  // What describe() (models/model_catalog.h) has said of it, without its files, so that they are not read again; null:
  // it was not asked.
  std::shared_ptr<const CatalogEntry> described{};
};

inline constexpr std::size_t kMaxModels = 64;  // names of one server

// Whether a model that is loaded takes the place of the one that has its name, and how (ModelManager::load()).
enum class Replace {
  no,            // the load is refused
  beside,        // it is loaded beside the other one, which serves meanwhile
  unload_first,  // the other one gives its memory back first
};
// "beside", "unload-first"; anything else: no.
[[nodiscard]] Replace replace_of(std::string_view name);

// A model to load while the server runs. What its keys leave out is as GatewayOptions::load, predict and
// keep_alive have it.
struct ModelRequest {
  config::ModelKeys keys{};
  // In Jinja: then keys.chat_template is its name for messages. Empty: that names a template of the server's, or one in
  // the model's file.
  std::string chat_template_source{};
};
// It, and how it is served. `keys` are right (config::problem_of()).
[[nodiscard]] ModelSource source_of(ModelRequest request, const engine::LoadOptions& load,
                                    std::optional<std::uint32_t> predict,
                                    double keep_alive = std::numeric_limits<double>::infinity());

struct GatewayOptions : config::GatewayLimits, SessionsPlace {
  std::vector<ModelSource> models;         // at most kMaxModels; the first one is the default
  std::uint64_t memory = 0;                // bytes for all models together; 0: engine::default_memory_budget()
  engine::LoadOptions load;                // of models that are loaded later (Gateway::load_model())
  std::optional<std::uint32_t> predict{};  // likewise, ModelSource::predict
  double keep_alive = std::numeric_limits<double>::infinity();  // likewise, ModelSource::keep_alive
  engine::Speculation speculation;                              // of requests that do not choose another
  bool verify_all_drafts = false;                               // PlannerOptions::verify_all_drafts
  std::string canary_file{};                                    // ModelIntegrity::watch(); empty: none
  std::string no_canary_file_because{};                         // why there is none, if one was wanted
  std::uint32_t num_threads = 0;                                // of the compute team; 0: engine::default_num_threads()
  // Steps are measured for so long when the model is loaded, or for a twentieth of the loading if that is longer; 0:
  // not at all. Until then deadlines are not checked, and prompts not cut (batching/measure_steps.h).
  std::chrono::milliseconds max_measuring{200};
  // Whether a model that is loaded can be served: an error fails its loading. Called on the loader's thread; may be
  // empty.
  std::function<Status(const ServedModel&)> check_model;
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

  // The default model, which is added if there is none.
  ModelSource& model() {
    if (models.empty()) models.emplace_back();
    return models.front();
  }
};

}  // namespace troupe::actors
