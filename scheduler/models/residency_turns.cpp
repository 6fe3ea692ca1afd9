// The decisions of ModelResidency: whose turn is next, and what goes for it.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "config/assert.h"
#include "scheduler/models/residency.h"

namespace troupe::scheduler {

// Of the tenants that wait for the model, the one whose turn its load would be; none may have it loaded.
std::optional<ModelResidency::Asker> ModelResidency::asker_of(const Model& model) const {
  std::optional<Asker> best;
  for (const RequestNumber number : model.waiting) {
    const Request& request = requests_.at(number);
    if (request.may_load == MayLoad::never || (best && request.may_load < best->may_load)) continue;
    const double served = served_->served(request.tenant);
    if (!best || request.may_load > best->may_load || served < best->served)
      best = Asker{.tenant = request.tenant, .may_load = request.may_load, .served = served};
  }
  return best;
}

// Of the tenants whose requests run; infinite: none does.
double ModelResidency::least_served_of(const Model& model) const {
  double least = kForever;
  for (const auto& [tenant, count] : model.running) least = std::min(least, served_->served(tenant));
  return least;
}

// Of a model that is in memory, against one that the asker waits for.
ModelResidency::Turn ModelResidency::turn_of(const Model& model, const Asker& asker, double now) const {
  if (model.state == State::closing || model.state == State::leaving) return {.is_over = true};
  if (model.state == State::loading) return {};
  const double min_ends = model.min_turn_ends(), max_ends = model.max_turn_ends();
  if (model.num_running == 0) {
    const double ends = std::min(min_ends, model.last_used + kPatienceLoads * model.load_cost);
    return {.is_over = now >= ends, .ask_at = ends};
  }
  if (now < min_ends) return {.ask_at = min_ends};
  if (now >= max_ends || least_served_of(model) >= asker.served) return {.is_over = true};
  return {.ask_at = std::min(max_ends, now + model.load_cost)};  // the counters change without an event
}

bool ModelResidency::may_put_out(const Model& model, const Asker& asker, double now) const {
  if (model.facts.pinned) return false;
  if (asker.may_load == MayLoad::turns) return model.state == State::loading || model.is_loaded();
  return model.is_loaded() && !model.was_used_by_others(asker.tenant, now);
}

ModelResidency::Plan ModelResidency::plan_for(ModelNumber number, const Asker& asker, double now) const {
  const Model& wanted = at(number);
  // What will be there once the models that are leaving are gone.
  std::uint64_t bytes = 0, count = 0;
  struct Victim {
    ModelNumber number;
    const Model* model;
    Turn turn;
    // In this order they go: idle ones, the least recently used first; those that drain already; those whose tenants
    // were served most; those whose turn ends first.
    std::tuple<int, double, ModelNumber> order;
  };
  std::vector<Victim> candidates;
  for (const auto& [other, model] : models_) {
    if (model.state == State::out || model.state == State::leaving) continue;
    bytes += model.bytes;
    ++count;
    if (!may_put_out(model, asker, now)) continue;
    const Turn turn = turn_of(model, asker, now);
    std::tuple<int, double, ModelNumber> order{3, model.max_turn_ends(), other};
    if (model.state == State::loading)
      order = {4, model.began_at, other};
    else if (turn.is_over && model.num_running == 0)
      order = {0, model.last_used, other};
    else if (model.state == State::closing)
      order = {1, model.began_at, other};
    else if (turn.is_over)
      order = {2, -least_served_of(model), other};
    candidates.push_back({other, &model, turn, order});
  }
  std::ranges::sort(candidates, {}, &Victim::order);
  const auto fits = [&] {
    return bytes + wanted.facts.bytes <= options_.budget_bytes && count + 1 <= options_.max_models;
  };
  std::vector<Victim> victims;
  for (const Victim& candidate : candidates) {
    if (fits()) break;
    bytes -= candidate.model->bytes;
    --count;
    victims.push_back(candidate);
  }
  Plan plan{.model = number, .asker = asker};
  for (const RequestNumber request : wanted.waiting) plan.work_per_load_second += requests_.at(request).work;
  plan.work_per_load_second /= wanted.facts.load_seconds;
  plan.is_possible = fits();
  if (!plan.is_possible) return plan;
  // The last one is needed; of those before it, small ones may not be.
  for (std::size_t i = victims.size(); i-- > 0;) {
    bytes += victims[i].model->bytes;
    ++count;
    if (fits()) {
      victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    bytes -= victims[i].model->bytes;
    --count;
  }
  plan.is_ready = std::ranges::all_of(victims, [](const Victim& victim) { return victim.turn.is_over; });
  plan.ready_at = kForever;
  for (const Victim& victim : victims) {
    plan.victims.push_back(victim.number);
    if (!victim.turn.is_over) plan.ready_at = std::min(plan.ready_at, victim.turn.ask_at);
  }
  return plan;
}

// Appends these, in the order of their turns.
void ModelResidency::append_in_order(std::vector<Plan> left, std::vector<Plan>& ordered) const {
  const auto take = [&](std::size_t i) {
    ordered.push_back(std::move(left[i]));
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
  };
  // For this one models drain already.
  for (std::size_t i = 0; i < left.size(); ++i)
    if (left[i].model == next_ && left[i].is_ready) {
      take(i);
      break;
    }
  while (!left.empty()) {
    std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
    for (const Plan& plan : left) oldest = std::min(oldest, at(plan.model).waiting_since);
    const auto had_turn = [&](const Plan& plan) { return at(plan.model).last_load > oldest; };
    double least = kForever, allowed = 0;
    for (const Plan& plan : left) {
      if (had_turn(plan)) continue;
      least = std::min(least, plan.asker.served);
      allowed = std::max(allowed, at(plan.model).facts.load_seconds);
    }
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (had_turn(left[i]) || left[i].asker.served > least + allowed) continue;
      const auto is_before = [&](const Plan& a, const Plan& b) {
        if (a.work_per_load_second != b.work_per_load_second) return a.work_per_load_second > b.work_per_load_second;
        return at(a.model).waiting_since < at(b.model).waiting_since;
      };
      if (!best || is_before(left[i], left[*best])) best = i;
    }
    TROUPE_ASSERT(best);  // the oldest has had no turn since
    take(*best);
  }
}

// The models that are waited for and can be loaded: those that have turns, then those that may be loaded into idle
// memory only.
std::vector<ModelResidency::Plan> ModelResidency::plans(double now) const {
  std::vector<Plan> turns, idle;
  for (const auto& [number, model] : models_) {
    if (model.state != State::out || model.waiting.empty()) continue;
    const auto asker = asker_of(model);
    if (!asker) continue;
    if (Plan plan = plan_for(number, *asker, now); plan.is_possible)
      (asker->may_load == MayLoad::turns ? turns : idle).push_back(std::move(plan));
  }
  std::vector<Plan> ordered;
  append_in_order(std::move(turns), ordered);
  append_in_order(std::move(idle), ordered);
  return ordered;
}

Decisions ModelResidency::decide(double now) {
  Decisions out;
  for (auto& [number, model] : models_)
    if (model.state == State::loaded) release(model, now, out);
  refuse_hopeless(now, out);
  expire(now, out);
  std::vector<Plan> all = plans(now);
  for (std::size_t before = 0; load_what_fits(all, now, out), out.load.size() > before; before = out.load.size())
    all = plans(now);
  if (!out.load.empty()) refuse_hopeless(now, out);  // a pinned model may have taken what others need
  make_room(all.empty() ? nullptr : &all.front(), now, out);
  ask_again(all, now, out);
  return out;
}

// What waits in vain: for a model that failed, that fits no more, that no waiting tenant may have loaded; or for longer
// than it may.
void ModelResidency::refuse_hopeless(double now, Decisions& out) {
  std::vector<std::pair<RequestNumber, Refusal>> late;
  for (auto& [number, model] : models_) {
    if (model.state == State::loading) continue;
    std::optional<double> wait;  // the same for all of them
    for (const RequestNumber request : model.waiting) {
      if (now < requests_.at(request).since + options_.max_wait_seconds) break;  // the others came later
      if (!wait) wait = wait_of(request, now).seconds;
      const double seconds = *wait;
      late.push_back(
          {request,
           {.outcome = Outcome::loading,
            .message = fmt::format("model {} was not loaded within {:.0f} s: others use the memory; try again later, "
                                   "or ask for a model that is loaded",
                                   model.facts.name, options_.max_wait_seconds),
            .field = "model",
            .retry_after = seconds < kForever ? seconds : kUnknownWaitSeconds}});
    }
  }
  for (auto& [request, refusal] : late) {
    ended(request, now);
    out.refuse.push_back({request, std::move(refusal)});
  }
  for (auto& [number, model] : models_) {
    if (model.state != State::out || model.waiting.empty()) continue;
    if (const auto refused = why_not(model, now))
      drop_waiting(model, *refused, out);
    else if (!asker_of(model))
      drop_waiting(model, not_allowed(model), out);
  }
}

void ModelResidency::put_out(ModelNumber number, UnloadReason why, Decisions& out) {
  Model& model = at(number);
  model.state = State::leaving;
  out.unload.push_back({.model = number, .why = why, .has_running = model.num_running > 0});
}

void ModelResidency::expire(double now, Decisions& out) {
  for (auto& [number, model] : models_)
    if (model.state == State::loaded && model.num_running == 0 && !model.facts.pinned &&
        now >= model.last_used + model.facts.keep_alive)
      put_out(number, UnloadReason::keep_alive, out);
}

void ModelResidency::make_room(const Plan* next, double now, Decisions& out) {
  const bool is_ready = next != nullptr && next->is_ready;
  for (auto& [number, model] : models_) {
    if (model.state != State::closing || (is_ready && std::ranges::count(next->victims, number) > 0)) continue;
    model.state = State::loaded;
    release(model, now, out);
  }
  next_.reset();
  if (!is_ready) return;
  for (const ModelNumber number : next->victims) {
    Model& model = at(number);
    if (model.state == State::loaded) {
      // Until the next load can begin, this one may be used.
      if (num_loading_ >= options_.max_loading) continue;
      if (model.num_running == 0) {
        put_out(number, UnloadReason::room, out);
        continue;
      }
      model.state = State::closing;
      model.began_at = now;
    }
    if (model.num_running == 0 || now >= model.began_at + options_.drain_seconds)
      put_out(number, UnloadReason::turn, out);
  }
  next_ = next->model;
}

// Begins a load in the order of the plans; behind one that does not fit yet only into memory that it does not need, and
// not of a model that was loaded since that one is waited for.
void ModelResidency::load_what_fits(const std::vector<Plan>& all, double now, Decisions& out) {
  std::uint64_t taken = bytes_in_memory(), count = 0, leaving_bytes = 0, leaving_count = 0;
  for (const auto& [number, model] : models_) {
    count += model.is_in_memory();
    if (model.state != State::leaving) continue;
    leaving_bytes += model.bytes;
    ++leaving_count;
  }
  bool has_kept = false;
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Plan& plan : all) {
    if (num_loading_ >= options_.max_loading) return;
    if (at(plan.model).last_load > oldest) continue;
    const std::uint64_t bytes = at(plan.model).facts.bytes;
    if (taken + bytes <= options_.budget_bytes && count + 1 <= options_.max_models) {
      begin_load(plan.model, plan.asker.tenant, now);
      if (next_ == plan.model) next_.reset();
      out.load.push_back({plan.model, plan.asker.tenant});
      return;  // the other plans are to be made anew
    }
    oldest = std::min(oldest, at(plan.model).waiting_since);
    if (has_kept) continue;
    has_kept = true;
    // Of what is free, the next one needs what those that go for it do not leave.
    std::uint64_t to_come = leaving_bytes, places_to_come = leaving_count;
    for (const ModelNumber victim : plan.victims) to_come += at(victim).bytes, ++places_to_come;
    taken += bytes - std::min(bytes, to_come);
    count += 1 - std::min<std::uint64_t>(1, places_to_come);
  }
}

void ModelResidency::ask_again(const std::vector<Plan>& all, double now, Decisions& out) const {
  const auto ask_at = [&](double at) {
    if (at > now) out.ask_at = std::min(out.ask_at, at);
  };
  if (!all.empty() && !all.front().is_ready) ask_at(all.front().ready_at);
  const auto is_planned = [&](ModelNumber number) { return std::ranges::count(all, number, &Plan::model) > 0; };
  const bool waits_for_idle = std::ranges::any_of(models_, [&](const auto& entry) {
    return entry.second.state == State::out && !entry.second.waiting.empty() && !is_planned(entry.first);
  });
  for (const auto& [number, model] : models_) {
    if (waits_for_idle && model.state == State::loaded)
      for (const auto& [tenant, at] : model.used)
        if (tenant) ask_at(at + model.idle_after());
    if (model.state == State::loaded && model.num_running == 0 && !model.facts.pinned)
      ask_at(model.last_used + model.facts.keep_alive);
    if (model.state == State::closing) ask_at(model.began_at + options_.drain_seconds);
    if (model.state != State::loading && !model.waiting.empty())
      ask_at(requests_.at(model.waiting.front()).since + options_.max_wait_seconds);
  }
}

ModelWait ModelResidency::wait_of(RequestNumber request, double now) const {
  const Request& waiting = requests_.at(request);
  TROUPE_ASSERT(waiting.waits);
  const Model& model = at(waiting.model);
  if (model.state == State::loading) {
    const double past = std::max(now - model.began_at, 0.0), all = model.facts.load_seconds;
    return {.why = ModelWait::Why::load, .seconds = std::max(all - past, 0.0), .progress = std::min(past / all, 1.0)};
  }
  // Loads under way, then of each model before this one and of its own: the rest of a turn, the drain, and the load.
  double seconds = 0;
  for (const auto& [number, other] : models_)
    if (other.state == State::loading) seconds = std::max(seconds, other.began_at + other.facts.load_seconds - now);
  seconds = std::max(seconds, 0.0);
  ModelWait wait{.why = ModelWait::Why::queue, .seconds = kForever};
  if (model.state == State::out) wait.why = ModelWait::Why::room;
  double turn_of_last = 0;
  for (const Plan& plan : plans(now)) {
    double room = 0;
    std::optional<ModelNumber> on;
    for (const ModelNumber victim : plan.victims) {
      const Model& other = at(victim);
      if (other.state == State::loading) {
        room = std::max(room, kTurnLoads * other.facts.load_seconds);
        on = victim;
        continue;
      }
      const double turn = turn_of(other, plan.asker, now).is_over ? 0 : std::max(other.min_turn_ends() - now, 0.0);
      const double drain = other.num_running > 0 ? std::min(other.usual_run, options_.drain_seconds) : 0;
      if (!on || turn + drain > room) on = victim;
      room = std::max(room, turn + drain);
    }
    if (!plan.victims.empty()) seconds += std::max(room, turn_of_last);
    seconds += at(plan.model).facts.load_seconds;
    turn_of_last = kTurnLoads * at(plan.model).facts.load_seconds;
    if (plan.model == waiting.model) {
      wait.seconds = seconds;
      wait.why = wait.models_before > 0 ? ModelWait::Why::queue : ModelWait::Why::turn;
      wait.on = on;
      return wait;
    }
    ++wait.models_before;
  }
  if (model.state == State::out) {
    wait.models_before = 0;
    return wait;
  }
  // It is closing or leaving: behind all that are waited for now.
  wait.seconds = seconds + turn_of_last + model.facts.load_seconds;
  return wait;
}

}  // namespace troupe::scheduler
