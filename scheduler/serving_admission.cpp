// How a ServingLoop admits requests and gets their first blocks.
#include <algorithm>

#include "config/assert.h"
#include "scheduler/serving_loop.h"

namespace troupe::scheduler {

// One Acquire at a time: first requests that were answered Short, the oldest first, then the queue; but the queue's
// next request goes first if it outranks them. What is at its tenant's ceiling is passed over while it cannot be asked
// for again.
void ServingLoop::admit() {
  if (planner_.starved() || num_in(Phase::asking) > 0) return;
  if (ServingRequest* waiting = oldest_short_of_blocks(false)) {
    const auto next = queue_.peek();
    const bool is_outranked =
        next && planner_.has_room() && planner_.outranks(find(*next)->demand(), waiting->demand());
    if (is_outranked) return admit_from_queue();
    if (can_ask_again(*waiting)) ask_again(*waiting);
    return;
  }
  if (ServingRequest* waiting = oldest_short_of_blocks(true)) return ask_again(*waiting);
  admit_from_queue();
}

// Blocks were given back since it was asked for, or a younger sequence can be preempted rather than waited for.
bool ServingLoop::can_ask_again(const ServingRequest& request) const {
  if (num_returns_ > request.asked_at && planner_.can_add()) return true;
  return !step_running_ && planner_.victim_for(request.demand(), request.at_ceiling);
}

void ServingLoop::ask_again(ServingRequest& request) {
  if (num_returns_ == request.asked_at || !planner_.can_add())
    preempt(*find_sequence(*planner_.victim_for(request.demand(), request.at_ceiling)));
  acquire(request);
}

// A tenant at its ceiling has its next request wait while an older one is short of blocks, running or not.
bool ServingLoop::may_admit(TenantId tenant) const {
  if (planner_.starved_at_ceiling(tenant)) return false;
  return num_in(Phase::short_of_blocks) == 0 || std::ranges::none_of(sequences_, [&](const auto& entry) {
           const ServingRequest& request = *entry.second;
           return request.phase == Phase::short_of_blocks && request.at_ceiling && request.tenant() == tenant;
         });
}

void ServingLoop::admit_from_queue() {
  const auto first = queue_.peek();
  if (!first) return;
  const Demand next = find(*first)->demand();
  if (!may_follow(next.tenant)) return;
  const bool has_room = planner_.has_room();
  const auto victim = has_room ? std::nullopt : planner_.place_for(next);
  if (!has_room && !victim) return;
  if (!predictions_fresh_ && has_choice()) return ask_for_predictions();
  if (victim && step_running_) return;  // they are asked for by now
  std::int32_t priority = 0;
  ServingRequest& request = *find(*queue_.pick(&priority));
  request.asked.priority = priority;
  request.rank = FairQueue::rank_of(request.asked);
  if (victim) preempt(*find_sequence(*victim));
  newcomer_asks_ = !step_running_ && shares_.places(next.tenant) == 0;
  predictions_fresh_ = false;  // other requests may share the prefix that this one computes
  request.sequence = ++last_sequence_;
  sequences_.emplace(request.sequence, &request);
  acquire(request);
  if (queue_.size() > 1) ask_for_predictions();  // answered together with this Acquire
}

// Requests that wait for a leader hold nothing, but their number is bounded, for each tenant by itself.
bool ServingLoop::may_follow(TenantId tenant) const {
  if (num_in(Phase::following) < options_.planner.max_sequences) return true;
  const auto follows = [&](const auto& entry) {
    return entry.second->phase == Phase::following && entry.second->tenant() == tenant;
  };
  return std::ranges::count_if(sequences_, follows) < std::ptrdiff_t{options_.planner.max_sequences};
}

// Whether predictions can make a difference.
bool ServingLoop::has_choice() {
  queue_.candidates(candidates_);
  return candidates_.size() > 1;
}

void ServingLoop::ask_for_predictions() {
  if (predictions_asked_) return;
  queue_.candidates(candidates_);
  predictions_asked_ = !candidates_.empty();
  for (const RequestNumber number : candidates_) predict(*find(number));
}

void ServingLoop::predict(const ServingRequest& request) {
  leases_.push_back(Predict{.request = request.request(), .scopes = request.scopes, .tokens = request.prompt});
}

void ServingLoop::predicted(const Prediction& prediction) {
  queue_.set_prediction(prediction.request, prediction.tokens);
  predictions_asked_ = false;
  predictions_fresh_ = true;
}

// at_ceiling: of those at their tenant's ceiling that can be asked for again, else of the others.
ServingRequest* ServingLoop::oldest_short_of_blocks(bool at_ceiling) {
  if (num_in(Phase::short_of_blocks) == 0) return nullptr;
  ServingRequest* oldest = nullptr;
  for (const auto& [sequence, request] : sequences_) {
    if (request->phase != Phase::short_of_blocks || request->at_ceiling != at_ceiling) continue;
    if (at_ceiling && !can_ask_again(*request)) continue;
    if (!oldest || planner_.is_older(request->demand(), oldest->demand())) oldest = request;
  }
  return oldest;
}

// The first choice of the request that this one is a later choice of, if it is still here.
ServingRequest* ServingLoop::parent_of(const ServingRequest& request) {
  return request.fork_of == 0 ? nullptr : find(request.fork_of);
}

bool ServingLoop::has_computed_prompt(const ServingRequest& request) const {
  return request.phase == Phase::running && planner_.computed(request.sequence) >= request.prompt_tokens();
}

std::optional<cache::Fork> ServingLoop::fork_of(const ServingRequest& request) {
  const ServingRequest* parent = parent_of(request);
  if (!parent || !has_computed_prompt(*parent)) return std::nullopt;
  return cache::Fork{parent->sequence, request.prompt_tokens()};
}

// Queues the forks of `parent`: it has computed the prompt, or is not here any more.
void ServingLoop::requeue_forks(RequestNumber parent) {
  if (num_in(Phase::waiting_for_fork) == 0) return;
  for (const auto& [number, request] : requests_)
    if (request->phase == Phase::waiting_for_fork && request->fork_of == parent) queue(*request);
}

void ServingLoop::acquire(ServingRequest& request) {
  move_to(request, Phase::asking);
  request.asked_at = num_returns_;
  leases_.push_back(
      cache::Acquire{.key = next_key(request),
                     .rank = request.rank,
                     .scopes = request.scopes,
                     .tokens = std::make_shared<const std::vector<TokenId>>(request.tokens),
                     .want = planner_.initial_blocks(request.known_tokens()),
                     // Each running sequence may need a block soon; without them the next step would preempt one.
                     .headroom = planner_.num_running(),
                     .fork = fork_of(request),
                     .owner = owner_of(request.tenant(), request.asked.limits),
                     .own_headroom = shares_.places(request.tenant()),
                     .filled = request.contents,
                     .computes_all = request.wants_prompt_logits});
}

void ServingLoop::acquired(ServingRequest& request, const cache::Acquired& answer) {
  if (driver_.reads_contents(request, answer.num_cached_tokens)) {
    release_blocks(request);
    return move_to(request, Phase::reading);
  }
  if (planner_.is_full()) {  // all recurrent states that fit in memory are in use
    const auto victim = planner_.parked_victim();
    if (!victim) {
      release_blocks(request);
      return queue(request);
    }
    preempt(*find_sequence(*victim));
  }
  move_to(request, Phase::running);
  request.tables = answer.tables;
  request.num_committed = answer.num_cached_tokens / kBlockSize;
  const std::uint32_t num_cached = answer.num_cached_tokens + answer.num_copied_tokens;
  request.copy_from = answer.copy_from;
  request.spares = answer.spares;
  if (request.contents > num_cached) request.fill_until = request.contents;
  request.cached_tokens = std::min(num_cached, request.prompt_tokens());
  request.cached_tokens = std::max(request.cached_tokens, request.fill_until);  // not computed either
  if (request.fill_until == 0) open(request, num_cached, answer.restore);
  planner_.add({.sequence = request.sequence,
                .rank = request.rank,
                .known = request.known_tokens(),
                .computed = num_cached,
                .num_blocks = static_cast<std::uint32_t>(answer.tables[0].size()),
                .max_known = request.max_known,
                .alone_until = request.alone_until,
                .tenant = request.tenant(),
                .due_seconds = request.asked.due_seconds,
                .floor = request.asked.limits.min_kv_blocks.value_or(0),
                .num_scored = request.wants_prompt_logits ? request.prompt_tokens() - 1 : 0,
                .answer_tokens = request.answer_tokens});
  if (!driver_.admitted(request)) drop(request);
}

}  // namespace troupe::scheduler
