#include "actors/unit/model_manager.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "config/assert.h"

namespace troupe::actors {
namespace {

// Calls `done` when the last of several models is loaded or has failed. Thread-safe.
class LoadsAwaited {
 public:
  LoadsAwaited(std::size_t num_models, std::function<void(Status)> done)
      : num_left_(num_models), done_(std::move(done)) {}

  void ended(std::size_t place, const Status& status) {
    std::unique_lock lock(mutex_);
    if (status)
      any_loaded_ = true;
    else if (!error_ || place < error_place_)
      error_ = status.error(), error_place_ = place;
    if (--num_left_ > 0) return;
    const Status all = any_loaded_ ? Status{Ok{}} : Status{*error_};
    lock.unlock();
    done_(all);
  }

 private:
  std::mutex mutex_;
  std::size_t num_left_;
  const std::function<void(Status)> done_;
  bool any_loaded_ = false;
  std::optional<Error> error_;
  std::size_t error_place_ = 0;
};

}  // namespace

void ModelManager::add(caf::actor_system& system, const ServerContext& server, std::vector<CatalogEntry> entries) {
  std::vector<std::shared_ptr<MemoryBudget::Part>> parts;
  for (const CatalogEntry& entry : entries) parts.push_back(budget_.expect(entry.demand));
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    TROUPE_ASSERT(std::ranges::none_of(units_, [&](const auto& unit) { return unit->name() == entries[i].name; }));
    units_.push_back(ModelUnit::start(system, server, next_id_++, std::move(entries[i]), std::move(parts[i])));
  }
}

template <class Wanted>
std::shared_ptr<ModelUnit> ModelManager::find_if(Wanted wanted) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(units_, wanted);
  return found == units_.end() ? nullptr : *found;
}

std::shared_ptr<ModelUnit> ModelManager::find(const std::string& name) const {
  return find_if([&](const auto& unit) { return name.empty() || unit->name() == name; });
}

std::shared_ptr<ModelUnit> ModelManager::find(UnitId id) const {
  return find_if([&](const auto& unit) { return unit->id() == id; });
}

ModelManager::Units ModelManager::units() const {
  const std::lock_guard lock(mutex_);
  return units_;
}

std::vector<std::string> ModelManager::names() const {
  std::vector<std::string> names;
  for (const auto& unit : units()) names.push_back(unit->name());
  return names;
}

std::shared_ptr<ModelUnit> ModelManager::with_numerics(const std::string& numerics_id) const {
  return find_if([&](const auto& unit) {
    const auto model = unit->state().model();
    return model && model->numerics_id() == numerics_id;
  });
}

Readiness ModelManager::readiness() const {
  std::vector<Readiness> all;
  for (const auto& unit : units()) all.push_back(unit->state().readiness());
  return readiness_of(all);
}

std::vector<ModelHealth> ModelManager::health(TimePoint now) const {
  std::vector<ModelHealth> all;
  for (const auto& unit : units()) all.push_back(unit->health(now));
  return all;
}

bool ModelManager::is_making_progress(TimePoint now) const {
  return readiness() != Readiness::failed &&
         std::ranges::all_of(units(), [&](const auto& unit) { return unit->is_making_progress(now); });
}

void ModelManager::on_loaded(std::function<void(Status)> done) const {
  const Units all = units();
  const auto awaited = std::make_shared<LoadsAwaited>(all.size(), std::move(done));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i]->state().on_loaded([awaited, i](const Status& status) { awaited->ended(i, status); });
}

MemoryOfUnits ModelManager::measure_memory(KnownMemory& known) const {
  MemoryOfUnits all;
  for (const auto& unit : units()) {
    KnownMemory& own = all.emplace_back(unit->id(), KnownMemory{}).second;
    unit->add_to(own);
    known += own;
  }
  return all;
}

void ModelManager::ask_status(const ServerContext& server, std::function<void(StatusSnapshot)> done) const {
  const Units all = units();
  std::vector<std::shared_ptr<const UnitParts>> parts;
  for (const auto& unit : all) parts.push_back(unit->shared_parts());
  const auto query = std::make_shared<StatusQuery>(server, std::move(parts), std::move(done));
  for (const auto& unit : all) unit->ask(query);
}

}  // namespace troupe::actors
