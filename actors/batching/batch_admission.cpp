// How a Batch admits requests, gets blocks for them, and preempts them for older ones.
#include <algorithm>
#include <utility>

#include "actors/batching/batch.h"
#include "actors/batching/batch_live.h"
#include "config/assert.h"

namespace troupe::actors {

void Batch::move_to(Live& live, Phase phase) {
  --num_at_[static_cast<std::size_t>(live.phase)];
  ++num_at_[static_cast<std::size_t>(phase)];
  const TenantId tenant = live.task->body->tenant.id;
  if (has_claim(live.phase)) shares_.withdraw_claim(tenant);
  if (has_claim(phase)) shares_.claim_place(tenant);
  live.phase = phase;
  count_share(live, phase != Phase::no_credit && phase != Phase::undecided);
}

void Batch::set_parked(Live& live, bool parked) {
  live.parked = parked;
  parked ? planner_.park(live.sequence) : planner_.unpark(live.sequence);
  count_share(live, !parked);
}

// What is out of credit is not counted: its tenant's counter must be lifted when credit comes.
void Batch::count_share(Live& live, bool wants_computing) {
  if (std::exchange(live.wants_computing, wants_computing) == wants_computing) return;
  const scheduler::Tenant& tenant = live.task->body->tenant;
  wants_computing ? shares_.begin(tenant.id, tenant.weight()) : shares_.end(tenant.id);
}

bool Batch::set_state(const Live& live, RequestState state) {
  return streams().set_state(live.request(), live.generation(), state);
}

void Batch::queue_again(Live& live) {
  move_to(live, Phase::queued);
  predictions_fresh_ = false;
  queue_.push(live.request(), demand_of(live));
}

// One Acquire at a time: first requests that were answered Short, the oldest first, then the queue; but the queue's
// next request goes first if it outranks them. What is at its tenant's ceiling is passed over while it cannot be asked
// for again.
void Batch::admit() {
  if (planner_.starved() || num_at(Phase::asking) > 0) return;
  if (Live* waiting = oldest_short_of_blocks(false)) {
    const auto next = queue_.peek();
    const bool is_outranked =
        next && planner_.has_room() && planner_.outranks(demand_of(*find(*next)), demand_of(*waiting));
    if (is_outranked) return admit_from_queue();
    if (can_ask_again(*waiting)) ask_again(*waiting);
    return;
  }
  if (Live* waiting = oldest_short_of_blocks(true)) return ask_again(*waiting);
  admit_from_queue();
}

// Blocks were given back since it was asked for, or a younger sequence can be preempted rather than waited for.
bool Batch::can_ask_again(const Live& live) const {
  if (num_returns_ > live.asked_at && planner_.can_add()) return true;
  return !step_running_ && planner_.victim_for(demand_of(live), live.at_ceiling);
}

void Batch::ask_again(Live& live) {
  if (num_returns_ == live.asked_at || !planner_.can_add())
    preempt(*find_sequence(*planner_.victim_for(demand_of(live), live.at_ceiling)));
  acquire(live);
}

// A tenant at its ceiling has its next request wait while an older one is short of blocks, running or not.
bool Batch::may_admit(TenantId tenant) const {
  if (planner_.starved_at_ceiling(tenant)) return false;
  return num_at(Phase::short_of_blocks) == 0 || std::ranges::none_of(sequences_, [&](const auto& entry) {
           const Live& live = *entry.second;
           return live.phase == Phase::short_of_blocks && live.at_ceiling && live.task->body->tenant.id == tenant;
         });
}

void Batch::admit_from_queue() {
  const auto first = queue_.peek();
  if (!first) return;
  const scheduler::Demand next = demand_of(*find(*first));
  if (!may_follow(next.tenant)) return;
  const bool has_room = planner_.has_room();
  const auto victim = has_room ? std::nullopt : planner_.place_for(next);
  if (!has_room && !victim) return;
  if (!predictions_fresh_ && has_choice()) return ask_for_predictions();
  if (victim && step_running_) return;  // they are asked for by now
  std::int32_t priority = 0;
  Live& live = *find(*queue_.pick(&priority));
  live.priority = priority;
  live.rank = scheduler::FairQueue::rank_of(demand_of(live));
  if (victim) preempt(*find_sequence(*victim));
  newcomer_asks_ = !step_running_ && shares_.places(next.tenant) == 0;
  predictions_fresh_ = false;  // other requests may share the prefix that this one computes
  live.sequence = ++last_sequence_;
  sequences_.emplace(live.sequence, &live);
  acquire(live);
  if (queue_.size() > 1) ask_for_predictions();  // answered together with this Acquire
}

// Requests that wait for a leader hold nothing, but their number is bounded, for each tenant by itself.
bool Batch::may_follow(TenantId tenant) const {
  if (num_at(Phase::following) < options_.planner.max_sequences) return true;
  const auto follows = [&](const auto& entry) {
    const Live& live = *entry.second;
    return live.phase == Phase::following && live.task->body->tenant.id == tenant;
  };
  return std::ranges::count_if(sequences_, follows) < std::ptrdiff_t{options_.planner.max_sequences};
}

// Whether predictions can make a difference.
bool Batch::has_choice() {
  queue_.candidates(candidates_);
  return candidates_.size() > 1;
}

void Batch::ask_for_predictions() {
  if (predictions_asked_) return;
  queue_.candidates(candidates_);
  predictions_asked_ = !candidates_.empty();
  for (const scheduler::RequestNumber number : candidates_) {
    const Live& live = *find(number);
    leases_.push_back(Predict{.request = number, .scopes = live.scopes, .tokens = live.task->prompt});
  }
}

// at_ceiling: of those at their tenant's ceiling that can be asked for again, else of the others.
Batch::Live* Batch::oldest_short_of_blocks(bool at_ceiling) {
  if (num_at(Phase::short_of_blocks) == 0) return nullptr;
  Live* oldest = nullptr;
  for (const auto& [sequence, live] : sequences_) {
    if (live->phase != Phase::short_of_blocks || live->at_ceiling != at_ceiling) continue;
    if (at_ceiling && !can_ask_again(*live)) continue;
    if (!oldest || planner_.is_older(demand_of(*live), demand_of(*oldest))) oldest = live;
  }
  return oldest;
}

// The first choice of the request that `live` is a later choice of, if it is still in this batch. Both have the same
// prompt and cache scopes: the stream table made them from one request.
Batch::Live* Batch::parent_of(const Live& live) {
  const RequestId id = live.task->body->fork_of;
  return id == 0 ? nullptr : find(id);
}

bool Batch::has_computed_prompt(const Live& live) const {
  return live.phase == Phase::running && planner_.computed(live.sequence) >= live.task->prompt->size();
}

std::optional<cache::Fork> Batch::fork_of(const Live& live) {
  const Live* parent = parent_of(live);
  if (!parent || !has_computed_prompt(*parent)) return std::nullopt;
  return cache::Fork{parent->sequence, live.prompt_tokens()};
}

// Queues the forks of `parent`: it has computed the prompt, or is not in this batch any more.
void Batch::requeue_forks(RequestId parent) {
  if (num_at(Phase::waiting_for_fork) == 0) return;
  for (const auto& [request, live] : requests_) {
    if (live->phase == Phase::waiting_for_fork && live->task->body->fork_of == parent) queue_again(*live);
  }
}

void Batch::acquire(Live& live) {
  const scheduler::Tenant& tenant = live.task->body->tenant;
  move_to(live, Phase::asking);
  live.asked_at = num_returns_;
  const auto image = image_of(live);
  leases_.push_back(
      cache::Acquire{.key = next_key(live),
                     .rank = live.rank,
                     .scopes = live.scopes,
                     .tokens = std::make_shared<const std::vector<TokenId>>(live.tokens),
                     .want = planner_.initial_blocks(live.known_tokens()),
                     // Each running sequence may need a block soon; without them the next step would preempt one.
                     .headroom = planner_.num_running(),
                     .fork = fork_of(live),
                     .owner = scheduler::owner_of(tenant.id, tenant.limits()),
                     .own_headroom = shares_.places(tenant.id),
                     .filled = image ? image->num_computed() : 0});
}

void Batch::acquired(Live& live, const cache::Acquired& answer) {
  if (read_session(live, answer.num_cached_tokens)) return;
  if (planner_.is_full()) {  // all recurrent states that fit in memory are in use
    const auto victim = planner_.parked_victim();
    if (!victim) {
      release_blocks(live);
      return queue_again(live);
    }
    preempt(*find_sequence(*victim));
  }
  move_to(live, Phase::running);
  live.tables = answer.tables;
  live.num_committed = answer.num_cached_tokens / kBlockSize;
  const std::uint32_t num_cached = answer.num_cached_tokens + answer.num_copied_tokens;
  live.cached_tokens = std::min(num_cached, live.prompt_tokens());
  live.copy_from = answer.copy_from;
  live.restore = answer.restore;
  live.spares = answer.spares;

  const auto image = image_of(live);
  if (image && image->num_computed() > num_cached) live.fill_until = image->num_computed();
  live.cached_tokens = std::max(live.cached_tokens, live.fill_until);  // not computed either
  if (live.fill_until == 0) open(live, num_cached);
  planner_.add({.sequence = live.sequence,
                .rank = live.rank,
                .known = live.known_tokens(),
                .computed = num_cached,
                .num_blocks = static_cast<std::uint32_t>(answer.tables[0].size()),
                .max_known = live.max_known,
                .alone_until = live.alone_until,
                .tenant = live.task->body->tenant.id,
                .due_seconds = live.due_seconds,
                .floor = live.task->body->tenant.limits().min_kv_blocks.value_or(0),
                .answer_tokens = proposal_left(live)});
  if (!set_state(live, RequestState::running)) drop(live);
}

// Has the worker open the request's sequence before the next step, with all its blocks.
void Batch::open(Live& live, std::uint32_t num_cached) {
  live.opened = true;
  engine::SequenceSpec spec;
  spec.id = live.sequence;
  spec.tokens = live.tokens;
  spec.num_prompt_tokens = live.prompt_tokens();
  spec.num_cached = num_cached;
  spec.tables = live.tables;
  spec.copy_from = live.copy_from;
  spec.restore = live.restore;
  spec.sampling = live.task->body->sampling;
  spec.sampling.choice += live.task->body->first_choice;
  if (spec.sampling.reasoning_budget) spec.sampling.reasoning_budget->markers = options_.reasoning;
  spec.sampling.max_tokens = live.max_known - spec.num_prompt_tokens;
  if (live.fill_until > 0) {
    spec.restore = kNoSnapshot;
    spec.state = image_of(live)->state();
  }
  opens_.push_back(std::move(spec));
}

// Preempts one sequence if an older one is starved of blocks.
void Batch::make_room() {
  const auto victim = planner_.victim();
  if (!victim) return;
  preempt(*find_sequence(*victim));
  ask_for_blocks();
}

void Batch::preempt(Live& live) {
  if (live.saving) return drop(live);
  // So that it cannot be preempted for ever while it is filled.
  if (live.fill_until > 0) live.task->body->turn->forget_image();
  const bool was_parked = live.parked;
  release_blocks(live);
  if (!streams().preempted(live.request(), live.generation(), now_)) return drop(live);
  if (was_parked) return move_to(live, Phase::no_credit);
  set_state(live, RequestState::queued);
  queue_again(live);
}

}  // namespace troupe::actors
