// A model manager on CAF's deterministic scheduler, with work for later that runs between its events.
#pragma once

#include <caf/all.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/unit/model_manager.h"
#include "tests/actors/clients.h"
#include "tests/actors/stage.h"

namespace troupe::actors::test {

// Without a unit of its own.
struct Machine {
  Machine()
      : streams({.max_requests_per_user = 64, .max_queued_requests = 64, .max_queued_tokens = 1u << 20}),
        system(config),
        models(system, std::uint64_t{1} << 30, [this](std::function<void()> work) {
          if (ending) return work();
          later.push_back(std::move(work));
        }) {}
  ~Machine() {
    End end;
    end.outcome = scheduler::Outcome::cancelled;
    streams.end_all(end, end, now());
    for (const auto& unit : models.units()) unit->stop();
    run();
    ending = true;
    models.drop_units();
  }
  ServerContext context() {
    return {.options = options, .streams = streams, .memory = memory, .texts = texts, .compute = compute, .faults = {}};
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }
  TimePoint now() { return scheduler().clock().now(); }
  void run() {
    do scheduler().run();
    while (do_later() || scheduler().clock().trigger_timeout());
  }
  // Without time.
  void run_now() {
    do scheduler().run();
    while (do_later());
  }
  bool do_later() {
    if (later.empty()) return false;
    const std::function<void()> work = std::move(later.front());
    later.erase(later.begin());
    work();
    return true;
  }
  ModelUnit& add(const std::string& path, const std::string& alias) {
    engine::LoadOptions load;
    load.num_blocks = 32;
    std::vector<CatalogEntry> entries;
    entries.push_back(describe({.path = path, .name = alias, .load = load}));
    models.add(context(), std::move(entries));
    return *models.find(alias);
  }
  void load(ModelSource source, OnModelChange done) { models.load(context(), {{std::move(source), std::move(done)}}); }
  void replace(ModelSource source, Replace how, OnModelChange done) {
    models.load(context(), {{std::move(source), std::move(done), how}});
  }
  // As the gateway does.
  RequestId submit(Request request, std::shared_ptr<Listener> sink) {
    const std::string name = request.model;
    std::shared_ptr<ModelUnit> unit;
    const RequestId id = models.route(name, [&](const std::shared_ptr<ModelUnit>& serving) {
      unit = serving;
      REQUIRE(unit);
      request.model = unit->name();
      return streams.add(std::move(request), std::move(sink), now(), unit->id());
    });
    REQUIRE_FALSE(streams.take_queue_room(id, now()));
    unit->submit(id);
    return id;
  }

  GatewayOptions options;
  StreamTable streams;
  MemorySurvey memory{[] { return MemoryReport{}; }};
  TextThreads texts{{.max_large = 1}};
  InlineCompute compute;
  TestConfig config;
  caf::actor_system system;
  std::vector<std::function<void()>> later;
  bool ending = false;
  ModelManager models;
};

inline const std::string kTales = std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf";
inline const std::string kBert = TROUPE_TEST_DATA "/tiny-bert.gguf";

inline Request story(const std::string& model, std::uint32_t max_tokens = 12) {
  Request request =
      request_for({.id = 0, .sink = {}, .prompt = {1, 300, 301}, .drawn = false, .max_tokens = max_tokens});
  request.model = model;
  return request;
}

// What became of a wish to load or unload.
struct Wish {
  OnModelChange callback() {
    return [this](ModelChange change) {
      ++count;
      if (auto* end = std::get_if<End>(&change))
        refused = std::move(*end);
      else
        health = std::get<ModelHealth>(std::move(change));
    };
  }
  int count = 0;
  std::optional<ModelHealth> health;
  std::optional<End> refused;
};

inline ModelSource source(const std::string& name, const std::string& path = kTales) {
  return {.path = path, .name = name, .load = {.num_blocks = 32}};
}

}  // namespace troupe::actors::test
