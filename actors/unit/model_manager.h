// The models of the server, how they are, and their one memory budget.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/unit/model_unit.h"

namespace troupe::actors {

// Thread-safe, except for add() and destruction.
class ModelManager {
 public:
  // memory_bytes: as MemoryBudget.
  explicit ModelManager(std::uint64_t memory_bytes) : budget_(memory_bytes) {}

  // Begins to load a model, in a unit of its own. The first one is the default.
  ModelUnit& add(caf::actor_system& system, const ServerContext& server, ModelSource source) {
    const auto id = static_cast<UnitId>(units_.size());
    units_.push_back(std::make_unique<ModelUnit>(system, server, budget_, id, std::move(source)));
    return *units_.back();
  }

  // The unit of the model with this name; empty: the default. A model's name may be known only once it is loaded, so
  // the unit of an unknown name is the first one without a model: it refuses the request when its model is loaded, or
  // because loading has failed. Null: unknown, and all models are loaded.
  ModelUnit* find(const std::string& name) const {
    if (name.empty()) return units_.front().get();
    for (const auto& unit : units_) {
      if (unit->state().name() == name) return unit.get();
    }
    for (const auto& unit : units_) {
      if (!unit->state().model()) return unit.get();
    }
    return nullptr;
  }
  ModelUnit& unit(UnitId id) const { return *units_.at(id); }
  const std::vector<std::unique_ptr<ModelUnit>>& units() const { return units_; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& unit : units_) names.push_back(unit->state().name());
    return names;
  }
  // The unit whose model has these numerics; null: none that is loaded.
  ModelUnit* with_numerics(const std::string& numerics_id) const {
    for (const auto& unit : units_) {
      const auto model = unit->state().model();
      if (model && model->numerics_id() == numerics_id) return unit.get();
    }
    return nullptr;
  }

  Readiness readiness() const {
    std::vector<Readiness> all;
    for (const auto& unit : units_) all.push_back(unit->state().readiness());
    return readiness_of(all);
  }
  // In the order of the units, the default first.
  std::vector<ModelHealth> health(TimePoint now) const {
    std::vector<ModelHealth> all;
    for (const auto& unit : units_) all.push_back(unit->health(now));
    return all;
  }
  // Each unit with a model is. False, too, if none of them could load its model.
  bool is_making_progress(TimePoint now) const {
    return readiness() != Readiness::failed &&
           std::ranges::all_of(units_, [&](const auto& unit) { return unit->is_making_progress(now); });
  }
  // Adds their memory to `known`.
  MemoryOfUnits measure_memory(KnownMemory& known) const {
    MemoryOfUnits all;
    for (const auto& unit : units_) {
      KnownMemory& own = all.emplace_back(unit->id(), KnownMemory{}).second;
      unit->add_to(own);
      known += own;
    }
    return all;
  }
  // Asks all units; `done` is called with the status once each has answered.
  void ask_status(const ServerContext& server, std::function<void(StatusSnapshot)> done) const {
    std::vector<const UnitParts*> parts;
    for (const auto& unit : units_) parts.push_back(&unit->parts());
    const auto query = std::make_shared<StatusQuery>(server, std::move(parts), std::move(done));
    for (const auto& unit : units_) unit->ask(query);
  }
  MemoryBudget& budget() { return budget_; }  // for tests

 private:
  MemoryBudget budget_;
  std::vector<std::unique_ptr<ModelUnit>> units_;  // by id
};

}  // namespace troupe::actors
