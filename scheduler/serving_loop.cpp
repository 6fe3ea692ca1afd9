#include "scheduler/serving_loop.h"

#include <algorithm>

#include "cache/group.h"
#include "config/assert.h"

namespace troupe::scheduler {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}
void append(BlockTables& to, const BlockTables& more) {
  to.resize(more.size());
  for (GroupId group = 0; group < more.size(); ++group) append(to[group], more[group]);
}

}  // namespace

std::uint32_t ServingRequest::num_blocks(const std::vector<cache::Group>& groups) const {
  std::size_t sum = 0;
  for (GroupId group = 0; group < tables.size(); ++group) {
    const std::size_t left = cache::first_window_block(num_committed * kBlockSize, groups[group].window);
    sum += tables[group].size() - std::min(tables[group].size(), left);
  }
  return static_cast<std::uint32_t>(sum);
}

ServingLoop::ServingLoop(ServingOptions options, FairShares& shares, ServingDriver& driver)
    : options_(std::move(options)),
      shares_(shares),
      driver_(driver),
      queue_(shares, [this](TenantId tenant) { return may_admit(tenant); }),
      planner_(options_.planner, shares),
      last_sequence_(options_.epoch << 40) {}  // ids of different epochs differ

// --- requests ---

ServingRequest& ServingLoop::add(std::unique_ptr<ServingRequest> request) {
  ServingRequest& added = *request;
  const bool is_new = requests_.emplace(added.request(), std::move(request)).second;
  TROUPE_ASSERT(is_new);
  added.rank = FairQueue::rank_of(added.asked);
  ++num_in_[static_cast<std::size_t>(added.phase)];
  return added;
}

void ServingLoop::enter(ServingRequest& request) {
  const ServingRequest* parent = parent_of(request);
  if (parent && !has_computed_prompt(*parent) && parent->phase != Phase::no_credit)
    return move_to(request, Phase::waiting_for_fork);
  queue(request);
}

void ServingLoop::queue(ServingRequest& request) {
  move_to(request, Phase::queued);
  predictions_fresh_ = false;
  queue_.push(request.request(), request.demand());
}

void ServingLoop::drop(ServingRequest& request) {
  if (request.phase == Phase::queued) {
    queue_.remove(request.request());
    predictions_fresh_ = false;
  } else if (request.sequence != 0) {
    release_blocks(request);
  }
  if (has_claim(request.phase)) shares_.withdraw_claim(request.tenant());
  --num_in_[static_cast<std::size_t>(request.phase)];
  count_share(request, false);
  driver_.dropped(request);
  const RequestNumber number = request.request();
  requests_.erase(number);
  requeue_forks(number);
}

ServingRequest* ServingLoop::find(RequestNumber request) {
  const auto it = requests_.find(request);
  return it == requests_.end() ? nullptr : it->second.get();
}

ServingRequest* ServingLoop::find_sequence(SequenceId sequence) {
  const auto it = sequences_.find(sequence);
  return it == sequences_.end() ? nullptr : it->second;
}

void ServingLoop::move_to(ServingRequest& request, Phase phase) {
  --num_in_[static_cast<std::size_t>(request.phase)];
  ++num_in_[static_cast<std::size_t>(phase)];
  if (has_claim(request.phase)) shares_.withdraw_claim(request.tenant());
  if (has_claim(phase)) shares_.claim_place(request.tenant());
  request.phase = phase;
  count_share(request, phase != Phase::no_credit && phase != Phase::undecided);
}

// What is out of credit is not counted: its tenant's counter must be lifted when credit comes.
void ServingLoop::count_share(ServingRequest& request, bool wants_computing) {
  if (std::exchange(request.wants_computing, wants_computing) == wants_computing) return;
  wants_computing ? shares_.begin(request.tenant(), request.weight) : shares_.end(request.tenant());
}

void ServingLoop::set_parked(ServingRequest& request, bool parked) {
  request.parked = parked;
  parked ? planner_.park(request.sequence) : planner_.unpark(request.sequence);
  count_share(request, !parked);
}

void ServingLoop::park(ServingRequest& request) {
  set_parked(request, true);
  leases_.push_back(cache::Yield{.key = next_key(request)});
  ++num_returns_;  // its headroom: an Acquire leaves one block per running sequence
}

void ServingLoop::unpark(ServingRequest& request) { set_parked(request, false); }

bool ServingLoop::may_unpark(const ServingRequest& request) const {
  return shares_.places_and_claims(request.tenant()) < request.asked.max_running();
}

void ServingLoop::preempt(ServingRequest& request) {
  if (request.is_saving()) return drop(request);
  // So that it cannot be preempted for ever while it is filled.
  if (request.fill_until > 0) {
    request.contents = 0;
    driver_.contents_used(request);
  }
  const bool was_parked = request.parked;
  release_blocks(request);
  if (!driver_.preempted(request, was_parked)) return drop(request);
  was_parked ? move_to(request, Phase::no_credit) : queue(request);
}

// --- the keeper ---

cache::LeaseKey ServingLoop::next_key(ServingRequest& request) {
  // `seen` in this key tells the keeper that a replaced block is not read any more.
  if (std::exchange(request.displaced, false)) retry();
  return {.epoch = options_.epoch, .sequence = request.sequence, .number = ++request.number, .seen = request.seen};
}

// Blocks have been given back or soon will be: denied requests for blocks may be repeated.
void ServingLoop::retry() {
  ++num_returns_;
  planner_.retry_denied();
}

void ServingLoop::answered(const cache::LeaseAnswer& answer) {
  ServingRequest* found = find_sequence(answer.sequence);  // none: ended meanwhile, its Release is on the way
  if (!found || answer.epoch != options_.epoch || answer.number <= found->seen) return;
  ServingRequest& request = *found;
  // A Wait is not applied: the final answer follows under the same number.
  if (std::holds_alternative<cache::Wait>(answer.body)) return move_to(request, Phase::following);
  request.seen = answer.number;
  if (const auto* acquired_blocks = std::get_if<cache::Acquired>(&answer.body)) {
    acquired(request, *acquired_blocks);
  } else if (const auto* more = std::get_if<cache::Extended>(&answer.body)) {
    append(request.tables, more->blocks);
    append(request.new_blocks, more->blocks);
    append(request.spares, more->spares);
    planner_.grant(request.sequence, static_cast<std::uint32_t>(more->blocks[0].size()));
  } else if (const auto* canonical = std::get_if<cache::Committed>(&answer.body)) {
    committed(request, *canonical);
  } else if (const auto* denied = std::get_if<cache::Short>(&answer.body)) {
    if (request.phase == Phase::running) {
      planner_.deny(request.sequence, denied->available, denied->at_ceiling);
    } else {
      request.at_ceiling = denied->at_ceiling;
      move_to(request, Phase::short_of_blocks);
    }
  }
}

void ServingLoop::committed(ServingRequest& request, const cache::Committed& answer) {
  append(request.spares, answer.spares);
  for (GroupId group = 0; group < answer.blocks.size(); ++group) {
    for (std::uint32_t i = 0; i < answer.blocks[group].size(); ++i) {
      const std::uint32_t index = answer.first_block + i;
      const BlockId block = answer.blocks[group][i];
      BlockId& entry = request.tables[group][index];
      if (entry == kNoBlock || entry == block) continue;  // kNoBlock: before the window by now
      entry = block;
      if (request.opened)
        work_.swaps.push_back({.sequence = request.sequence, .group = group, .index = index, .block = block});
      request.displaced = true;
      planner_.retry_denied();  // this sequence's next Extend gives the replaced block back
    }
  }
}

void ServingLoop::commit_full_blocks(ServingRequest& request) {
  const BlockRange full = planner_.newly_full(request.sequence);
  if (full.num_blocks == 0) return;
  const auto first = request.tokens.begin() + static_cast<std::ptrdiff_t>(full.first_block) * kBlockSize;
  const auto last = first + static_cast<std::ptrdiff_t>(full.num_blocks) * kBlockSize;
  leases_.push_back(cache::Commit{.key = next_key(request),
                                  .first_block = full.first_block,
                                  .tokens = {first, last},
                                  .snapshot = std::exchange(request.saved, kNoSnapshot)});
  request.num_committed = full.first_block + full.num_blocks;
  // The keeper takes back blocks that no later position attends to.
  for (GroupId group = 0; group < request.tables.size(); ++group) {
    const std::uint32_t window = options_.groups[group].window;
    if (cache::leave_window_behind(request.tables[group], request.num_committed * kBlockSize, window)) retry();
  }
}

// Ends the sequence: sends a Release, which gives its blocks back once the last step planned with it has ended.
void ServingLoop::release_blocks(ServingRequest& request) {
  leases_.push_back(cache::Release{.key = next_key(request), .after_step = request.last_step});
  const SequenceId sequence = request.sequence;
  if (request.phase == Phase::running) {
    planner_.remove(sequence);
    const auto is_its = [&](const auto& each) { return each.sequence == sequence; };
    if (std::erase_if(work_.opens, is_its) == 0 && request.opened) work_.closes.push_back(sequence);
    std::erase_if(work_.swaps, is_its);
  }
  if (in_step(request)) release_waits_ = true;
  retry();
  sequences_.erase(sequence);
  static_cast<ServingSequence&>(request) = {};
}

// --- steps ---

bool ServingLoop::in_step(const ServingRequest& request) const {
  return step_running_ && request.sequence != 0 && request.last_step == step_;
}

void ServingLoop::decide() {
  admit();
  ask_for_blocks();
}

void ServingLoop::ask_for_blocks() {
  needs_.clear();
  planner_.needs(needs_);
  for (const BlockNeed& need : needs_)
    leases_.push_back(cache::Extend{.key = next_key(*find_sequence(need.sequence)), .num_blocks = need.num_blocks});
}

bool ServingLoop::prepare_step() {
  if (step_running_) return false;
  // A tenant without a place that has waited for a step already waits for the keeper's answer, not for another step.
  if (newcomer_asks_ && num_in(Phase::asking) > 0) return false;
  newcomer_asks_ = false;
  if (const auto victim = planner_.victim()) {  // an older one is starved of blocks
    preempt(*find_sequence(*victim));
    ask_for_blocks();
  }
  return true;
}

bool ServingLoop::plan_step() {
  planner_.plan(step_ + 1, options_.epoch, plan_);
  for (std::size_t i = 0; i < plan_.items.size(); ++i) {
    PlanItem& item = plan_.items[i];
    ServingRequest& request = *find_sequence(item.sequence);
    const std::uint32_t computed = planner_.computed(item.sequence);
    if (!request.was_running && !driver_.starts(request)) {
      item.num_draft = 0;
      plan_.skip(i, computed, item.num_tokens);  // nothing is charged for it
      drop(request);
      continue;
    }
    request.was_running = true;
    request.last_step = step_ + 1;
    if (const std::uint32_t num_copied = fill(request, item.num_tokens)) plan_.skip(i, computed, num_copied);
    if (item.num_tokens == 0) {
      filled_.push_back(item.sequence);
      continue;
    }
    if (item.at_snapshot && !request.spares.empty()) {
      request.saved = request.spares.back();
      request.spares.pop_back();
    }
    work_.rows.push_back({.sequence = item.sequence,
                          .request = &request,
                          .num_tokens = item.num_tokens,
                          .num_draft = item.num_draft,
                          .wants_logits = item.wants_logits,
                          .new_blocks = std::exchange(request.new_blocks, {}),
                          .rewind_floor = request.num_committed * kBlockSize,
                          .save = request.saved});
  }
  save_part();
  has_copies_ = !work_.fills.empty() || !work_.saves.empty();
  if (work_.rows.empty() && !has_copies_) return false;
  step_running_ = true;
  num_rows_ = work_.rows.size() + filled_.size();
  work_.step = ++step_;
  return true;
}

// Has the worker open the request's sequence before the next step, with all its blocks.
void ServingLoop::open(ServingRequest& request, std::uint32_t num_cached, SnapshotId restore) {
  request.opened = true;
  work_.opens.push_back({.sequence = request.sequence,
                         .request = &request,
                         .num_cached = num_cached,
                         .tables = request.tables,
                         .copy_from = request.copy_from,
                         .restore = restore,
                         .is_filled = request.fill_until > 0});
}

std::optional<ServingWork> ServingLoop::take_work() {
  if (work_.step != 0) return std::exchange(work_, {});
  if (work_.closes.empty() || step_running_) return std::nullopt;
  ServingWork closes;
  closes.closes = std::exchange(work_.closes, {});
  return closes;
}

void ServingLoop::step_is_over(std::uint64_t step) {
  TROUPE_ASSERT(step_running_ && step == step_);
  step_running_ = false;
  if (std::exchange(release_waits_, false)) retry();
  leases_.push_back(StepEnded{.epoch = options_.epoch, .step = step});
}

void ServingLoop::row_ended(ServingRequest& request, std::uint32_t num_sampled,
                            std::optional<std::uint32_t> num_computed) {
  planner_.advance(request.sequence, num_sampled, num_computed);
  request.copy_from.clear();
  end_fill(request);
  if (num_in(Phase::waiting_for_fork) > 0 && has_computed_prompt(request)) requeue_forks(request.request());
  commit_full_blocks(request);
}

void ServingLoop::suspect(const PlanItem& item) {
  ServingRequest* request = find_sequence(item.sequence);
  if (!request) return;  // it ended during the step
  request->alone_until = planner_.computed(item.sequence) + item.num_skipped + item.num_tokens;
  planner_.suspect(item.sequence, request->alone_until);
}

void ServingLoop::abandon_step() {
  filled_.clear();
  for (const SequenceId sequence : std::exchange(saving_, {}))
    if (ServingRequest* request = find_sequence(sequence)) drop(*request);
  planner_.abandon_step();
  // Computed K and V are in the blocks, which the running sequences still hold.
  work_ = {};
  std::vector<ServingRequest*> unsure;
  for (const auto& [sequence, request] : sequences_) {
    if (request->phase != Phase::running) continue;
    request->new_blocks.clear();  // they are in the tables
    request->opened = false;
    // Of a fork the copy may not have been made, and its source may have been reused.
    if (!request->copy_from.empty() || has_state()) {
      unsure.push_back(request);
    } else if (request->fill_until == 0) {
      open(*request, planner_.computed(sequence));
    }
  }
  for (ServingRequest* request : unsure) preempt(*request);
}

// --- contents ---

// Has the first tokens of a row copied instead of computed. Returns how many. With the last of the contents the worker
// opens the sequence, whose state is theirs then.
std::uint32_t ServingLoop::fill(ServingRequest& request, std::uint32_t num_tokens) {
  if (request.fill_until == 0) return 0;
  const std::uint32_t from = planner_.computed(request.sequence);
  TROUPE_ASSERT(from < request.fill_until);
  const std::uint32_t to = std::min(from + num_tokens, request.fill_until);
  work_.fills.push_back(
      {.sequence = request.sequence, .request = &request, .tables = request.tables, .from = from, .to = to});
  if (to == request.fill_until) {
    request.new_blocks.clear();  // they are in the tables
    open(request, to);
  }
  return to - from;
}

void ServingLoop::end_fill(ServingRequest& request) {
  if (request.fill_until == 0 || planner_.computed(request.sequence) < request.fill_until) return;
  request.fill_until = 0;
  request.contents = 0;
  driver_.contents_used(request);
}

void ServingLoop::save(ServingRequest& request, std::uint32_t num_tokens) {
  request.save_until = num_tokens;
  saving_.push_back(request.sequence);
  planner_.park(request.sequence);  // it still counts as one that wants computing: what it copies is charged
  leases_.push_back(cache::Yield{.key = next_key(request)});
  ++num_returns_;  // its headroom
}

// Has the next part of one sequence copied, as much as a step may compute: of the tenant that was served least, so that
// no tenant's copies wait for those of another that has had its share.
void ServingLoop::save_part() {
  std::erase_if(saving_, [&](SequenceId sequence) { return !find_sequence(sequence); });  // preempted
  if (saving_.empty()) return;
  ServingRequest& request = *find_sequence(*std::ranges::min_element(
      saving_, {}, [&](SequenceId sequence) { return shares_.served(find_sequence(sequence)->tenant()); }));
  // Computing comes first: beside other rows a tenant copies no more than its share of the time.
  const bool is_ahead = shares_.served(request.tenant()) > shares_.least_served() + shares_.allowance();
  if (!work_.rows.empty() && is_ahead) return;
  const std::uint32_t from = request.num_saved;
  request.num_saved = std::min(request.save_until, from + options_.planner.max_step_tokens);
  request.last_step = step_ + 1;
  work_.saves.push_back({.sequence = request.sequence,
                         .request = &request,
                         .tables = request.tables,
                         .from = from,
                         .to = request.num_saved,
                         .is_last = request.num_saved == request.save_until});
}

void ServingLoop::saves_ended() {
  std::vector<ServingRequest*> ended;
  for (const SequenceId sequence : saving_) {
    ServingRequest* request = find_sequence(sequence);
    if (request && request->num_saved == request->save_until) ended.push_back(request);
  }
  for (ServingRequest* request : ended) {
    std::erase(saving_, request->sequence);
    driver_.saved(*request);
    drop(*request);
  }
}

}  // namespace troupe::scheduler
