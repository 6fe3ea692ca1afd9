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
  for (const auto& unit : models.serving_units()) {
    if (!unit->is_on_request()) continue;
    const auto number = static_cast<ModelNumber>(known_.size() + 1);
    known_[number].unit = unit;
    residency_.add(number, {.name = Printable(unit->name()).text(),
                            .bytes = unit->demand().least(),
                            .load_seconds = std::max(static_cast<double>(unit->demand().weights) / kBytesPerSecond,
                                                     kLeastLoadSeconds),
                            .keep_alive = unit->source().keep_alive,
                            .pinned = unit->is_pinned()});
    await_load(number);
  }
  alarm_ = system.spawn<Alarm>([this] { decide(); });
}

OnRequest::~OnRequest() {
  stop();
  TROUPE_ASSERT(tickets_.empty());
}

void OnRequest::stop() {
  caf::actor alarm;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    alarm = std::exchange(alarm_, nullptr);
  }
  if (alarm) caf::anon_send_exit(alarm, caf::exit_reason::user_shutdown);
}

double OnRequest::seconds() const { return std::chrono::duration<double>(system_.clock().now() - start_).count(); }

// The counters are those of all models, which batchers charge.
template <class F>
auto OnRequest::with_residency(const F& f) {
  const auto lock = server_.compute.accounts()->lock();
  return f(residency_, seconds());
}

std::optional<ModelNumber> OnRequest::number_of(const ModelUnit& unit) const {
  for (const auto& [number, known] : known_)
    if (known.unit.get() == &unit) return number;
  return std::nullopt;
}

std::shared_ptr<StreamSink> OnRequest::Arrival::watch(const ModelUnit& unit, const Request& request,
                                                      std::shared_ptr<StreamSink> sink) {
  if (!all_.number_of(unit)) return sink;
  ticket_ = ++all_.last_ticket_;
  return std::make_shared<Watched>(all_, ticket_, request.num_choices, std::move(sink));
}

std::optional<End> OnRequest::Arrival::added(const ModelUnit& unit, const scheduler::Tenant& tenant, RequestId stream) {
  const auto number = all_.number_of(unit);
  if (!number || ticket_ == 0 || all_.stopped_) return std::nullopt;
  all_.take_budget();
  const auto answer = all_.with_residency([&](scheduler::ModelResidency& residency, double now) {
    return residency.ask(
        {.request = ticket_, .model = *number, .tenant = tenant, .may_load = scheduler::may_load(tenant)}, now);
  });
  if (const auto* refusal = std::get_if<scheduler::Refusal>(&answer)) return refused(*refusal);
  all_.tickets_[ticket_] = {stream, *number};
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
    if (tickets_.erase(ticket) == 0) return;
    with_residency([&](scheduler::ModelResidency& residency, double now) { residency.ended(ticket, now); });
  }
  decide();
}

// The unit holds this, so it must not hold the unit: a load that the server's end stops is never told.
void OnRequest::await_load(ModelNumber number) {
  const ModelUnit* const unit = known_.at(number).unit.get();
  known_.at(number).unit->state().on_loaded(
      [this, number, unit](const Status& status) { load_ended(number, unit, status); });
}

void OnRequest::load_ended(ModelNumber number, const ModelUnit* unit, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    Known& known = known_.at(number);
    if (known.unit.get() != unit || stopped_ || residency_.state(number) != scheduler::ModelResidency::State::loading)
      return;
    const double took = std::chrono::duration<double>(system_.clock().now() - known.began).count();
    counts_.load_seconds += took;
    ++(status ? counts_.num_loads : counts_.num_failed_loads);
    with_residency([&](scheduler::ModelResidency& residency, double now) {
      if (status)
        residency.load_ended(number, unit->budget_bytes(), took, now);
      else
        residency.load_failed(number, status.error().message, took, now);
    });
    // Its requests are refused by decide(), before its intake does it. The next load is another unit's.
    if (!status)
      if (auto next = models_.put_out(known.unit, server_, std::chrono::milliseconds(0), [] {})) {
        known.unit = std::move(next);
        await_load(number);
      }
  }
  decide();
}

// False: its name is going, or the server ends.
bool OnRequest::leave(ModelNumber number, std::chrono::milliseconds timeout) {
  Known& known = known_.at(number);
  auto next = models_.put_out(known.unit, server_, timeout, [this, number] {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      with_residency([&](scheduler::ModelResidency& residency, double now) { residency.unload_ended(number, now); });
    }
    decide();
  });
  if (!next) return false;
  known.unit = std::move(next);
  await_load(number);
  return true;
}

void OnRequest::put_out(const ModelUnit& unit, std::chrono::milliseconds timeout, const OnModelChange& done) {
  ModelHealth last = unit.health(system_.clock().now());
  last.readiness = Readiness::draining;
  bool left = false;
  {
    const std::lock_guard lock(mutex_);
    const auto number = number_of(unit);
    if (number && !stopped_ && residency_.state(*number) == scheduler::ModelResidency::State::loaded) {
      residency_.unload_began(*number, seconds());
      left = leave(*number, timeout);
    }
  }
  if (left) return done(last);
  done(refusal(Outcome::invalid_argument, "model",
               fmt::format("the model \"{}\" is loaded when a request asks for it, and is not loaded now; it stays "
                           "known until it is taken from the configuration",
                           Printable(unit.name()).text())));
}

void OnRequest::begin_load(ModelNumber number) {
  Known& known = known_.at(number);
  const std::string name = Printable(known.unit->name()).text();
  known.began = system_.clock().now();
  if (const Status claimed = known.unit->claim_memory(); !claimed) {
    spdlog::warn("model {} is not loaded: {}", name, claimed.error().message);
    ++counts_.num_failed_loads;
    with_residency([&](scheduler::ModelResidency& residency, double now) {
      residency.load_failed(number, claimed.error().message, 0, now);
    });
    return;
  }
  spdlog::info("model {} is loaded: it is asked for", name);
  known.unit->begin_load();
}

// What no other model has.
void OnRequest::take_budget() { residency_.set_budget(models_.budget().left() + residency_.bytes_in_memory()); }

// True: something was begun or has failed at once.
bool OnRequest::decide_once(Todo& todo) {
  take_budget();
  scheduler::Decisions decisions =
      with_residency([](scheduler::ModelResidency& residency, double now) { return residency.decide(now); });
  for (auto& refused_one : decisions.refuse) {
    const auto ticket = tickets_.extract(refused_one.request);
    todo.emplace_back([this, stream = ticket.mapped().stream, how = refused(std::move(refused_one.refusal))] {
      server_.streams.end(stream, how, system_.clock().now());
    });
  }
  for (const auto& unload : decisions.unload) {
    const bool is_idle = !unload.has_running;
    spdlog::info("model {} is put out: {}", Printable(known_.at(unload.model).unit->name()).text(),
                 unload.why == scheduler::UnloadReason::keep_alive ? "nothing asked for it within its keep-alive"
                 : is_idle                                         ? "others need its memory, and it is idle"
                           : "others need its memory, and its turn is over; its requests have the time of a drain");
    static_cast<void>(leave(unload.model, server_.options.drain_timeout));
  }
  for (const auto& load : decisions.load) begin_load(load.model);
  if (decisions.ask_at < scheduler::kForever && alarm_)
    caf::anon_send(
        alarm_,
        msg::WakeAt{start_ + std::chrono::ceil<TimePoint::duration>(std::chrono::duration<double>(decisions.ask_at))});
  return !decisions.load.empty();
}

void OnRequest::decide() {
  if (known_.empty()) return;
  Todo todo;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    while (decide_once(todo)) {
    }
  }
  for (const auto& each : todo) each();
}

OnRequestCounts OnRequest::counts() {
  const std::lock_guard lock(mutex_);
  OnRequestCounts counts = counts_;
  counts.loading_share = residency_.loading_share(seconds());
  for (const auto& [number, known] : known_) counts.num_waiting += residency_.num_waiting(number);
  return counts;
}

}  // namespace troupe::actors
