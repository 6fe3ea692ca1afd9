// One model and everything that serves it: its state, counters and actors.
#pragma once

#include <atomic>
#include <string>

#include "actors/unit/messages.h"
#include "actors/unit/server_context.h"
#include "actors/unit/telemetry.h"
#include "actors/unit/unit_parts.h"

namespace troupe::actors {

// The memory of the server that models may take: each unit takes its part when its model is loaded. Thread-safe.
class MemoryBudget {
 public:
  // bytes: 0: engine::default_memory_budget() when it is first asked.
  explicit MemoryBudget(std::uint64_t bytes) : bytes_(bytes) {}

  std::uint64_t left();
  // May exceed what is left, as the estimates of engine/model/memory_budget.h are approximate.
  void take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);  // at most what is taken (asserted)

 private:
  std::mutex mutex_;
  std::uint64_t bytes_;
  std::uint64_t taken_ = 0;
};

// Where a unit's model comes from.
struct ModelSource {
  std::string path;                                 // empty: the model is given to ModelUnit::serve()
  std::shared_ptr<const engine::ModelFile> file{};  // of path, if it is open already
  std::string alias;                                // what clients call it; empty: general.name or the file's stem
  std::string draft_path{};                         // of a draft model; empty: none
  ChatTemplateChoice chat_template{};               // instead of the model's own
  double weight = 1;                                // of its computing beside other models' (scheduler/job_queue.h)
  engine::LoadOptions load;                         // `team`, `memory` and `progress` are filled in by the unit
};

// Its actors are a subtree: nothing outside of the unit has the address of one. Thread-safe, except for construction,
// stop() and destruction.
class ModelUnit {
 public:
  // Starts the actors and begins to load the model. All arguments outlive the unit.
  ModelUnit(caf::actor_system& system, const ServerContext& server, MemoryBudget& budget, UnitId id,
            ModelSource source);
  // The actors have ended (stop(), and the system's await_all_actors_done()), and so have their jobs.
  ~ModelUnit();
  ModelUnit(const ModelUnit&) = delete;
  ModelUnit& operator=(const ModelUnit&) = delete;

  UnitId id() const { return parts_.id; }
  ModelState& state() { return parts_.model; }
  const ModelState& state() const { return parts_.model; }

  // A request that the stream table has with this unit's id.
  void submit(RequestId request) const { parts_.mailboxes.send(Role::intake, msg::Submit{request}); }
  // Ends the choice with Outcome::cancelled, unless it has ended.
  void cancel(RequestId request, TimePoint now) const;
  void credit(RequestId request, std::uint64_t granted) const {
    parts_.mailboxes.send(Role::batcher, msg::Credit{request, granted});
  }
  // Refuses new requests; those that are live when the timeout has passed are ended as cancelled.
  void drain(std::chrono::milliseconds timeout);
  // A query for the status of this unit alone.
  std::shared_ptr<StatusQuery> status_query(std::function<void(StatusSnapshot)> done) const {
    return std::make_shared<StatusQuery>(server_, std::vector{&parts_}, std::move(done));
  }
  // The query is answered once every event that the asking client knows of is counted.
  void ask(std::shared_ptr<StatusQuery> query);
  void ask(std::shared_ptr<CacheQuestion> question);
  const UnitParts& parts() const { return parts_; }
  // Adds the resident memory of its model and of its steps.
  void add_to(KnownMemory& known) const;
  // False: its work has waited for longer than progress_timeout with nothing done, or its workers died too often. True
  // while it is idle, and without a model. Waits for no actor.
  bool is_making_progress(TimePoint now) const;
  ModelHealth health(TimePoint now) const { return health_of(server_, parts_, now); }
  void stop();

  // For tests. serve(): instead of loading one.
  void serve(ServedModel model, const std::string& name) {
    set_loaded(std::move(model), name);
    caf::anon_send(supervisor_, msg::ModelLoaded{});
  }
  const caf::actor& supervisor() const { return supervisor_; }

 private:
  void load(engine::Team& team);
  void measure(const ServedModel& served, double load_seconds);
  void set_loaded(ServedModel model, const std::string& name);

  ModelSource source_;  // its file goes once it is loaded
  MemoryBudget& budget_;
  std::uint64_t taken_bytes_ = 0;  // of the budget
  const ServerContext server_;
  UnitParts parts_;
  caf::actor supervisor_;
};

}  // namespace troupe::actors
