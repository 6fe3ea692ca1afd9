#include "actors/unit/model_manager.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "actors/requests/request_check.h"
#include "config/assert.h"
#include "config/printable.h"
#include "scheduler/shares/model_rights.h"

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

// Not one that is being unloaded, nor one that was taken out or given up: it has its model still.
bool is_served(const ModelUnit& unit) {
  return unit.state().model() && !unit.state().error() && !unit.state().unloading();
}

}  // namespace

End ModelManager::not_loaded(const Error& why) {
  if (why.code == ErrorCode::out_of_memory) return refusal(Outcome::never_fits, "memory", why.message);
  if (why.code == ErrorCode::io) return ended_as(Outcome::internal, why.message);
  return refusal(Outcome::invalid_argument, "path", why.message);
}

// One model on its way to be served.
struct ModelManager::Loading {
  const ServerContext server;
  CatalogEntry entry;
  std::shared_ptr<MemoryBudget::Part> part;
  const OnModelChange done;
  const Replace replace = Replace::no;
  const std::optional<UnitId> of_unit{};  // that serves the name, or it is refused; none: any
};

std::shared_ptr<ModelUnit> ModelManager::begin(const ServerContext& server, CatalogEntry entry,
                                               std::shared_ptr<MemoryBudget::Part> part, ModelUnit::Load when) {
  // The last reference may go on an actor's thread, which must not wait until gigabytes are unmapped.
  auto destroy = [later = later_, alive = alive_](ModelUnit* unit) {
    later([alive, unit] {
      const std::vector<std::function<void()>> tell = unit->take_on_destroyed();
      delete unit;
      for (const auto& each : tell) each();
      const std::lock_guard lock(alive->mutex);
      --alive->count;
      alive->changed.notify_all();
    });
  };
  {
    const std::lock_guard lock(alive_->mutex);
    ++alive_->count;
  }
  auto unit =
      ModelUnit::start(system_, server, next_id_++, std::move(entry), std::move(part), std::move(destroy), when);
  units_.push_back(unit);
  return unit;
}

void ModelManager::add(const ServerContext& server, std::vector<CatalogEntry> entries) {
  std::vector<std::shared_ptr<MemoryBudget::Part>> parts;
  for (CatalogEntry& entry : entries) {
    if (entry.source.on_request) entry.problem.reset();  // each load looks for itself
    parts.push_back(entry.source.on_request ? budget_.may_come(entry.demand) : budget_.expect(entry.demand));
    if (entry.problem) parts.back()->settle(0);
    if (entry.source.on_request) entry.file = entry.draft_file = nullptr;
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    TROUPE_ASSERT(taken_one(names_of(entries[i])) == nullptr);
    if (names_.empty()) default_ = entries[i].name;
    const auto when = entries[i].source.on_request ? ModelUnit::Load::waits : ModelUnit::Load::now;
    names_.push_back({.serves = begin(server, std::move(entries[i]), std::move(parts[i]), when)});
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
      if (requested_.handle_load && requested_.handle_load(entry, load)) continue;
      auto part = budget_.expect(entry.demand);
      all.push_back(std::make_shared<Loading>(Loading{.server = server,
                                                      .entry = std::move(entry),
                                                      .part = std::move(part),
                                                      .done = std::move(load.done),
                                                      .replace = load.replace}));
    }
    // Behind the loads that were asked for meanwhile: all of them divide the memory.
    later_([this, all = std::move(all)] {
      for (const auto& loading : all) {
        if (loading->replace == Replace::no)
          make_room(loading);
        else if (loading->replace == Replace::beside)
          replace_beside(loading);
        else
          replace_unloaded(loading);
      }
    });
  });
}

void ModelManager::load_again(const ServerContext& server, UnitId id, OnModelChange done) {
  later_([this, server, id, done = std::move(done)] {
    const auto unit = find(id);
    if (!unit) return done(refusal(Outcome::unknown_model, "name", "the model was unloaded meanwhile"));
    CatalogEntry entry = describe(unit->source_after_damage());
    if (entry.problem) return done(not_loaded(*entry.problem));
    auto part = budget_.expect(entry.demand);
    replace_unloaded(std::make_shared<Loading>(Loading{.server = server,
                                                       .entry = std::move(entry),
                                                       .part = std::move(part),
                                                       .done = done,
                                                       .replace = Replace::unload_first,
                                                       .of_unit = id}));
  });
}

void ModelManager::make_room(std::shared_ptr<Loading> loading) {
  if (auto refused = why_not_loadable(names_of(loading->entry))) return loading->done(*std::move(refused));
  const Status room = loading->part->claim();
  if (room) return load_into_room(loading);
  const Units idle = can_make_room();
  const std::uint64_t left = budget_.left(), least = loading->part->demand().least();
  const std::uint64_t of_requested = requested_.idle_bytes ? requested_.idle_bytes() : 0;
  std::uint64_t bytes = left + of_requested;
  for (const auto& unit : idle) bytes += unit->budget_bytes();
  if (bytes < least) return loading->done(not_loaded(room.error()));
  if (of_requested > 0 && left < least)
    return requested_.put_out_idle(least - left, [this, loading] { make_room(loading); });
  // The one that would go first may be the last that is served, or be unloaded in another way by now.
  const auto found = std::ranges::find_if(idle, [this](const auto& unit) { return !take_away(unit); });
  if (found == idle.end()) return loading->done(not_loaded(room.error()));
  const auto& victim = *found;
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
    if (!closed_ && taken_one(names) == nullptr && names_.size() < kMaxModels) {
      unit = begin(loading->server, std::move(loading->entry), std::move(loading->part));
      names_.push_back({.serves = unit});
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
    return refusal(
        Outcome::invalid_argument, *taken == names.front() ? "name" : "aliases",
        fmt::format("there is a model \"{}\" already; choose another name, replace that one (replace=beside), "
                    "or unload it",
                    Printable(*taken).text()));
  if (names_.size() < kMaxModels) return std::nullopt;
  return refusal(Outcome::never_fits, "models",
                 fmt::format("the server has {} models, as many as it may; unload one", names_.size()), kMaxModels);
}

// What keeps a model of this name, and these aliases, from replacing the one of the name. With the lock held.
std::optional<End> ModelManager::why_not_replaceable(const std::vector<std::string>& names, bool by_request) const {
  if (closed_) return refused(scheduler::server_drains());
  const std::string name = Printable(names.front()).text();
  const auto replaced = find_name(names_, names.front());
  if (replaced == names_.end())
    return refusal(
        Outcome::unknown_model, "name",
        fmt::format("there is no model \"{}\" to replace; without `replace` it is loaded beside the others", name));
  if (replaced->serves->name() != names.front())
    return refusal(Outcome::invalid_argument, "name",
                   fmt::format("\"{}\" is an alias of the model \"{}\"; replace that one by its name", name,
                               Printable(replaced->serves->name()).text()));
  if (replaced->serves->state().unloading()) return being_unloaded(names.front());
  if (replaced->is_replaced || (replaced->serves->is_on_request() && !by_request))
    return refusal(
        Outcome::loading, "name",
        fmt::format("the model \"{}\" is being replaced already; try again when that has ended, or unload it", name));
  if (const std::string* const taken = taken_one(names, &*replaced))
    return refusal(Outcome::invalid_argument, "aliases",
                   fmt::format("there is a model \"{}\" already; leave out this alias", Printable(*taken).text()));
  return std::nullopt;
}

void ModelManager::replace_beside(const std::shared_ptr<Loading>& loading) {
  const std::vector<std::string> names = names_of(loading->entry);
  const Status room = loading->part->claim();
  std::optional<End> no;
  std::shared_ptr<ModelUnit> unit;
  {
    const std::lock_guard lock(mutex_);
    no = why_not_replaceable(names);
    if (!no && room) {
      unit = begin(loading->server, std::move(loading->entry), std::move(loading->part));
      unit->state().set_replacing(true);
      Name& name = *find_name(names_, names.front());
      name.next = unit;
      name.is_replaced = true;
    }
  }
  if (!no && !room)
    no =
        not_loaded({room.error().code,
                    fmt::format("beside the one that serves, which stays: {}; or use replace = \"unload-first\", which "
                                "takes that one's memory while requests wait",
                                room.error().message)});
  if (no) return loading->done(*std::move(no));
  unit->state().on_loaded([this, loaded = unit.get(), done = loading->done](const Status& status) {
    const auto unit = loaded->shared_from_this();
    if (!status) return keep_old(unit, status.error(), done);
    if (!switch_to(unit)) return done(being_unloaded(unit->name()));
    done(unit->health(std::chrono::steady_clock::now()));
  });
}

// The name's next unit is loaded: it serves from now on. False: the name is being unloaded. Its actors may not have
// begun by now; requests that come wait for them, as for those of an actor that is restarted.
bool ModelManager::switch_to(const std::shared_ptr<ModelUnit>& unit) {
  std::shared_ptr<ModelUnit> before;
  {
    const std::lock_guard lock(mutex_);
    const auto name = std::ranges::find(names_, unit, &Name::next);
    if (name == names_.end()) return false;
    before = std::exchange(name->serves, std::exchange(name->next, nullptr));
    name->is_replaced = false;
    unit->state().set_replacing(false);
    before->state().set_retiring();
  }
  spdlog::info("model {}: {} serves it from now on, and what {} has begun is ended there",
               Printable(unit->name()).text(), Printable(unit->source().path).text(),
               Printable(before->source().path).text());
  retire(before);
  return true;
}

// The unit that was to take a name's place could not be loaded.
void ModelManager::keep_old(const std::shared_ptr<ModelUnit>& failed, const Error& why, const OnModelChange& done) {
  std::optional<Error> out;  // why the one before does not serve on
  {
    const std::lock_guard lock(mutex_);
    if (const auto name = std::ranges::find(names_, failed, &Name::next); name != names_.end()) {
      name->next = nullptr;
      name->is_replaced = false;
      out = name->serves->state().error();
    }
  }
  End end = not_loaded(why);
  if (failed->state().unloading()) return done(std::move(end));  // the unload under way removes it
  end.message += out ? "; and the model before it is not served: " + out->message : "; the model before it serves on";
  remove(failed, std::chrono::milliseconds(0), [done, end] { done(end); });
}

void ModelManager::replace_unloaded(const std::shared_ptr<Loading>& loading) {
  const std::vector<std::string> names = names_of(loading->entry);
  std::optional<End> no;
  std::shared_ptr<ModelUnit> unit, before;
  {
    const std::lock_guard lock(mutex_);
    no = why_not_replaceable(names);
  }
  if (!no) no = claim_behind(*loading, names.front());
  {
    const std::lock_guard lock(mutex_);
    if (!no) no = why_not_replaceable(names);  // it may have been unloaded by now
    if (!no && loading->of_unit && find_name(names_, names.front())->serves->id() != *loading->of_unit)
      no = refusal(Outcome::unknown_model, "name", "the model was replaced meanwhile");
    if (!no) {
      unit = begin(loading->server, std::move(loading->entry), std::move(loading->part), ModelUnit::Load::waits);
      Name& name = *find_name(names_, names.front());
      before = std::exchange(name.serves, unit);
      name.is_replaced = true;
      name.kept = before->state().aliases();
      before->state().set_retiring();
    }
  }
  if (no) return loading->done(*std::move(no));
  spdlog::info("model {}: {} is unloaded, then {} is loaded; requests wait meanwhile", Printable(unit->name()).text(),
               Printable(before->source().path).text(), Printable(unit->source().path).text());
  ModelSource source = before->source();
  source.name = before->name();  // not what a file says that is at this path by then
  on_replaced(unit, loading->server, source, loading->done);
  load_behind(unit, loading->server);
  retire(before);
}

// Takes what a model needs of what is left and of what the one has that it replaces, which is unloaded first. Returns
// why that is too little.
std::optional<End> ModelManager::claim_behind(const Loading& loading, const std::string& name) const {
  std::vector<std::shared_ptr<MemoryBudget::Part>> theirs;
  for (const auto& unit : units())
    if (unit->name() == name) theirs.push_back(unit->memory());
  const Status room = loading.part->claim_behind(theirs);
  if (room) return std::nullopt;
  return not_loaded(
      {room.error().code, "also once the one that serves is unloaded, which stays: " + room.error().message});
}

// Begins the unit's load once no other unit of its name is there; their requests have the time of a drain.
void ModelManager::load_behind(const std::shared_ptr<ModelUnit>& unit, const ServerContext& server) {
  Units others;
  for (const auto& other : units())
    if (other != unit && other->name() == unit->name()) others.push_back(other);
  if (others.empty()) return unit->begin_load();
  const auto num_left = std::make_shared<std::atomic<std::size_t>>(others.size());
  for (const auto& other : others) {
    other->on_destroyed([unit, num_left] {
      if (--*num_left == 0) unit->begin_load();
    });
    other->hurry(server.options.drain_timeout);
  }
}

// Tells how the load of a unit ends that serves a name already. before: of the unit that served it.
void ModelManager::on_replaced(const std::shared_ptr<ModelUnit>& unit, const ServerContext& server,
                               const ModelSource& before, OnModelChange done) {
  unit->state().on_loaded([this, loaded = unit.get(), server, before, done = std::move(done)](const Status& status) {
    const auto unit = loaded->shared_from_this();
    if (status) {
      end_replacement(unit);
      return done(unit->health(std::chrono::steady_clock::now()));
    }
    End why = not_loaded(status.error());
    if (unit->state().unloading()) return done(std::move(why));
    if (unit->source().after_damage) {  // `before` is what has just failed
      end_replacement(unit);
      return done(std::move(why));
    }
    later_([this, unit, server, before, why, done] { restore(unit, server, before, why, done); });
  });
}

// Loads what served a name before the unit that could not be loaded.
void ModelManager::restore(const std::shared_ptr<ModelUnit>& failed, const ServerContext& server,
                           const ModelSource& before, End why, const OnModelChange& done) {
  CatalogEntry entry = describe(before);
  TROUPE_ASSERT(entry.name == failed->name());
  if (entry.problem) {
    end_replacement(failed);
    why.message += "; and the model before it cannot be loaded again: " + entry.problem->message;
    return done(std::move(why));
  }
  auto part = budget_.expect(entry.demand);
  std::shared_ptr<ModelUnit> unit;
  {
    const std::lock_guard lock(mutex_);
    if (Name* const name = served_by(failed); name && !closed_ && !failed->state().unloading())
      name->serves = unit = begin(server, std::move(entry), std::move(part));
  }
  if (!unit) return done(std::move(why));
  spdlog::error("model {}: {}; the one before it is loaded again", Printable(unit->name()).text(), why.message);
  remove(failed, std::chrono::milliseconds(0), [] {});
  unit->state().on_loaded([this, loaded = unit.get(), why = std::move(why), done](const Status& status) {
    end_replacement(loaded->shared_from_this());
    End end = why;
    end.message += status ? "; the model before it is loaded again, and serves"
                          : "; and the model before it could not be loaded again: " + status.error().message;
    done(std::move(end));
  });
}

void ModelManager::end_replacement(const std::shared_ptr<ModelUnit>& unit) {
  const std::lock_guard lock(mutex_);
  if (Name* const name = served_by(unit)) {
    name->is_replaced = false;
    name->kept.clear();
  }
}

void ModelManager::drop_units() {
  Units all;
  std::vector<Name> names;
  {
    const std::lock_guard lock(mutex_);
    units_.swap(all);
    names_.swap(names);
  }
  all.clear();
  names.clear();
  std::unique_lock lock(alive_->mutex);
  alive_->changed.wait(lock, [this] { return alive_->count == 0; });
}

std::variant<std::shared_ptr<ModelUnit>, End> ModelManager::add_waiting(const ServerContext& server,
                                                                        CatalogEntry entry) {
  const std::vector<std::string> names = names_of(entry);
  auto part = budget_.may_come(entry.demand);
  entry.file = entry.draft_file = nullptr;
  while (true) {
    if (auto why_not = why_not_loadable(names)) return *std::move(why_not);
    const std::lock_guard lock(mutex_);
    if (closed_ || taken_one(names) != nullptr || names_.size() >= kMaxModels) continue;  // from one moment to the next
    auto unit = begin(server, std::move(entry), std::move(part), ModelUnit::Load::waits);
    names_.push_back({.serves = unit});
    return unit;
  }
}

std::variant<ModelManager::HandedOver, End> ModelManager::hand_over(const ServerContext& server, CatalogEntry entry,
                                                                    std::chrono::milliseconds timeout) {
  const std::vector<std::string> names = names_of(entry);
  const bool on_request = entry.source.on_request;
  const auto part = on_request ? budget_.may_come(entry.demand) : budget_.expect(entry.demand);
  if (on_request) entry.file = entry.draft_file = nullptr;
  HandedOver units;
  {
    const std::lock_guard lock(mutex_);
    if (auto why_not = why_not_replaceable(names, true)) return *std::move(why_not);
    Name& name = *find_name(names_, names.front());
    units.before = name.serves;
    if (!on_request)
      if (const Status room = part->claim_behind({units.before->memory()}); !room)
        return not_loaded({room.error().code, "also once the one of this name is put out of memory, which stays: " +
                                                  room.error().message});
    name.serves = units.next = begin(server, std::move(entry), part, ModelUnit::Load::waits);
    name.is_replaced = !on_request;
    units.before->state().set_retiring();
  }
  units.before->hurry(timeout);
  retire(units.before);
  return units;
}

void ModelManager::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

// The models that can make room for another, the least recently used first.
ModelManager::Units ModelManager::can_make_room() const {
  std::multimap<TimePoint, std::shared_ptr<ModelUnit>> idle;
  std::size_t num_served = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const Name& name : names_) {
      const auto& unit = name.serves;
      if (!is_served(*unit)) continue;
      ++num_served;
      if (unit->is_on_request() || unit->is_pinned() || name.is_replaced || unit->name() == default_) continue;
      if (const auto since = unit->idle_since()) idle.emplace(*since, unit);
    }
  }
  Units sorted;
  for (auto& [since, unit] : idle) sorted.push_back(std::move(unit));
  if (!sorted.empty() && sorted.size() == num_served) sorted.pop_back();  // one stays that is served
  return sorted;
}

void ModelManager::unload(const std::string& name, std::chrono::milliseconds timeout, OnModelChange done) {
  const auto unit = find(name);
  if (!unit) return done(unknown_model(name, all_names()));
  Units others;
  if (auto refused = take_away(unit, &others)) {
    if (find(name) != unit) return unload(name, timeout, std::move(done));  // it was replaced just now
    return done(*std::move(refused));
  }
  remove_taken(unit, others, timeout, done);
}

void ModelManager::remove_taken(const std::shared_ptr<ModelUnit>& unit, const Units& others,
                                std::chrono::milliseconds timeout, const OnModelChange& done) {
  ModelHealth last = unit->health(std::chrono::steady_clock::now());
  last.readiness = Readiness::draining;
  remove(unit, timeout, [done, last] { done(last); });
  for (const auto& other : others) {
    if (other->state().retiring())
      other->hurry(timeout);
    else
      remove(other, std::chrono::milliseconds(0), [] {});
  }
}

// Marks the unit of a name as being unloaded, if another name stays that is served, or comes on request: so there is
// always a default one. Returns why that cannot be.
std::optional<End> ModelManager::take_away(const std::shared_ptr<ModelUnit>& unit, Units* others) {
  const std::lock_guard lock(mutex_);
  Name* const name = served_by(unit);
  if (!name || unit->state().unloading()) return being_unloaded(unit->name());
  const auto find_other = [&](const auto& is_one) {
    return std::ranges::find_if(names_, [&](const Name& each) { return each.serves != unit && is_one(*each.serves); });
  };
  auto other = find_other(is_served);
  if (other == names_.end())
    other = find_other([](const ModelUnit& each) { return each.is_on_request() && !each.state().unloading(); });
  if (other == names_.end())
    return refusal(Outcome::invalid_argument, "model",
                   "it is the only model that this server serves; load another one first, or stop the server");
  unit->state().set_unloading();
  if (others)
    for (const auto& each : units_)
      if (each == name->next || (each->name() == unit->name() && each->state().retiring())) others->push_back(each);
  name->next = nullptr;
  if (unit->name() != default_) return std::nullopt;
  default_ = other->serves->name();
  spdlog::info("model {} is the default from now on: requests that name no model go to it", Printable(default_).text());
  return std::nullopt;
}

// `gone` is called, by `later`, once the unit is destroyed.
void ModelManager::remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout,
                          std::function<void()> gone) {
  unit->on_destroyed(std::move(gone));
  unit->unload(timeout, [this, unit] {
    later_([this, unit] {
      forget(unit);
      spdlog::info("unloaded model {}", Printable(unit->name()).text());
      unit->stop();
    });
  });
}

// It does not serve its name any more.
void ModelManager::retire(const std::shared_ptr<ModelUnit>& unit) {
  unit->retire([this, unit] {
    later_([this, unit] {
      forget(unit);
      spdlog::info("model {}: {}, which does not serve it any more, has ended its requests, and gives its memory back",
                   Printable(unit->name()).text(), Printable(unit->source().path).text());
      unit->stop();
    });
  });
}

// It has no stream any more. A name that it serves goes with it.
void ModelManager::forget(const std::shared_ptr<ModelUnit>& unit) {
  const std::lock_guard lock(mutex_);
  std::erase(units_, unit);
  std::erase_if(names_, [&](const Name& name) { return name.serves == unit; });
}

// The name of the unit that serves one; null: it serves none.
ModelManager::Name* ModelManager::served_by(const std::shared_ptr<ModelUnit>& unit) {
  const auto found = std::ranges::find(names_, unit, &Name::serves);
  return found == names_.end() ? nullptr : &*found;
}

// The first of these names by which a model is called, or its replacement is going to be; null: there is none. of_it: a
// name that may have them.
const std::string* ModelManager::taken_one(const std::vector<std::string>& names, const Name* of_it) const {
  const auto is_taken = [&](const std::string& name) {
    return std::ranges::any_of(names_, [&](const Name& each) {
      return &each != of_it &&
             (each.serves->state().is_called(name) || (each.next && each.next->state().is_called(name)) ||
              std::ranges::find(each.kept, name) != each.kept.end());
    });
  };
  const auto found = std::ranges::find_if(names, is_taken);
  return found == names.end() ? nullptr : &*found;
}

std::shared_ptr<ModelUnit> ModelManager::serving(const std::string& name) const {
  const auto found = find_name(names_, name.empty() ? default_ : name);
  return found == names_.end() ? nullptr : found->serves;
}

std::shared_ptr<ModelUnit> ModelManager::serving(const std::string& name, const scheduler::Tenant& tenant) const {
  const auto may_use = [&](const ModelUnit& unit) {
    return scheduler::may_use(tenant, unit.name(), unit.state().aliases());
  };
  const auto unit = serving(name);
  if (unit && may_use(*unit)) return unit;
  if (!name.empty()) return nullptr;
  const auto first = std::ranges::find_if(names_, [&](const Name& each) { return may_use(*each.serves); });
  return first == names_.end() ? nullptr : first->serves;
}

std::shared_ptr<ModelUnit> ModelManager::find(const std::string& name, const scheduler::Tenant& tenant) const {
  const std::lock_guard lock(mutex_);
  return serving(name, tenant);
}

std::shared_ptr<ModelUnit> ModelManager::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return serving(name);
}

std::shared_ptr<ModelUnit> ModelManager::find(UnitId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(units_, [&](const auto& unit) { return unit->id() == id; });
  return found == units_.end() ? nullptr : *found;
}

ModelManager::Units ModelManager::units() const {
  const std::lock_guard lock(mutex_);
  return units_;
}

ModelManager::Units ModelManager::serving_units() const {
  const std::lock_guard lock(mutex_);
  Units all;
  for (const Name& name : names_) all.push_back(name.serves);
  return all;
}

ModelManager::Units ModelManager::units_default_first() const {
  const std::lock_guard lock(mutex_);
  Units all;
  if (const auto first = serving({})) all.push_back(first);
  const auto add = [&](const std::shared_ptr<ModelUnit>& unit) {
    if (std::ranges::find(all, unit) == all.end()) all.push_back(unit);
  };
  for (const Name& name : names_) add(name.serves);
  for (const auto& unit : units_) add(unit);
  return all;
}

std::vector<std::string> ModelManager::names() const {
  std::vector<std::string> names;
  for (const auto& unit : serving_units()) names.push_back(unit->name());
  return names;
}

std::vector<std::string> ModelManager::all_names(const scheduler::Tenant& tenant) const {
  std::vector<std::string> names;
  for (const auto& unit : serving_units()) {
    const std::vector<std::string>& aliases = unit->state().aliases();
    if (!scheduler::may_use(tenant, unit->name(), aliases)) continue;
    names.push_back(unit->name());
    names.insert(names.end(), aliases.begin(), aliases.end());
  }
  return names;
}

std::shared_ptr<ModelUnit> ModelManager::with_numerics(const std::string& numerics_id) const {
  const Units all = units_default_first();
  const auto found = std::ranges::find_if(all, [&](const auto& unit) {
    const auto model = unit->state().model();
    return model && model->numerics_id() == numerics_id;
  });
  return found == all.end() ? nullptr : *found;
}

Readiness ModelManager::readiness() const {
  std::vector<Readiness> all;
  for (const auto& unit : serving_units()) all.push_back(counted_as(unit->state().readiness(), unit->is_on_request()));
  return readiness_of(all);
}

std::vector<ModelHealth> ModelManager::health(TimePoint now) const {
  std::vector<ModelHealth> all;
  for (const auto& unit : units_default_first()) all.push_back(unit->health(now));
  return all;
}

bool ModelManager::is_making_progress(TimePoint now) const {
  const Units serving = serving_units();
  return !std::ranges::all_of(serving, [](const auto& unit) { return unit->parts().failed_to_load(); }) &&
         std::ranges::all_of(units(), [&](const auto& unit) { return unit->is_making_progress(now); });
}

void ModelManager::on_loaded(std::function<void(Status)> done) const {
  Units all = serving_units();
  std::erase_if(all, [](const auto& unit) { return unit->is_on_request(); });
  if (all.empty()) return done(Ok{});
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
