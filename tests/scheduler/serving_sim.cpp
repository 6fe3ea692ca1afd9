#include "tests/scheduler/serving_sim.h"

#include <xxhash.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "cache/group.h"
#include "scheduler/shares/admission.h"

namespace troupe::scheduler {
namespace {

std::uint64_t chain(std::uint64_t hash, TokenId token) { return XXH3_64bits_withSeed(&token, sizeof token, hash); }
TokenId sample(std::uint64_t hash, std::uint64_t choice) { return static_cast<TokenId>((hash + choice) % 50000); }

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
    : options_(options), random_(options.seed), book_(make_book(1, false)), snapshots_(options.num_snapshots) {
  for (const cache::Group& group : options_.groups) arenas_.emplace_back(group.num_blocks);
  loop_.emplace(serving_options(), shares_, static_cast<ServingDriver&>(*this));
}

ServingOptions ServingSim::serving_options() const {
  PlannerOptions planner = options_.planner;
  planner.snapshot_rule = options_.snapshot_rule;
  for (const cache::Group& group : options_.groups)
    planner.max_initial_blocks = std::min(planner.max_initial_blocks, group.num_blocks);
  return {.epoch = epoch_, .groups = options_.groups, .planner = planner};
}

std::unique_ptr<cache::LeaseBook> ServingSim::make_book(std::uint64_t epoch, bool await_quiesce) const {
  return std::make_unique<cache::LeaseBook>(cache::LeaseBookOptions{.groups = options_.groups,
                                                                    .epoch = epoch,
                                                                    .await_quiesce = await_quiesce,
                                                                    .snapshot_rule = options_.snapshot_rule,
                                                                    .num_snapshots = options_.num_snapshots});
}

// --- requests ---

RequestNumber ServingSim::submit(std::vector<TokenId> prompt, std::uint32_t num_generated, std::int32_t priority,
                                 cache::ScopeList scopes, TenantId tenant) {
  SimRequest request;
  request.demand = {.tenant = tenant, .priority = priority, .max_tokens = num_generated};
  request.scopes = scopes;
  request.tokens = std::move(prompt);
  return enqueue(std::move(request));
}

RequestNumber ServingSim::submit_choices(std::vector<TokenId> prompt, std::uint32_t num_generated,
                                         std::uint64_t num_choices, TenantId tenant) {
  const RequestNumber first = requests_.size() + 1;
  for (std::uint64_t choice = 0; choice < num_choices; ++choice) {
    SimRequest request;
    request.demand = {.tenant = tenant, .max_tokens = num_generated};
    request.tokens = prompt;
    request.choice = choice;
    if (choice > 0) request.fork_of = first;
    enqueue(std::move(request));
  }
  return first;
}

RequestNumber ServingSim::submit_turn(RequestNumber before, const std::vector<TokenId>& more,
                                      std::uint32_t num_generated) {
  const SimRequest& last = requests_.at(before);
  REQUIRE(last.ended);
  SimRequest request;
  request.demand = {.tenant = last.demand.tenant, .max_tokens = num_generated};
  request.scopes = last.scopes;
  request.tokens = last.tokens;
  append(request.tokens, more);
  request.turn_after = before;
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
  request.is_scored = request.turn_after == 0 && chance(options_.scored_probability);
  add(requests_.emplace(number, std::move(request)).first->second);
  return number;
}

// To the loop.
void ServingSim::add(SimRequest& request) {
  auto live = std::make_unique<Live>();
  live->record = &request;
  live->asked = request.demand;
  if (const auto weight = weights_.find(request.demand.tenant); weight != weights_.end()) live->weight = weight->second;
  live->scopes = request.scopes;
  live->tokens = request.tokens;
  live->prompt = std::make_shared<const std::vector<TokenId>>(
      request.tokens.begin(), request.tokens.begin() + static_cast<std::ptrdiff_t>(request.num_prompt));
  live->fork_of = request.fork_of;
  live->max_known = request.max_known;
  live->wants_prompt_logits = request.is_scored;
  if (request.has_contents) live->contents = contents_.at(request.turn_after).num_tokens;
  loop_->enter(loop_->add(std::move(live)));
}

ForecastServer ServingSim::forecast_server() const {
  return {.costs = &loop_->planner().costs(),
          .max_step_tokens = options_.planner.max_step_tokens,
          .max_sequences = options_.planner.max_sequences,
          .max_stall_seconds = options_.planner.max_stall_seconds};
}

std::vector<ForecastRequest> ServingSim::forecast_requests() const {
  std::vector<ForecastRequest> requests;
  for (const auto& [number, live] : loop_->requests()) {
    const SimRequest& request = *static_cast<const Live&>(*live).record;
    ForecastRequest& each = requests.emplace_back();
    each.demand = live->asked;
    each.known = live->known_tokens();
    each.is_running = live->phase == ServingPhase::running;
    if (each.is_running) each.computed = loop_->planner().computed(live->sequence);
    each.answer = live->max_known - each.known;
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
  if (loop_->planner().costs().has_learned()) {
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

std::optional<RequestNumber> ServingSim::request_of(SequenceId sequence) {
  const ServingRequest* live = loop_->find_sequence(sequence);
  if (!live) return std::nullopt;
  return live->request();
}

std::uint32_t ServingSim::num_sequences(TenantId tenant) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(loop_->sequences(), [&](const auto& entry) {
    return !entry.second->parked && !entry.second->is_saving() && entry.second->tenant() == tenant;
  }));
}

bool ServingSim::wants_computing(TenantId tenant) const {
  return std::ranges::any_of(loop_->requests(), [&](const auto& entry) {
    return entry.second->tenant() == tenant && entry.second->wants_computing && !entry.second->is_saving();
  });
}

void ServingSim::cancel(RequestNumber number) {
  SimRequest& request = requests_.at(number);
  if (request.ended) return;
  request.ended = request.cancelled = true;
  loop_->drop(*find(number));
}

void ServingSim::park(RequestNumber number) {
  Live* live = find(number);
  if (live && !live->is_saving() && live->phase == ServingPhase::running && !live->parked) loop_->park(*live);
}

void ServingSim::unpark(RequestNumber number) {
  Live* live = find(number);
  if (!live || live->is_saving()) return;
  if (live->parked && !loop_->may_unpark(*live)) loop_->preempt(*live);
  if (live->phase == ServingPhase::no_credit) {
    loop_->queue(*live);
  } else if (live->parked) {
    loop_->unpark(*live);
  }
}

bool ServingSim::admitted(ServingRequest& live) {
  SimRequest& request = *static_cast<Live&>(live).record;
  const std::uint32_t computed = loop_->planner().computed(live.sequence);
  if (request.is_scored) REQUIRE(computed == 0);
  if (request.num_admissions++ == 0) request.cached_tokens = computed;
  request.resumed_at = computed;
  return true;
}

bool ServingSim::reads_contents(ServingRequest& live, std::uint32_t num_cached) {
  const SimRequest& request = *static_cast<Live&>(live).record;
  const auto saved = contents_.find(request.turn_after);
  if (saved == contents_.end() || request.has_contents) return false;
  if (saved->second.num_tokens < num_cached + kBlockSize) return false;
  reading_.push_back(request.number);
  return true;
}

void ServingSim::contents_used(ServingRequest& live) { static_cast<Live&>(live).record->has_contents = false; }

void ServingSim::saved(ServingRequest& live) { contents_[live.request()] = std::move(saving_.at(live.request())); }

// --- faults ---

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

// Everything but the records of the requests and what tenants were served is lost, and rebuilt from them.
void ServingSim::start_epoch() {
  ++epoch_;
  to_batcher_.clear();
  reading_.clear();
  open_.clear();
  while (!loop_->requests().empty()) loop_->drop(*loop_->requests().begin()->second);  // as a batcher that dies
  loop_.emplace(serving_options(), shares_, static_cast<ServingDriver&>(*this));
  for (auto& [number, request] : requests_)
    if (!request.ended) add(request);
  awaiting_quiesce_ = running_step_.has_value();
}

// --- events ---

bool ServingSim::tick() {
  if (!awaiting_quiesce_) pump();
  std::vector<int> possible;
  if (!to_keeper_.empty()) possible.insert(possible.end(), 4, 0);
  if (!to_batcher_.empty()) possible.insert(possible.end(), 4, 1);
  if (running_step_ && !(options_.quick_messages && !possible.empty())) possible.push_back(2);
  if (!repeats_.empty()) possible.push_back(3);
  if (!reading_.empty()) possible.push_back(4);
  if (possible.empty()) return false;
  const auto take = [&](auto& list) {
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(random_() % list.size());
    const auto taken = *at;
    list.erase(at);
    return taken;
  };
  switch (possible[random_() % possible.size()]) {
    case 0: {
      const ToKeeper message = std::move(to_keeper_.front());
      to_keeper_.pop_front();
      if (chance(options_.repeat_probability)) repeats_.push_back(message);
      deliver_to_keeper(message);
      break;
    }
    case 1: {
      const ToBatcher message = std::move(to_batcher_.front());
      to_batcher_.pop_front();
      deliver_to_batcher(message);
      break;
    }
    case 2:
      finish_step();
      break;
    case 3:
      deliver_to_keeper(take(repeats_));
      break;
    default:
      if (Live* live = find(take(reading_)); live && live->phase == ServingPhase::reading) {
        live->record->has_contents = true;
        live->contents = contents_.at(live->record->turn_after).num_tokens;
        loop_->queue(*live);
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
  REQUIRE(loop_->requests().empty());
}

void ServingSim::deliver_to_keeper(const ToKeeper& message) {
  effects_.clear();
  if (const auto* lease = std::get_if<LeaseMessage>(&message)) {
    if (const auto* acquire = std::get_if<cache::Acquire>(lease)) book_->acquire(*acquire, effects_);
    if (const auto* extend = std::get_if<cache::Extend>(lease)) book_->extend(*extend, effects_);
    if (const auto* commit = std::get_if<cache::Commit>(lease)) book_->commit(*commit, effects_);
    if (const auto* yield = std::get_if<cache::Yield>(lease)) book_->yield(*yield, effects_);
    if (const auto* release = std::get_if<cache::Release>(lease)) book_->release(*release, effects_);
    if (const auto* ended = std::get_if<StepEnded>(lease)) book_->step_done(ended->epoch, ended->step);
    if (const auto* predict = std::get_if<Predict>(lease)) {
      const cache::PrefixPrediction found = book_->predict(predict->scopes, *predict->tokens);
      to_batcher_.push_back(Prediction{predict->request, found.cached_tokens + found.in_flight_tokens});
    }
  }
  if (const auto* begin = std::get_if<BeginEpoch>(&message)) book_->begin_epoch(begin->epoch);
  if (const auto* quiesced = std::get_if<Quiesced>(&message)) book_->quiesced(quiesced->epoch);
  for (cache::LeaseAnswer& answer : effects_.answers) to_batcher_.push_back(std::move(answer));
  for (const cache::Inheritance& inheritance : effects_.inherited) to_batcher_.push_back(inheritance);
  if (chance(0.02)) book_->check();
  for (const auto& [tenant, limits] : options_.limits)
    REQUIRE(book_->blocks_of(tenant).blocks <= limits.max_kv_blocks.value_or(kNoBlock));
}

void ServingSim::deliver_to_batcher(const ToBatcher& message) {
  if (const auto* inheritance = std::get_if<cache::Inheritance>(&message)) loop_->inherited(*inheritance);
  if (const auto* prediction = std::get_if<Prediction>(&message)) loop_->predicted(*prediction);
  const auto* answer = std::get_if<cache::LeaseAnswer>(&message);
  if (!answer) return;
  const ServingRequest* live = loop_->find_sequence(answer->sequence);
  const auto* denied = std::get_if<cache::Short>(&answer->body);
  num_at_ceiling_ += live && denied && denied->at_ceiling && live->phase != ServingPhase::running;
  loop_->answered(*answer);
}

void ServingSim::pump() {
  loop_->decide();
  if (loop_->prepare_step()) {
    offer_drafts();
    (void)loop_->plan_step();
  }
  if (const auto work = loop_->take_work()) run(*work);
  for (LeaseMessage& message : loop_->take_leases()) to_keeper_.push_back(std::move(message));
}

// --- the worker ---

// Proposals: the right tokens up to a random one, then wrong ones.
void ServingSim::offer_drafts() {
  drafts_.clear();
  if (options_.draft_probability == 0) return;
  for (const auto& [id, live] : loop_->sequences()) {
    if (live->phase != ServingPhase::running || live->is_saving() || live->fill_until > 0) continue;
    if (!loop_->planner().decodes(id) || !chance(options_.draft_probability)) continue;
    const std::uint64_t choice = static_cast<const Live&>(*live).record->choice;
    std::uint64_t hash = chain(live->tokens);
    std::vector<TokenId>& draft = drafts_[id];
    const std::size_t count = 1 + random_() % kMaxDraftTokens, num_right = random_() % (count + 1);
    while (draft.size() < count) {
      draft.push_back(sample(hash, choice) + (draft.size() < num_right ? 0 : 1));
      hash = chain(hash, draft.back());
    }
    loop_->offer_draft(id, static_cast<std::uint32_t>(count));
  }
}

void ServingSim::run(const ServingWork& work) {
  for (const BlockCopy& save : work.saves) {
    copy(save, false);
    if (save.is_last && has_state()) saving_.at(save.request->request()).state = open_.at(save.sequence).state.value();
  }
  for (const SequenceId sequence : work.closes) REQUIRE(open_.erase(sequence) == 1);
  if (work.step == 0) return;
  RunningStep step{.step = work.step, .epoch = epoch_, .seconds = 0, .rows = {}};
  step.fails = chance(options_.failure_probability);
  step.copied = !step.fails || chance(0.5);
  for (const BlockCopy& fill : work.fills)
    if (step.copied) copy(fill, true);
  for (const SequenceOpening& opening : work.opens) {
    Open opened{.tables = opening.tables, .computed = opening.num_cached, .restore = opening.restore, .state = {}};
    if (opening.is_filled && has_state()) {
      const RequestNumber before = static_cast<const Live*>(opening.request)->record->turn_after;
      opened.state = contents_.at(before).state;
    }
    for (GroupId group = 0; step.copied && group < opening.copy_from.size(); ++group)
      arenas_[group].at(opening.tables[group][opening.num_cached / kBlockSize]) =
          arenas_[group].at(opening.copy_from[group]);
    REQUIRE(open_.emplace(opening.sequence, std::move(opened)).second);
  }
  for (const BlockSwap& swap : work.swaps) open_.at(swap.sequence).tables[swap.group][swap.index] = swap.block;

  std::uint32_t num_tokens = 0;
  for (const StepRow& planned : work.rows) {
    Open& opened = open_.at(planned.sequence);
    for (GroupId group = 0; group < planned.new_blocks.size(); ++group)
      append(opened.tables[group], planned.new_blocks[group]);
    const Live& live = static_cast<const Live&>(*planned.request);
    for (GroupId group = 0; group < live.tables.size(); ++group) {
      const BlockTable& table = live.tables[group];
      const auto held = table.size() - static_cast<std::size_t>(std::count(table.begin(), table.end(), kNoBlock));
      most_blocks_held_[group] = std::max(most_blocks_held_[group], static_cast<std::uint32_t>(held));
    }
    step.rows.push_back({planned.sequence, live.tokens, live.record->choice, opened.tables, opened.computed,
                         planned.num_tokens, planned.wants_logits, opened.restore, planned.save, opened.state});
    Row& row = step.rows.back();
    REQUIRE(row.computed + row.num_tokens <= row.tokens.size());
    if (planned.num_draft > 0) {
      const std::vector<TokenId>& draft = drafts_.at(planned.sequence);
      row.draft.assign(draft.begin(), draft.begin() + planned.num_draft);
      REQUIRE(row.save == kNoSnapshot);
    }
    REQUIRE(row.computed >= planned.rewind_floor);
    REQUIRE(blocks_for(row.computed + planned.num_tokens + planned.num_draft) <= row.tables[0].size());
    num_tokens += planned.num_tokens + planned.num_draft;
    if (step.copied) check_reads(row);
    if (row.computed < live.alone_until) REQUIRE(work.rows.size() == 1);
  }
  REQUIRE(num_tokens <= options_.planner.max_step_tokens);
  REQUIRE(work.rows.size() <= options_.planner.max_sequences);
  const StepLoad& load = loop_->plan().load;
  step.seconds =
      options_.step_cost ? options_.step_cost(load) : options_.step_seconds + options_.token_seconds * load.num_tokens;
  running_step_ = std::move(step);
  ++num_steps_;
}

// Between blocks and what is saved of the request, or of the one that it follows.
void ServingSim::copy(const BlockCopy& part, bool to_blocks) {
  const Live& live = static_cast<const Live&>(*part.request);
  Contents& saved = to_blocks ? contents_.at(live.record->turn_after) : saving_[live.request()];
  if (!to_blocks) saved.num_tokens = part.to;
  saved.slots.resize(options_.groups.size());
  for (GroupId group = 0; group < options_.groups.size(); ++group) {
    std::vector<std::uint64_t>& slots = saved.slots[group];
    if (!to_blocks) slots.resize(part.to);
    for (std::uint32_t i = part.from; i < part.to; ++i) {
      const BlockId block = part.tables[group].at(i / kBlockSize);
      if (block == kNoBlock) continue;
      std::uint64_t& slot = arenas_[group].at(block)[i % kBlockSize];
      to_blocks ? slot = slots.at(i) : slots[i] = slot;
    }
  }
  if (to_blocks) live.record->num_filled += part.to - part.from;
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
  if (!has_state()) return;
  if (row.state) {
    if (*row.state != hash) FAIL("sequence " << row.sequence << " goes on from a foreign state at " << row.computed);
  } else if (row.computed > 0 && (row.restore == kNoSnapshot || snapshots_[row.restore] != hash)) {
    FAIL("sequence " << row.sequence << " begins from a foreign state at position " << row.computed);
  }
}

void ServingSim::finish_step() {
  const RunningStep step = std::move(*running_step_);
  running_step_.reset();
  time_ += step.seconds;
  const bool is_current = step.epoch == epoch_;
  if (is_current) {
    loop_->step_is_over(step.step);
    loop_->charge(step.seconds, step.fails            ? StepEnd::failed
                                : loop_->has_copies() ? StepEnd::with_copies
                                                      : StepEnd::as_planned);
    for (const PlanItem& item : loop_->plan().items) {
      if (loop_->plan().load.num_tokens > 0)
        seconds_[item.tenant] += step.seconds * (item.num_tokens + item.num_draft) / loop_->plan().load.num_tokens;
      charged_[item.tenant] += item.seconds;
      use_.add(item.tenant, 1, item.seconds, time_);
    }
    if (step.fails) return fail_step(step);
    loop_->saves_ended();
    for (const SequenceId sequence : loop_->take_filled())
      if (ServingRequest* live = loop_->find_sequence(sequence)) loop_->row_ended(*live, 0);
  }
  for (const Row& row : step.rows) {
    if (is_current) check_reads(row);
    std::uint64_t hash = compute(row);
    const std::vector<TokenId> sampled = verify(row, hash);
    if (row.save != kNoSnapshot) snapshots_[row.save] = hash;
    if (!is_current) continue;
    if (const auto opened = open_.find(row.sequence); has_state() && opened != open_.end()) opened->second.state = hash;
    apply_row(row, sampled);
  }
  if (has_state()) REQUIRE(open_.size() <= options_.planner.max_open);
  if (is_current) return;
  to_keeper_.push_back(Quiesced{epoch_ - 1});
  awaiting_quiesce_ = false;
}

// Some of its rows were computed before, the others not.
void ServingSim::fail_step(const RunningStep& step) {
  ++num_failures_;
  for (const Row& row : step.rows)
    if (step.copied && chance(0.5)) (void)compute(row);
  open_.clear();
  for (const PlanItem& item : loop_->plan().items) loop_->suspect(item);
  loop_->abandon_step();
}

void ServingSim::write_slots(const Row& row, std::uint32_t position, std::uint64_t hash) {
  for (GroupId group = 0; group < options_.groups.size(); ++group)
    block_of(group, row, position)[position % kBlockSize] = hash;
}

// The row's own tokens. Returns the hash after them.
std::uint64_t ServingSim::compute(const Row& row) {
  std::uint64_t hash = state_before(row);
  for (std::uint32_t i = row.computed; i < row.computed + row.num_tokens; ++i) {
    hash = chain(hash, row.tokens[i]);
    write_slots(row, i, hash);
  }
  return hash;
}

// Samples after the row's tokens, whose hash is given, and after each proposal that is what was sampled before it. All
// proposals are written. A state that was past a rejected one is put back to where the row's own tokens end.
std::vector<TokenId> ServingSim::verify(const Row& row, std::uint64_t& hash) {
  if (!row.wants_logits) return {};
  std::vector<TokenId> sampled{sample(hash, row.choice)};
  std::uint64_t drafted = hash;
  std::uint32_t position = row.computed + row.num_tokens;
  bool is_right = true;
  for (const TokenId proposal : row.draft) {
    drafted = chain(drafted, proposal);
    write_slots(row, position++, drafted);
    is_right = is_right && proposal == sampled.back();
    if (is_right) sampled.push_back(sample(drafted, row.choice));
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

void ServingSim::apply_row(const Row& row, const std::vector<TokenId>& sampled) {
  Live* live = static_cast<Live*>(loop_->find_sequence(row.sequence));
  if (!live) return;  // cancelled meanwhile
  if (const auto offered = drafts_.find(row.sequence); offered != drafts_.end() && !sampled.empty()) {
    const std::size_t count = std::min(offered->second.size(), sampled.size());
    const auto right =
        std::mismatch(sampled.begin(), sampled.begin() + static_cast<std::ptrdiff_t>(count), offered->second.begin())
            .first -
        sampled.begin();
    loop_->planner().observe_draft(row.sequence, static_cast<std::uint32_t>(right),
                                   static_cast<std::size_t>(right) < count);
  }
  SimRequest& request = *live->record;
  if (row.wants_logits && request.first_token_at < 0) request.first_token_at = time_;
  append(request.tokens, sampled);
  append(live->tokens, sampled);
  std::optional<std::uint32_t> num_computed;
  if (has_state() && !row.draft.empty() && sampled.size() <= row.draft.size())
    num_computed = row.computed + row.num_tokens;
  const bool saves = live->saved != kNoSnapshot;
  loop_->row_ended(*live, static_cast<std::uint32_t>(sampled.size()), num_computed);
  if (saves && live->saved == kNoSnapshot) ++num_snapshots_saved_;
  REQUIRE(live->saved == kNoSnapshot);
  const std::uint32_t computed = loop_->planner().computed(row.sequence);
  open_.at(row.sequence).computed = computed;
  open_.at(row.sequence).restore = kNoSnapshot;
  REQUIRE(loop_->planner().known(row.sequence) == request.tokens.size());
  if (request.tokens.size() < request.max_known) return;
  request.ended = true;
  request.ended_at = time_;
  options_.saves_contents ? loop_->save(*live, computed) : loop_->drop(*live);
}

std::vector<TokenId> ServingSim::expected_tokens(const SimRequest& request) {
  std::vector<TokenId> tokens(request.tokens.begin(), request.tokens.begin() + request.num_prompt);
  std::uint64_t hash = chain(tokens);
  while (tokens.size() < request.tokens.size()) {
    tokens.push_back(sample(hash, request.choice));
    hash = chain(hash, tokens.back());
  }
  return tokens;
}

}  // namespace troupe::scheduler
