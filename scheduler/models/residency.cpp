#include "scheduler/models/residency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/assert.h"

namespace troupe::scheduler {
namespace {

// What no clock measures: a load is worth no turn then, but has an order.
constexpr double kLeastLoadSeconds = 1e-3;

std::string in_mebibytes(std::uint64_t bytes) { return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / 0x1p20); }

// Seconds after so many failures in a row.
double backoff_after(std::uint32_t num_failures) {
  return std::min(ModelResidency::kFirstBackoffSeconds * std::exp2(std::min(num_failures, 32u) - 1.0),
                  ModelResidency::kLongestBackoffSeconds);
}

}  // namespace

void ModelResidency::Model::use(TenantId tenant, double now) {
  if (used[0].first != tenant) used[1] = used[0];
  used[0] = {tenant, now};
}

bool ModelResidency::Model::was_used_by_others(TenantId tenant, double now) const {
  for (const auto& [user, count] : running)
    if (user != tenant) return true;
  return std::ranges::any_of(
      used, [&](const auto& use) { return use.first && use.first != tenant && now < use.second + idle_after(); });
}

ModelResidency::ModelResidency(ResidencyOptions options, std::shared_ptr<ServedTime> served)
    : options_(options),
      served_(std::move(served)),
      waiting_limit_({.name = "max_waiting_for_models",
                      .what = "requests that wait for a model to be loaded",
                      .limit = options.max_waiting}),
      idle_waiting_limit_({.name = "max_waiting_for_models",
                           .what = "requests that wait for a model to be loaded into idle memory",
                           .limit = options.max_waiting / 2}) {
  TROUPE_ASSERT(served_ != nullptr && options.max_loading > 0 && options.max_models > 0);
}

void ModelResidency::add(ModelNumber number, ModelFacts facts) {
  TROUPE_ASSERT(facts.load_seconds > 0);
  const auto [model, is_new] = models_.try_emplace(number);
  TROUPE_ASSERT(is_new);
  model->second.facts = std::move(facts);
}

std::vector<RequestNumber> ModelResidency::remove(ModelNumber number) {
  Model& model = at(number);
  TROUPE_ASSERT(!model.is_in_memory());
  std::vector<RequestNumber> waiting = std::move(model.waiting);
  for (const RequestNumber request : waiting) forget(request);
  models_.erase(number);
  return waiting;
}

std::variant<ModelResidency::Answer, Refusal> ModelResidency::ask(const ModelAsk& ask, double now) {
  TROUPE_ASSERT(ask.work_seconds > 0 && !requests_.contains(ask.request));
  Model& model = at(ask.model);
  Request request{
      .model = ask.model, .tenant = ask.tenant.id, .may_load = ask.may_load, .work = ask.work_seconds, .since = now};
  if (model.state == State::loaded) {
    run(requests_.emplace(ask.request, request).first->second, now);
    return Answer::serve;
  }
  if (model.state == State::out || model.state == State::leaving) {
    if (auto refused = why_not(model, now)) return *std::move(refused);
    if (ask.may_load == MayLoad::never && !asker_of(model)) return not_allowed(model);
  }
  if (auto refused = take_place(ask)) return *std::move(refused);
  served_->begin(ask.tenant.id, ask.tenant.weight(), 0);
  request.waits = request.is_active = true;
  requests_.emplace(ask.request, request);
  if (model.waiting.empty()) model.waiting_since = ++order_;
  model.waiting.push_back(ask.request);
  model.use(ask.tenant.id, now);
  return Answer::wait;
}

void ModelResidency::began(RequestNumber number) {
  if (const auto found = requests_.find(number); found != requests_.end() && !found->second.waits)
    deactivate(found->second);
}

void ModelResidency::ended(RequestNumber number, double now) {
  TROUPE_ASSERT(requests_.contains(number));
  const Request request = requests_.at(number);
  forget(number);
  Model& model = at(request.model);
  if (request.waits) {
    std::erase(model.waiting, number);
    return;
  }
  --model.num_running;
  if (const auto running = model.running.find(request.tenant); --running->second == 0) model.running.erase(running);
  const double seconds = now - request.since;
  model.usual_run += (seconds - model.usual_run) / (model.usual_run == 0 ? 1 : 8);
  model.last_used = now;
  model.use(request.tenant, now);
}

void ModelResidency::begin_load(ModelNumber number, std::optional<TenantId> asker, double now) {
  Model& model = at(number);
  TROUPE_ASSERT(!model.is_in_memory());
  advance(now);
  ++num_loading_;
  model.state = State::loading;
  model.bytes = model.facts.bytes;
  model.began_at = now;
  model.asker = asker;
  model.last_load = ++order_;
}

void ModelResidency::load_began(ModelNumber number, double now) { begin_load(number, std::nullopt, now); }

void ModelResidency::load_ended(ModelNumber number, std::uint64_t bytes, double seconds, double now) {
  Model& model = at(number);
  TROUPE_ASSERT(model.state == State::loading);
  advance(now);
  --num_loading_;
  model.state = State::loaded;
  model.bytes = bytes;
  model.loaded_at = model.last_used = now;
  // A file that the system still has in memory is loaded in a fraction of the time: the turn is that of this load, what
  // is expected of the next one is between the two.
  const double cost = std::max(seconds, kLeastLoadSeconds);
  model.facts.load_seconds = model.load_cost == 0 ? cost : (model.facts.load_seconds + cost) / 2;
  model.load_cost = cost;
  model.num_failures = 0;
  if (model.asker) served_->charge(*model.asker, seconds);
}

void ModelResidency::load_failed(ModelNumber number, const std::string& why, double seconds, double now) {
  Model& model = at(number);
  TROUPE_ASSERT(model.state == State::loading);
  advance(now);
  --num_loading_;
  model.state = State::out;
  model.bytes = 0;
  model.retry_at = now + backoff_after(++model.num_failures);
  model.why_failed = why;
  model.waiting_since = ++order_;  // those that wait until they are refused: behind this load
  if (model.asker) served_->charge(*model.asker, seconds);
}

void ModelResidency::unload_began(ModelNumber number, double) {
  Model& model = at(number);
  TROUPE_ASSERT(model.is_loaded());
  model.state = State::leaving;
  if (!model.waiting.empty()) model.waiting_since = ++order_;  // for the next load: behind the one that goes
}

void ModelResidency::unload_refused(ModelNumber number, double) {
  Model& model = at(number);
  TROUPE_ASSERT(model.state == State::leaving);
  model.state = State::loaded;
}

void ModelResidency::unload_ended(ModelNumber number, double) {
  Model& model = at(number);
  TROUPE_ASSERT(model.state == State::leaving && model.num_running == 0);
  model.state = State::out;
  model.bytes = 0;
}

std::uint64_t ModelResidency::bytes_in_memory() const {
  std::uint64_t bytes = 0;
  for (const auto& [number, model] : models_) bytes += model.bytes;
  return bytes;
}

double ModelResidency::loading_share(double now) const {
  const double kept = std::exp((share_at_ - std::max(now, share_at_)) / kShareSeconds);
  return share_ * kept + (num_loading_ > 0 ? 1 - kept : 0);
}

void ModelResidency::advance(double now) {
  share_ = loading_share(now);
  share_at_ = std::max(share_at_, now);
}

// The request is its model's from now on.
void ModelResidency::run(Request& request, double now) {
  Model& model = at(request.model);
  request.since = now;
  ++model.num_running;
  ++model.running[request.tenant];
  model.use(request.tenant, now);
}

void ModelResidency::deactivate(Request& request) {
  if (std::exchange(request.is_active, false)) served_->end(request.tenant, 0);
}

std::optional<Refusal> ModelResidency::take_place(const ModelAsk& ask) {
  if (ask.may_load == MayLoad::turns) return waiting_limit_.try_take(ask.tenant);
  if (auto refused = idle_waiting_limit_.try_take(ask.tenant)) return refused;
  auto refused = waiting_limit_.try_take(ask.tenant);
  if (refused) idle_waiting_limit_.give_back(ask.tenant.id);
  return refused;
}

void ModelResidency::give_place_back(const Request& request) {
  waiting_limit_.give_back(request.tenant);
  if (request.may_load != MayLoad::turns) idle_waiting_limit_.give_back(request.tenant);
}

// It has ended; its model's lists are the caller's.
void ModelResidency::forget(RequestNumber number) {
  Request& request = requests_.at(number);
  deactivate(request);
  if (request.waits) give_place_back(request);
  requests_.erase(number);
}

void ModelResidency::drop_waiting(Model& model, const Refusal& refusal, Decisions& out) {
  for (const RequestNumber number : std::exchange(model.waiting, {})) {
    forget(number);
    out.refuse.push_back({number, refusal});
  }
}

void ModelResidency::release(Model& model, double now, Decisions& out) {
  for (const RequestNumber number : std::exchange(model.waiting, {})) {
    Request& request = requests_.at(number);
    request.waits = false;
    give_place_back(request);
    run(request, now);
    out.serve.push_back(number);
  }
}

std::uint64_t ModelResidency::most_bytes_for(const Model& model) const {
  std::uint64_t pinned = 0;
  for (const auto& [number, other] : models_)
    if (&other != &model && other.facts.pinned) pinned += other.bytes;
  return options_.budget_bytes - std::min(options_.budget_bytes, pinned);
}

// Why a model that is not in memory cannot be loaded now, whoever asks for it.
std::optional<Refusal> ModelResidency::why_not(const Model& model, double now) const {
  const std::string& name = model.facts.name;
  if (now < model.retry_at) {
    return Refusal{.outcome = Outcome::loading,
                   .message = fmt::format("model {} could not be loaded: {}; it is tried again in {:.0f} s", name,
                                          model.why_failed, std::ceil(model.retry_at - now)),
                   .field = "model",
                   .retry_after = model.retry_at - now};
  }
  if (const std::uint64_t most = most_bytes_for(model); model.facts.bytes > most) {
    return Refusal{.outcome = Outcome::never_fits,
                   .message = fmt::format(
                       "model {} needs {}, and {} of the memory budget of {} are for models that are "
                       "not pinned; serve with a larger --memory, or a smaller context",
                       name, in_mebibytes(model.facts.bytes), in_mebibytes(most), in_mebibytes(options_.budget_bytes)),
                   .field = "memory",
                   .limit = most};
  }
  const auto num_pinned = std::ranges::count_if(models_, [&](const auto& entry) {
    return &entry.second != &model && entry.second.facts.pinned && entry.second.is_in_memory();
  });
  if (static_cast<std::uint64_t>(num_pinned) < options_.max_models) return std::nullopt;
  return Refusal{.outcome = Outcome::never_fits,
                 .message = fmt::format("model {} cannot be loaded: {} models may be in memory (models-max), and as "
                                        "many are pinned; unpin one, or allow more",
                                        name, options_.max_models),
                 .field = "models-max",
                 .limit = options_.max_models};
}

Refusal ModelResidency::not_allowed(const Model& model) const {
  return {.outcome = Outcome::permission,
          .message = fmt::format("model {} is not loaded, and you may not have models loaded (may-load); ask for one "
                                 "that is loaded",
                                 model.facts.name),
          .field = "model"};
}

}  // namespace troupe::scheduler
