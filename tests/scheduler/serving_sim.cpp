#include "tests/scheduler/serving_sim.h"

#include <xxhash.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/group.h"
#include "cache/radix_tree.h"
#include "scheduler/shares/admission.h"

namespace troupe::scheduler {
namespace {

std::uint64_t chain(std::uint64_t hash, TokenId token) { return XXH3_64bits_withSeed(&token, sizeof token, hash); }
TokenId sample(std::uint64_t hash) { return static_cast<TokenId>(hash % 50000); }

std::uint64_t chain(std::span<const TokenId> tokens) {
  std::uint64_t hash = 0;
  for (TokenId token : tokens) hash = chain(hash, token);
  return hash;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

ServingSim::ServingSim(SimOptions options)
    : options_(options),
      random_(options.seed),
      book_(make_book(1, false)),
      snapshots_(options.num_snapshots),
      planner_(planner_options(), shares_) {
  for (const cache::Group& group : options_.groups) arenas_.emplace_back(group.num_blocks);
}

PlannerOptions ServingSim::planner_options() const {
  PlannerOptions planner = options_.planner;
  planner.snapshot_rule = options_.snapshot_rule;
  for (const cache::Group& group : options_.groups)
    planner.max_initial_blocks = std::min(planner.max_initial_blocks, group.num_blocks);
  return planner;
}

std::unique_ptr<cache::LeaseBook> ServingSim::make_book(std::uint64_t epoch, bool await_quiesce) const {
  return std::make_unique<cache::LeaseBook>(cache::LeaseBookOptions{.groups = options_.groups,
                                                                    .epoch = epoch,
                                                                    .await_quiesce = await_quiesce,
                                                                    .snapshot_rule = options_.snapshot_rule,
                                                                    .num_snapshots = options_.num_snapshots});
}

RequestNumber ServingSim::submit(std::vector<TokenId> prompt, std::uint32_t num_generated, std::int32_t priority,
                                 cache::ScopeList scopes, TenantId tenant) {
  SimRequest request;
  request.demand = {.tenant = tenant, .priority = priority, .max_tokens = num_generated};
  request.scopes = scopes;
  request.tokens = std::move(prompt);
  return enqueue(std::move(request));
}

RequestNumber ServingSim::enqueue(SimRequest request) {
  const RequestNumber number = requests_.size() + 1;
  request.number = number;
  request.num_prompt = static_cast<std::uint32_t>(request.tokens.size());
  request.submitted_at = time_;
  request.demand.arrival = number;
  if (const auto limits = options_.limits.find(request.demand.tenant); limits != options_.limits.end())
    request.demand.limits = limits->second;
  request.demand.prompt_tokens = request.num_prompt;
  const Capacity capacity{.context = kNoBlock, .groups = options_.groups};
  const auto fit = check_fit(request.demand, capacity);
  REQUIRE(std::holds_alternative<Fits>(fit));
  request.max_known = std::get<Fits>(fit).max_known;
  REQUIRE(request.max_known == request.num_prompt + request.demand.max_tokens);
  queue_.push(number, request.demand);
  requests_.emplace(number, std::move(request));
  count_share(number, true);
  return number;
}

ForecastServer ServingSim::forecast_server() const {
  return {.costs = &planner_.costs(),
          .max_step_tokens = options_.planner.max_step_tokens,
          .max_sequences = options_.planner.max_sequences,
          .max_stall_seconds = options_.planner.max_stall_seconds};
}

std::vector<ForecastRequest> ServingSim::forecast_requests() const {
  std::vector<ForecastRequest> requests;
  for (const auto& [number, request] : requests_) {
    if (request.ended) continue;
    ForecastRequest& each = requests.emplace_back();
    const auto id = sequence_of(number);
    each.demand = request.demand;
    each.known = static_cast<std::uint32_t>(request.tokens.size());
    each.is_running = id && planner_.contains(*id);
    if (each.is_running) each.computed = planner_.computed(*id);
    each.answer = request.max_known - each.known;
    if (!request.deadline) continue;
    each.promised = (*request.deadline - time_) / margins_.factor(request.demand.tenant, time_);
    each.promised_last = true;
  }
  return requests;
}

Forecast ServingSim::forecast_of(ForecastRequest next) const {
  next.demand.arrival = requests_.size() + 1;
  return forecast(forecast_server(), forecast_requests(), next);
}

std::optional<RequestNumber> ServingSim::submit_by(double seconds, std::vector<TokenId> prompt,
                                                   std::uint32_t num_generated, TenantId tenant) {
  const auto answer = submit_or_book(seconds, std::move(prompt), num_generated, tenant, 0);
  const auto* number = std::get_if<RequestNumber>(&answer);
  return number ? std::optional(*number) : std::nullopt;
}

std::variant<RequestNumber, double> ServingSim::submit_or_book(double seconds, std::vector<TokenId> prompt,
                                                               std::uint32_t num_generated, TenantId tenant,
                                                               std::uint64_t content) {
  SimRequest request;
  request.demand = {.tenant = tenant, .max_tokens = num_generated};
  request.demand.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  request.scopes = {static_cast<cache::ScopeId>(tenant)};
  request.tokens = std::move(prompt);
  ForecastRequest next{.demand = request.demand, .known = request.demand.prompt_tokens, .answer = num_generated};
  if (planner_.costs().has_learned()) {
    next.demand.due_seconds = time_ + seconds - alone(forecast_server(), next).last_seconds;
    next.demand.arrival = requests_.size() + 1;
    next.promised = seconds / margins_.factor(tenant, time_);
    next.promised_last = true;
    auto requests = forecast_requests();
    append_expected(requests, use_, next, time_);
    const bool came_back = content != 0 && bookings_.take(content, time_);
    const auto& booked = bookings_.booked(margins_, margins_, time_);
    const PromiseAnswer answer = decide_promise(forecast_server(), requests, booked, next, came_back);
    if (answer.wait > 0)
      return content == 0 ? answer.wait : bookings_.add(content, next, answer.wait, answer.work, seconds, time_);
    request.deadline = time_ + seconds;
    request.demand.due_seconds = next.demand.due_seconds;
  }
  return enqueue(std::move(request));
}

std::optional<SequenceId> ServingSim::sequence_of(RequestNumber number) const {
  for (const auto& [id, sequence] : sequences_)
    if (sequence.request == number) return id;
  return std::nullopt;
}

Demand ServingSim::demand_of(const SimRequest& request) const {
  Demand demand = request.demand;
  demand.generated = static_cast<std::uint32_t>(request.tokens.size()) - request.num_prompt;
  return demand;
}

Demand ServingSim::demand_of(SequenceId id) const { return demand_of(requests_.at(sequences_.at(id).request)); }

std::optional<RequestNumber> ServingSim::request_of(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return std::nullopt;
  return found->second.request;
}

void ServingSim::cancel(RequestNumber number) {
  SimRequest& request = requests_.at(number);
  if (request.ended) return;
  request.ended = request.cancelled = true;
  count_share(number, false);
  if (queue_.remove(number) || preempted_parked_.erase(number) > 0) return;
  if (const auto id = sequence_of(number)) end(*id, sequences_.at(*id).last_step);
}

void ServingSim::park(RequestNumber number) {
  const auto id = sequence_of(number);
  if (!id || sequences_.at(*id).phase != Phase::running) return;
  if (std::exchange(sequences_.at(*id).parked, true)) return;
  planner_.park(*id);
  count_share(number, false);
  to_keeper_.push_back(cache::Yield{next_key(*id, sequences_.at(*id))});
  ++num_returns_;  // headroom
}

void ServingSim::unpark(RequestNumber number) {
  if (preempted_parked_.erase(number) > 0) {
    queue_.push(number, requests_.at(number).demand);
    count_share(number, true);
  }
  const auto id = sequence_of(number);
  if (!id || !planner_.contains(*id)) return;
  const Demand& demand = requests_.at(number).demand;
  if (sequences_.at(*id).parked && shares_.places_and_claims(demand.tenant) >= demand.max_running()) {
    preempt(*id);
    return unpark(number);
  }
  planner_.unpark(*id);
  sequences_.at(*id).parked = false;
  count_share(number, true);
}

void ServingSim::kill_batcher() {
  start_epoch();
  to_keeper_.push_back(BeginEpoch{epoch_});
  if (!awaiting_quiesce_) to_keeper_.push_back(Quiesced{epoch_ - 1});
}

void ServingSim::kill_keeper() {
  start_epoch();
  to_keeper_.clear();
  repeats_.clear();
  book_ = make_book(epoch_, true);
  if (!awaiting_quiesce_) to_keeper_.push_back(Quiesced{epoch_ - 1});
}

// Everything but the records of the requests is lost, and rebuilt from them.
void ServingSim::start_epoch() {
  ++epoch_;
  to_batcher_.clear();
  sequences_.clear();
  preempted_parked_.clear();
  states_.clear();
  shares_ = FairShares();
  planner_ = StepPlanner(planner_options(), shares_);
  queue_ = FairQueue(shares_, [this](TenantId tenant) { return may_admit(tenant); });
  for (auto& [number, request] : requests_) {
    if (request.ended) continue;
    request.wants_computing = false;
    queue_.push(number, request.demand);
    count_share(number, true);
  }
  awaiting_quiesce_ = running_step_.has_value();
}

// --- events ---

bool ServingSim::tick() {
  if (!awaiting_quiesce_) pump();
  std::vector<int> possible;
  if (!to_keeper_.empty()) possible.insert(possible.end(), 4, 0);
  if (!to_batcher_.empty()) possible.insert(possible.end(), 4, 1);
  if (running_step_) possible.push_back(2);
  if (!repeats_.empty()) possible.push_back(3);
  if (possible.empty()) return false;
  switch (possible[random_() % possible.size()]) {
    case 0: {
      const ToKeeper message = std::move(to_keeper_.front());
      to_keeper_.pop_front();
      if (chance(options_.repeat_probability)) repeats_.push_back(message);
      deliver_to_keeper(message);
      break;
    }
    case 1: {
      const auto answer = std::move(to_batcher_.front());
      to_batcher_.pop_front();
      if (const auto* inheritance = std::get_if<cache::Inheritance>(&answer)) {
        planner_.inherit(inheritance->sequence, inheritance->rank);
      } else {
        deliver_answer(std::get<cache::LeaseAnswer>(answer));
      }
      break;
    }
    case 2:
      finish_step();
      break;
    default: {
      const std::size_t index = random_() % repeats_.size();
      const ToKeeper message = repeats_[index];
      repeats_.erase(repeats_.begin() + static_cast<std::ptrdiff_t>(index));
      deliver_to_keeper(message);
    }
  }
  return true;
}

void ServingSim::drain(std::uint64_t max_ticks) {
  std::uint64_t ticks = 0;
  while (tick()) REQUIRE(++ticks < max_ticks);
  for (const auto& [number, request] : requests_) {
    INFO("request " << number);
    REQUIRE(request.ended);
  }
}

void ServingSim::deliver_to_keeper(const ToKeeper& message) {
  effects_.clear();
  if (const auto* acquire = std::get_if<cache::Acquire>(&message)) book_->acquire(*acquire, effects_);
  if (const auto* extend = std::get_if<cache::Extend>(&message)) book_->extend(*extend, effects_);
  if (const auto* commit = std::get_if<cache::Commit>(&message)) book_->commit(*commit, effects_);
  if (const auto* yield = std::get_if<cache::Yield>(&message)) book_->yield(*yield, effects_);
  if (const auto* release = std::get_if<cache::Release>(&message)) book_->release(*release, effects_);
  if (const auto* done = std::get_if<StepDone>(&message)) book_->step_done(done->epoch, done->step);
  if (const auto* begin = std::get_if<BeginEpoch>(&message)) book_->begin_epoch(begin->epoch);
  if (const auto* quiesced = std::get_if<Quiesced>(&message)) book_->quiesced(quiesced->epoch);
  for (cache::LeaseAnswer& answer : effects_.answers) to_batcher_.push_back(std::move(answer));
  for (const cache::Inheritance& inheritance : effects_.inherited) to_batcher_.push_back(inheritance);
  if (chance(0.02)) book_->check();
  for (const auto& [tenant, limits] : options_.limits)
    REQUIRE(book_->blocks_of(tenant).blocks <= limits.max_kv_blocks.value_or(kNoBlock));
}

// --- the batcher ---

cache::LeaseKey ServingSim::next_key(SequenceId id, Sequence& sequence) {
  if (std::exchange(sequence.displaced, false)) come_back();
  return {epoch_, id, ++sequence.sent, sequence.seen};
}

void ServingSim::pump() {
  admit();
  std::vector<BlockNeed> needs;
  planner_.needs(needs);
  for (const BlockNeed& need : needs)
    to_keeper_.push_back(cache::Extend{next_key(need.sequence, sequences_.at(need.sequence)), need.num_blocks});
  if (running_step_) return;
  if (const auto victim = planner_.victim()) preempt(*victim);
  start_step();
}

void ServingSim::admit() {
  std::uint32_t num_acquiring = 0, num_waiting = 0;
  std::optional<SequenceId> next, at_ceiling;  // were short of blocks
  for (const auto& [id, sequence] : sequences_) {
    num_acquiring += sequence.phase == Phase::acquiring;
    num_waiting += sequence.phase == Phase::waiting;
    if (sequence.phase != Phase::short_of_blocks) continue;
    auto& oldest = sequence.at_ceiling ? at_ceiling : next;
    if (sequence.at_ceiling && !can_ask_again(id)) continue;
    if (!oldest || planner_.is_older(demand_of(id), demand_of(*oldest))) oldest = id;
  }
  if (planner_.starved() || num_acquiring > 0) return;
  const auto first = queue_.peek();
  const bool has_room = planner_.has_room() && first;
  if (next && !(has_room && planner_.outranks(demand_of(requests_.at(*first)), demand_of(*next)))) {
    if (can_ask_again(*next)) ask_again(*next);
    return;
  }
  if (!next && at_ceiling) return ask_again(*at_ceiling);
  if (!first || num_waiting >= options_.planner.max_sequences) return;
  std::optional<SequenceId> victim;
  if (!has_room) {
    if (!running_step_) victim = planner_.place_for(demand_of(requests_.at(*first)));
    if (!victim) return;
  }
  std::vector<RequestNumber> candidates;
  queue_.candidates(candidates);
  for (RequestNumber number : candidates) {
    const SimRequest& request = requests_.at(number);
    const cache::PrefixPrediction prediction = book_->predict(request.scopes, request.tokens);
    queue_.set_prediction(number, prediction.cached_tokens + prediction.in_flight_tokens);
  }
  std::int32_t priority = 0;
  const RequestNumber picked = *queue_.pick(&priority);
  requests_.at(picked).demand.priority = priority;
  if (victim) preempt(*victim);
  const SequenceId id = next_sequence_++;
  sequences_[id].request = picked;
  shares_.claim_place(requests_.at(picked).demand.tenant);
  send_acquire(id);
}

bool ServingSim::may_admit(TenantId tenant) const {
  return !planner_.starved_at_ceiling(tenant) && std::ranges::none_of(sequences_, [&](const auto& entry) {
    const Sequence& sequence = entry.second;
    return sequence.phase == Phase::short_of_blocks && sequence.at_ceiling &&
           requests_.at(sequence.request).demand.tenant == tenant;
  });
}

bool ServingSim::can_ask_again(SequenceId id) const {
  const Sequence& sequence = sequences_.at(id);
  if (num_returns_ > sequence.asked_at && planner_.can_add()) return true;
  return !running_step_ && planner_.victim_for(demand_of(id), sequence.at_ceiling);
}

// An older request need not wait for younger ones to end by themselves.
void ServingSim::ask_again(SequenceId id) {
  const Sequence& sequence = sequences_.at(id);
  if (num_returns_ == sequence.asked_at || !planner_.can_add())
    preempt(*planner_.victim_for(demand_of(id), sequence.at_ceiling));
  send_acquire(id);
}

void ServingSim::send_acquire(SequenceId id) {
  Sequence& sequence = sequences_.at(id);
  const SimRequest& request = requests_.at(sequence.request);
  sequence.phase = Phase::acquiring;
  sequence.asked_at = num_returns_;
  to_keeper_.push_back(cache::Acquire{
      next_key(id, sequence), FairQueue::rank_of(request.demand), request.scopes,
      std::make_shared<const std::vector<TokenId>>(request.tokens),
      planner_.initial_blocks(static_cast<std::uint32_t>(request.tokens.size())), planner_.num_running(), std::nullopt,
      owner_of(request.demand.tenant, request.demand.limits), shares_.places(request.demand.tenant)});
}

void ServingSim::deliver_answer(const cache::LeaseAnswer& answer) {
  const auto found = sequences_.find(answer.sequence);
  if (answer.epoch != epoch_ || found == sequences_.end() || answer.number <= found->second.seen) return;
  Sequence& sequence = found->second;
  SimRequest& request = requests_.at(sequence.request);
  if (std::holds_alternative<cache::Wait>(answer.body)) {
    sequence.phase = Phase::waiting;
    return;
  }
  REQUIRE(answer.number == sequence.seen + 1);
  sequence.seen = answer.number;
  if (const auto* acquired = std::get_if<cache::Acquired>(&answer.body)) {
    if (planner_.is_full()) {
      const auto victim = planner_.parked_victim();
      if (!victim) return preempt(answer.sequence);  // gives back its blocks
      preempt(*victim);
    }
    withdraw_claim(answer.sequence);
    sequence.phase = Phase::running;
    sequence.tables = acquired->tables;
    sequence.restore = acquired->restore;
    sequence.spares = acquired->spares;
    if (request.num_admissions++ == 0) request.cached_tokens = acquired->num_cached_tokens;
    request.resumed_at = acquired->num_cached_tokens;
    planner_.add({.sequence = answer.sequence,
                  .rank = FairQueue::rank_of(request.demand),
                  .known = static_cast<std::uint32_t>(request.tokens.size()),
                  .computed = acquired->num_cached_tokens,
                  .num_blocks = static_cast<std::uint32_t>(acquired->tables[0].size()),
                  .max_known = request.max_known,
                  .tenant = request.demand.tenant,
                  .due_seconds = request.demand.due_seconds,
                  .floor = request.demand.limits.min_kv_blocks.value_or(0)});
  } else if (const auto* extended = std::get_if<cache::Extended>(&answer.body)) {
    for (GroupId group = 0; group < sequence.tables.size(); ++group)
      append(sequence.tables[group], extended->blocks[group]);
    append(sequence.spares, extended->spares);
    planner_.grant(answer.sequence, static_cast<std::uint32_t>(extended->blocks[0].size()));
  } else if (const auto* committed = std::get_if<cache::Committed>(&answer.body)) {
    append(sequence.spares, committed->spares);
    for (GroupId group = 0; group < sequence.tables.size(); ++group) {
      for (std::size_t i = 0; i < committed->blocks[group].size(); ++i) {
        BlockId& entry = sequence.tables[group][committed->first_block + i];
        const BlockId canonical = committed->blocks[group][i];
        if (entry == kNoBlock || canonical == kNoBlock || entry == canonical) continue;  // before the window by now
        entry = canonical;
        sequence.displaced = true;
        planner_.retry_denied();
      }
    }
  } else if (const auto* denied = std::get_if<cache::Short>(&answer.body)) {
    if (sequence.phase == Phase::running) {
      planner_.deny(answer.sequence, denied->available, denied->at_ceiling);
    } else {
      sequence.at_ceiling = denied->at_ceiling;
      num_at_ceiling_ += denied->at_ceiling;
      sequence.phase = Phase::short_of_blocks;
    }
  }
}

void ServingSim::end(SequenceId id, std::uint64_t after_step) {
  Sequence& sequence = sequences_.at(id);
  withdraw_claim(id);
  planner_.remove(id);
  to_keeper_.push_back(cache::Release{next_key(id, sequence), after_step});
  if (running_step_ && after_step == running_step_->step) release_waits_ = true;
  sequences_.erase(id);
  states_.erase(id);
  come_back();
}

// Of a sequence that is not in the planner.
void ServingSim::withdraw_claim(SequenceId id) {
  if (sequences_.at(id).phase != Phase::running) shares_.withdraw_claim(demand_of(id).tenant);
}

std::uint32_t ServingSim::num_sequences(TenantId tenant) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      sequences_, [&](const auto& entry) { return !entry.second.parked && demand_of(entry.first).tenant == tenant; }));
}

void ServingSim::come_back() {
  planner_.retry_denied();
  ++num_returns_;
}

void ServingSim::count_share(RequestNumber number, bool wants_computing) {
  SimRequest& request = requests_.at(number);
  if (std::exchange(request.wants_computing, wants_computing) == wants_computing) return;
  const TenantId tenant = request.demand.tenant;
  const auto weight = weights_.find(tenant);
  wants_computing ? shares_.begin(tenant, weight == weights_.end() ? 1 : weight->second) : shares_.end(tenant);
}

void ServingSim::preempt(SequenceId id) {
  const Sequence& sequence = sequences_.at(id);
  const SimRequest& request = requests_.at(sequence.request);
  if (sequence.parked) {
    preempted_parked_.insert(request.number);
  } else {
    queue_.push(request.number, request.demand);
  }
  end(id, sequence.last_step);
  ++num_preemptions_;
}

// --- the worker ---

// Proposals: the right tokens up to a random one, then wrong ones.
void ServingSim::offer_drafts() {
  drafts_.clear();
  if (options_.draft_probability == 0) return;
  for (const auto& [id, sequence] : sequences_) {
    if (sequence.phase != Phase::running || !planner_.decodes(id) || !chance(options_.draft_probability)) continue;
    std::uint64_t hash = chain(requests_.at(sequence.request).tokens);
    std::vector<TokenId>& draft = drafts_[id];
    const std::size_t count = 1 + random_() % kMaxDraft, num_right = random_() % (count + 1);
    while (draft.size() < count) {
      draft.push_back(sample(hash) + (draft.size() < num_right ? 0 : 1));
      hash = chain(hash, draft.back());
    }
    planner_.offer_draft(id, static_cast<std::uint32_t>(count));
  }
}

void ServingSim::start_step() {
  offer_drafts();
  planner_.plan(next_step_, epoch_, plan_);
  if (plan_.items.empty()) return;
  RunningStep step{next_step_++, epoch_, 0, {}};
  std::uint32_t num_tokens = 0;
  for (const PlanItem& item : plan_.items) {
    Sequence& sequence = sequences_.at(item.sequence);
    sequence.last_step = step.step;
    if (item.at_snapshot && !sequence.spares.empty()) {
      sequence.saved = sequence.spares.back();
      sequence.spares.pop_back();
    }
    for (GroupId group = 0; group < sequence.tables.size(); ++group) {
      const BlockTable& table = sequence.tables[group];
      const auto held = table.size() - static_cast<std::size_t>(std::count(table.begin(), table.end(), kNoBlock));
      most_blocks_held_[group] = std::max(most_blocks_held_[group], static_cast<std::uint32_t>(held));
    }
    step.rows.push_back({item.sequence, requests_.at(sequence.request).tokens, sequence.tables,
                         planner_.computed(item.sequence), item.num_tokens, item.wants_logits,
                         std::exchange(sequence.restore, kNoSnapshot), sequence.saved, std::nullopt});
    if (const auto live = states_.find(item.sequence); live != states_.end()) step.rows.back().state = live->second;
    if (item.num_draft > 0) {
      const std::vector<TokenId>& draft = drafts_.at(item.sequence);
      step.rows.back().draft.assign(draft.begin(), draft.begin() + item.num_draft);
      REQUIRE(step.rows.back().save == kNoSnapshot);
    }
    REQUIRE(blocks_for(step.rows.back().computed + item.num_tokens + item.num_draft) <= sequence.tables[0].size());
    num_tokens += item.num_tokens + item.num_draft;
    check_reads(step.rows.back());
  }
  REQUIRE(num_tokens <= options_.planner.max_step_tokens);
  REQUIRE(plan_.items.size() <= options_.planner.max_sequences);
  step.seconds = options_.step_cost ? options_.step_cost(plan_.load)
                                    : options_.step_seconds + options_.token_seconds * plan_.load.num_tokens;
  running_step_ = std::move(step);
}

// Checks the slots that the row reads: the positions before it that its first token sees in each group's blocks, and
// the snapshot that it begins from, if it is its sequence's first.
void ServingSim::check_reads(const Row& row) const {
  std::uint64_t hash = 0;
  for (std::uint32_t i = 0; i < row.computed; ++i) {
    hash = chain(hash, row.tokens[i]);
    for (GroupId group = 0; group < options_.groups.size(); ++group) {
      const std::uint32_t window = options_.groups[group].window;
      if (window > 0 && i + window <= row.computed) continue;
      if (block_of(group, row, i)[i % kBlockSize] != hash)
        FAIL("sequence " << row.sequence << " reads foreign K and V of group " << group << " at position " << i);
    }
  }
  if (!has_state() || row.state) return;
  if (row.computed > 0 && (row.restore == kNoSnapshot || snapshots_[row.restore] != hash))
    FAIL("sequence " << row.sequence << " begins from a foreign state at position " << row.computed);
}

void ServingSim::finish_step() {
  const RunningStep step = std::move(*running_step_);
  running_step_.reset();
  std::uint32_t num_tokens = 0;
  for (const Row& row : step.rows) num_tokens += row.num_tokens + static_cast<std::uint32_t>(row.draft.size());
  const double seconds = step.seconds;
  time_ += seconds;
  if (step.epoch == epoch_) {
    to_keeper_.push_back(StepDone{step.epoch, step.step});
    planner_.charge(plan_, seconds);
    for (const PlanItem& item : plan_.items)
      seconds_[item.tenant] += seconds * (item.num_tokens + item.num_draft) / num_tokens;
    for (const PlanItem& item : plan_.items) use_.add(item.tenant, 1, item.seconds, time_);
  }
  if (std::exchange(release_waits_, false)) come_back();
  for (const Row& row : step.rows) {
    if (step.epoch == epoch_) check_reads(row);
    std::uint64_t hash = state_before(row);
    for (std::uint32_t i = row.computed; i < row.computed + row.num_tokens; ++i) {
      hash = chain(hash, row.tokens[i]);
      write_slots(row, i, hash);
    }
    const std::vector<TokenId> sampled = verify(row, hash);
    if (row.save != kNoSnapshot) snapshots_[row.save] = hash;
    if (step.epoch != epoch_) continue;
    if (has_state() && sequences_.contains(row.sequence)) states_[row.sequence] = hash;
    apply_row(row, sampled, step.step);
  }
  REQUIRE(states_.size() <= options_.planner.max_open);
  if (step.epoch == epoch_) return;
  to_keeper_.push_back(Quiesced{epoch_ - 1});
  awaiting_quiesce_ = false;
}

void ServingSim::write_slots(const Row& row, std::uint32_t position, std::uint64_t hash) {
  for (GroupId group = 0; group < options_.groups.size(); ++group)
    block_of(group, row, position)[position % kBlockSize] = hash;
}

// Samples after the row's tokens, whose hash is given, and after each proposal that is what was sampled before it. All
// proposals are written. A state that was past a rejected one is put back to where the row's own tokens end.
std::vector<TokenId> ServingSim::verify(const Row& row, std::uint64_t& hash) {
  if (!row.wants_logits) return {};
  std::vector<TokenId> sampled{sample(hash)};
  std::uint64_t drafted = hash;
  std::uint32_t position = row.computed + row.num_tokens;
  bool is_right = true;
  for (const TokenId proposal : row.draft) {
    drafted = chain(drafted, proposal);
    write_slots(row, position++, drafted);
    is_right = is_right && proposal == sampled.back();
    if (is_right) sampled.push_back(sample(drafted));
  }
  if (is_right) hash = drafted;
  num_accepted_ += sampled.size() - 1;
  return sampled;
}

std::uint64_t ServingSim::state_before(const Row& row) const {
  if (row.computed == 0) return 0;
  const std::uint32_t last = row.computed - 1;
  if (!has_state()) return block_of(0, row, last)[last % kBlockSize];
  return row.state ? *row.state : snapshots_[row.restore];
}

void ServingSim::apply_row(const Row& row, const std::vector<TokenId>& sampled, std::uint64_t step) {
  std::optional<std::uint32_t> num_computed;
  if (has_state() && !row.draft.empty() && sampled.size() <= row.draft.size())
    num_computed = row.computed + row.num_tokens;
  planner_.advance(row.sequence, static_cast<std::uint32_t>(sampled.size()), num_computed);
  if (const auto offered = drafts_.find(row.sequence); offered != drafts_.end() && !sampled.empty()) {
    const std::size_t count = std::min(offered->second.size(), sampled.size());
    const auto right =
        std::mismatch(sampled.begin(), sampled.begin() + static_cast<std::ptrdiff_t>(count), offered->second.begin())
            .first -
        sampled.begin();
    planner_.observe_draft(row.sequence, static_cast<std::uint32_t>(right), static_cast<std::size_t>(right) < count);
  }
  const auto found = sequences_.find(row.sequence);
  if (found == sequences_.end()) return;  // cancelled meanwhile
  Sequence& sequence = found->second;
  SimRequest& request = requests_.at(sequence.request);
  if (row.wants_logits && request.first_token_at < 0) request.first_token_at = time_;
  append(request.tokens, sampled);
  REQUIRE(planner_.known(row.sequence) == request.tokens.size());
  const BlockRange full = planner_.newly_full(row.sequence);
  if (full.num_blocks > 0) {
    const auto first = request.tokens.begin() + static_cast<std::ptrdiff_t>(full.first_block * kBlockSize);
    const SnapshotId saved = std::exchange(sequence.saved, kNoSnapshot);
    if (saved != kNoSnapshot) ++num_snapshots_saved_;
    to_keeper_.push_back(cache::Commit{next_key(row.sequence, sequence),
                                       full.first_block,
                                       {first, first + static_cast<std::ptrdiff_t>(full.num_blocks * kBlockSize)},
                                       saved});
    leave_windows_behind(sequence, full.first_block + full.num_blocks);
  }
  REQUIRE(sequence.saved == kNoSnapshot);
  if (request.tokens.size() == request.max_known) {
    request.ended = true;
    request.ended_at = time_;
    count_share(request.number, false);
    end(row.sequence, step);
  }
}

// The keeper takes them back by itself.
void ServingSim::leave_windows_behind(Sequence& sequence, std::uint32_t num_committed) {
  for (GroupId group = 0; group < sequence.tables.size(); ++group) {
    const std::uint32_t window = options_.groups[group].window;
    if (cache::leave_window_behind(sequence.tables[group], num_committed * kBlockSize, window)) come_back();
  }
}

std::vector<TokenId> ServingSim::expected_tokens(const SimRequest& request) {
  std::vector<TokenId> tokens(request.tokens.begin(), request.tokens.begin() + request.num_prompt);
  std::uint64_t hash = chain(tokens);
  while (tokens.size() < request.tokens.size()) {
    tokens.push_back(sample(hash));
    hash = chain(hash, tokens.back());
  }
  return tokens;
}

}  // namespace troupe::scheduler
