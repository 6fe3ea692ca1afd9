// The whole troupe of actors on CAF's deterministic scheduler: one event at a time, virtual time, steps computed
// inside the worker's handler by the real engine.
#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/requests/request_check.h"
#include "actors/unit/model_unit.h"
#include "actors/unit/telemetry.h"
#include "tests/support/sanitized.h"
#include "tests/support/shared_data.h"

namespace troupe::actors::test {

// Under sanitizers the long tests take one case of so many.
inline constexpr unsigned kThinning = troupe::test::kSanitized ? 8 : 1;

class InlineCompute final : public Compute {
 public:
  void post(const scheduler::JobSource& /*source*/, scheduler::Job job) override { post(std::move(job.run)); }
  void post_load(std::function<void(engine::Team&)> load) override {
    post([this, load = std::move(load)] { load(team_); });
  }
  void measure(const scheduler::JobSource& /*source*/, const std::function<void()>& job) override { job(); }
  // While set, jobs wait for run_one(): a posted job counts as being computed, and other messages arrive meanwhile.
  bool hold = false;
  [[nodiscard]] bool is_computing() const { return !held_.empty(); }
  void run_one() {
    const std::function<void()> job = std::move(held_.front());
    held_.pop_front();
    job();
  }
  engine::Team& team() override { return team_; }

 private:
  void post(std::function<void()> job) {
    if (hold) {
      held_.push_back(std::move(job));
    } else {
      job();
    }
  }

  std::deque<std::function<void()>> held_;
  engine::Team team_{1};
};

// Records all calls; needs no lock, there is one thread.
struct Listener : StreamSink {
  void admitted(const Admitted& choice) override { admitted_ = choice; }
  void tokens(TokenRun run) override {
    CHECK_FALSE(end_);
    CHECK(run.first_index == ids.size());
    ids.insert(ids.end(), run.ids.begin(), run.ids.end());
    text += run.text;
  }
  void end(End end) override {
    CHECK_FALSE(end_);
    end_ = std::move(end);
  }
  std::optional<Admitted> admitted_;
  std::vector<TokenId> ids;
  std::string text;
  std::optional<End> end_;
};

inline std::shared_ptr<engine::LoadedModel> load_model(const std::string& path, const engine::LoadOptions& options) {
  auto model = engine::LoadedModel::load(path, options);
  if (!model) FAIL(model.error().message);
  return *model;
}

// The embedded model.
inline std::shared_ptr<engine::LoadedModel> load_model(std::uint32_t num_blocks) {
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  return load_model(std::string(TROUPE_MODELS) + "/tales-5m-tq2_0.gguf", options);
}

// A tiny model of another family, with random weights and snapshots every 64 positions if it has recurrent state. Null,
// with a warning, where the reference data is missing.
inline std::shared_ptr<engine::LoadedModel> load_golden(const std::string& name, std::uint32_t num_blocks,
                                                        std::uint32_t num_snapshots = 32,
                                                        engine::StateType state_type = engine::StateType::f32) {
  const auto path = troupe::test::shared_file("golden/" + name + ".gguf");
  if (!path) return nullptr;
  engine::LoadOptions options;
  options.num_blocks = num_blocks;
  options.num_snapshots = num_snapshots;
  options.snapshot_every = 64;
  options.state_type = state_type;
  return load_model(*path, options);
}

// Two with recurrent layers only, and one that has attention too.
inline constexpr const char* kRecurrentModels[] = {"mamba-F32", "rwkv7-F32", "falcon-h1-F32"};
// Half of the layers with a window of 16, and all but one.
inline constexpr const char* kWindowModels[] = {"gemma2-F32", "gemma3-F32"};
inline constexpr const char* kOtherModels[] = {"gemma2-F32", "gemma3-F32", "mamba-F32", "rwkv7-F32", "falcon-h1-F32"};

struct TestConfig : caf::actor_system_config {
  TestConfig() { set("scheduler.policy", caf::atom("testing")); }
};

class Stage {
 public:
  explicit Stage(GatewayOptions wanted = {}, FaultPoints fault_points = {})
      : options(std::move(wanted)),
        faults(std::move(fault_points)),
        streams(options, {.num_threads = 1, .on_usage = options.on_usage}),
        system(config) {
    run();
  }
  ~Stage() {
    End end;
    end.outcome = scheduler::Outcome::cancelled;
    streams.end_all(end, end, now());
    unit.stop();
    scheduler().run();
  }

  ServerContext context() {
    return {
        .options = options, .streams = streams, .memory = memory, .texts = texts, .compute = compute, .faults = faults};
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }
  TimePoint now() { return scheduler().clock().now(); }
  std::size_t run() { return scheduler().run(); }
  // Runs all events; virtual time goes on whenever there is no other. Timers fire in their order.
  void run_with_time() {
    do run();
    while (scheduler().clock().trigger_timeout());
  }
  void serve(ServedModel loaded) { unit.serve(std::move(loaded)); }
  void serve(std::shared_ptr<engine::LoadedModel> loaded) { serve(ServedModel(std::move(loaded))); }
  RequestId submit(Request request, std::shared_ptr<Listener> sink) {
    const RequestId id = streams.add(std::move(request), std::move(sink), now());
    if (auto wrong = check_shape(*streams.request(id))) {
      streams.end(id, refused(*std::move(wrong)), now());
    } else if (auto full = streams.take_queue_room(id, now())) {
      streams.end(id, refused(*std::move(full)), now());
    } else {
      unit.submit(id);
    }
    return id;
  }
  void cancel(RequestId id) { unit.cancel(id, now()); }
  void credit(RequestId id, std::uint64_t tokens) {
    if (const auto granted = streams.grant(id, tokens, now())) unit.credit(id, *granted);
  }
  // Asks for the status of this unit alone.
  void ask_status(std::function<void(StatusSnapshot)> done) {
    unit.ask(std::make_shared<StatusQuery>(context(), std::vector{unit.shared_parts()}, std::move(done)));
  }
  StatusSnapshot status() {
    StatusSnapshot snapshot;
    counters.append_metrics(snapshot.metrics, now());
    return snapshot;
  }

  GatewayOptions options;
  FaultPoints faults;
  StreamTable streams;
  MemorySurvey memory{[] { return MemoryReport{}; }};
  TextThreads texts{{.max_large = 1}};
  InlineCompute compute;
  TestConfig config;
  caf::actor_system system;
  MemoryBudget budget{std::uint64_t{1} << 30};
  const std::shared_ptr<ModelUnit> unit_owner =
      ModelUnit::start(system, context(), 0, {.name = "tales"}, budget.expect({.model = "tales"}));
  ModelUnit& unit = *unit_owner;
  const Counters& counters = unit.parts().counters;
  ModelState& model = unit.state();
  caf::actor supervisor() { return unit.supervisor(); }
};

}  // namespace troupe::actors::test
