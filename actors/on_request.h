// The models that are loaded when a request asks for them, and put out for others. What goes in and out, and who waits,
// is plain logic: scheduler/models/residency.h, tests/scheduler/residency_test.cpp. This carries it out.
//
// A request for such a model is a stream of the unit that serves its name, from its arrival on: where that is not
// loaded, it waits in its intake, with its deadline. A model that is put out leaves its name to a new unit, which
// waits, and retires: what it has begun is ended there. The memory budget stays the judge of what fits; a load that
// finds too little after all has failed, with its numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/unit/model_manager.h"
#include "scheduler/models/residency.h"

namespace troupe::actors {

// Counts since the server's start, and what is so now.
struct OnRequestCounts {
  std::uint64_t num_loads = 0, num_failed_loads = 0;
  double load_seconds = 0;
  double loading_share = 0;  // ModelResidency::loading_share()
  std::uint64_t num_waiting = 0;
};

// Thread-safe, except for construction and destruction. Locks: its own, then the manager's, or the one of the
// accounts; the caller holds neither.
class OnRequest {
 public:
  // Those of the manager's models that are on request. The manager, what `server` refers to and the system outlive it.
  OnRequest(ModelManager& models, const ServerContext& server, caf::actor_system& system,
            scheduler::ResidencyOptions options = {});
  ~OnRequest();  // stop() was called, and every stream has ended (asserted)

  // A request that arrives. Between the two calls, and while its stream is added (ModelManager::route()), no model is
  // put out.
  class Arrival {
   public:
    // The sink to add its stream with, if this unit is on request; else `sink`.
    [[nodiscard]] std::shared_ptr<StreamSink> watch(const ModelUnit& unit, const Request& request,
                                                    std::shared_ptr<StreamSink> sink);
    // Its first stream is in the table, and is going to be submitted to this unit. Returns why not, if it has to end.
    [[nodiscard]] std::optional<End> added(const ModelUnit& unit, const scheduler::Tenant& tenant, RequestId stream);

   private:
    friend class OnRequest;
    explicit Arrival(OnRequest& all) : all_(all) {
      if (!all.known_.empty()) lock_ = std::unique_lock(all.mutex_);
    }
    OnRequest& all_;
    std::unique_lock<std::mutex> lock_;
    scheduler::RequestNumber ticket_ = 0;
  };
  [[nodiscard]] Arrival arrive() { return Arrival(*this); }
  // Does what is due. To be called behind each arrival, without it.
  void decide();

  // Puts a model out of memory that is in it; its name stays. `done` is called once.
  void put_out(const ModelUnit& unit, std::chrono::milliseconds timeout, const OnModelChange& done);
  // Loads and puts out nothing from now on.
  void stop();
  [[nodiscard]] OnRequestCounts counts();

 private:
  class Watched;
  struct Known {
    std::shared_ptr<ModelUnit> unit;  // that serves the name
    TimePoint began{};                // its load
  };
  struct Ticket {
    RequestId stream = 0;
    scheduler::ModelNumber model = 0;
  };
  using Todo = std::vector<std::function<void()>>;  // without the lock

  [[nodiscard]] double seconds() const;
  template <class F>
  auto with_residency(const F& f);
  [[nodiscard]] std::optional<scheduler::ModelNumber> number_of(const ModelUnit& unit) const;
  void await_load(scheduler::ModelNumber number);
  void load_ended(scheduler::ModelNumber number, const ModelUnit* unit, const Status& status);
  void began(scheduler::RequestNumber ticket);
  void ended(scheduler::RequestNumber ticket);
  bool leave(scheduler::ModelNumber number, std::chrono::milliseconds timeout);
  void begin_load(scheduler::ModelNumber number);
  void take_budget();
  bool decide_once(Todo& todo);

  ModelManager& models_;
  const ServerContext server_;
  caf::actor_system& system_;
  std::mutex mutex_;
  const TimePoint start_;
  scheduler::ModelResidency residency_;
  std::map<scheduler::ModelNumber, Known> known_;  // the same numbers always
  std::map<scheduler::RequestNumber, Ticket> tickets_;
  scheduler::RequestNumber last_ticket_ = 0;
  OnRequestCounts counts_;
  caf::actor alarm_;
  bool stopped_ = false;
};

}  // namespace troupe::actors
