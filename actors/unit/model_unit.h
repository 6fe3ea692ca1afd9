// One model and everything that serves it: its state, counters and actors.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/models/memory_budget.h"
#include "actors/models/model_catalog.h"
#include "actors/status/model_checker.h"
#include "actors/unit/messages.h"
#include "actors/unit/server_context.h"
#include "actors/unit/telemetry.h"
#include "actors/unit/unit_parts.h"

namespace troupe::actors {

// Its actors are a subtree: nothing outside of the unit has the address of one. Thread-safe, except for construction
// and destruction.
class ModelUnit : public std::enable_shared_from_this<ModelUnit> {
  struct Private {};  // units are made by start()

 public:
  // Destroys a unit that nothing refers to any more, on any thread and at any time until the server has ended.
  using Destroy = std::function<void(ModelUnit*)>;

  enum class Load {
    now,
    waits,  // until begin_load(): requests wait meanwhile
  };

  // Starts the actors and begins to load the model, unless its files have a problem: then loading has failed with it.
  // System and server outlive the unit. memory: what the entry demands of it.
  static std::shared_ptr<ModelUnit> start(caf::actor_system& system, const ServerContext& server, UnitId id,
                                          CatalogEntry entry, std::shared_ptr<MemoryBudget::Part> memory,
                                          Destroy destroy = std::default_delete<ModelUnit>(), Load load = Load::now);
  ModelUnit(Private, const ServerContext& server, UnitId id, CatalogEntry entry,
            std::shared_ptr<MemoryBudget::Part> memory);
  // It was stopped, and its actors have ended: each of them, and each of their jobs, shares ownership.
  ~ModelUnit();
  ModelUnit(const ModelUnit&) = delete;
  ModelUnit& operator=(const ModelUnit&) = delete;

  UnitId id() const { return parts_.id; }
  const std::string& name() const { return entry_.name; }
  const ModelSource& source() const { return entry_.source; }
  bool is_pinned() const { return entry_.source.pinned; }
  bool is_on_request() const { return entry_.source.on_request; }
  // What its next load needs, as its files said when they were last looked at.
  MemoryDemand demand() const {
    const std::lock_guard lock(defaults_mutex_);
    return next_demand_.value_or(memory_->demand());
  }
  // Of a unit that loads the same model later: without open files. Where this one was taken out, as
  // source_after_damage().
  CatalogEntry entry_for_later() const;
  // Takes what the load needs of the memory budget, before begin_load().
  [[nodiscard]] Status claim_memory() { return memory_->claim(); }
  std::optional<std::uint32_t> predict() const { return entry_.source.predict; }
  // Of one that is loaded on request, as its file said when it was last looked at.
  std::shared_ptr<const config::ModelDefaults> defaults() const {
    const std::lock_guard lock(defaults_mutex_);
    return defaults_;
  }
  std::uint64_t budget_bytes() const { return memory_->bytes(); }  // its part of the memory budget
  const std::shared_ptr<MemoryBudget::Part>& memory() const { return memory_; }
  ModelState& state() { return parts_.model; }
  const ModelState& state() const { return parts_.model; }

  // To be held by who found the unit and adds a stream to it: until then unload() and retire() do not call `drained`.
  // Null: it goes already.
  std::shared_ptr<const void> enter() const {
    const std::lock_guard lock(gate_mutex_);
    return gate_;
  }
  // A request that the stream table has with this unit's id.
  void submit(RequestId request) const { parts_.mailboxes.send(Role::intake, msg::Submit{request}); }
  // Ends the choice with Outcome::cancelled, unless it has ended.
  void cancel(RequestId request, TimePoint now) const;
  void credit(RequestId request, std::uint64_t granted) const {
    parts_.mailboxes.send(Role::batcher, msg::Credit{request, granted});
  }
  // Refuses new requests, and those whose conversation is not rendered yet; those that are live when the timeout has
  // passed are ended as cancelled.
  void drain(std::chrono::milliseconds timeout);
  // Gives up a load, and ends new requests as Outcome::model_unloaded, so also those whose conversation is not rendered
  // yet, and those that are live when the timeout has
  // passed. `drained` is called once the unit has no stream; it may then be stopped.
  void unload(std::chrono::milliseconds timeout, std::function<void()> drained);
  // It was replaced: it gets no new request (its manager routes none to it), and ends all that it has, in all the time
  // that they need. `drained`: as of unload().
  void retire(std::function<void()> drained);
  // Those of its requests that are live when the timeout has passed end as model_unloaded. Of a unit that retires.
  void hurry(std::chrono::milliseconds timeout) { caf::anon_send(supervisor_, msg::Unload{timeout}); }
  // Begins a load that waits; calls after the first change nothing.
  void begin_load() {
    if (load_begun_.exchange(true)) return;
    parts_.model.set_awaits_request(false);
    caf::anon_send(supervisor_, msg::BeginLoad{});
  }
  // The query is answered once every event that the asking client knows of is counted.
  void ask(std::shared_ptr<StatusQuery> query);
  void ask(std::shared_ptr<CacheQuestion> question);
  const UnitParts& parts() const { return parts_; }
  // They keep the unit.
  std::shared_ptr<const UnitParts> shared_parts() const { return {shared_from_this(), &parts_}; }
  // Adds the resident memory of its model and of its steps.
  void add_to(KnownMemory& known) const;
  // What its checker needs; without the integrity while nothing is watched.
  CheckedModel checked();
  // Its weights, or what they compute, are not what they were: ends its streams as model_unloaded, a retryable failure,
  // and its service; it is loaded again, unless it was before (ServerContext::load_again). Calls after the first change
  // nothing.
  void take_out(const std::string& what);
  // The source to load it again from, after it was taken out.
  ModelSource source_after_damage() const;
  // False: its work has waited for longer than progress_timeout with nothing done, or its workers died too often. True
  // while it is idle, and without a model. Waits for no actor.
  bool is_making_progress(TimePoint now) const;
  ModelHealth health(TimePoint now) const { return health_of(server_, parts_, now); }
  void stop();  // calls after the first change nothing
  // When a request last came for it; nullopt while it has one.
  std::optional<TimePoint> idle_since() const { return server_.streams.idle_since(id()); }
  // To be called, in this order, once the unit is destroyed (Destroy), and everything of it given back.
  void on_destroyed(std::function<void()> call) {
    const std::lock_guard lock(on_destroyed_mutex_);
    on_destroyed_.push_back(std::move(call));
  }
  // They are the caller's from now on.
  std::vector<std::function<void()>> take_on_destroyed() {
    const std::lock_guard lock(on_destroyed_mutex_);
    return std::exchange(on_destroyed_, {});
  }

  // For tests. serve(): instead of loading one.
  void serve(ServedModel model) {
    set_loaded(std::move(model));
    caf::anon_send(supervisor_, msg::ModelLoaded{});
  }
  const caf::actor& supervisor() const { return supervisor_; }

 private:
  // Calls what is in it when it is destroyed: when the last that has entered has left.
  struct Gate {
    Gate() = default;
    ~Gate() {
      for (const auto& each : then) each();
    }
    Gate(const Gate&) = delete;
    Gate& operator=(const Gate&) = delete;
    std::vector<std::function<void()>> then;
  };

  void begin(caf::actor_system& system);
  void when_drained(std::function<void()> drained);
  void fail(const Error& error);
  void end_load(const Error& error);
  void load(engine::Team& team);
  Status open_again();
  Result<ServedModel> load_sound(engine::Team& team);
  Result<ServedModel> load_files(engine::Team& team, bool trust_cache);
  std::optional<std::string> watch(const ServedModel& served);
  void measure(const ServedModel& served, double load_seconds);
  void set_loaded(ServedModel model);
  void drop_renderings(const End& how);

  CatalogEntry entry_;  // its files are closed once they are loaded; without its defaults
  mutable std::mutex defaults_mutex_;
  std::shared_ptr<const config::ModelDefaults> defaults_;
  std::optional<MemoryDemand> next_demand_;  // more than its part of the memory has
  const std::shared_ptr<MemoryBudget::Part> memory_;
  const ServerContext server_;
  UnitParts parts_;
  caf::actor supervisor_;
  mutable std::mutex gate_mutex_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();  // null: closed
  std::weak_ptr<Gate> closed_gate_;                        // as long as someone is inside
  std::mutex on_destroyed_mutex_;
  std::vector<std::function<void()>> on_destroyed_;
  std::atomic<bool> load_begun_{true};
  std::atomic<bool> is_out_{false};    // take_out()
  std::atomic<bool> given_up_{false};  // a load ends as soon as it sees this
};

}  // namespace troupe::actors
