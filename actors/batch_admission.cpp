// How requests of a Batch get their places and blocks, and lose them to older ones.
#include <algorithm>
#include <utility>

#include "actors/batch.h"
#include "actors/batch_live.h"
#include "config/assert.h"

namespace troupe::actors {

void Batch::queue_again(Live& live) {
  live.place = Place::queued;
  predictions_fresh_ = false;
  queue_.push_back_preempted(live.request(), demand_of(live));
}

void Batch::admit() {
  if (!short_.empty()) return retry_shortest();
  while (!queue_.empty() && !planner_.starved() &&
         planner_.num_running() + num_acquiring_ < options_.planner.max_sequences) {
    if (queue_.size() > 1 && !predictions_fresh_) return ask_for_predictions();
    Live& live = *find(*queue_.pick());
    predictions_fresh_ = false;  // what this one computes, others may share
    live.place = Place::acquiring;
    ++num_acquiring_;
    live.sequence = ++last_sequence_;
    sequences_.emplace(live.sequence, &live);
    acquire(live);
  }
}

void Batch::ask_for_predictions() {
  if (predictions_asked_) return;
  predictions_asked_ = true;
  candidates_.clear();
  queue_.candidates(candidates_);
  for (const scheduler::RequestNumber number : candidates_) {
    const Live& live = *find(number);
    leases_.push_back(Predict{.request = number,
                              .scopes = cache::scopes_for(live.task->body->uid, live.task->body->cache_scope),
                              .tokens = live.task->prompt});
  }
}

void Batch::acquire(Live& live) {
  if (!live.asked_with) live.asked_with = std::make_shared<const std::vector<TokenId>>(live.tokens);
  live.is_short = false;
  // Whoever runs may need a block soon; admitting into those would only preempt somebody right away.
  const std::uint32_t headroom = planner_.num_running();
  leases_.push_back(cache::Acquire{.key = next_key(live),
                                   .rank = live.rank,
                                   .scopes = cache::scopes_for(live.task->body->uid, live.task->body->cache_scope),
                                   .tokens = live.asked_with,
                                   .want = blocks_for(static_cast<std::uint32_t>(live.tokens.size())),
                                   .headroom = headroom});
}

void Batch::acquired(Live& live, const cache::Acquired& answer) {
  TROUPE_ASSERT(live.place == Place::acquiring);
  --num_acquiring_;
  std::erase(short_, live.request());
  live.place = Place::running;
  live.is_short = false;
  live.asked_with = nullptr;
  live.table = answer.blocks;
  live.cached_tokens = std::min(answer.num_cached_tokens, static_cast<std::uint32_t>(live.task->prompt->size()));

  const auto prompt_tokens = static_cast<std::uint32_t>(live.task->prompt->size());
  engine::SequenceSpec spec;
  spec.id = live.sequence;
  spec.tokens = live.tokens;
  spec.num_prompt_tokens = prompt_tokens;
  spec.num_cached = answer.num_cached_tokens;
  spec.block_table = answer.blocks;
  spec.sampling = live.task->body->sampling;
  spec.sampling.max_tokens = live.max_known - prompt_tokens;
  opens_.push_back(std::move(spec));
  planner_.add({.sequence = live.sequence,
                .rank = live.rank,
                .known = static_cast<std::uint32_t>(live.tokens.size()),
                .computed = answer.num_cached_tokens,
                .num_blocks = static_cast<std::uint32_t>(answer.blocks.size()),
                .max_known = live.max_known});
  streams_.set_state(live.request(), live.generation(), RequestState::running);
}

void Batch::acquisition_is_short(Live& live) {
  live.is_short = true;
  if (std::find(short_.begin(), short_.end(), live.request()) != short_.end()) return;
  const auto place =
      std::find_if(short_.begin(), short_.end(), [&](RequestId other) { return live.rank < find(other)->rank; });
  short_.insert(place, live.request());
}

// The oldest of those that were told Short asks again, once for each time that something came back.
void Batch::retry_shortest() {
  Live& live = *find(short_.front());
  if (!something_came_back_ || !live.is_short) return;
  something_came_back_ = false;
  acquire(live);
}

// Preempts one sequence if an older one cannot go on, or cannot begin, without its blocks.
void Batch::make_room() {
  std::optional<SequenceId> victim = planner_.victim();
  const bool for_newcomer = !victim && !short_.empty() && find(short_.front())->is_short;
  if (for_newcomer) victim = planner_.victim_for(find(short_.front())->rank);
  if (!victim) return;
  preempt(*find_sequence(*victim));
  if (for_newcomer) retry_shortest();
  ask_for_blocks();
}

void Batch::preempt(Live& live) {
  const bool was_parked = live.parked;
  leave_the_cache(live);
  streams_.preempted(live.request(), live.generation());
  if (was_parked) {
    live.place = Place::waiting;
    return;
  }
  streams_.set_state(live.request(), live.generation(), RequestState::queued);
  queue_again(live);
}

}  // namespace troupe::actors
