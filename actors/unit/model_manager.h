// The loaded models of the server, and their one memory budget. Today it holds one.
#pragma once

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
  MemoryBudget& budget() { return budget_; }  // for tests

 private:
  MemoryBudget budget_;
  std::vector<std::unique_ptr<ModelUnit>> units_;  // by id
};

}  // namespace troupe::actors
