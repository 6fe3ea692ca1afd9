#include "actors/on_request.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "actors/requests/request_check.h"
#include "actors/unit/actor_base.h"
#include "config/assert.h"
#include "config/printable.h"
#include "scheduler/shares/model_rights.h"

namespace troupe::actors {

using scheduler::ModelNumber;
using scheduler::Outcome;
using scheduler::RequestNumber;

namespace {

constexpr double kBytesPerSecond = 1e9;  // of a load, before one was measured
constexpr double kLeastLoadSeconds = 0.2;
constexpr double kSettlingSeconds = 5;  // after which a request is to come again that others' loads leave no memory

// Calls back at the times that it is told: an earlier one replaces a later one.
//
// Receives  msg::WakeAt    from OnRequest
//           msg::Deadline  its timer
class Alarm final : public ActorBase {
 public:
  Alarm(caf::actor_config& cfg, std::function<void()> ring) : ActorBase(cfg, "alarm"), ring_(std::move(ring)) {}

  caf::behavior make_behavior() override {
    return {
        [this](const msg::WakeAt& wake) {
          if (next_ && *next_ <= wake.when) return;
          next_ = wake.when;
          scheduled_send(this, wake.when, msg::Deadline{});
        },
        [this](const msg::Deadline&) {
          if (!next_ || *next_ > now()) return;
          next_.reset();
          ring_();
        },
    };
  }
  void on_exit() override { ring_ = nullptr; }

 private:
  std::function<void()> ring_;
  std::optional<TimePoint> next_;
};

LoadWait::Why reason_of(scheduler::ModelWait::Why why) {
  switch (why) {
    case scheduler::ModelWait::Why::load:
      return LoadWait::Why::load;
    case scheduler::ModelWait::Why::turn:
      return LoadWait::Why::turn;
    case scheduler::ModelWait::Why::queue:
      return LoadWait::Why::queue;
    case scheduler::ModelWait::Why::room:
      return LoadWait::Why::room;
  }
  return LoadWait::Why::load;
}

// For all tenants: the numbers are those of others' models, too.
std::string public_reason(const Error& why) {
  return why.code == ErrorCode::out_of_memory
             ? "too little of the server's memory is left for it (its log has the numbers)"
             : why.message;
}

}  // namespace

// Tells of a request's first choice that is admitted, and of the end of its last one.
class OnRequest::Watched final : public StreamSink {
 public:
  Watched(OnRequest& all, RequestNumber ticket, std::uint32_t num_choices, std::shared_ptr<StreamSink> sink)
      : all_(all), ticket_(ticket), num_left_(num_choices), sink_(std::move(sink)) {}
  void admitted(const Admitted& choice) override {
    if (!has_begun_.exchange(true)) all_.began(ticket_);
    sink_->admitted(choice);
  }
  void tokens(TokenRun run) override { sink_->tokens(std::move(run)); }
  void end(End end) override {
    sink_->end(std::move(end));
    if (--num_left_ == 0) all_.ended(ticket_);
  }

 private:
  OnRequest& all_;
  const RequestNumber ticket_;
  std::atomic<std::uint32_t> num_left_;
  std::atomic<bool> has_begun_{false};
  const std::shared_ptr<StreamSink> sink_;
};

OnRequest::OnRequest(ModelManager& models, const ServerContext& server, caf::actor_system& system,
                     scheduler::ResidencyOptions options)
    : models_(models),
      server_(server),
      system_(system),
      start_(system.clock().now()),
      residency_(
          [&] {
            options.drain_seconds = 0;  // a unit that retires drains
            return options;
          }(),
          server.compute.accounts()->time()) {
  change([&](Calls& calls) {
    for (const auto& unit : models.serving_units())
      if (unit->is_on_request()) add_model(unit, calls);
  });
  models.on_request(
      {.handle_load = [this](CatalogEntry& entry, ModelLoad& load) { return handle_load(entry, load); },
       .idle_bytes = [this] { return idle_bytes(); },
       .put_out_idle = [this](std::uint64_t bytes, const std::function<void()>& then) { put_out_idle(bytes, then); }});
  alarm_ = system.spawn<Alarm>([this] { decide(); });
}

OnRequest::~OnRequest() {
  stop();
  TROUPE_ASSERT(tickets_.empty());
}

void OnRequest::drain() {
  change([&](Calls& calls) {
    stopped_ = true;
    for (const auto& [number, known] : known_) end_waiting(number, refused(scheduler::server_drains()), calls);
  });
  stop();
}

void OnRequest::stop() {
  caf::actor alarm;
  change([&](Calls& calls) {
    stopped_ = true;
    alarm = std::exchange(alarm_, nullptr);
    for (auto& [number, known] : known_)
      for (Calls* const waiting : {&known.when_loaded, &known.when_out})
        for (auto& each : std::exchange(*waiting, {})) calls.push_back(std::move(each));
  });
  if (alarm) caf::anon_send_exit(alarm, caf::exit_reason::user_shutdown);
}

void OnRequest::drop_units() {
  std::map<ModelNumber, Known> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  TROUPE_ASSERT(stopped_ && tickets_.empty());
  known_.swap(dropped);
}

double OnRequest::seconds() const { return std::chrono::duration<double>(system_.clock().now() - start_).count(); }

// The counters are those of all models, which batchers charge.
template <class F>
auto OnRequest::with_residency(const F& f) {
  const auto lock = server_.compute.accounts()->lock();
  return f(residency_, seconds());
}

// f(calls) with the lock, then these calls without it.
template <class F>
void OnRequest::change(const F& f) {
  Calls calls;
  {
    const std::lock_guard lock(mutex_);
    f(calls);
  }
  for (const auto& each : calls) each();
}

std::optional<ModelNumber> OnRequest::number_of(const ModelUnit& unit) const {
  for (const auto& [number, known] : known_)
    if (known.unit.get() == &unit) return number;
  return std::nullopt;
}

ModelNumber OnRequest::add_model(const std::shared_ptr<ModelUnit>& unit, Calls& calls) {
  const ModelNumber number = ++last_number_;
  known_[number].unit = unit;
  const MemoryDemand demand = unit->demand();
  residency_.add(number,
                 {.name = Printable(unit->name()).text(),
                  .bytes = demand.least(),
                  .load_seconds = std::max(static_cast<double>(demand.weights) / kBytesPerSecond, kLeastLoadSeconds),
                  .keep_alive = unit->source().keep_alive,
                  .pinned = unit->is_pinned()});
  await_load(number, calls);
  return number;
}

std::shared_ptr<StreamSink> OnRequest::Arrival::watch(const ModelUnit& unit, const Request& request,
                                                      std::shared_ptr<StreamSink> sink) {
  if (!unit.is_on_request()) return sink;
  lock_ = std::unique_lock(all_.mutex_);
  if (!all_.number_of(unit)) {  // it has left its name just now: what has found it is ended there
    lock_.unlock();
    return sink;
  }
  ticket_ = ++all_.last_ticket_;
  return std::make_shared<Watched>(all_, ticket_, request.num_choices, std::move(sink));
}

std::optional<End> OnRequest::Arrival::added(const ModelUnit& unit, const scheduler::Tenant& tenant, RequestId stream) {
  if (ticket_ == 0) return std::nullopt;
  const auto lock = std::move(lock_);
  if (all_.stopped_) return refused(scheduler::server_drains());
  return all_.ask(
      ticket_,
      {.stream = stream, .model = *all_.number_of(unit), .tenant = tenant, .since = all_.system_.clock().now()});
}

// Returns why the request has to end.
std::optional<End> OnRequest::ask(RequestNumber number, Ticket ticket) {
  take_budget();
  const auto answer = with_residency([&](scheduler::ModelResidency& residency, double now) {
    return residency.ask({.request = number,
                          .model = ticket.model,
                          .tenant = ticket.tenant,
                          .may_load = scheduler::may_load(ticket.tenant)},
                         now);
  });
  if (const auto* refusal = std::get_if<scheduler::Refusal>(&answer))
    return refused(retryable_while_settling(*refusal));
  ticket.waits = std::get<scheduler::ModelResidency::Answer>(answer) == scheduler::ModelResidency::Answer::wait;
  ticket_of_[ticket.stream] = number;
  tickets_[number] = std::move(ticket);
  return std::nullopt;
}

void OnRequest::began(RequestNumber ticket) {
  const std::lock_guard lock(mutex_);
  if (tickets_.contains(ticket))
    with_residency([&](scheduler::ModelResidency& residency, double) { residency.began(ticket); });
}

void OnRequest::ended(RequestNumber ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (!tickets_.contains(ticket)) return;
    forget_ticket(ticket);
    with_residency([&](scheduler::ModelResidency& residency, double now) { residency.ended(ticket, now); });
  }
  decide();
}

void OnRequest::forget_ticket(RequestNumber ticket) {
  const auto forgotten = tickets_.extract(ticket);
  ticket_of_.erase(forgotten.mapped().stream);
}

// Not with the lock: where the load has ended already, load_ended() is called at once. The unit holds this, so it must
// not hold the unit: a load that the server's end stops is never told.
void OnRequest::await_load(ModelNumber number, Calls& calls) {
  calls.emplace_back([this, number, unit = known_.at(number).unit] {
    unit->state().on_loaded(
        [this, number, loaded = unit.get()](const Status& status) { load_ended(number, loaded, status); });
  });
}

void OnRequest::load_ended(ModelNumber number, const ModelUnit* unit, const Status& status) {
  change([&](Calls& calls) {
    const auto found = known_.find(number);
    if (found == known_.end() || found->second.unit.get() != unit || stopped_ ||
        residency_.state(number) != scheduler::ModelResidency::State::loading)
      return;
    Known& known = found->second;
    const double took = std::chrono::duration<double>(system_.clock().now() - known.began).count();
    counts_.load_seconds += took;
    ++(status ? counts_.num_loads : counts_.num_failed_loads);
    residency_.set_bytes(number, unit->demand().least());
    with_residency([&](scheduler::ModelResidency& residency, double now) {
      if (status)
        residency.load_ended(number, unit->budget_bytes(), took, now);
      else
        residency.load_failed(number, public_reason(status.error()), took, now);
    });
    // Its requests are refused by decide(), before its intake does it. The next load is another unit's.
    if (!status) {
      const std::shared_ptr<ModelUnit> failed = known.unit;
      if (const auto why =
              hand_over_name(number, failed->entry_for_later(), std::chrono::milliseconds(0), false, calls))
        spdlog::warn("model {} is not loaded again: {}", Printable(failed->name()).text(), why->message);
    }
    // Before anything else is done with the model: what waits for this load is its from now on.
    decide_all(calls);
    // It was taken out meanwhile.
    if (status && unit->state().error() && known.unit.get() == unit &&
        residency_.state(number) == scheduler::ModelResidency::State::loaded)
      put_out_damaged(number, calls);
    for (auto& each : std::exchange(known.when_loaded, {})) calls.push_back(std::move(each));
  });
  decide();
}

// The name goes to a unit that waits. has_memory: of the unit before; out_of_memory() is called when that is given
// back. Or why not, and nothing changes.
std::optional<End> OnRequest::hand_over_name(ModelNumber number, CatalogEntry entry, std::chrono::milliseconds timeout,
                                             bool has_memory, Calls& calls) {
  auto handed = models_.hand_over(server_, std::move(entry), timeout);
  if (auto* const why = std::get_if<End>(&handed)) return std::move(*why);
  const auto& [before, next] = std::get<ModelManager::HandedOver>(handed);
  if (has_memory) before->on_destroyed([this, number] { out_of_memory(number); });
  known_.at(number).unit = next;
  await_load(number, calls);
  return std::nullopt;
}

void OnRequest::out_of_memory(ModelNumber number) {
  change([&](Calls& calls) {
    const auto found = known_.find(number);
    if (found == known_.end()) return;  // drop_units()
    Known& known = found->second;
    with_residency([&](scheduler::ModelResidency& residency, double now) { residency.unload_ended(number, now); });
    for (auto& each : std::exchange(known.when_out, {})) calls.push_back(std::move(each));
    if (!known.unit) forget(number);
  });
  decide();
}

// Of a name that has left it, and whose requests have ended.
void OnRequest::forget(ModelNumber number) {
  const auto waiting = residency_.remove(number);
  TROUPE_ASSERT(waiting.empty());
  known_.erase(number);
}

// The requests that wait for a model wait for the one that has its name now. to: 0 if that is not loaded on request.
void OnRequest::pass_waiting_on(ModelNumber from, ModelNumber to, const ModelUnit& next, Calls& calls) {
  std::vector<std::pair<RequestNumber, Ticket>> waiting;
  for (const auto& [number, ticket] : tickets_)
    if (ticket.model == from && ticket.waits) waiting.emplace_back(number, ticket);
  for (auto& [number, ticket] : waiting) {
    with_residency(
        [&, request = number](scheduler::ModelResidency& residency, double now) { residency.ended(request, now); });
    forget_ticket(number);
    const RequestId stream = ticket.stream;
    const TimePoint now = system_.clock().now();
    if (!server_.streams.pass_on(stream, next.id(), now, calls)) continue;  // it is ending
    ticket.model = to;
    if (auto why = to == 0 ? std::nullopt : ask(number, std::move(ticket)))
      calls.emplace_back([this, stream, now, why = *std::move(why)] { server_.streams.end(stream, why, now); });
    else
      next.submit(stream);
  }
}

// Ends the requests that wait for it.
void OnRequest::end_waiting(ModelNumber number, const End& how, Calls& calls) {
  for (auto ticket = tickets_.begin(); ticket != tickets_.end();) {
    if (ticket->second.model != number || !ticket->second.waits) {
      ++ticket;
      continue;
    }
    with_residency([&](scheduler::ModelResidency& residency, double now) { residency.ended(ticket->first, now); });
    calls.emplace_back(
        [this, stream = ticket->second.stream, how] { server_.streams.end(stream, how, system_.clock().now()); });
    forget_ticket((ticket++)->first);
  }
}

void OnRequest::put_out(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, OnModelChange done) {
  change([&](Calls& calls) {
    using enum scheduler::ModelResidency::State;
    if (stopped_) return void(calls.emplace_back([done] { done(refused(scheduler::server_drains())); }));
    const auto number = number_of(*unit);
    if (!number) return void(calls.emplace_back([done, name = unit->name()] { done(being_unloaded(name)); }));
    Known& known = known_.at(*number);
    const auto tell = [this, name = unit->name(), done] {
      const auto now_serves = models_.find(name);
      now_serves ? done(now_serves->health(system_.clock().now())) : done(being_unloaded(name));
    };
    const auto state = residency_.state(*number);
    if (state == out) return void(calls.emplace_back(tell));
    if (state == leaving) return void(known.when_out.emplace_back(tell));
    if (state == loading)
      return void(known.when_loaded.emplace_back([this, name = unit->name(), timeout, done] {
        const auto serves = models_.find(name);
        serves ? put_out(serves, timeout, done) : done(being_unloaded(name));
      }));
    if (auto why = hand_over_name(*number, unit->entry_for_later(), timeout, true, calls))
      return void(calls.emplace_back([done, why = *std::move(why)] { done(why); }));
    spdlog::info("model {} is put out: an operator asked for it", Printable(unit->name()).text());
    residency_.unload_began(*number, seconds());
    known.when_out.emplace_back(tell);
  });
}

void OnRequest::remove(const std::shared_ptr<ModelUnit>& unit, std::chrono::milliseconds timeout, OnModelChange done) {
  change([&](Calls& calls) {
    using enum scheduler::ModelResidency::State;
    if (stopped_) return void(calls.emplace_back([done] { done(refused(scheduler::server_drains())); }));
    const auto number = number_of(*unit);
    if (!number) return void(calls.emplace_back([done, name = unit->name()] { done(being_unloaded(name)); }));
    Known& known = known_.at(*number);
    if (residency_.state(*number) == loading)
      return void(known.when_loaded.emplace_back([this, name = unit->name(), timeout, done] {
        const auto serves = models_.find(name);
        serves ? remove(serves, timeout, done) : done(being_unloaded(name));
      }));
    ModelManager::Units others;
    if (auto why = models_.take_away(unit, &others))
      return void(calls.emplace_back([done, why = *std::move(why)] { done(why); }));
    end_waiting(*number, being_unloaded(unit->name()), calls);
    leave_name(*number, unit);
    calls.emplace_back([this, unit, others, timeout, done] { models_.remove_taken(unit, others, timeout, done); });
  });
}

// It is forgotten once the memory of what served it is back.
void OnRequest::leave_name(ModelNumber number, const std::shared_ptr<ModelUnit>& before) {
  using enum scheduler::ModelResidency::State;
  known_.at(number).unit = nullptr;
  const auto state = residency_.state(number);
  if (state == out) return forget(number);
  if (state == leaving) return;  // another unit has its memory
  residency_.unload_began(number, seconds());
  before->on_destroyed([this, number] { out_of_memory(number); });
}

// The least recently used first.
std::vector<ModelNumber> OnRequest::idle_models() const {
  std::vector<ModelNumber> idle;
  for (const auto& [number, known] : known_)
    if (known.unit && !known.unit->is_pinned() && residency_.num_running(number) == 0 &&
        residency_.num_waiting(number) == 0 && residency_.state(number) == scheduler::ModelResidency::State::loaded)
      idle.push_back(number);
  std::ranges::sort(idle, {}, [this](ModelNumber number) { return residency_.last_used(number); });
  return idle;
}

std::uint64_t OnRequest::idle_bytes() {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  if (!stopped_)
    for (const ModelNumber number : idle_models()) bytes += known_.at(number).unit->budget_bytes();
  return bytes;
}

void OnRequest::put_out_idle(std::uint64_t bytes, const std::function<void()>& then) {
  change([&](Calls& calls) {
    const auto num_left = std::make_shared<std::atomic<std::size_t>>(1);
    const auto one_is_out = [num_left, then] {
      if (--*num_left == 0) then();
    };
    std::uint64_t freed = 0;
    for (const ModelNumber number : stopped_ ? std::vector<ModelNumber>() : idle_models()) {
      if (freed >= bytes) break;
      const std::shared_ptr<ModelUnit> unit = known_.at(number).unit;
      if (hand_over_name(number, unit->entry_for_later(), server_.options.drain_timeout, true, calls)) continue;
      spdlog::info("model {} is put out: a model that is loaded needs its memory, and it is idle",
                   Printable(unit->name()).text());
      residency_.unload_began(number, seconds());
      freed += unit->budget_bytes();
      ++*num_left;
      known_.at(number).when_out.emplace_back(one_is_out);
    }
    calls.emplace_back(one_is_out);
  });
}

void OnRequest::drop_damaged(const std::shared_ptr<ModelUnit>& unit) {
  change([&](Calls& calls) {
    using enum scheduler::ModelResidency::State;
    const auto number = number_of(*unit);
    if (!number || stopped_) return;
    // One that counts as loading still: load_ended() finds that it has failed.
    if (const auto state = residency_.state(*number); state == loaded || state == closing)
      put_out_damaged(*number, calls);
  });
}

void OnRequest::put_out_damaged(ModelNumber number, Calls& calls) {
  const std::shared_ptr<ModelUnit> unit = known_.at(number).unit;
  if (const auto why = hand_over_name(number, unit->entry_for_later(), std::chrono::milliseconds(0), true, calls))
    return spdlog::critical("a damaged model stays out: {}", why->message);
  residency_.unload_began(number, seconds());
}

// On the thread that opens files.
bool OnRequest::handle_load(CatalogEntry& entry, ModelLoad& load) {
  const auto unit = models_.find(entry.name);
  const bool is_of_one = unit && unit->is_on_request() && unit->name() == entry.name && load.replace != Replace::no;
  if (!entry.source.on_request && !is_of_one) return false;
  if (load.replace == Replace::no)
    add(std::move(entry), load.done);
  else
    replace(std::make_shared<CatalogEntry>(std::move(entry)), load.done);
  return true;
}

void OnRequest::add(CatalogEntry entry, const OnModelChange& done) {
  change([&](Calls& calls) {
    if (stopped_) return void(calls.emplace_back([done] { done(refused(scheduler::server_drains())); }));
    auto added = models_.add_waiting(server_, std::move(entry));
    if (auto* const why = std::get_if<End>(&added))
      return void(calls.emplace_back([done, why = std::move(*why)] { done(why); }));
    const auto& unit = std::get<0>(added);
    add_model(unit, calls);
    calls.emplace_back([this, unit, done] { done(unit->health(system_.clock().now())); });
  });
}

// One of the two is loaded on request, or both are.
void OnRequest::replace(const std::shared_ptr<CatalogEntry>& entry, const OnModelChange& done) {
  change([&](Calls& calls) {
    if (stopped_) return void(calls.emplace_back([done] { done(refused(scheduler::server_drains())); }));
    const auto unit = models_.find(entry->name);
    const ModelNumber number = unit ? number_of(*unit).value_or(0) : 0;  // 0: it is not on request
    if (number != 0 && residency_.state(number) == scheduler::ModelResidency::State::loading)
      return void(known_.at(number).when_loaded.emplace_back([this, entry, done] { replace(entry, done); }));
    auto handed = models_.hand_over(server_, *entry, server_.options.drain_timeout);
    if (auto* const why = std::get_if<End>(&handed))
      return void(calls.emplace_back([done, why = std::move(*why)] { done(why); }));
    const auto& [before, next] = std::get<ModelManager::HandedOver>(handed);
    spdlog::info("model {}: {} serves it from its next request on; what {} has begun is ended there",
                 Printable(next->name()).text(), Printable(next->source().path).text(),
                 Printable(before->source().path).text());
    const ModelNumber successor = next->is_on_request() ? add_model(next, calls) : 0;
    if (number != 0) {
      pass_waiting_on(number, successor, *next, calls);
      leave_name(number, before);
    }
    if (successor == 0) return load_successor(std::get<ModelManager::HandedOver>(handed), done, calls);
    calls.emplace_back([this, next = next, done] { done(next->health(system_.clock().now())); });
  });
  decide();
}

// Of a model that is not loaded on request, in the place of one that was.
void OnRequest::load_successor(const ModelManager::HandedOver& units, const OnModelChange& done, Calls& calls) {
  calls.emplace_back([this, next = units.next, source = units.before->entry_for_later(), done] {
    next->state().on_loaded([this, loaded = next.get(), source, done](const Status& status) {
      const auto unit = loaded->shared_from_this();
      models_.end_replacement(unit);
      if (status) return done(unit->health(system_.clock().now()));
      End why = ModelManager::not_loaded(status.error());
      if (unit->state().unloading()) return done(std::move(why));
      restore(source, std::move(why), done);
    });
  });
  units.before->on_destroyed([next = units.next] { next->begin_load(); });
}

// The name goes back to what was there before a model that could not be loaded.
void OnRequest::restore(const CatalogEntry& before, End why, const OnModelChange& done) {
  change([&](Calls& calls) {
    auto handed = models_.hand_over(server_, before, std::chrono::milliseconds(0));
    if (const auto* const no = std::get_if<End>(&handed)) {
      why.message += "; and the model before it is not known any more: " + no->message;
    } else {
      add_model(std::get<ModelManager::HandedOver>(handed).next, calls);
      why.message += "; the model before it is loaded when a request asks for it";
    }
    calls.emplace_back([done, why] { done(why); });
  });
}

void OnRequest::begin_load(ModelNumber number) {
  Known& known = known_.at(number);
  const std::string name = Printable(known.unit->name()).text();
  known.began = system_.clock().now();
  if (const Status claimed = known.unit->claim_memory(); !claimed) {
    spdlog::warn("model {} is not loaded: {}", name, claimed.error().message);
    ++counts_.num_failed_loads;
    with_residency([&](scheduler::ModelResidency& residency, double now) {
      residency.load_failed(number, public_reason(claimed.error()), 0, now);
    });
    return;
  }
  spdlog::info("model {} is loaded: it is asked for", name);
  known.unit->begin_load();
}

void OnRequest::take_budget() { residency_.set_budget(models_.budget().for_requests()); }

// While other models are loaded, memory that is missing now may come back.
scheduler::Refusal OnRequest::retryable_while_settling(scheduler::Refusal refusal) const {
  if (refusal.outcome != Outcome::never_fits || !models_.budget().is_settling()) return refusal;
  refusal.outcome = Outcome::loading;
  refusal.message = "other models are being loaded, and until they are " + refusal.message;
  refusal.retry_after = kSettlingSeconds;
  return refusal;
}

// True: something was begun or has failed at once.
bool OnRequest::decide_once(Calls& calls) {
  take_budget();
  scheduler::Decisions decisions =
      with_residency([](scheduler::ModelResidency& residency, double now) { return residency.decide(now); });
  for (const RequestNumber served : decisions.serve) tickets_.at(served).waits = false;
  for (auto& refused_one : decisions.refuse) {
    const RequestId stream = tickets_.at(refused_one.request).stream;
    forget_ticket(refused_one.request);
    calls.emplace_back([this, stream, how = refused(retryable_while_settling(std::move(refused_one.refusal)))] {
      server_.streams.end(stream, how, system_.clock().now());
    });
  }
  for (const auto& unload : decisions.unload) {
    const std::shared_ptr<ModelUnit> unit = known_.at(unload.model).unit;
    if (const auto why =
            hand_over_name(unload.model, unit->entry_for_later(), server_.options.drain_timeout, true, calls)) {
      spdlog::warn("model {} is not put out: {}", Printable(unit->name()).text(), why->message);
      residency_.unload_refused(unload.model, seconds());
      continue;
    }
    const bool is_idle = !unload.has_running;
    spdlog::info("model {} is put out: {}", Printable(unit->name()).text(),
                 unload.why == scheduler::UnloadReason::keep_alive ? "nothing asked for it within its keep-alive"
                 : is_idle                                         ? "others need its memory, and it is idle"
                           : "others need its memory, and its turn is over; its requests have the time of a drain");
  }
  for (const auto& load : decisions.load) begin_load(load.model);
  if (decisions.ask_at < scheduler::kForever && alarm_)
    caf::anon_send(
        alarm_,
        msg::WakeAt{start_ + std::chrono::ceil<TimePoint::duration>(std::chrono::duration<double>(decisions.ask_at))});
  return !decisions.load.empty();
}

void OnRequest::decide_all(Calls& calls) {
  if (stopped_) return;
  while (decide_once(calls)) {
  }
}

void OnRequest::decide() {
  change([&](Calls& calls) { decide_all(calls); });
}

std::optional<LoadWait> OnRequest::wait_of(RequestId stream) {
  const std::lock_guard lock(mutex_);
  const auto found = ticket_of_.find(stream);
  if (found == ticket_of_.end()) return std::nullopt;
  const Ticket& ticket = tickets_.at(found->second);
  if (!ticket.waits) return std::nullopt;
  const scheduler::ModelWait wait = with_residency(
      [&](scheduler::ModelResidency& residency, double now) { return residency.wait_of(found->second, now); });
  return LoadWait{.model = known_.at(ticket.model).unit->name(),
                  .why = reason_of(wait.why),
                  .waited_seconds = std::chrono::duration<double>(system_.clock().now() - ticket.since).count(),
                  .left_seconds = wait.seconds,
                  .progress = wait.progress,
                  .models_before = wait.models_before};
}

OnRequestCounts OnRequest::counts() {
  using enum scheduler::ModelResidency::State;
  const std::lock_guard lock(mutex_);
  OnRequestCounts counts = counts_;
  counts.loading_share = residency_.loading_share(seconds());
  for (const auto& [number, known] : known_) {
    counts.num_waiting += residency_.num_waiting(number);
    if (known.unit) ++counts.num_known;
    const auto state = residency_.state(number);
    if (state == loaded || state == closing) ++counts.num_loaded;
  }
  return counts;
}

}  // namespace troupe::actors
