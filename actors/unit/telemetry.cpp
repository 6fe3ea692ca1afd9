#include "actors/unit/telemetry.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "actors/serving/model_cache.h"
#include "actors/serving/served_model.h"

namespace troupe::actors {

void UnitQuestions::answer_status(std::uint64_t number) {
  if (const auto query = status.take(number)) (*query)->counted();
}

void UnitQuestions::answer_all_status() {
  for (const auto& query : status.take_all()) query->counted();
}

Telemetry::Telemetry(caf::actor_config& cfg, UnitQuestions& questions)
    : ActorBase(cfg, "telemetry"), questions_(questions) {}

caf::behavior Telemetry::make_behavior() {
  return {
      [this](const msg::Snapshot& snapshot) {
        if (!snapshot.batcher) return questions_.answer_status(snapshot.number);
        send(snapshot.batcher, msg::Fence{this, snapshot.number});
        delayed_send(this, kFenceTimeout, msg::Fenced{snapshot.number});
      },
      [this](const msg::Fenced& fenced) { questions_.answer_status(fenced.number); },  // the first of the two
      msg::throw_for_test,
  };
}

ModelHealth health_of(const ServerContext& server, const UnitParts& unit, TimePoint now) {
  ModelHealth health{.name = unit.model.name(),
                     .aliases = unit.model.aliases(),
                     .readiness = unit.model.readiness(),
                     .load_fraction = unit.model.fraction(),
                     .stalled = unit.without_progress(now) > server.options.progress_timeout};
  if (const auto error = unit.model.error()) health.problem = error->message;
  health.replacing = unit.model.replacing();
  health.retiring = unit.model.retiring();
  health.on_request = unit.on_request;
  return health;
}

Readiness counted_as(Readiness of_model, bool on_request) {
  const bool comes = of_model == Readiness::on_request || (on_request && of_model == Readiness::loading);
  return comes ? Readiness::ready : of_model;
}

Readiness readiness_of(const std::vector<Readiness>& models) {
  for (const Readiness each : {Readiness::ready, Readiness::loading, Readiness::draining})
    if (std::ranges::find(models, each) != models.end()) return each;
  return Readiness::failed;
}

namespace {

ModelReport report_of(const ServerContext& server, const UnitParts& unit, const MemoryOfUnits& memory, TimePoint now) {
  ModelReport report{.health = health_of(server, unit, now)};
  if (const auto model = unit.model.model()) {
    report.numerics_id = model->numerics_id();
    report.kernels = model->kernels().name;
    report.weight_bytes = model->weight_bytes();
    if (const auto& language_model = model->language_model()) report.kv_bytes = kv_bytes(*language_model);
    if (model->tool_format() != nullptr) report.tool_format = model->tool_format()->name;
  }
  for (const auto& [id, bytes] : memory)
    if (id == unit.id) report.memory = bytes;
  report.integrity = unit.integrity.counts();
  const UnitCounts counts = server.streams.counts(unit.id);
  report.states = counts.states;
  report.tokens = counts.tokens;
  report.tool_calls = counts.tool_calls;
  return report;
}

// Appends `own`, of a unit. Of one that replaces, or was replaced, under its number, too: another has its name.
void append_own(MetricList& metrics, const MetricList& own, const UnitParts& unit, const ModelHealth& health) {
  for (Metric metric : own) {
    if (health.replacing || health.retiring) metric.labels.emplace_back("unit", std::to_string(unit.id));
    metrics.append(std::move(metric));
  }
}

void append_integrity(MetricList& metrics, const IntegrityCounts& counts, const MetricExtras& extras) {
  metrics.counter("model_canary_runs", "How often this model's canary was computed.", counts.canary_runs, extras);
  metrics.counter("model_canary_failures", "How often it differed from that of its load, or of an earlier one.",
                  counts.canary_failures, extras);
  metrics.counter("model_weights_checked_bytes",
                  "Bytes of this model's weights that were compared with their checksums.", counts.checked_bytes,
                  extras);
  metrics.counter("model_weights_failures", "How often such bytes were damaged.", counts.weight_failures, extras);
  metrics.gauge("model_weights_watched_bytes", "Bytes of this model's weights that have checksums.",
                static_cast<double>(counts.weight_bytes), extras);
  metrics.gauge("model_canary_timestamp_seconds", "When its canary was last right, in seconds since 1970.",
                static_cast<double>(counts.last_canary), extras);
  metrics.gauge("model_weights_timestamp_seconds", "When all its weights were last found right, in seconds since 1970.",
                static_cast<double>(counts.last_pass), extras);
  metrics.gauge("model_file_changed", "1 if a file of this model on disk is not what was loaded.", counts.file_changed,
                extras);
}

// One row for each model, whichever it is.
void append_report(MetricList& metrics, const ModelReport& report) {
  const auto labels = [&](std::pair<std::string, std::string> more = {}) {
    MetricExtras extras{.labels = {{"model", report.health.name}}};
    if (!more.first.empty()) extras.labels.push_back(std::move(more));
    return extras;
  };
  const auto for_guests = [&] {
    MetricExtras extras = labels();
    extras.for_guests = true;
    return extras;
  };
  metrics.gauge("model_ready", "1 while requests to this model are served, also if the first one has it loaded.",
                counted_as(report.health.readiness, report.health.on_request) == Readiness::ready, for_guests());
  metrics.gauge("model_stalled", "1 while requests to this model wait and no step ends.", report.health.stalled,
                for_guests());
  metrics.gauge("model_load_fraction", "How much of this model is loaded, 0 to 1.", report.health.load_fraction,
                for_guests());
  const auto requests = [&](const char* state, std::uint64_t count) {
    metrics.gauge("model_requests", "Live requests to this model.", static_cast<double>(count),
                  labels({"state", state}));
  };
  requests("waiting", report.states.waiting);
  requests("running", report.states.running);
  requests("parked", report.states.parked);
  metrics.counter("model_prompt_tokens", "Tokens of prompts that this model began.", report.tokens.prompt, labels());
  metrics.counter("model_cached_tokens", "Of those, found in its prefix cache.", report.tokens.cached, labels());
  metrics.counter("model_generation_tokens", "Tokens that this model generated.", report.tokens.generated, labels());
  if (!report.tool_format.empty())
    metrics.counter("tool_calls", "Calls of tools in this model's answers, by the format in which it calls.",
                    report.tool_calls, {.labels = {{"format", report.tool_format}, {"model", report.health.name}}});
  const auto memory = [&](const char* kind, std::uint64_t bytes) {
    metrics.gauge("model_memory_bytes", "Resident memory of this model by kind.", static_cast<double>(bytes),
                  labels({"kind", kind}));
  };
  memory("weights", report.memory.weights);
  memory("kv_cache", report.memory.kv_cache);
  memory("snapshots", report.memory.snapshots);
  memory("step_buffers", report.memory.step_buffers);
  memory("vocabulary", report.memory.vocabulary);
  memory("forms", report.memory.forms);
  append_integrity(metrics, report.integrity, labels());
}

// The counters of the unit's steps and cache.
void append_unit(MetricList& metrics, const ServerContext& server, const UnitParts& unit, TimePoint now) {
  unit.counters.append_metrics(metrics, now);
  const auto lock = unit.shares->lock();
  append_experience(metrics, *unit.shares->experience(), server.options.max_stall);
}

}  // namespace

StatusSnapshot take_snapshot(const ServerContext& server, const std::vector<std::shared_ptr<const UnitParts>>& units,
                             TimePoint now) {
  MemoryReport memory = server.memory.last();
  StatusSnapshot snapshot;
  std::vector<Readiness> readiness;
  TimePoint::duration still{};
  for (const auto& unit : units) {
    const ModelReport& report = snapshot.models.emplace_back(report_of(server, *unit, memory.units, now));
    if (!report.health.replacing && !report.health.retiring)
      readiness.push_back(counted_as(report.health.readiness, report.health.on_request));
    snapshot.stalled |= report.health.stalled;
    still = std::max(still, unit->without_progress(now));
  }
  const ModelReport& of_default = snapshot.models.front();
  snapshot.readiness = readiness_of(readiness);
  snapshot.load_fraction = of_default.health.load_fraction;
  snapshot.model = of_default.health.name;
  snapshot.numerics_id = of_default.numerics_id;
  const auto loaded = std::ranges::find_if(snapshot.models, [](const auto& each) { return !each.kernels.empty(); });
  snapshot.kernels = loaded == snapshot.models.end() ? std::string() : loaded->kernels;  // the default one's first
  snapshot.weight_bytes = of_default.weight_bytes;
  snapshot.kv_bytes = of_default.kv_bytes;
  snapshot.num_threads = server.options.num_threads;
  StreamCounts counts = server.streams.counts();
  snapshot.tenants = server.streams.tenants().all();
  snapshot.requests = server.streams.views(now);
  snapshot.memory = std::move(memory.kinds);
  if (server.options.profiler) snapshot.profile = server.options.profiler->snapshot();

  MetricList& metrics = snapshot.metrics;
  metrics.gauge("uptime_seconds", "Since the start.", seconds_between(server.started, now), {.for_guests = true});
  counts.append_metrics(metrics, now);
  for (std::size_t i = 0; i < units.size(); ++i) {
    MetricList own, of_unit;
    append_unit(of_unit, server, *units[i], now);
    for (Metric metric : of_unit) {
      metric.labels.emplace_back("model", snapshot.models[i].health.name);
      if (i > 0) metric.key.clear();  // the field of that name is of the default model
      own.append(std::move(metric));
    }
    units[i]->counters.append_drafts(own, snapshot.models[i].health.name);
    append_own(metrics, own, *units[i], snapshot.models[i].health);
  }
  for (std::size_t i = 0; i < units.size(); ++i) {
    MetricList own;
    append_report(own, snapshot.models[i]);
    append_own(metrics, own, *units[i], snapshot.models[i].health);
  }
  if (server.options.append_metrics) server.options.append_metrics(metrics);
  metrics.gauge("ready", "1 while requests are served.", snapshot.readiness == Readiness::ready, {.for_guests = true});
  metrics.gauge("stalled", "1 while requests wait and no step ends.", snapshot.stalled, {.for_guests = true});
  metrics.gauge("last_step_age_seconds", "Since the last progress, while there is work.",
                std::chrono::duration<double>(still).count());
  metrics.gauge("resident_memory_bytes", "Resident memory of the server.", memory.resident_bytes,
                {.key = "resident_bytes"});
  metrics.gauge("resident_memory_peak_bytes", "The most so far.", memory.peak_resident_bytes,
                {.key = "peak_resident_bytes"});
  return snapshot;
}

}  // namespace troupe::actors
