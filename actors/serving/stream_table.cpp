#include "actors/serving/stream_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "actors/requests/answer_form.h"
#include "actors/serving/encoding.h"
#include "config/assert.h"
#include "config/folders.h"

namespace troupe::actors {
namespace {

std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; }

}  // namespace

StreamTable::StreamTable(const config::StreamLimits& limits, Accounting accounting)
    : limits_(limits), accounting_(std::move(accounting)) {}

StreamTable::~StreamTable() { TROUPE_ASSERT(records_.empty() && ends_pending_ == 0); }

RequestId StreamTable::add(Request request, std::shared_ptr<StreamSink> sink, TimePoint now, UnitId unit) {
  TROUPE_ASSERT(request.num_choices >= 1 && request.num_choices <= kMaxChoices && request.sampling.choice == 0);
  const std::uint32_t num_choices = request.num_choices;
  Request follower;
  if (num_choices > 1) {
    auto prompt = std::exchange(request.prompt, {});  // not copied
    follower = request;
    request.prompt = std::move(prompt);
  }
  const std::lock_guard lock(mutex_);
  const RequestId first = last_id_ + 1;
  last_id_ += num_choices;
  for (std::uint32_t choice = 1; choice < num_choices; ++choice) {
    follower.sampling.choice = choice;
    follower.fork_of = first;
    insert(first + choice, follower, sink, now, unit);
  }
  insert(first, std::move(request), std::move(sink), now, unit);
  return first;
}

const std::shared_ptr<UnitStreams>& StreamTable::streams_of(UnitId unit) {
  std::shared_ptr<UnitStreams>& streams = units_[unit];
  if (!streams) streams = std::make_shared<UnitStreams>();
  return streams;
}

void StreamTable::insert(RequestId id, Request request, std::shared_ptr<StreamSink> sink, TimePoint now, UnitId unit) {
  auto record = std::make_shared<Record>();
  record->id = id;
  record->unit = unit;
  record->of_unit = streams_of(unit);
  record->granted = request.credit;
  record->request = std::make_shared<const Request>(std::move(request));
  record->sink = std::move(sink);
  record->times.submitted = now;
  record->tenant = tenants_.arrived(record->request->tenant);
  record->charged = charged_.begin(record->request->tenant.id);
  if (const auto time = record->request->deadline) record->deadline = deadlines_.add(unit, id, now, *time);
  record->of_unit->stream_arrived(now);
  records_.emplace(id, std::move(record));
  counts_.stream_arrived();
  ++ends_pending_;
}

bool StreamTable::pass_on(RequestId id, UnitId to, TimePoint now, std::vector<std::function<void()>>& then) {
  const std::lock_guard lock(mutex_);
  const RecordPtr first = find(id);
  if (!first || first->state != RequestState::received) return false;
  for (const RecordPtr& record : choices_of(id)) {
    for (auto& call : record->of_unit->stream_left()) then.push_back(std::move(call));
    if (record->deadline) deadlines_.move(record->unit, to, record->id, *record->deadline);
    record->unit = to;
    record->of_unit = streams_of(to);
    record->of_unit->stream_arrived(now);
  }
  return true;
}

std::optional<std::uint64_t> StreamTable::granted(RequestId id, std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const RecordPtr record = current(id, generation);
  return record ? std::optional(record->granted) : std::nullopt;
}

template <class Wanted>
std::vector<RequestId> StreamTable::ids_of(Wanted wanted) const {
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, record] : records_)
      if (wanted(*record)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<RequestId> StreamTable::live() const {
  return ids_of([](const Record&) { return true; });
}

std::vector<RequestId> StreamTable::unassigned(UnitId unit) const {
  return ids_of([unit](const Record& record) {
    return record.unit == unit && !record.is_encoded() && record.request->fork_of == 0;
  });
}

std::optional<scheduler::Refusal> StreamTable::take_queue_room(RequestId id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const RecordPtr first = find(id);
  if (!first || first->held.queue_room) return std::nullopt;
  return limits_.take_queue_room(*first->request, held_by(choices_of(id)), now);
}

std::optional<scheduler::Refusal> StreamTable::retake_queue_room(RequestId id, std::uint64_t prompt_tokens,
                                                                 TimePoint now) {
  const std::lock_guard lock(mutex_);
  const RecordPtr record = find(id);
  if (!record || !record->held.queue_room) return std::nullopt;
  return limits_.retake_queue_room(*record->request, record->held, prompt_tokens, now);
}

std::optional<scheduler::Refusal> StreamTable::take_quota(RequestId id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const RecordPtr first = find(id);
  return first ? limits_.take_quota(*first->request, held_by(choices_of(id)), now) : std::nullopt;
}

std::optional<scheduler::Refusal> StreamTable::take_embed_bytes(RequestId id, std::uint64_t bytes, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const RecordPtr record = find(id);
  return record ? limits_.take_embed_bytes(*record->request, record->held, bytes, now) : std::nullopt;
}

std::optional<scheduler::Refusal> StreamTable::admit(RequestId id, TimePoint now) {
  const std::lock_guard lock(mutex_);
  const RecordPtr first = find(id);
  if (!first) return std::nullopt;
  const std::vector<RecordPtr> choices = choices_of(id);
  if (auto refused = limits_.check_parked(*first->request, first->held, now)) return refused;
  if (auto refused = limits_.take_quota(*first->request, held_by(choices), now)) return refused;
  for (const RecordPtr& record : choices) move_to(*record, RequestState::encoding);
  return std::nullopt;
}

std::vector<AssignmentPtr> StreamTable::assign(RequestId id, std::vector<TokenId> prompt, const ServedBy& served_by,
                                               Admitted how) {
  const auto shared = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  std::vector<AssignmentPtr> all;
  std::unique_lock lock(mutex_);
  if (!find(id)) return all;
  const std::vector<RecordPtr> choices = choices_of(id);
  for (const RecordPtr& record : choices) {
    record->prompt = shared;
    record->prompt_tokens = static_cast<std::uint32_t>(shared->size());
    if (record->request->wants_proof)
      record->proof = std::make_unique<Proof>(Proof{.numerics_id = served_by.numerics_id,
                                                    .model = served_by.model,
                                                    .prompt = shared,
                                                    .begins_with = served_by.begins_with,
                                                    .shown_ids = served_by.shown_ids,
                                                    .form = served_by.form,
                                                    .recomputed_from = served_by.recomputed_from});
    record->recomputed_from = served_by.recomputed_from;
    move_to(*record, RequestState::queued);
    const engine::SamplingParams& sampling = record->request->sampling;
    how.choice = sampling.choice;
    how.temperature = sampling.temperature;
    how.top_p = sampling.top_p;
    record->outbox.emplace_back(how);
    all.push_back(assignment(*record));
  }
  for (const RecordPtr& record : choices) {
    if (!lock.owns_lock()) lock.lock();
    hand_over(lock, record);
  }
  return all;
}

AssignmentPtr StreamTable::assign_inputs(RequestId id, std::shared_ptr<const EmbedIds> inputs, std::uint32_t num_cut,
                                         Admitted how) {
  std::uint64_t tokens = 0;
  for (const auto& ids : *inputs) tokens += ids.size();
  std::unique_lock lock(mutex_);
  const RecordPtr record = find(id);
  if (!record) return nullptr;
  record->inputs = std::move(inputs);
  record->prompt_tokens = static_cast<std::uint32_t>(tokens);
  record->truncated_tokens = num_cut;
  move_to(*record, RequestState::queued);
  AssignmentPtr task = assignment(*record);
  record->outbox.emplace_back(std::move(how));
  hand_over(lock, record);
  return task;
}

std::vector<AssignmentPtr> StreamTable::resume(UnitId unit, WorkKind kind) {
  std::vector<AssignmentPtr> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, record] : records_) {
    if (record->unit != unit || record->request->kind() != kind || !record->is_encoded()) continue;
    ++record->generation;
    move_to(*record, RequestState::queued);
    all.push_back(assignment(*record));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a->request < b->request; });
  return all;
}

bool StreamTable::started(RequestId id, std::uint64_t generation, std::uint32_t cached_tokens, TimePoint now,
                          std::uint32_t num_blocks) {
  return update(id, generation, [&](Record& record) {
    move_to(record, RequestState::running);
    record.computed_tokens = cached_tokens;
    record.work.began(num_blocks, record.seconds_parked(now), now);
    if (record.times.first_step) return;  // a resumed stream keeps the figures of its first start
    record.times.first_step = now;
    record.cached_tokens = cached_tokens;
    counts_.prompt_tokens += record.prompt_tokens;
    counts_.cached_tokens += cached_tokens;
    record.of_unit->started(record.prompt_tokens, cached_tokens);
    tenants_.started(record.tenant, record.prompt_tokens, cached_tokens);
  });
}

bool StreamTable::computed(RequestId id, std::uint64_t generation, std::uint32_t prompt_tokens,
                           std::uint64_t vector_bytes) {
  return update(id, generation, [&](Record& record) {
    record.computed_tokens = prompt_tokens;
    record.vector_bytes = vector_bytes;
  });
}

bool StreamTable::preempted(RequestId id, std::uint64_t generation, TimePoint now) {
  return update(id, generation, [&](Record& record) {
    ++record.preemptions;
    ++counts_.preemptions;
    record.work.preempted(record.parked_since.has_value(), now);
  });
}

void StreamTable::charge(std::span<const Charge> charges, double step_seconds, TimePoint now) {
  News news;
  charge(charges, step_seconds, now, news);
  tell(std::move(news));
}

void StreamTable::charge(std::span<const Charge> charges, double step_seconds, TimePoint now, News& news) {
  const std::lock_guard lock(mutex_);
  charge_locked(charges, step_seconds, now, news);
}

void StreamTable::charge_locked(std::span<const Charge> charges, double step_seconds, TimePoint now, News& news) {
  double sum = 0;  // of neighbours of one tenant
  for (std::size_t i = 0; i < charges.size(); ++i) {
    const Charge& charge = charges[i];
    sum += charge.seconds;
    if (i + 1 == charges.size() || charges[i + 1].tenant != charge.tenant)
      charged_.charge(charge.tenant, std::exchange(sum, 0.0));
    if (const auto found = records_.find(charge.request); found != records_.end()) {
      found->second->work.charge(charge, step_seconds, now);
    } else if (accounting_.on_usage) {
      UsageEntry& entry = news.usage_.emplace_back(UsageEntry{.tenant = {.id = charge.tenant}});
      entry.usage.compute_seconds = charge.seconds;
      entry.usage.cpu_seconds = charge.seconds * accounting_.num_threads;
    }
  }
}

void StreamTable::report(StepReport& step, News& news) {
  const std::lock_guard lock(mutex_);
  charge_locked(step.charges, step.seconds, step.now, news);
  for (Emission& emission : step.emissions) {
    const RecordPtr record = current(emission.request, emission.generation);
    if (!record) {
      step.ended.emplace_back(emission.request, emission.generation);
    } else if (take_tokens(*record, emission, step.now)) {
      news.streams_.push_back(record);
    }
  }
  step.charges.clear();
  step.emissions.clear();
}

Parked StreamTable::park(RequestId id, std::uint64_t generation, TimePoint now, News* news) {
  std::unique_lock lock(mutex_);
  const RecordPtr record = current(id, generation);
  if (!record) return {};
  move_to(*record, RequestState::parked);
  if (!record->parked_since) record->parked_since = now;
  const scheduler::SharedLimit& places = limits_.parked();
  if (places.held() <= places.limit()) return {.is_live = true};
  const RecordPtr slowest = slowest_reader(now);
  const Parked parked{.is_live = slowest != record, .ended = slowest->id};
  End end;
  end.outcome = scheduler::Outcome::cancelled;
  end.message = fmt::format(
      "its client took {} tokens and let the answer wait for {} s; others needed its place among the {} "
      "(max_parked_requests). Grant more credit, and sooner",
      slowest->emitted.size(), static_cast<std::uint64_t>(slowest->seconds_parked(now)), places.limit());
  end.field = "max_parked_requests";
  end.limit = places.limit();
  end_locked(lock, slowest->id, end, now, news);
  return parked;
}

StreamTable::RecordPtr StreamTable::slowest_reader(TimePoint now) const {
  RecordPtr slowest;
  std::pair<std::uint64_t, double> most;
  for (const auto& [id, record] : records_) {
    if (record->state != RequestState::parked) continue;
    const std::uint64_t own = limits_.parked().held_by(record->request->tenant.id);
    const std::uint64_t kept =
        record->request->tenant.is_owner ? scheduler::kept_for_owner_of(limits_.parked().limit()) : 0;
    const double per_token = record->seconds_parked(now) / static_cast<double>(record->emitted.size() + 1);
    const std::pair<std::uint64_t, double> here{own - std::min(own, kept), per_token};
    // Among equal ones the newest, so that the result does not depend on the order of the hash table.
    if (slowest && (here < most || (here == most && id < slowest->id))) continue;
    slowest = record;
    most = here;
  }
  return slowest;
}

bool StreamTable::deliver(Emission emission, TimePoint now, News* news) {
  std::unique_lock lock(mutex_);
  const RecordPtr record = current(emission.request, emission.generation);
  if (!record) return false;
  if (take_tokens(*record, emission, now)) news ? news->streams_.push_back(record) : hand_over(lock, record);
  return true;
}

// Returns whether there is something new for the sink in the outbox.
bool StreamTable::take_tokens(Record& record, Emission& emission, TimePoint now) {
  TROUPE_ASSERT(emission.first_index <= record.emitted.size());
  TROUPE_ASSERT(emission.text_offset <= record.text_bytes);
  TROUPE_ASSERT(emission.logprobs.empty() || emission.logprobs.size() == emission.ids.size());
  const auto known_ids = std::min<std::uint64_t>(record.emitted.size() - emission.first_index, emission.ids.size());
  const auto known_text = std::min<std::uint64_t>(record.text_bytes - emission.text_offset, emission.text.size());

  TokenRun run;
  run.choice = record.request->sampling.choice;
  run.first_index = emission.first_index + known_ids;
  run.ids = std::move(emission.ids);
  run.ids.erase(run.ids.begin(), run.ids.begin() + static_cast<std::ptrdiff_t>(known_ids));
  if (!emission.logprobs.empty()) {
    run.logprobs = std::move(emission.logprobs);
    run.logprobs.erase(run.logprobs.begin(), run.logprobs.begin() + static_cast<std::ptrdiff_t>(known_ids));
  }
  if (record.emitted.empty()) run.prompt_logprobs = std::move(emission.prompt_logprobs);
  run.prompt_tokens = record.prompt_tokens;
  run.cached_tokens = record.cached_tokens;
  run.text = known_text == 0 ? std::move(emission.text) : emission.text.substr(known_text);
  if (run.ids.empty() && run.text.empty() && run.prompt_logprobs.empty()) return false;

  record.emitted.insert(record.emitted.end(), run.ids.begin(), run.ids.end());
  record.text_bytes += run.text.size();
  if (record.proof) record.proof->text += run.text;
  if (!run.ids.empty()) {
    const auto [latency, seconds] = counts_.tokens_emitted(record.times, run.ids.size(), now);
    record.of_unit->tokens_emitted(run.ids.size());
    tenants_.tokens_emitted(record.tenant, run.ids.size(), latency, seconds);
    limits_.take_answer(record.request->tenant, run.ids.size(), now);
  }
  record.outbox.emplace_back(std::move(run));
  return true;
}

bool StreamTable::end(RequestId id, std::uint64_t generation, const End& end, TimePoint now, News* news) {
  std::unique_lock lock(mutex_);
  if (!current(id, generation)) return false;
  return end_locked(lock, id, end, now, news);
}

bool StreamTable::end(RequestId id, const End& end, TimePoint now, News* news) {
  std::unique_lock lock(mutex_);
  return end_locked(lock, id, end, now, news);
}

void StreamTable::tell(News news) {
  if (accounting_.on_usage) std::ranges::for_each(news.usage_, accounting_.on_usage);
  for (const RecordPtr& record : news.streams_) {
    std::unique_lock lock(mutex_);
    hand_over(lock, record);
  }
}

void StreamTable::end_all(const End& running, const End& waiting, TimePoint now, std::optional<UnitId> unit) {
  for (const RequestId id : live()) {
    std::unique_lock lock(mutex_);
    const RecordPtr record = find(id);
    if (!record || record->unit != unit.value_or(record->unit)) continue;
    // A choice that waits for the first one to compute their prompt counts as begun; the first, with the lower id, has
    // ended by now.
    const bool begun = record->times.first_step || (record->request->fork_of != 0 && record->prompt);
    end_locked(lock, id, begun ? running : waiting, now, nullptr);
  }
}

std::optional<std::uint64_t> StreamTable::grant(RequestId id, std::uint64_t tokens, TimePoint now) {
  return with(id, std::optional<std::uint64_t>(), [&](Record& record) {
    record.of_unit->granted(now);
    if (tokens > 0 && record.parked_since) {
      record.parked_before += now - *std::exchange(record.parked_since, std::nullopt);
      record.work.unparked(now);
    }
    return record.granted = saturating_add(record.granted, tokens);
  });
}

void StreamTable::when_empty(UnitId unit, std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = units_.find(unit);
    if (found != units_.end() && !found->second->is_empty()) return found->second->when_empty(std::move(done));
  }
  done();
}

void StreamTable::when_empty(std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_pending_ > 0) {
      when_empty_.push_back(std::move(done));
      return;
    }
  }
  done();
}

StreamCounts StreamTable::counts() const {
  const std::lock_guard lock(mutex_);
  StreamCounts counts = counts_;
  for (const auto& [id, record] : records_) counts.bytes += bytes_of(*record);
  return counts;
}

std::vector<RequestView> StreamTable::views(TimePoint now) const {
  std::vector<RequestView> views;
  {
    const std::lock_guard lock(mutex_);
    views.reserve(records_.size());
    for (const auto& [id, record] : records_) {
      views.push_back({.request = id,
                       .tenant = record->request->tenant.id,
                       .uid = record->request->uid,
                       .tenant_name = scheduler::label_of(record->request->tenant),
                       .client_id = record->request->client_id,
                       .state = record->state,
                       .priority = record->request->priority,
                       .prompt_tokens = record->prompt_tokens,
                       .cached_tokens = record->cached_tokens,
                       .computed_tokens = record->emitted.empty() ? record->computed_tokens : record->prompt_tokens,
                       .generated_tokens = static_cast<std::uint32_t>(record->emitted.size()),
                       .preemptions = record->preemptions,
                       .age_seconds = seconds_between(record->times.submitted, now)});
    }
  }
  std::sort(views.begin(), views.end(), [](const auto& a, const auto& b) { return a.request < b.request; });
  return views;
}

// The stream's heap memory, without the sink, which belongs to ipc.
std::uint64_t StreamTable::bytes_of(const Record& record) {
  std::uint64_t bytes =
      sizeof(Record) + sizeof(Request) + record.emitted.capacity() * sizeof(TokenId) + record.vector_bytes;
  if (record.prompt) bytes += record.prompt->capacity() * sizeof(TokenId);
  // Ids that the client sent are not copied.
  if (record.inputs && !texts_of(*record.request).empty()) bytes += record.prompt_tokens * sizeof(TokenId);
  if (record.proof) {
    bytes += sizeof(Proof) + record.proof->text.capacity();
    if (record.proof->form && record.proof->form != form_of(*record.request)) bytes += record.proof->form->bytes();
  }
  bytes += record.request->proposal.capacity() * sizeof(TokenId);
  if (const auto form = form_of(*record.request)) bytes += form->bytes();
  bytes += record.request->begins_with.capacity() + record.request->shown_ids.capacity() * sizeof(TokenId);
  return bytes + input_bytes(*record.request) + record.request->client_id.capacity();
}

StreamTable::RecordPtr StreamTable::find(RequestId id) const {
  const auto it = records_.find(id);
  return it == records_.end() ? nullptr : it->second;
}

StreamTable::RecordPtr StreamTable::current(RequestId id, std::uint64_t generation) const {
  RecordPtr record = find(id);
  return record && record->generation == generation ? record : nullptr;
}

void StreamTable::move_to(Record& record, RequestState state) {
  counts_.state_changed(record.state, state);
  record.of_unit->state_changed(record.state, state);
  tenants_.state_changed(record.tenant, record.state, state);
  const TenantId tenant = record.request->tenant.id;
  if (record.state == RequestState::parked) limits_.parked().give_back(tenant);
  if (state == RequestState::parked) limits_.parked().take(tenant);
  record.state = state;
  const bool waits = state != RequestState::running && state != RequestState::parked && state != RequestState::ended;
  if (!waits) limits_.leave_queue(tenant, record.held);
}

std::vector<StreamTable::RecordPtr> StreamTable::choices_of(RequestId first) const {
  std::vector<RecordPtr> choices = {find(first)};
  for (std::uint32_t choice = 1; choice < choices.front()->request->num_choices; ++choice) {
    if (RecordPtr other = find(first + choice)) choices.push_back(std::move(other));
  }
  return choices;
}

std::vector<RequestLimits::Held*> StreamTable::held_by(const std::vector<RecordPtr>& choices) {
  std::vector<RequestLimits::Held*> held;
  for (const RecordPtr& record : choices) held.push_back(&record->held);
  return held;
}

bool StreamTable::end_locked(std::unique_lock<std::mutex>& lock, RequestId id, const End& end, TimePoint now,
                             News* news) {
  const RecordPtr record = find(id);
  if (!record) return false;
  const bool is_first = record->request->fork_of == 0;
  const auto ended = is_first && !record->is_encoded() ? choices_of(id) : std::vector<RecordPtr>{record};
  std::vector<UsageEntry> entries;
  for (const RecordPtr& each : ended) entries.push_back(end_one(*each, end, now));
  if (news) {
    if (accounting_.on_usage) std::ranges::move(entries, std::back_inserter(news->usage_));
    news->streams_.insert(news->streams_.end(), ended.begin(), ended.end());
    return true;
  }
  if (accounting_.on_usage) {  // before the client knows of the end
    lock.unlock();
    std::ranges::for_each(entries, accounting_.on_usage);
  }
  for (const RecordPtr& each : ended) {
    if (!lock.owns_lock()) lock.lock();
    hand_over(lock, each);
  }
  return true;
}

// Before the record's tokens go.
void StreamTable::add_proof(Record& record, End& end) {
  if (!record.proof || scheduler::info(end.outcome).kind != scheduler::OutcomeKind::done) return;
  Proof& proof = *record.proof;
  const Request& request = *record.request;
  proof.sampling = request.sampling;
  proof.sampling.choice += request.first_choice;
  if (end.max_tokens) proof.sampling.max_tokens = *end.max_tokens;
  proof.sampling.min_tokens = std::min(proof.sampling.min_tokens, proof.sampling.max_tokens);
  proof.stop_strings = request.stop_strings;
  proof.stop_scope = request.stop_scope;
  proof.ids = record.emitted;
  proof.outcome = end.outcome;
  proof.stop = end.stop;
  end.proof = std::move(record.proof);
}

// Ends the record; the caller then notifies on_usage, and the sink with hand_over().
UsageEntry StreamTable::end_one(Record& record, End end, TimePoint now) {
  move_to(record, RequestState::ended);
  records_.erase(record.id);
  if (record.deadline) deadlines_.remove(record.unit, record.id, *record.deadline);
  const bool is_refused = scheduler::info(end.outcome).kind == scheduler::OutcomeKind::refused;
  limits_.end(*record.request, record.held, record.times.first_step.has_value(), is_refused, now);
  if (!record.request->tenant.is_owner) end.message = without_folders(end.message);
  add_proof(record, end);
  end.choice = record.request->sampling.choice;
  end.seed = record.request->sampling.seed;
  end.recomputed_from = std::move(record.recomputed_from);
  end.usage.prompt_tokens = record.prompt_tokens;
  end.usage.truncated_tokens = record.truncated_tokens;
  end.usage.cached_tokens = record.cached_tokens;
  end.usage.completion_tokens = static_cast<std::uint32_t>(record.emitted.size());
  end.usage.preemptions = record.preemptions;
  record.times.fill(end.usage, now);
  record.work.fill(end.usage, record.seconds_parked(now), accounting_.num_threads, now);
  end.usage.tenant_share = charged_.end(record.request->tenant.id, record.charged);
  counts_.stream_ended(record.times, end.usage, now);
  record.of_unit->called(end.usage.tool_calls);
  tenants_.ended(record.tenant, end);
  UsageEntry entry{.tenant = record.request->tenant,
                   .kind = record.request->kind(),
                   .outcome = end.outcome,
                   .has_begun = record.times.first_step.has_value(),
                   .usage = end.usage,
                   .request = record.id,
                   .body = record.request,
                   .total_seconds = seconds_between(record.times.submitted, now)};
  record.outbox.emplace_back(std::move(end));
  return entry;
}

// Empties the outbox, calling the sink without the lock. If another thread is doing that already, returns at once: that
// thread passes on the new entries too, so the order is kept and no thread waits.
void StreamTable::hand_over(std::unique_lock<std::mutex>& lock, const RecordPtr& record) {
  if (record->handing_over) return;
  record->handing_over = true;
  std::vector<std::function<void()>> done;
  while (!record->outbox.empty()) {
    auto next = std::move(record->outbox.front());
    record->outbox.pop_front();
    lock.unlock();
    const bool is_end = std::holds_alternative<End>(next);
    if (is_end) {
      record->sink->end(std::get<End>(std::move(next)));
    } else if (auto* run = std::get_if<TokenRun>(&next)) {
      record->sink->tokens(std::move(*run));
    } else {
      record->sink->admitted(std::get<Admitted>(next));
    }
    lock.lock();
    if (!is_end) continue;
    record->sink.reset();
    done = record->of_unit->end_told();
    if (--ends_pending_ > 0) continue;
    for (auto& call : std::exchange(when_empty_, {})) done.push_back(std::move(call));
  }
  record->handing_over = false;
  lock.unlock();
  for (const auto& call : done) call();
}

AssignmentPtr StreamTable::assignment(const Record& record) {
  return std::make_shared<const Assignment>(Assignment{.request = record.id,
                                                       .generation = record.generation,
                                                       .body = record.request,
                                                       .prompt = record.prompt,
                                                       .inputs = record.inputs,
                                                       .emitted = record.emitted,
                                                       .num_faults = record.num_faults,
                                                       .deadline = record.deadline,
                                                       .promised = record.promised});
}

}  // namespace troupe::actors
