#include "actors/batching/batch.h"

#include <algorithm>
#include <utility>

#include "actors/batching/batch_live.h"
#include "actors/requests/request_check.h"
#include "cache/group.h"
#include "config/assert.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}
void append(BlockTables& to, const BlockTables& more) {
  to.resize(more.size());
  for (GroupId group = 0; group < more.size(); ++group) append(to[group], more[group]);
}

Outcome outcome_of(engine::Finish finish) {
  TROUPE_ASSERT(finish != engine::Finish::running);
  if (finish == engine::Finish::eos) return Outcome::eos;
  return finish == engine::Finish::stop_id ? Outcome::stop_id : Outcome::length;
}

BatchOptions with_experience(BatchOptions options) {
  if (!options.experience) options.experience = std::make_shared<scheduler::Experience>();
  options.planner.costs = std::shared_ptr<scheduler::CostModel>(options.experience, &options.experience->costs);
  return options;
}

}  // namespace

Batch::Batch(BatchOptions options, StreamTable& streams, scheduler::FairShares& shares)
    : options_(with_experience(std::move(options))),
      streams_(streams),
      shares_(shares),
      queue_(shares, [this](TenantId tenant) { return may_admit(tenant); }),
      planner_(options_.planner, shares),
      last_sequence_(options_.epoch << 40) {}  // ids of different epochs differ

Batch::~Batch() = default;

void Batch::enqueue(AssignmentPtr task, TimePoint now) {
  // Credit and the end of a stream come from another actor than its assignment, and may have arrived before it.
  const auto granted = streams().granted(task->request, task->generation);
  if (!granted) return;
  at_work_ = task->request;
  if (Live* old = find(task->request)) {
    if (old->generation() >= task->generation) return;
    drop(*old);
  }
  auto owned = std::make_unique<Live>(std::move(task), options_.tokenizer, options_.reasoning.control_ids);
  Live& live = *owned;
  requests_.emplace(live.request(), std::move(owned));
  ++num_at_[static_cast<std::size_t>(live.phase)];
  const Request& body = *live.task->body;
  live.rank = scheduler::FairQueue::rank_of(demand_of(live));
  live.scopes = cache::scopes_for(body.tenant.id, body.cache_scope);
  live.granted = *granted;
  live.tokens = *live.task->prompt;
  begin_drafts(live);
  const auto fit = scheduler::check_fit(demand_of(live), options_.capacity);
  TROUPE_ASSERT(std::holds_alternative<scheduler::Fits>(fit));  // the intake has checked it
  live.max_known = std::get<scheduler::Fits>(fit).max_known;
  if (live.task->num_faults >= kMaxFaults) return fail_request(live, {.what = "its worker died"}, now);

  // Tokens that an earlier batcher delivered are not sent again; they only rebuild the answer's state.
  for (const TokenId id : live.task->emitted) {
    live.tokens.push_back(id);
    ++live.emitted;
    if (auto piece = live.answer.push(id); piece.stop) return end(live, Outcome::stop_string, *piece.stop, now);
  }
  if (live.task->num_faults > 0) live.alone_until = live.known_tokens();
  if (live.tokens.size() >= live.max_known) return end(live, Outcome::length, {}, now);
  if (!ask_for_promise(live)) enter(live, now);
}

// Queues the request, unless it has to wait for credit or for the choice that it is a fork of.
void Batch::enter(Live& live, TimePoint now) {
  if (live.emitted >= live.granted) {
    if (!out_of_credit(live, now)) drop(live);
    return;
  }
  const Live* parent = parent_of(live);
  if (parent && !has_computed_prompt(*parent) && parent->phase != Phase::no_credit)
    return move_to(live, Phase::waiting_for_fork);
  queue_again(live);
}

bool Batch::forget(RequestId request, TimePoint now) {
  Live* live = find(request);
  if (!live) return false;
  if (live->task->deadline && now >= *live->task->deadline) settle_promise(*live, live->wants_last(), now);
  const bool in_step = step_running_ && live->sequence != 0 && live->last_step == step_;
  drop(*live);
  return in_step;
}

void Batch::forget_all() {
  while (!requests_.empty()) drop(*requests_.begin()->second);
}

void Batch::credit(RequestId request, std::uint64_t granted) {
  Live* live = find(request);
  if (!live || granted <= live->granted) return;
  live->granted = granted;
  // Others of its tenant have taken its place: it waits in the queue, as if it had been preempted while it was parked.
  const scheduler::Demand demand = demand_of(*live);
  if (live->parked && shares_.places_and_claims(demand.tenant) >= demand.max_running()) preempt(*live);
  live = find(request);
  if (!live) return;
  if (live->phase == Phase::no_credit) {
    if (!set_state(*live, RequestState::queued)) return drop(*live);
    queue_again(*live);
  } else if (live->parked) {
    if (!set_state(*live, RequestState::running)) return drop(*live);
    set_parked(*live, false);
  }
}

void Batch::keeper_replied(const LeaseReply& reply, TimePoint now) {
  for (const cache::LeaseAnswer& answer : reply.effects.answers) {
    Live* live = find_sequence(answer.sequence);  // none: ended meanwhile, its Release is on the way
    if (live && answer.epoch == options_.epoch && answer.number > live->seen) apply(*live, answer);
  }
  for (const cache::Inheritance& heir : reply.effects.inherited) planner_.inherit(heir.sequence, heir.rank);
  for (const Prediction& prediction : reply.predictions) {
    Live* live = find(prediction.request);
    if (live && live->phase == Phase::undecided) {
      decide_promise(*live, prediction.tokens, now);
      continue;
    }
    queue_.set_prediction(prediction.request, prediction.tokens);
    predictions_asked_ = false;
    predictions_fresh_ = true;
  }
}

void Batch::apply(Live& live, const cache::LeaseAnswer& answer) {
  // A Wait is not applied: the final answer follows under the same number.
  if (std::holds_alternative<cache::Wait>(answer.body)) return move_to(live, Phase::following);
  live.seen = answer.number;
  if (const auto* acquired_blocks = std::get_if<cache::Acquired>(&answer.body)) {
    acquired(live, *acquired_blocks);
  } else if (const auto* more = std::get_if<cache::Extended>(&answer.body)) {
    append(live.tables, more->blocks);
    append(live.new_blocks, more->blocks);
    append(live.spares, more->spares);
    planner_.grant(live.sequence, static_cast<std::uint32_t>(more->blocks[0].size()));
  } else if (const auto* canonical = std::get_if<cache::Committed>(&answer.body)) {
    committed(live, *canonical);
  } else if (const auto* denied = std::get_if<cache::Short>(&answer.body)) {
    if (live.phase == Phase::running) {
      planner_.deny(live.sequence, denied->available, denied->at_ceiling);
    } else {
      live.at_ceiling = denied->at_ceiling;
      move_to(live, Phase::short_of_blocks);
    }
  }
}

void Batch::step_ended(const engine::StepResult& result, TimePoint now) {
  step_is_over(result.epoch, result.step);
  const bool has_copies = has_copies_;
  charge_step(std::max(0.0, seconds_between(result.kernels_began, result.kernels_ended)),
              has_copies ? scheduler::StepEnd::with_copies : scheduler::StepEnd::as_planned, &result, now);
  charge_copies(now);
  if (!has_copies) learn_pace(result);
  part_saved();
  fills_ended();
  std::size_t item = 0;
  for (const engine::ItemResult& row : result.items) {
    while (plan_.items[item].sequence != row.sequence) ++item;  // rows are in the order of the plan
    Live* live = find_sequence(row.sequence);
    if (!live) continue;  // cancelled during the step
    at_work_ = live->request();
    if (options_.faults.before_row) options_.faults.before_row(at_work_);
    take_row(*live, row, plan_.items[item].num_draft, now);
  }
}

void Batch::step_is_over(std::uint64_t epoch, std::uint64_t step) {
  TROUPE_ASSERT(step_running_ && epoch == options_.epoch && step == step_);
  step_running_ = false;
  if (std::exchange(release_waits_, false)) retry();
  leases_.push_back(StepEnded{.epoch = epoch, .step = step});
}

// Charges its time to tenants and streams: before its results, which may end a stream and with it the receipt.
void Batch::charge_step(double seconds, scheduler::StepEnd how, const engine::StepResult* result, TimePoint now) {
  planner_.charge(plan_, seconds, how);
  report();
  step_report_.seconds = seconds;
  step_report_.now = now;
  std::size_t row = 0;  // rows are in the order of the plan; some items have none
  for (const scheduler::PlanItem& item : plan_.items) {
    const bool has_row = result && row < result->items.size() && result->items[row].sequence == item.sequence;
    const std::uint32_t num_accepted = has_row ? result->items[row++].num_accepted : 0;
    const Live* live = find_sequence(item.sequence);  // none: cancelled during the step
    step_report_.charges.push_back({.request = live ? live->request() : 0,
                                    .tenant = item.tenant,
                                    .seconds = item.seconds,
                                    .num_tokens = result ? item.num_tokens + item.num_draft : 0,
                                    .num_drafted = result ? item.num_draft : 0,
                                    .num_accepted = num_accepted,
                                    .num_blocks = live ? live->num_blocks(options_.capacity.groups) : 0});
  }
}

// Reports what the last step's rows have to, in their order. A stream that has ended meanwhile is dropped by decide().
void Batch::report() {
  if (!step_report_.charges.empty() || !step_report_.emissions.empty()) streams_.report(step_report_, news_);
}

// Handles a step's tokens for one sequence: detokenizes, looks for stop strings, has them reported, commits full
// blocks, and ends or parks the sequence.
void Batch::take_row(Live& live, const engine::ItemResult& row, std::uint32_t num_draft, TimePoint now) {
  Emission out{.request = live.request(),
               .generation = live.generation(),
               .first_index = live.emitted,
               .text_offset = live.answer.text_bytes()};
  learn_from_draft(live, row, num_draft);
  std::optional<std::string> stop;
  for (const engine::SampledToken& token : row.tokens) {
    live.tokens.push_back(token.id);
    ++live.emitted;
    out.ids.push_back(token.id);
    if (live.wants_logprobs) out.logprobs.push_back(token);
    AnswerText::Piece piece = live.answer.push(token.id);
    out.text += piece.text;
    stop = std::move(piece.stop);
    if (stop) break;  // tokens past the match are neither sent nor counted
  }
  row_computed(live, row, out.ids.size(), num_draft);
  if (!row.tokens.empty()) settle_promise(live, false, now);
  const bool finished = row.finish != engine::Finish::running;
  if (finished && !stop) {
    AnswerText::Piece rest = live.answer.finish();
    out.text += rest.text;
    stop = std::move(rest.stop);
  }
  const bool has_news = !out.ids.empty() || !out.text.empty();
  if (has_news) step_report_.emissions.push_back(std::move(out));
  commit_full_blocks(live);
  if (stop) {
    end(live, Outcome::stop_string, *stop, now);
  } else if (finished) {
    end(live, outcome_of(row.finish), {}, now);
  } else if (live.emitted >= live.granted) {
    park(live, now);
  }
}

// The row's tokens are computed, and num_taken of its sampled ones known.
void Batch::row_computed(Live& live, const engine::ItemResult& row, std::size_t num_taken, std::uint32_t num_draft) {
  std::optional<std::uint32_t> num_computed;
  // Tokens past a stop string may be computed, but are not known.
  if (num_draft > 0) num_computed = std::min(row.num_computed, live.known_tokens());
  planner_.advance(live.sequence, static_cast<std::uint32_t>(num_taken), num_computed);
  if (row.tokens.empty()) {  // a chunk of a prompt, or of what is replayed after a preemption
    const std::uint32_t computed = std::min(planner_.computed(live.sequence), live.prompt_tokens());
    streams().computed(live.request(), live.generation(), computed);
  }
  live.copy_from.clear();
  live.restore = kNoSnapshot;
  end_fill(live);
  if (num_at(Phase::waiting_for_fork) > 0 && has_computed_prompt(live)) requeue_forks(live.request());
  clear_faults(live);
}

void Batch::commit_full_blocks(Live& live) {
  const scheduler::BlockRange full = planner_.newly_full(live.sequence);
  if (full.num_blocks == 0) return;
  const auto first = live.tokens.begin() + static_cast<std::ptrdiff_t>(full.first_block) * kBlockSize;
  const auto last = first + static_cast<std::ptrdiff_t>(full.num_blocks) * kBlockSize;
  leases_.push_back(cache::Commit{.key = next_key(live),
                                  .first_block = full.first_block,
                                  .tokens = {first, last},
                                  .snapshot = std::exchange(live.saved, kNoSnapshot)});
  live.num_committed = full.first_block + full.num_blocks;
  // The keeper takes back blocks that no later position attends to.
  for (GroupId group = 0; group < live.tables.size(); ++group) {
    const std::uint32_t window = options_.capacity.groups[group].window;
    if (cache::leave_window_behind(live.tables[group], live.num_committed * kBlockSize, window)) retry();
  }
}

void Batch::committed(Live& live, const cache::Committed& answer) {
  append(live.spares, answer.spares);
  for (GroupId group = 0; group < answer.blocks.size(); ++group) {
    for (std::uint32_t i = 0; i < answer.blocks[group].size(); ++i) {
      const std::uint32_t index = answer.first_block + i;
      const BlockId block = answer.blocks[group][i];
      BlockId& entry = live.tables[group][index];
      if (entry == kNoBlock || entry == block) continue;  // kNoBlock: before the window by now
      entry = block;
      if (live.opened) swaps_.push_back({.sequence = live.sequence, .group = group, .index = index, .block = block});
      live.displaced = true;
      planner_.retry_denied();  // this sequence's next Extend gives the replaced block back
    }
  }
}

// Marks the stream as parked. Returns whether it may wait for credit; if not, its stream has ended. Another stream may
// have been ended instead, to stay within max_parked_requests.
bool Batch::out_of_credit(Live& live, TimePoint now) {
  const Parked parked = streams().park(live.request(), live.generation(), now, &news_);
  if (parked.ended != live.request()) forget(parked.ended);
  return parked.is_live;
}

void Batch::park(Live& live, TimePoint now) {
  if (!out_of_credit(live, now)) return drop(live);
  set_parked(live, true);
  leases_.push_back(cache::Yield{.key = next_key(live)});
  ++num_returns_;  // its headroom: an Acquire leaves one block per running sequence
}

// Blocks have been given back or soon will be: denied requests for blocks may be repeated.
void Batch::retry() {
  ++num_returns_;
  planner_.retry_denied();
}

// Ends the sequence: sends a Release, which gives its blocks back once the last step planned with it has ended.
void Batch::release_blocks(Live& live) {
  leases_.push_back(cache::Release{.key = next_key(live), .after_step = live.last_step});
  if (live.phase == Phase::running) {
    planner_.remove(live.sequence);
    const auto unopened =
        std::find_if(opens_.begin(), opens_.end(), [&](const auto& spec) { return spec.id == live.sequence; });
    if (unopened != opens_.end()) {
      opens_.erase(unopened);
    } else {
      closes_.push_back(live.sequence);
    }
    std::erase_if(swaps_, [&](const BlockSwap& swap) { return swap.sequence == live.sequence; });
  }
  if (step_running_ && live.last_step == step_) release_waits_ = true;
  retry();
  sequences_.erase(live.sequence);
  live.reset_sequence();
}

void Batch::drop(Live& live) {
  if (live.phase == Phase::queued) {
    queue_.remove(live.request());
    predictions_fresh_ = false;
  } else if (live.sequence != 0) {
    release_blocks(live);
  }
  if (has_claim(live.phase)) shares_.withdraw_claim(live.task->body->tenant.id);
  --num_at_[static_cast<std::size_t>(live.phase)];
  count_share(live, false);
  const RequestId request = live.request();
  if (live.num_told > 0) draft_closes_.push_back(request);
  requests_.erase(request);
  requeue_forks(request);
}

void Batch::end(Live& live, Outcome outcome, std::string stop, TimePoint now) {
  if (!streams().granted(live.request(), live.generation())) return drop(live);  // it has ended otherwise
  End how;
  how.outcome = outcome;
  how.stop = std::move(stop);
  how.max_tokens = live.max_known - live.prompt_tokens();
  settle_promise(live, true, now);
  if (!live.wants_last()) options_.experience->answers.learn(live.task->body->tenant.id, live.emitted);
  auto saving = begin_saving(live, outcome);  // before its client may ask for it
  streams().end(live.request(), live.generation(), how, now, &news_);
  if (!saving) return drop(live);
  keep_for_saving(live, std::move(saving));
}

void Batch::decide(TimePoint now) {
  now_ = now;
  for (const auto& [request, generation] : std::exchange(step_report_.ended, {}))
    if (Live* live = find(request); live && live->generation() == generation) drop(*live);
  admit();
  ask_for_blocks();
  if (step_running_) return;
  // A tenant without a place that has waited for a step already waits for the keeper's answer, not for another step.
  if (newcomer_asks_ && num_at(Phase::asking) > 0) return;
  newcomer_asks_ = false;
  if (drafts_pending_) return;
  make_room();
  if (!ask_for_drafts()) plan_step(now);
}

void Batch::ask_for_blocks() {
  needs_.clear();
  planner_.needs(needs_);
  for (const scheduler::BlockNeed& need : needs_) {
    Live* live = find_sequence(need.sequence);
    leases_.push_back(cache::Extend{.key = next_key(*live), .num_blocks = need.num_blocks});
  }
}

void Batch::plan_step(TimePoint now) {
  offer_drafts();
  planner_.plan(step_ + 1, options_.epoch, plan_);
  for (std::size_t i = 0; i < plan_.items.size(); ++i) {
    scheduler::PlanItem& item = plan_.items[i];
    Live& live = *find_sequence(item.sequence);
    const std::uint32_t computed = planner_.computed(item.sequence);
    if (!live.was_running && !streams().started(live.request(), live.generation(), live.cached_tokens, now,
                                                live.num_blocks(options_.capacity.groups))) {
      item.num_draft = 0;
      plan_.skip(i, computed, item.num_tokens);  // nothing is charged for it
      drop(live);
      continue;
    }
    live.was_running = true;
    live.last_step = step_ + 1;
    if (const std::uint32_t num_copied = fill(live, item.num_tokens)) plan_.skip(i, computed, num_copied);
    if (item.num_tokens == 0) {
      filled_.push_back(item.sequence);
      continue;
    }
    if (item.at_snapshot && !live.spares.empty()) {
      live.saved = live.spares.back();
      live.spares.pop_back();
    }
    batch_.items.push_back({.sequence = item.sequence,
                            .num_tokens = item.num_tokens,
                            .output = item.wants_logits ? engine::Output::sample : engine::Output::none,
                            .new_blocks = std::exchange(live.new_blocks, {}),
                            .rewind_floor = live.num_committed * kBlockSize,
                            .save = live.saved,
                            .draft = {live.proposal.begin(), live.proposal.begin() + item.num_draft}});
  }
  save_part();
  has_copies_ = !fills_.empty() || !saves_.empty();
  if (batch_.items.empty() && !has_copies_) return;
  step_running_ = true;
  num_rows_ = batch_.items.size() + filled_.size();
  batch_.step = ++step_;
  batch_.epoch = options_.epoch;
}

std::vector<LeaseMessage> Batch::take_leases() { return std::exchange(leases_, {}); }

std::shared_ptr<StepWork> Batch::take_work() {
  // Swaps and opens wait for the next step; closes free memory, so they are sent at once if no step runs.
  const bool has_step = batch_.step != 0;
  if (!has_step && (closes_.empty() || step_running_)) return nullptr;
  auto work = std::make_shared<StepWork>();
  work->closes = std::exchange(closes_, {});
  if (!has_step) return work;
  work->saves = std::exchange(saves_, {});
  work->fills = std::exchange(fills_, {});
  work->swaps = std::exchange(swaps_, {});
  work->opens = std::exchange(opens_, {});
  work->batch = std::exchange(batch_, {});
  for (const scheduler::PlanItem& item : plan_.items)
    if (item.num_tokens > 0) add_once(work->tenants, item.tenant);
  if (has_copies_) copying_ = work;
  return work;
}

std::uint32_t Batch::Live::num_blocks(const std::vector<cache::Group>& groups) const {
  std::size_t sum = 0;
  for (GroupId group = 0; group < tables.size(); ++group) {
    const std::size_t left = cache::first_window_block(num_committed * kBlockSize, groups[group].window);
    sum += tables[group].size() - std::min(tables[group].size(), left);
  }
  return static_cast<std::uint32_t>(sum);
}

Batch::Live* Batch::find(RequestId request) {
  const auto it = requests_.find(request);
  return it == requests_.end() ? nullptr : it->second.get();
}

Batch::Live* Batch::find_sequence(SequenceId sequence) {
  const auto it = sequences_.find(sequence);
  return it == sequences_.end() ? nullptr : it->second;
}

scheduler::Demand Batch::demand_of(const Live& live) const {
  const Request& body = *live.task->body;
  return {.tenant = body.tenant.id,
          .priority = live.priority,
          .arrival = live.request(),
          .prompt_tokens = live.prompt_tokens(),
          .max_tokens = body.sampling.max_tokens,
          .generated = live.known_tokens() - live.prompt_tokens(),
          .limits = body.tenant.limits(),
          .due_seconds = live.due_seconds};
}

cache::LeaseKey Batch::next_key(Live& live) {
  // `seen` in this key tells the keeper that a replaced block is not read any more.
  if (std::exchange(live.displaced, false)) retry();
  return {.epoch = options_.epoch, .sequence = live.sequence, .number = ++live.number, .seen = live.seen};
}

}  // namespace troupe::actors
