// The models of the server, how they are, and their one memory budget; models are loaded, replaced and unloaded while
// others are served.
//
// A name and what serves it are two things. A name points to one unit, to which requests for it go. A model is replaced
// by loading another unit beside it, then the name points to that one from one moment on. The unit before it retires:
// it gets no new request, ends all that it has, also those that route() was adding to it in that moment, in all the
// time that they need, and keeps its part of the memory budget until it is gone.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/requests/status_snapshot.h"
#include "actors/unit/model_unit.h"

namespace troupe::actors {

// A model that is to be loaded, and what is called once: with its health when it is served, or with the end of kind
// refused or failed that says why it is not.
struct ModelLoad {
  ModelSource source;
  OnModelChange done;
  Replace replace = Replace::no;  // the model that has its name
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
  // models make room that are not the default, not pinned and without a request, the least recently used first; before
  // them those that are loaded on request. What
  // has to do with models that are loaded on request is left to on_request().
  //
  // One that replaces another takes its name, not an alias, and its aliases move with the name. No model makes room for
  // it. Refused: there is no model of this name, or it is being replaced already.
  // - Replace::beside: as above. Where it does not fit beside the other, it is refused with the numbers. Until it is
  //   loaded, and if that fails, the other one serves.
  // - Replace::unload_first: the name points to the new unit at once, in which requests wait as at a start; the load
  //   begins when the other one's memory is back, whose live requests have drain_timeout. If the load fails, the other
  //   one's source is loaded again, once; `done` has the reason, and how that went.
  void load(const ServerContext& server, std::vector<ModelLoad> loads);
  // Takes a model away: its new requests end as model_unloaded, so those that are live when the timeout has passed,
  // also in units of it that retire, and its memory is given back. Its replacement, if one is being loaded, is given
  // up. If it is the default, the next one that is served, or comes on request, becomes it. `done` is called once, with
  // its last health, or with a refusal: there is no such model, it is the only one of that kind, or is being unloaded
  // already. Not of a model that is loaded on request.
  void unload(const std::string& name, std::chrono::milliseconds timeout, OnModelChange done);
  // Replaces a unit that was taken out by one of its own source (ModelUnit::source_after_damage()), as
  // Replace::unload_first does. Refused if it does not serve its name any more.
  void load_again(const ServerContext& server, UnitId unit, OnModelChange done);

  // The end of a wish to load a model that cannot be.
  [[nodiscard]] static End not_loaded(const Error& why);

  // For OnRequest: no one else changes names whose models are loaded on request. What load() asks of it, by `later`:
  struct Requested {
    // True: the load is one of a model on request, or replaces one. Then OnRequest carries it out, and calls its
    // `done`.
    std::function<bool(CatalogEntry&, ModelLoad&)> handle_load{};
    // Of its models that are idle and not pinned, all together.
    std::function<std::uint64_t()> idle_bytes{};
    // Puts out so many of these, the least recently used first, that as many bytes come back, and calls `then`.
    std::function<void(std::uint64_t, std::function<void()>)> put_out_idle{};
  };
  void on_request(Requested calls) { requested_ = std::move(calls); }  // before load() is called
  // A new name, and its unit, which waits; or why not.
  [[nodiscard]] std::variant<std::shared_ptr<ModelUnit>, End> add_waiting(const ServerContext& server,
                                                                          CatalogEntry entry);
  // The name of the entry goes to a unit for it, which waits. The unit before it retires, with `timeout` for its
  // requests. What an entry needs that is not loaded on request is claimed behind that unit. Or why not, and nothing
  // changes.
  struct HandedOver {
    std::shared_ptr<ModelUnit> before, next;
  };
  [[nodiscard]] std::variant<HandedOver, End> hand_over(const ServerContext& server, CatalogEntry entry,
                                                        std::chrono::milliseconds timeout);
  // The replacement by hand_over() has ended.
  void end_replacement(const std::shared_ptr<ModelUnit>& unit);
  // The two parts of unload(). others: those that go with the unit, its replacement and those of its name that retire.
  [[nodiscard]] std::optional<End> take_away(const std::shared_ptr<ModelUnit>& unit, Units* others = nullptr);
  void remove_taken(const std::shared_ptr<ModelUnit>& unit, const Units& others, std::chrono::milliseconds timeout,
                    const OnModelChange& done);

  // Refuses to load more: the server ends.
  void close();
  // Drops the units, which are stopped and whose actors have ended, and returns once `later` has destroyed each of
  // them, also those that were unloaded. Then its thread can end. That must be before the actor system does: CAF waits
  // there for the end of each thread that has spawned an actor.
  void drop_units();

  // Returns admit(unit), called with the unit that serves this name for the tenant, as find(), and without a lock. If
  // the name is switched or unloaded meanwhile, the unit stays until this has returned: a stream that is added is one
  // that it ends.
  template <class Admit>
  auto route(const std::string& name, const Admit& admit, const scheduler::Tenant& tenant = {}) const {
    std::shared_ptr<ModelUnit> unit;
    std::shared_ptr<const void> inside;
    {
      const std::lock_guard lock(mutex_);
      unit = serving(name, tenant);
      if (unit) inside = unit->enter();
    }
    return admit(unit);
  }
  // The unit that serves the model with this name or alias now; empty: the default one. Null: there is none.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(const std::string& name) const;
  // Likewise of the models that the tenant may use (scheduler/shares/model_rights.h). Without a name the default one,
  // if it is one of them, else their first.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(const std::string& name, const scheduler::Tenant& tenant) const;
  // Null: there is none. Also one that retires.
  [[nodiscard]] std::shared_ptr<ModelUnit> find(UnitId id) const;
  // That of the default name, also while it is loading or has failed: the first name, until that model is unloaded.
  [[nodiscard]] std::shared_ptr<ModelUnit> default_unit() const { return find(std::string()); }
  [[nodiscard]] Units serving_units() const;  // of the names, in their order
  [[nodiscard]] Units units() const;          // all, in the order in which they came
  // That of the default name, those of the other names in their order, then those that replace or retire.
  [[nodiscard]] Units units_default_first() const;
  [[nodiscard]] std::vector<std::string> names() const;  // of each its own, in their order
  // With their aliases, of the models that the tenant may use.
  [[nodiscard]] std::vector<std::string> all_names(const scheduler::Tenant& tenant = {}) const;
  // A unit whose model has these numerics, one that serves a name before others; null: none that is loaded.
  [[nodiscard]] std::shared_ptr<ModelUnit> with_numerics(const std::string& numerics_id) const;

  [[nodiscard]] Readiness readiness() const;
  [[nodiscard]] std::vector<ModelHealth> health(TimePoint now) const;  // the default first
  // Each unit with a model is. False, too, if no name's unit could load its model.
  [[nodiscard]] bool is_making_progress(TimePoint now) const;
  // Calls `done` once the names' units of now are loaded or have failed: Ok if one is loaded, else the first one's
  // error.
  void on_loaded(std::function<void(Status)> done) const;
  // Adds their memory to `known`.
  MemoryOfUnits measure_memory(KnownMemory& known) const;
  // Asks all units; `done` is called with the status once each has answered.
  void ask_status(const ServerContext& server, std::function<void(StatusSnapshot)> done) const;
  [[nodiscard]] MemoryBudget& budget() { return budget_; }

 private:
  struct Loading;
  // What clients call a model. Its aliases are those of the unit that serves it.
  struct Name {
    std::shared_ptr<ModelUnit> serves;  // never null
    std::shared_ptr<ModelUnit> next{};  // loads beside it, to take its place; null: none
    bool is_replaced = false;           // by `next`, or by the unit that serves it, which waits for memory or loads
    std::vector<std::string> kept{};    // names of the unit before it that no other model gets: it may come back
  };
  // Units that are not destroyed.
  struct Alive {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t count = 0;
  };

  // With the lock held.
  std::shared_ptr<ModelUnit> serving(const std::string& name) const;
  std::shared_ptr<ModelUnit> serving(const std::string& name, const scheduler::Tenant& tenant) const;
  template <class Names>
  static auto find_name(Names& names, const std::string& name) {
    return std::find_if(names.begin(), names.end(),
                        [&](const Name& each) { return each.serves->state().is_called(name); });
  }
  Name* served_by(const std::shared_ptr<ModelUnit>& unit);
  const std::string* taken_one(const std::vector<std::string>& names, const Name* of_it = nullptr) const;
  // by_request: for OnRequest, to which names are left whose models are loaded on request.
  std::optional<End> why_not_replaceable(const std::vector<std::string>& names, bool by_request = false) const;
  std::shared_ptr<ModelUnit> begin(const ServerContext& server, CatalogEntry entry,
                                   std::shared_ptr<MemoryBudget::Part> part,
                                   ModelUnit::Load when = ModelUnit::Load::now);

  void make_room(std::shared_ptr<Loading> loading);
  void load_into_room(const std::shared_ptr<Loading>& loading);
  void replace_beside(const std::shared_ptr<Loading>& loading);
  bool switch_to(const std::shared_ptr<ModelUnit>& unit);
  void keep_old(const std::shared_ptr<ModelUnit>& failed, const Error& why, const OnModelChange& done);
  void replace_unloaded(const std::shared_ptr<Loading>& loading);
  std::optional<End> claim_behind(const Loading& loading, const std::string& name) const;
  void load_behind(const std::shared_ptr<ModelUnit>& unit, const ServerContext& server);
  void on_replaced(const std::shared_ptr<ModelUnit>& unit, const ServerContext& server, const ModelSource& before,
                   OnModelChange done);
  void restore(const std::shared_ptr<ModelUnit>& failed, const ServerContext& server, const ModelSource& before,
               End why, const OnModelChange& done);
  Units can_make_room() const;
  std::optional<End> why_not_loadable(const std::vector<std::string>& names) const;
  void remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, std::function<void()> gone);
  void retire(const std::shared_ptr<ModelUnit>& unit);
  void forget(const std::shared_ptr<ModelUnit>& unit);

  caf::actor_system& system_;
  const Later later_;
  Requested requested_;
  MemoryBudget budget_;
  mutable std::mutex mutex_;
  UnitId next_id_ = 0;
  Units units_;              // all that are not gone
  std::vector<Name> names_;  // at most kMaxModels
  std::string default_;      // the name of the default model
  const std::shared_ptr<Alive> alive_ = std::make_shared<Alive>();
  bool closed_ = false;
};

}  // namespace troupe::actors
