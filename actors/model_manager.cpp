#include "actors/model_manager.h"

#include <utility>

namespace troupe::actors {

ModelUnit& ModelManager::add(caf::actor_system& system, const ServerContext& server, ModelSource source) {
  const auto id = static_cast<UnitId>(units_.size());
  units_.push_back(std::make_unique<ModelUnit>(system, server, budget_, id, std::move(source)));
  return *units_.back();
}

ModelUnit* ModelManager::find(const std::string& name) const {
  if (name.empty()) return units_.front().get();
  for (const auto& unit : units_) {
    if (unit->state().name() == name) return unit.get();
  }
  for (const auto& unit : units_) {
    if (!unit->state().model()) return unit.get();
  }
  return nullptr;
}

}  // namespace troupe::actors
