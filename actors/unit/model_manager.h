// The models of the server, how they are, and their one memory budget.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/unit/model_unit.h"

namespace troupe::actors {

// Thread-safe, except for construction and destruction.
class ModelManager {
 public:
  using Units = std::vector<std::shared_ptr<ModelUnit>>;

  // memory_bytes: of all models together. System and server outlive the manager; server: asked for each unit.
  explicit ModelManager(std::uint64_t memory_bytes) : budget_(memory_bytes) {}

  // Begins to load these models in their order, each in a unit of its own. Each is known to the memory budget before
  // the first is loaded. The first unit of all is the default. Their names are new (asserted: callers check).
  void add(caf::actor_system& system, const ServerContext& server, std::vector<CatalogEntry> entries);

  // The unit of the model with this name; empty: the default. Null: there is none.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(const std::string& name) const;
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(UnitId id) const;
  [[nodiscard]] std::shared_ptr<ModelUnit> default_unit() const { return find(std::string()); }
  [[nodiscard]] Units units() const;  // the default first
  [[nodiscard]] std::vector<std::string> names() const;
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
  template <class Wanted>
  std::shared_ptr<ModelUnit> find_if(Wanted wanted) const;

  MemoryBudget budget_;
  mutable std::mutex mutex_;
  UnitId next_id_ = 0;
  Units units_;  // the default first
};

}  // namespace troupe::actors
