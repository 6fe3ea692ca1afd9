#include "actors/batching/batch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "actors/batching/batch_live.h"
#include "actors/requests/answer_form.h"
#include "actors/requests/request_check.h"
#include "cache/group.h"
#include "config/assert.h"

namespace troupe::actors {
namespace {

using scheduler::Outcome;

Outcome outcome_of(engine::Finish finish) {
  TROUPE_ASSERT(finish != engine::Finish::running);
  if (finish == engine::Finish::eos) return Outcome::eos;
  return finish == engine::Finish::stop_id ? Outcome::stop_id : Outcome::length;
}

BatchOptions with_experience(BatchOptions options) {
  if (!options.experience) options.experience = std::make_shared<scheduler::Experience>();
  if (!options.earlier_answers) options.earlier_answers = std::make_shared<engine::EarlierAnswers>();
  options.planner.costs = std::shared_ptr<scheduler::CostModel>(options.experience, &options.experience->costs);
  return options;
}

}  // namespace

Batch::Batch(BatchOptions options, StreamTable& streams, scheduler::FairShares& shares)
    : options_(with_experience(std::move(options))),
      streams_(streams),
      shares_(shares),
      loop_({.epoch = options_.epoch, .groups = options_.capacity.groups, .planner = options_.planner}, shares, *this) {
}

Batch::~Batch() = default;

void Batch::enqueue(AssignmentPtr task, TimePoint now) {
  // Credit and the end of a stream come from another actor than its assignment, and may have arrived before it.
  const auto granted = streams().granted(task->request, task->generation);
  if (!granted) return;
  at_work_ = task->request;
  if (Live* old = find(task->request)) {
    if (old->generation() >= task->generation) return;
    loop_.drop(*old);
  }
  auto owned = std::make_unique<Live>(std::move(task), options_);
  Live& live = *owned;
  const Request& body = *live.task->body;
  live.asked = {.tenant = body.tenant.id,
                .priority = body.priority,
                .arrival = live.task->request,
                .prompt_tokens = static_cast<std::uint32_t>(live.task->prompt->size()),
                .max_tokens = body.sampling.max_tokens,
                .limits = body.tenant.limits()};
  live.weight = body.tenant.weight();
  live.scopes = cache::scopes_for(body.tenant.id, body.cache_scope);
  live.prompt = live.task->prompt;
  live.fork_of = body.fork_of;
  live.granted = *granted;
  live.tokens = *live.task->prompt;
  if (const auto image = image_of(live)) live.contents = image->num_computed();
  const auto fit = scheduler::check_fit(live.asked, options_.capacity);
  TROUPE_ASSERT(std::holds_alternative<scheduler::Fits>(fit));  // the intake has checked it
  live.max_known = std::get<scheduler::Fits>(fit).max_known;
  // An earlier batch has delivered them with the first token.
  live.wants_prompt_logits = body.sampling.prompt_logprobs && live.task->emitted.empty();
  loop_.add(std::move(owned));
  begin_drafts(live);
  if (live.task->num_faults >= kMaxFaults) return fail_request(live, {.what = "its worker died"}, now);

  // Tokens that an earlier batcher delivered are not sent again; they only rebuild the answer's state.
  for (const TokenId id : live.task->emitted) {
    live.tokens.push_back(id);
    ++live.emitted;
    const AnswerText::Piece piece = live.answer.push(id);
    if (piece.stop) return end(live, Outcome::stop_string, *piece.stop, now);
    if (piece.has_all_calls) return end(live, Outcome::tool_call, {}, now);
  }
  if (live.task->num_faults > 0) live.alone_until = live.known_tokens();
  if (live.tokens.size() >= live.max_known) return end(live, Outcome::length, {}, now);
  live.answer_tokens = proposal_left(live);
  if (!ask_for_promise(live)) enter(live, now);
}

// Queues the request, unless it has to wait for credit or for the choice that it is a fork of.
void Batch::enter(Live& live, TimePoint now) {
  if (live.emitted < live.granted) return loop_.enter(live);
  if (!out_of_credit(live, now)) loop_.drop(live);
}

bool Batch::forget(RequestId request, TimePoint now) {
  Live* live = find(request);
  if (!live) return false;
  if (live->task->deadline && now >= *live->task->deadline) settle_promise(*live, live->wants_last(), now);
  const bool in_step = loop_.in_step(*live);
  loop_.drop(*live);
  return in_step;
}

void Batch::forget_all() {
  while (!loop_.requests().empty()) loop_.drop(*loop_.requests().begin()->second);
}

void Batch::credit(RequestId request, std::uint64_t granted) {
  Live* live = find(request);
  if (!live || granted <= live->granted) return;
  live->granted = granted;
  // It waits in the queue then, as if it had been preempted while it was parked.
  if (live->parked && !loop_.may_unpark(*live)) loop_.preempt(*live);
  live = find(request);
  if (!live) return;
  if (live->phase == Phase::no_credit) {
    if (!set_state(*live, RequestState::queued)) return loop_.drop(*live);
    loop_.queue(*live);
  } else if (live->parked) {
    if (!set_state(*live, RequestState::running)) return loop_.drop(*live);
    loop_.unpark(*live);
  }
}

void Batch::keeper_replied(const LeaseReply& reply, TimePoint now) {
  for (const cache::LeaseAnswer& answer : reply.effects.answers) loop_.answered(answer);
  for (const cache::Inheritance& heir : reply.effects.inherited) loop_.inherited(heir);
  for (const scheduler::Prediction& prediction : reply.predictions) {
    Live* live = find(prediction.request);
    if (live && live->phase == Phase::undecided) {
      decide_promise(*live, prediction.tokens, now);
    } else {
      loop_.predicted(prediction);
    }
  }
}

// --- what the loop asks for ---

bool Batch::set_state(const Live& live, RequestState state) {
  return streams().set_state(live.request(), live.generation(), state);
}

bool Batch::admitted(scheduler::ServingRequest& request) { return set_state(live_of(request), RequestState::running); }

bool Batch::starts(scheduler::ServingRequest& request) {
  const Live& live = live_of(request);
  return streams().started(live.request(), live.generation(), live.cached_tokens, now_,
                           live.num_blocks(options_.capacity.groups));
}

bool Batch::preempted(scheduler::ServingRequest& request, bool was_parked) {
  Live& live = live_of(request);
  live.answer_tokens = proposal_left(live);
  if (!streams().preempted(live.request(), live.generation(), now_)) return false;
  if (!was_parked) set_state(live, RequestState::queued);
  return true;
}

void Batch::dropped(scheduler::ServingRequest& request) {
  if (live_of(request).num_told > 0) draft_closes_.push_back(request.request());
}

// --- steps ---

void Batch::step_ended(const engine::StepResult& result, TimePoint now) {
  step_is_over(result.epoch, result.step);
  const bool has_copies = loop_.has_copies();
  charge_step(std::max(0.0, seconds_between(result.kernels_began, result.kernels_ended)),
              has_copies ? scheduler::StepEnd::with_copies : scheduler::StepEnd::as_planned, &result, now);
  charge_copies(now);
  if (!has_copies) learn_pace(result);
  loop_.saves_ended();
  fills_ended();
  std::size_t item = 0;
  for (const engine::ItemResult& row : result.items) {
    while (loop_.plan().items[item].sequence != row.sequence) ++item;  // rows are in the order of the plan
    Live* live = find_sequence(row.sequence);
    if (!live) continue;  // cancelled during the step
    at_work_ = live->request();
    if (options_.faults.before_row) options_.faults.before_row(at_work_);
    take_row(*live, row, loop_.plan().items[item].num_draft, now);
  }
}

void Batch::step_is_over(std::uint64_t epoch, std::uint64_t step) {
  TROUPE_ASSERT(epoch == options_.epoch);
  loop_.step_is_over(step);
}

// Charges the step's time to tenants and streams, before its results: these may end a stream, and with it the receipt.
void Batch::charge_step(double seconds, scheduler::StepEnd how, const engine::StepResult* result, TimePoint now) {
  loop_.charge(seconds, how);
  report();
  step_report_.seconds = seconds;
  step_report_.now = now;
  std::size_t row = 0;  // rows are in the order of the plan; some items have none
  for (const scheduler::PlanItem& item : loop_.plan().items) {
    const bool has_row = result && row < result->items.size() && result->items[row].sequence == item.sequence;
    const std::uint32_t num_accepted = has_row ? result->items[row++].num_accepted : 0;
    const Live* live = find_sequence(item.sequence);  // none: cancelled during the step
    if (live) learn_use(*live, item.seconds, now);
    step_report_.charges.push_back({.request = live ? live->request() : 0,
                                    .tenant = item.tenant,
                                    .seconds = item.seconds,
                                    .num_tokens = result ? item.num_tokens + item.num_draft : 0,
                                    .num_drafted = result ? item.num_draft : 0,
                                    .num_accepted = num_accepted,
                                    .num_blocks = live ? live->num_blocks(options_.capacity.groups) : 0});
  }
}

// Reports charges and tokens of the last step's rows, in their order. A stream that has ended meanwhile is dropped by
// decide().
void Batch::report() {
  if (!step_report_.charges.empty() || !step_report_.emissions.empty()) streams_.report(step_report_, news_);
}

// Handles a step's tokens for one sequence: detokenizes, looks for stop strings, has them reported, and ends or parks
// the sequence.
void Batch::take_row(Live& live, const engine::ItemResult& row, std::uint32_t num_draft, TimePoint now) {
  Emission out{.request = live.request(),
               .generation = live.generation(),
               .first_index = live.emitted,
               .text_offset = live.answer.text_bytes()};
  learn_from_draft(live, row, num_draft);
  if (live.wants_prompt_logits) take_prompt_scores(live, row, out);
  std::optional<std::string> stop;
  bool has_all_calls = false;
  for (const engine::SampledToken& token : row.tokens) {
    live.tokens.push_back(token.id);
    ++live.emitted;
    out.ids.push_back(token.id);
    if (live.wants_logprobs) out.logprobs.push_back(token);
    AnswerText::Piece piece = live.answer.push(token.id);
    out.text += piece.text;
    stop = std::move(piece.stop);
    has_all_calls = piece.has_all_calls;
    if (stop || has_all_calls) break;  // tokens past the end are neither sent nor counted
  }
  if (!row.tokens.empty() && may_run_ahead(live)) live.forced = row.forced;
  row_computed(live, row, out.ids.size(), num_draft);
  if (!row.tokens.empty()) settle_promise(live, false, now);
  const bool finished = row.finish != engine::Finish::running;
  if ((finished || has_all_calls) && !stop) {
    AnswerText::Piece rest = live.answer.finish();
    out.text += rest.text;
    stop = std::move(rest.stop);
  }
  const bool has_news = !out.ids.empty() || !out.text.empty() || !out.prompt_logprobs.empty();
  if (has_news) step_report_.emissions.push_back(std::move(out));
  if (stop) {
    end(live, Outcome::stop_string, *stop, now);
  } else if (has_all_calls) {
    end(live, Outcome::tool_call, {}, now);
  } else if (row.finish == engine::Finish::no_token) {
    fail_form(live, now);
  } else if (finished) {
    end(live, outcome_of(row.finish), {}, now);
  } else if (live.emitted >= live.granted) {
    out_of_credit(live, now) ? loop_.park(live) : loop_.drop(live);
  }
}

// They go with the first token of the answer. After a preemption they are computed again.
void Batch::take_prompt_scores(Live& live, const engine::ItemResult& row, Emission& out) {
  const std::uint32_t computed = loop_.planner().computed(live.sequence);
  live.prompt_scores.resize(computed + 1);
  live.prompt_scores[0] = {.id = live.tokens[0], .logprob = std::numeric_limits<float>::quiet_NaN()};
  live.prompt_scores.insert(live.prompt_scores.end(), row.scored.begin(), row.scored.end());
  if (row.tokens.empty() && row.finish == engine::Finish::running) return;
  TROUPE_ASSERT(live.prompt_scores.size() == live.prompt_tokens());
  out.prompt_logprobs = std::exchange(live.prompt_scores, {});
  live.wants_prompt_logits = false;
}

// The row's tokens are computed, and num_taken of its sampled ones known.
void Batch::row_computed(Live& live, const engine::ItemResult& row, std::size_t num_taken, std::uint32_t num_draft) {
  std::optional<std::uint32_t> num_computed;
  // Tokens past a stop string may be computed, but are not known.
  if (num_draft > 0) num_computed = std::min(row.num_computed, live.known_tokens());
  loop_.row_ended(live, static_cast<std::uint32_t>(num_taken), num_computed);
  if (row.tokens.empty()) {  // a chunk of a prompt, or of what is replayed after a preemption
    const std::uint32_t computed = std::min(loop_.planner().computed(live.sequence), live.prompt_tokens());
    streams().computed(live.request(), live.generation(), computed);
  }
  clear_faults(live);
}

// Marks the stream as parked. Returns whether it may wait for credit; if not, its stream has ended. Another stream may
// have been ended instead, to stay within max_parked_requests.
bool Batch::out_of_credit(Live& live, TimePoint now) {
  const Parked parked = streams().park(live.request(), live.generation(), now, &news_);
  if (parked.ended != live.request()) forget(parked.ended);
  return parked.is_live;
}

void Batch::end(Live& live, Outcome outcome, std::string stop, TimePoint now) {
  if (!streams().granted(live.request(), live.generation())) return loop_.drop(live);  // it has ended otherwise
  End how;
  how.outcome = outcome;
  how.stop = std::move(stop);
  how.max_tokens = live.max_known - live.prompt_tokens();
  how.usage.tool_calls = live.answer.num_calls();
  how.usage.tool_call_tokens = live.answer.num_call_tokens();
  settle_promise(live, true, now);
  learn_answer(live);
  if (!live.wants_last()) options_.experience->answers.learn(live.task->body->tenant.id, live.emitted);
  auto saving = begin_saving(live, outcome);  // before its client may ask for it
  streams().end(live.request(), live.generation(), how, now, &news_);
  if (!saving) return loop_.drop(live);
  live.saving = std::move(saving);
  loop_.save(live, live.saving->image().num_computed());
}

void Batch::decide(TimePoint now) {
  now_ = now;
  for (const auto& [request, generation] : std::exchange(step_report_.ended, {}))
    if (Live* live = find(request); live && live->generation() == generation) loop_.drop(*live);
  loop_.decide();
  if (drafts_pending_ || !loop_.prepare_step() || ask_for_drafts()) return;
  offer_drafts();
  if (loop_.plan_step()) work_ = to_work(*loop_.take_work());
}

std::vector<scheduler::LeaseMessage> Batch::take_leases() { return loop_.take_leases(); }

std::shared_ptr<StepWork> Batch::take_work() {
  if (work_) return std::exchange(work_, nullptr);
  auto closes = loop_.take_work();
  return closes ? to_work(std::move(*closes)) : nullptr;
}

std::shared_ptr<StepWork> Batch::to_work(scheduler::ServingWork&& planned) {
  auto work = std::make_shared<StepWork>();
  work->closes = std::move(planned.closes);
  if (planned.step == 0) return work;
  for (scheduler::BlockCopy& save : planned.saves)
    work->saves.push_back({.saving = live_of(*save.request).saving,
                           .tables = std::move(save.tables),
                           .from = save.from,
                           .to = save.to,
                           .state_of = save.is_last ? save.sequence : 0,
                           .tenant = save.request->tenant()});
  for (scheduler::BlockCopy& fill : planned.fills)
    work->fills.push_back({.image = image_of(live_of(*fill.request)),
                           .tables = std::move(fill.tables),
                           .from = fill.from,
                           .to = fill.to,
                           .request = fill.request->request(),
                           .tenant = fill.request->tenant()});
  for (scheduler::SequenceOpening& opening : planned.opens) work->opens.push_back(spec_of(std::move(opening)));
  work->swaps = std::move(planned.swaps);
  work->batch.step = planned.step;
  work->batch.epoch = options_.epoch;
  for (scheduler::StepRow& row : planned.rows) {
    const std::vector<TokenId>& proposal = live_of(*row.request).proposal;
    work->batch.items.push_back({.sequence = row.sequence,
                                 .num_tokens = row.num_tokens,
                                 .output = row.wants_logits ? engine::Output::sample : engine::Output::none,
                                 .new_blocks = std::move(row.new_blocks),
                                 .rewind_floor = row.rewind_floor,
                                 .save = row.save,
                                 .draft = {proposal.begin(), proposal.begin() + row.num_draft}});
    add_once(work->tenants, row.request->tenant());
  }
  if (loop_.has_copies()) copying_ = work;
  return work;
}

engine::SequenceSpec Batch::spec_of(scheduler::SequenceOpening&& opening) const {
  const Live& live = live_of(*opening.request);
  engine::SequenceSpec spec;
  spec.id = opening.sequence;
  spec.tokens = live.tokens;
  spec.num_prompt_tokens = live.prompt_tokens();
  spec.num_cached = opening.num_cached;
  spec.tables = std::move(opening.tables);
  spec.copy_from = std::move(opening.copy_from);
  spec.restore = opening.restore;
  spec.sampling = live.task->body->sampling;
  if (spec.sampling.reasoning_budget) spec.sampling.reasoning_budget->markers = options_.reasoning;
  if (const auto form = form_of(*live.task->body))
    if (auto rule = form->rule()) spec.sampling.ruled = engine::RuledAnswer{std::move(rule), options_.reasoning};
  if (std::string beginning = beginning_of(*live.task->body, options_.tool_format); !beginning.empty())
    spec.sampling.beginning = engine::ForcedBeginning{std::move(beginning), options_.reasoning};
  spec.sampling.max_tokens = live.max_known - spec.num_prompt_tokens;
  spec.sampling.prompt_logprobs = live.wants_prompt_logits;
  spec.sampling.choice += live.task->body->first_choice;
  if (opening.is_filled) spec.state = image_of(live)->state();
  return spec;
}

Batch::Live* Batch::find(RequestId request) { return static_cast<Live*>(loop_.find(request)); }

Batch::Live* Batch::find_sequence(SequenceId sequence) { return static_cast<Live*>(loop_.find_sequence(sequence)); }

Batch::Live& Batch::live_of(scheduler::ServingRequest& request) { return static_cast<Live&>(request); }

const Batch::Live& Batch::live_of(const scheduler::ServingRequest& request) {
  return static_cast<const Live&>(request);
}

}  // namespace troupe::actors
