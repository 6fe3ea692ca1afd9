// The models of the server, how they are, and their one memory budget; models are loaded and unloaded while others are
// served.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/requests/status_snapshot.h"
#include "actors/unit/model_unit.h"

namespace troupe::actors {

// A model that is to be loaded, and what is called once: with its health when it is served, or with the end of kind
// refused or failed that says why it is not.
struct ModelLoad {
  ModelSource source;
  OnModelChange done;
};

// Thread-safe, except for construction and destruction.
class ModelManager {
 public:
  using Units = std::vector<std::shared_ptr<ModelUnit>>;
  // Runs work that takes long, in order, until the manager is destroyed: opening files, giving memory back.
  using Later = std::function<void(std::function<void()>)>;

  // memory_bytes: of all models together. The system outlives the manager, and what `later` is given too.
  ModelManager(caf::actor_system& system, std::uint64_t memory_bytes, Later later)
      : system_(system), later_(std::move(later)), budget_(memory_bytes) {}

  // Begins to load these models, each in a unit of its own. All are known to the memory budget, in their order, before
  // the first is loaded. Their names and aliases are new (asserted: callers check).
  void add(const ServerContext& server, std::vector<CatalogEntry> entries);
  // Loads more models; one that fails is not kept. All are known to the memory budget, in their order, before the first
  // is loaded, and so are those of calls that came before their files were read. Where what one needs is missing,
  // models make room that are not the default, not pinned and without a request, the least recently used first.
  void load(const ServerContext& server, std::vector<ModelLoad> loads);
  // Takes a model away: its new requests end as model_unloaded, so those that are live when the timeout has passed, and
  // its memory is given back. The next model becomes the default. `done` is called once, with its last health, or with
  // a refusal: there is no such model, it is the only one that is served, or is being unloaded already.
  void unload(const std::string& name, std::chrono::milliseconds timeout, OnModelChange done);

  // Refuses to load more: the server ends.
  void close();
  // Drops the units, which are stopped and whose actors have ended, and returns once `later` has destroyed each of
  // them, also those that were unloaded. Then its thread can end. That must be before the actor system does: CAF waits
  // there for the end of each thread that has spawned an actor.
  void drop_units();

  // The unit of the model with this name or alias; empty: the default one. Null: there is none.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(const std::string& name) const;
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(UnitId id) const;
  // The first that has not failed and is not being unloaded; else the first, which says why it does not serve.
  [[nodiscard]] std::shared_ptr<ModelUnit> default_unit() const;
  [[nodiscard]] Units units() const;                         // in the order in which they came
  [[nodiscard]] Units units_default_first() const;           // the others likewise
  [[nodiscard]] std::vector<std::string> names() const;      // of each its own, likewise
  [[nodiscard]] std::vector<std::string> all_names() const;  // with their aliases
  // The unit whose model has these numerics; null: none that is loaded.
  [[nodiscard]] std::shared_ptr<ModelUnit> with_numerics(const std::string& numerics_id) const;

  [[nodiscard]] Readiness readiness() const;
  [[nodiscard]] std::vector<ModelHealth> health(TimePoint now) const;  // the default first
  // Each unit with a model is. False, too, if none of them could load its model.
  [[nodiscard]] bool is_making_progress(TimePoint now) const;
  // Calls `done` once the models of now are loaded or have failed: Ok if one is loaded, else the first one's error.
  void on_loaded(std::function<void(Status)> done) const;
  // Adds their memory to `known`.
  MemoryOfUnits measure_memory(KnownMemory& known) const;
  // Asks all units; `done` is called with the status once each has answered.
  void ask_status(const ServerContext& server, std::function<void(StatusSnapshot)> done) const;
  [[nodiscard]] MemoryBudget& budget() { return budget_; }

 private:
  struct Loading;
  // Units that are not destroyed.
  struct Alive {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t count = 0;
  };

  template <class Wanted>
  std::shared_ptr<ModelUnit> find_if(Wanted wanted) const;
  std::shared_ptr<ModelUnit> begin(const ServerContext& server, CatalogEntry entry,
                                   std::shared_ptr<MemoryBudget::Part> part);
  void make_room(std::shared_ptr<Loading> loading);
  void load_into_room(const std::shared_ptr<Loading>& loading);
  Units can_make_room() const;
  std::optional<End> why_not_loadable(const std::vector<std::string>& names) const;
  std::optional<End> take_away(const std::shared_ptr<ModelUnit>& unit);
  const std::string* taken_one(const std::vector<std::string>& names) const;
  void remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, std::function<void()> gone);

  caf::actor_system& system_;
  const Later later_;
  MemoryBudget budget_;
  mutable std::mutex mutex_;
  UnitId next_id_ = 0;
  Units units_;
  const std::shared_ptr<Alive> alive_ = std::make_shared<Alive>();
  bool closed_ = false;
};

}  // namespace troupe::actors
