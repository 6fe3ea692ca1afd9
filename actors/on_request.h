// The models that are loaded when a request asks for them, and put out for others. What goes in and out, and who waits,
// is plain logic: scheduler/models/residency.h, tests/scheduler/residency_test.cpp. This carries it out.
//
// A request for such a model is a stream of the unit that serves its name, from its arrival on: where that is not
// loaded, it waits in its intake, with its deadline. A model that is put out leaves its name to a new unit, which
// waits, and retires: what it has begun is ended there. The memory budget stays the judge of what fits; a load that
// finds too little after all has failed, with its numbers.
//
// Every change of such a name goes through here: a new table, another one in its place, an unload, a damaged model.
// What is asked of a model while it is loaded waits until that has ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/requests/load_wait.h"
#include "actors/unit/model_manager.h"
#include "scheduler/models/residency.h"

namespace troupe::actors {

// Thread-safe, except for construction and destruction. Locks: its own, then the manager's, or the one of the
// accounts; the caller holds neither.
class OnRequest {
 public:
  // Those of the manager's models that are on request, and those that are loaded later. The manager, what `server`
  // refers to and the system outlive it.
  OnRequest(ModelManager& models, const ServerContext& server, caf::actor_system& system,
            scheduler::ResidencyOptions options = {});
  ~OnRequest();  // stop() was called, and every stream has ended (asserted)

  // A request that arrives. Between the two calls, and while its stream is added (ModelManager::route()), no model is
  // put out. A request for a model that is not on request takes no lock here.
  class Arrival {
   public:
    explicit Arrival(OnRequest& all) : all_(all) {}
    // The sink to add its stream with, if this unit is on request; else `sink`.
    [[nodiscard]] std::shared_ptr<StreamSink> watch(const ModelUnit& unit, const Request& request,
                                                    std::shared_ptr<StreamSink> sink);
    // Its first stream is in the table, and is going to be submitted to this unit. Returns why not, if it has to end.
    [[nodiscard]] std::optional<End> added(const ModelUnit& unit, const scheduler::Tenant& tenant, RequestId stream);

   private:
    OnRequest& all_;
    std::unique_lock<std::mutex> lock_;
    scheduler::RequestNumber ticket_ = 0;
  };
  // Does what is due. To be called behind each arrival for a unit that is on request, without it.
  void decide();

  // Puts a model out of memory; its name stays, and the next request for it has it loaded again. `done` is called once:
  // when the memory is given back, at once if the model is out. A load under way ends first, and so do the requests
  // that wait for it, in `timeout`.
  // Refused once the server drains.
  void put_out(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, OnModelChange done);
  // Takes the name away, too. Refused as by ModelManager::unload().
  void remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, OnModelChange done);
  // The model was taken out as damaged (ModelUnit::take_out()): its memory is given back, and the next request for it
  // has it loaded from its file.
  void drop_damaged(const std::shared_ptr<ModelUnit>& unit);

  // Why this stream waits; nullopt: it waits for no load.
  [[nodiscard]] std::optional<LoadWait> wait_of(RequestId stream);
  // Refuses the requests that wait: the server drains. Then as stop().
  void drain();
  // Loads and puts out nothing from now on.
  void stop();
  // Keeps no unit any more. Behind stop(), and the end of every stream. What units that go call here may still come.
  void drop_units();
  [[nodiscard]] OnRequestCounts counts();

 private:
  class Watched;
  using Calls = std::vector<std::function<void()>>;  // to be made without the lock
  struct Known {
    std::shared_ptr<ModelUnit>
        unit;             // that serves the name; null: the name has left it, it is forgotten once it is out
    TimePoint began{};    // its load
    Calls when_loaded{};  // or its load has failed
    Calls when_out{};
  };
  struct Ticket {
    RequestId stream = 0;
    scheduler::ModelNumber model = 0;
    scheduler::Tenant tenant{};
    TimePoint since{};
    bool waits = false;
  };

  [[nodiscard]] double seconds() const;
  template <class F>
  auto with_residency(const F& f);
  template <class F>
  void change(const F& f);
  [[nodiscard]] std::optional<scheduler::ModelNumber> number_of(const ModelUnit& unit) const;
  scheduler::ModelNumber add_model(const std::shared_ptr<ModelUnit>& unit, Calls& calls);
  void await_load(scheduler::ModelNumber number, Calls& calls);
  void load_ended(scheduler::ModelNumber number, const ModelUnit* unit, const Status& status);
  void began(scheduler::RequestNumber ticket);
  void ended(scheduler::RequestNumber ticket);
  std::optional<End> hand_over_name(scheduler::ModelNumber number, CatalogEntry entry,
                                    std::chrono::milliseconds timeout, bool has_memory, Calls& calls);
  void leave_name(scheduler::ModelNumber number, const std::shared_ptr<ModelUnit>& before);
  void out_of_memory(scheduler::ModelNumber number);
  void forget(scheduler::ModelNumber number);
  std::optional<End> ask(scheduler::RequestNumber number, Ticket ticket);
  void pass_waiting_on(scheduler::ModelNumber from, scheduler::ModelNumber to, const ModelUnit& next, Calls& calls);
  void end_waiting(scheduler::ModelNumber number, const End& how, Calls& calls);
  void forget_ticket(scheduler::RequestNumber ticket);
  bool handle_load(CatalogEntry& entry, ModelLoad& load);
  void add(CatalogEntry entry, const OnModelChange& done);
  void replace(const std::shared_ptr<CatalogEntry>& entry, const OnModelChange& done);
  std::uint64_t idle_bytes();
  void put_out_idle(std::uint64_t bytes, const std::function<void()>& then);
  std::vector<scheduler::ModelNumber> idle_models() const;
  void load_successor(const ModelManager::HandedOver& units, const OnModelChange& done, Calls& calls);
  void restore(const CatalogEntry& before, End why, const OnModelChange& done);
  void begin_load(scheduler::ModelNumber number);
  void take_budget();
  [[nodiscard]] scheduler::Refusal retryable_while_settling(scheduler::Refusal refusal) const;
  bool decide_once(Calls& calls);
  void decide_all(Calls& calls);
  void put_out_damaged(scheduler::ModelNumber number, Calls& calls);

  ModelManager& models_;
  const ServerContext server_;
  caf::actor_system& system_;
  std::mutex mutex_;
  const TimePoint start_;
  scheduler::ModelResidency residency_;
  std::map<scheduler::ModelNumber, Known> known_;
  std::map<scheduler::RequestNumber, Ticket> tickets_;
  std::unordered_map<RequestId, scheduler::RequestNumber> ticket_of_;  // by stream, of all tickets
  scheduler::ModelNumber last_number_ = 0;
  scheduler::RequestNumber last_ticket_ = 0;
  OnRequestCounts counts_;
  caf::actor alarm_;
  bool stopped_ = false;
};

}  // namespace troupe::actors
