#include "actors/unit/model_manager.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "actors/requests/request_check.h"
#include "config/assert.h"
#include "config/printable.h"

namespace troupe::actors {

using scheduler::Outcome;

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

bool is_served(const ModelUnit& unit) { return unit.state().model() && !unit.state().unloading(); }

// The end of a wish to load a model that cannot be.
End not_loaded(const Error& why) {
  if (why.code == ErrorCode::out_of_memory) return refusal(Outcome::never_fits, "memory", why.message);
  if (why.code == ErrorCode::io) return ended_as(Outcome::internal, why.message);
  return refusal(Outcome::invalid_argument, "path", why.message);
}

}  // namespace

// One model on its way to be served.
struct ModelManager::Loading {
  const ServerContext server;
  CatalogEntry entry;
  std::shared_ptr<MemoryBudget::Part> part;
  const OnModelChange done;
};

std::shared_ptr<ModelUnit> ModelManager::begin(const ServerContext& server, CatalogEntry entry,
                                               std::shared_ptr<MemoryBudget::Part> part) {
  // The last reference may go on an actor's thread, which must not wait until gigabytes are unmapped.
  auto destroy = [later = later_, alive = alive_](ModelUnit* unit) {
    later([alive, unit] {
      const std::function<void()> tell = unit->on_destroyed();
      delete unit;
      if (tell) tell();
      const std::lock_guard lock(alive->mutex);
      --alive->count;
      alive->changed.notify_all();
    });
  };
  {
    const std::lock_guard lock(alive_->mutex);
    ++alive_->count;
  }
  return ModelUnit::start(system_, server, next_id_++, std::move(entry), std::move(part), std::move(destroy));
}

void ModelManager::add(const ServerContext& server, std::vector<CatalogEntry> entries) {
  std::vector<std::shared_ptr<MemoryBudget::Part>> parts;
  for (const CatalogEntry& entry : entries) {
    parts.push_back(budget_.expect(entry.demand));
    if (entry.problem) parts.back()->settle(0);
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    TROUPE_ASSERT(taken_one(names_of(entries[i])) == nullptr);
    units_.push_back(begin(server, std::move(entries[i]), std::move(parts[i])));
  }
}

void ModelManager::load(const ServerContext& server, std::vector<ModelLoad> loads) {
  later_([this, server, loads = std::move(loads)]() mutable {
    std::vector<std::shared_ptr<Loading>> all;
    for (ModelLoad& load : loads) {
      CatalogEntry entry = describe(std::move(load.source));
      if (entry.problem) {
        load.done(not_loaded(*entry.problem));
        continue;
      }
      if (const std::string twice = twice_in(names_of(entry)); !twice.empty()) {
        load.done(refusal(Outcome::invalid_argument, "aliases",
                          fmt::format("the name \"{}\" is there twice; leave one out", Printable(twice).text())));
        continue;
      }
      auto part = budget_.expect(entry.demand);
      all.push_back(std::make_shared<Loading>(
          Loading{.server = server, .entry = std::move(entry), .part = std::move(part), .done = std::move(load.done)}));
    }
    // Behind the loads that were asked for meanwhile: all of them divide the memory.
    later_([this, all = std::move(all)] {
      for (const auto& loading : all) make_room(loading);
    });
  });
}

void ModelManager::make_room(std::shared_ptr<Loading> loading) {
  if (auto refused = why_not_loadable(names_of(loading->entry))) return loading->done(*std::move(refused));
  const Status room = loading->part->claim();
  if (room) return load_into_room(loading);
  const Units idle = can_make_room();
  std::uint64_t bytes = budget_.left();
  for (const auto& unit : idle) bytes += unit->budget_bytes();
  if (idle.empty() || bytes < loading->part->demand().least()) return loading->done(not_loaded(room.error()));
  const auto& victim = idle.front();
  if (take_away(victim)) return make_room(std::move(loading));  // it is being unloaded in another way by now
  spdlog::info("model {} is unloaded to make room for {}: it is idle and not pinned", Printable(victim->name()).text(),
               Printable(loading->entry.name).text());
  // A request that came meanwhile has the time of a drain.
  remove(victim, loading->server.options.drain_timeout, [this, loading] { make_room(loading); });
}

void ModelManager::load_into_room(const std::shared_ptr<Loading>& loading) {
  std::shared_ptr<ModelUnit> unit;
  const std::vector<std::string> names = names_of(loading->entry);
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && taken_one(names) == nullptr && units_.size() < kMaxModels) {
      unit = begin(loading->server, std::move(loading->entry), std::move(loading->part));
      units_.push_back(unit);
    }
  }
  if (!unit) return loading->done(*why_not_loadable(names));
  // The unit holds this, so it must not hold the unit: a load that the server's end stops is never told.
  unit->state().on_loaded([this, loaded = unit.get(), done = loading->done](const Status& status) {
    const auto unit = loaded->shared_from_this();
    if (status) return done(unit->health(std::chrono::steady_clock::now()));
    const End why = not_loaded(status.error());
    if (unit->state().unloading()) return done(why);  // the unload under way removes it
    remove(unit, std::chrono::milliseconds(0), [done, why] { done(why); });
  });
}

// What keeps a further model of this name, and these aliases, from being loaded.
std::optional<End> ModelManager::why_not_loadable(const std::vector<std::string>& names) const {
  const std::lock_guard lock(mutex_);
  if (closed_) return refused(scheduler::server_drains());
  if (const std::string* const taken = taken_one(names))
    return refusal(Outcome::invalid_argument, *taken == names.front() ? "name" : "aliases",
                   fmt::format("there is a model \"{}\" already; choose another name, or unload that one",
                               Printable(*taken).text()));
  if (units_.size() < kMaxModels) return std::nullopt;
  return refusal(Outcome::never_fits, "models",
                 fmt::format("the server has {} models, as many as it may; unload one", units_.size()), kMaxModels);
}

void ModelManager::drop_units() {
  Units all;
  {
    const std::lock_guard lock(mutex_);
    units_.swap(all);
  }
  all.clear();
  std::unique_lock lock(alive_->mutex);
  alive_->changed.wait(lock, [this] { return alive_->count == 0; });
}

void ModelManager::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

// The models that can make room for another, the least recently used first.
ModelManager::Units ModelManager::can_make_room() const {
  std::multimap<TimePoint, std::shared_ptr<ModelUnit>> idle;
  bool is_default = true;
  for (const auto& unit : units()) {
    if (!is_served(*unit)) continue;
    if (!std::exchange(is_default, false) && !unit->is_pinned())
      if (const auto since = unit->idle_since()) idle.emplace(*since, unit);
  }
  Units sorted;
  for (auto& [since, unit] : idle) sorted.push_back(std::move(unit));
  return sorted;
}

void ModelManager::unload(const std::string& name, std::chrono::milliseconds timeout, OnModelChange done) {
  const auto unit = find(name);
  if (!unit) return done(unknown_model(name, all_names()));
  if (auto refused = take_away(unit)) return done(*std::move(refused));
  ModelHealth last = unit->health(std::chrono::steady_clock::now());
  last.readiness = Readiness::draining;
  remove(unit, timeout, [done = std::move(done), last] { done(last); });
}

// Marks a unit as being unloaded, if another model stays that is served: so there is always a default one. Returns why
// that cannot be.
std::optional<End> ModelManager::take_away(const std::shared_ptr<ModelUnit>& unit) {
  const std::lock_guard lock(mutex_);
  if (unit->state().unloading()) return being_unloaded(unit->name());
  if (std::ranges::none_of(units_, [&](const auto& other) { return other != unit && is_served(*other); }))
    return refusal(Outcome::invalid_argument, "model",
                   "it is the only model that this server serves; load another one first, or stop the server");
  unit->state().set_unloading();
  return std::nullopt;
}

// `gone` is called, by `later`, once the unit is destroyed.
void ModelManager::remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout,
                          std::function<void()> gone) {
  unit->on_destroyed(std::move(gone));
  unit->unload(timeout, [this, unit] {
    later_([this, unit] {
      {
        const std::lock_guard lock(mutex_);
        std::erase(units_, unit);
      }
      spdlog::info("unloaded model {}", Printable(unit->name()).text());
      unit->stop();
    });
  });
}

// The first of these names by which a model is called; null: there is none. With the lock held.
const std::string* ModelManager::taken_one(const std::vector<std::string>& names) const {
  const auto found = std::ranges::find_if(names, [&](const std::string& name) {
    return std::ranges::any_of(units_, [&](const auto& unit) { return unit->state().is_called(name); });
  });
  return found == names.end() ? nullptr : &*found;
}

template <class Wanted>
std::shared_ptr<ModelUnit> ModelManager::find_if(Wanted wanted) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(units_, wanted);
  return found == units_.end() ? nullptr : *found;
}

std::shared_ptr<ModelUnit> ModelManager::find(const std::string& name) const {
  if (name.empty()) return default_unit();
  return find_if([&](const auto& unit) { return unit->state().is_called(name); });
}

std::shared_ptr<ModelUnit> ModelManager::default_unit() const {
  const auto serves =
      find_if([](const auto& unit) { return !unit->state().error().has_value() && !unit->state().unloading(); });
  return serves ? serves : find_if([](const auto&) { return true; });
}

std::shared_ptr<ModelUnit> ModelManager::find(UnitId id) const {
  return find_if([&](const auto& unit) { return unit->id() == id; });
}

ModelManager::Units ModelManager::units() const {
  const std::lock_guard lock(mutex_);
  return units_;
}

ModelManager::Units ModelManager::units_default_first() const {
  const auto first = default_unit();
  Units all = units();
  if (const auto found = std::ranges::find(all, first); found != all.end()) std::rotate(all.begin(), found, found + 1);
  return all;
}

std::vector<std::string> ModelManager::names() const {
  std::vector<std::string> names;
  for (const auto& unit : units()) names.push_back(unit->name());
  return names;
}

std::vector<std::string> ModelManager::all_names() const {
  std::vector<std::string> names;
  for (const auto& unit : units()) {
    names.push_back(unit->name());
    const std::vector<std::string>& aliases = unit->state().aliases();
    names.insert(names.end(), aliases.begin(), aliases.end());
  }
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
  for (const auto& unit : units_default_first()) all.push_back(unit->health(now));
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
  const Units all = units_default_first();
  std::vector<std::shared_ptr<const UnitParts>> parts;
  for (const auto& unit : all) parts.push_back(unit->shared_parts());
  const auto query = std::make_shared<StatusQuery>(server, std::move(parts), std::move(done));
  for (const auto& unit : all) unit->ask(query);
}

}  // namespace troupe::actors
