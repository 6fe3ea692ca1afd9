// The records of all live streams, kept outside the actors so that an actor's death loses none.
//
// The table belongs to the gateway. Actors report to it (a request was encoded, started, emitted tokens, ended), and
// only the table calls the sinks: it passes tokens on in order, ends each stream exactly once, and counts. It keeps the
// tokens that a dead batcher had sent, so another one can go on: resume() gives every live request a new generation,
// and reports that still arrive under the old one are dropped.
//
// Plain and thread-safe: every function may be called from any thread and holds the one lock only while it updates the
// records. Sinks and callbacks are called without the lock, one call at a time per stream, so they may call back into
// the gateway.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "actors/requests/request.h"
#include "actors/requests/status_snapshot.h"
#include "actors/serving/compute_account.h"
#include "actors/serving/deadlines.h"
#include "actors/serving/request_limits.h"
#include "actors/serving/stream_counts.h"
#include "actors/serving/tenant_counters.h"
#include "scheduler/shares/admission.h"

namespace troupe::actors {

// All that a batcher needs to begin or resume a request. Immutable, shared between actors.
struct Assignment {
  RequestId request = 0;
  std::uint64_t generation = 0;
  std::shared_ptr<const Request> body;                 // its seed is filled in
  std::shared_ptr<const std::vector<TokenId>> prompt;  // Generate
  std::shared_ptr<const EmbedIds> inputs;              // Embed
  std::vector<TokenId> emitted;                        // already sent: they are replayed, not sent again
  std::uint32_t num_faults = 0;                        // see StreamTable::record_fault()
  std::optional<TimePoint> deadline{};
  bool promised = false;  // see StreamTable::promise()
};

using AssignmentPtr = std::shared_ptr<const Assignment>;

// Some tokens and text of one stream, from the batcher that runs it.
struct Emission {
  RequestId request = 0;
  std::uint64_t generation = 0;
  std::uint64_t first_index = 0;  // of ids[0] among the stream's tokens
  std::vector<TokenId> ids{};
  std::uint64_t text_offset = 0;  // of text[0] among the stream's bytes of text
  std::string text{};
  std::vector<engine::SampledToken> logprobs{};         // one per id, or none
  std::vector<engine::SampledToken> prompt_logprobs{};  // with the first token: one per token of the prompt
};

// What the rows of a step have to report.
struct StepReport {
  std::vector<Charge> charges{};
  double seconds = 0;  // that the step took
  std::vector<Emission> emissions{};
  TimePoint now{};
  // Set by StreamTable::report(), with the generation: of emissions whose stream has ended or has another by now.
  std::vector<std::pair<RequestId, std::uint64_t>> ended{};
};

// What a proof says of the model, and of what it makes of a request; of a request that wants none it may be empty, but
// for recomputed_from.
struct ServedBy {
  std::string model{};
  std::string numerics_id{};
  std::string begins_with{};                 // beginning_of()
  std::vector<TokenId> shown_ids{};          // shown_ids_of()
  std::shared_ptr<const AnswerForm> form{};  // proved_form()
  std::string recomputed_from{};             // End::recomputed_from
};

// The result of StreamTable::park().
struct Parked {
  bool is_live = false;  // false: the parked stream has ended, and the batcher should forget it
  RequestId ended = 0;   // the stream that was ended to stay within the limit; the batcher should forget it; 0: none
};

// How computing is accounted for.
struct Accounting {
  std::uint32_t num_threads = 1;                      // that compute a step
  std::function<void(const UsageEntry&)> on_usage{};  // GatewayOptions::on_usage
};

class StreamTable {
  struct Record;

 public:
  // What sinks and on_usage are still to be told of reports: for callers that hold a lock. Given to the functions that
  // would tell them; tell() does, once the lock is released.
  class News {
   public:
    [[nodiscard]] bool empty() const { return usage_.empty() && streams_.empty(); }

   private:
    friend class StreamTable;
    std::vector<UsageEntry> usage_;
    std::vector<std::shared_ptr<Record>> streams_;  // with something in their outbox
  };

  explicit StreamTable(const config::StreamLimits& limits, Accounting accounting = {});
  ~StreamTable();  // every stream has ended (asserted)
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // Adds a stream in state `received`, which owns its request and sink until it ends. A request for n answers becomes n
  // streams, of which the first owns the prompt; until that is encoded, the others change state and end together with
  // the first. Returns the id of the first; the others have the following ids.
  RequestId add(Request request, std::shared_ptr<StreamSink> sink, TimePoint now, UnitId unit = 0);

  // A request that waits in one unit waits in another from now on, to which it is to be submitted. Appends to `then`
  // what is to be called, with no lock held. False, and nothing changes: it has ended, or is not `received` any more.
  bool pass_on(RequestId id, UnitId to, TimePoint now, std::vector<std::function<void()>>& then);

  // Null if the stream has ended.
  std::shared_ptr<const Request> request(RequestId id) const {
    return with(id, std::shared_ptr<const Request>(), [](const Record& record) { return record.request; });
  }
  std::optional<UnitId> unit(RequestId id) const {  // nullopt if the stream has ended
    return with(id, std::optional<UnitId>(), [](const Record& record) { return record.unit; });
  }
  RequestState state(RequestId id) const {  // `ended` also for unknown ids
    return with(id, RequestState::ended, [](const Record& record) { return record.state; });
  }
  // Credit since the beginning, in tokens; nullopt if the stream has ended or has another generation by now.
  std::optional<std::uint64_t> granted(RequestId id, std::uint64_t generation) const;
  // Of the unit's live streams, as Deadlines::next() and Deadlines::due().
  std::optional<TimePoint> next_deadline(UnitId unit) const {
    const std::lock_guard lock(mutex_);
    return deadlines_.next(unit);
  }
  std::vector<RequestId> overdue(UnitId unit, TimePoint now) const {
    const std::lock_guard lock(mutex_);
    return deadlines_.due(unit, now);
  }
  std::vector<RequestId> live() const;  // ascending
  // The unit's live requests whose texts are not encoded yet (`received` or `encoding`), ascending. Only the first
  // choice of each.
  std::vector<RequestId> unassigned(UnitId unit) const;
  // How many requests of the tenant may be live, and wait, beside what is kept for others: Gateway::room_of().
  scheduler::RequestLoad room_of(const scheduler::Tenant& tenant, TimePoint now) {
    const std::lock_guard lock(mutex_);
    return limits_.room_of(tenant, now);
  }

  // The limits of the tenant (scheduler::TenantAccounts) and those that all share. Each call returns the refusal if a
  // limit or the tenant's share is reached; nullopt also if the stream has ended. Repeated calls change nothing.

  // On arrival: counts all choices against the tenant's max_queued and max_queued_requests, and the prompt against
  // max_queued_tokens (a text as one token per four bytes), each until it first has a place in the batch, is parked or
  // ends; a preempted request is not counted again. Also refuses what the tenant has no tokens left for in this minute.
  std::optional<scheduler::Refusal> take_queue_room(RequestId id, TimePoint now);
  // Replaces the estimated number of prompt tokens by the real one, and takes these from the tenant's tokens per
  // minute. They are given back if the request is refused before it runs.
  std::optional<scheduler::Refusal> retake_queue_room(RequestId id, std::uint64_t prompt_tokens, TimePoint now);
  // Counts all choices against their tenant's requests, each until it ends.
  std::optional<scheduler::Refusal> take_quota(RequestId id, TimePoint now);
  // As take_quota(), and moves the choices to `encoding`. Also refuses a tenant with a full share of parked streams.
  std::optional<scheduler::Refusal> admit(RequestId id, TimePoint now);
  // Counts so many bytes against max_embed_bytes until the stream ends, in place of those that it counted before.
  std::optional<scheduler::Refusal> take_embed_bytes(RequestId id, std::uint64_t bytes, TimePoint now);
  // The prompt is encoded: moves the choices to `queued`. Returns one assignment per choice; none if the stream has
  // ended. how: for the sink, with each choice's own number.
  std::vector<AssignmentPtr> assign(RequestId id, std::vector<TokenId> prompt, const ServedBy& served_by = {},
                                    Admitted how = {});
  // The same for an Embed. Null if the stream has ended.
  AssignmentPtr assign_inputs(RequestId id, std::shared_ptr<const EmbedIds> inputs, std::uint32_t num_cut,
                              Admitted how = {});
  // Moves the unit's streams of this kind whose texts are encoded to `queued` under a new generation; returns their
  // assignments, oldest first.
  std::vector<AssignmentPtr> resume(UnitId unit, WorkKind kind);

  // Reports of a batcher. A report of an old generation, or for a stream that has ended, is ignored and returns false:
  // the batcher should forget the request.
  // `running` for a queued stream: it has a place in the batch. It leaves the limits of waiting requests, and stays
  // `queued`, as its client sees it, until started().
  bool set_state(RequestId id, std::uint64_t generation, RequestState state) {
    return update(id, generation, [&](Record& record) {
      if (state == RequestState::running && record.state == RequestState::queued)
        limits_.leave_queue(record.request->tenant.id, record.held);
      else
        move_to(record, state);
    });
  }
  // It is in a step: the first one, or the first after a preemption. num_blocks: of KV that it holds.
  bool started(RequestId id, std::uint64_t generation, std::uint32_t cached_tokens, TimePoint now,
               std::uint32_t num_blocks = 0);
  // So much of its prompt is computed, cached tokens included. Not needed from the first token of the answer on.
  // vector_bytes: the vectors of an Embed that are computed.
  bool computed(RequestId id, std::uint64_t generation, std::uint32_t prompt_tokens, std::uint64_t vector_bytes = 0);
  bool preempted(RequestId id, std::uint64_t generation, TimePoint now);
  // The stream was promised to meet its deadline: a later batcher does not decide that again.
  void promise(RequestId id) {
    with(id, false, [](Record& record) { return record.promised = true; });
  }
  // A step or pass that took step_seconds has ended or failed: what each of its rows was charged. Of any generation.
  // What is charged to a stream that has ended is on no receipt; on_usage gets it.
  void charge(std::span<const Charge> charges, double step_seconds, TimePoint now);
  void charge(std::span<const Charge> charges, double step_seconds, TimePoint now, News& news);
  // The stream is out of credit. If more streams than max_parked_requests are parked now, one is ended: of the user
  // with the most parked streams (the owner's count less the owner's reserve), the one with the slowest client, that is
  // the longest time parked per emitted token.
  Parked park(RequestId id, std::uint64_t generation, TimePoint now, News* news = nullptr);
  // Passes tokens on to the sink. Tokens that the stream has already are dropped, a gap is a bug (asserted).
  bool deliver(Emission emission, TimePoint now, News* news = nullptr);
  // As charge(), and then deliver() for each emission, under one lock. Takes the charges and emissions out of `step`.
  void report(StepReport& step, News& news);
  bool end(RequestId id, std::uint64_t generation, const End& end, TimePoint now, News* news = nullptr);

  // Ends the stream of any generation; false if it has ended already. Fills in seed and usage.
  bool end(RequestId id, const End& end, TimePoint now, News* news = nullptr);
  // Tells them, with no lock held; in the order of each stream, also when other threads report meanwhile.
  void tell(News news);
  // Ends every stream, or all of one unit: with `running` those that have begun to be computed, with `waiting` the
  // others.
  void end_all(const End& running, const End& waiting, TimePoint now, std::optional<UnitId> unit = std::nullopt);

  // Counts one more failure of work that included this request. Returns the count; 0 if the stream has ended. At
  // kMaxFaults, if no other request can have caused the failure, the caller ends the stream (given_up() in
  // request_check.h).
  std::uint32_t record_fault(RequestId id) {
    return with(id, std::uint32_t{0}, [](Record& record) { return ++record.num_faults; });
  }
  // The work was repeated with this request alone and did not fail: resets the count.
  void clear_faults(RequestId id) {
    with(id, std::uint32_t{0}, [](Record& record) { return record.num_faults = 0; });
  }

  // Adds to the client's credit and returns the sum since the beginning; nullopt for a stream that has ended.
  std::optional<std::uint64_t> grant(RequestId id, std::uint64_t tokens, TimePoint now);

  // Calls `done` once no stream is live and every end has been delivered to its sink; at once if that is so now.
  void when_empty(std::function<void()> done);
  // The same of one unit's streams.
  void when_empty(UnitId unit, std::function<void()> done);
  // When a stream last arrived for the unit; nullopt while it has any.
  std::optional<TimePoint> idle_since(UnitId unit) const {
    const std::lock_guard lock(mutex_);
    const auto found = units_.find(unit);
    if (found == units_.end()) return TimePoint::min();
    return found->second->is_empty() ? std::optional(found->second->last_arrival()) : std::nullopt;
  }
  // Drops what was counted of a unit that is gone: no stream of it arrives any more.
  void forget_unit(UnitId unit) {
    const std::lock_guard lock(mutex_);
    units_.erase(unit);
  }

  StreamCounts counts() const;  // O(live streams)
  TenantCounters& tenants() { return tenants_; }
  UnitCounts counts(UnitId unit) const {
    const std::lock_guard lock(mutex_);
    const auto found = units_.find(unit);
    return found == units_.end() ? UnitCounts{} : found->second->counts();
  }
  // Stays valid, and counts on.
  std::shared_ptr<const WorkClock> work_clock(UnitId unit) {
    const std::lock_guard lock(mutex_);
    return streams_of(unit)->clock();
  }
  std::vector<RequestView> views(TimePoint now) const;

 private:
  struct Record {
    RequestId id = 0;
    UnitId unit = 0;
    std::shared_ptr<UnitStreams> of_unit;
    TenantCounters::Row tenant = 0;
    std::shared_ptr<const Request> request;
    std::shared_ptr<StreamSink> sink;
    std::shared_ptr<const std::vector<TokenId>> prompt;  // null until it is encoded, and for an Embed
    std::shared_ptr<const EmbedIds> inputs;              // of an Embed; null until all are encoded
    std::uint32_t prompt_tokens = 0;                     // of the prompt, or of all inputs
    std::uint32_t truncated_tokens = 0;                  // Usage
    std::vector<TokenId> emitted;
    std::uint64_t text_bytes = 0;
    std::uint64_t granted = 0;
    std::uint64_t generation = 1;
    RequestState state = RequestState::received;
    RequestLimits::Held held;
    std::optional<TimePoint> parked_since;  // until its client grants more
    TimePoint::duration parked_before{};
    std::uint32_t cached_tokens = 0;
    std::uint32_t computed_tokens = 0;  // of the prompt, as long as nothing is emitted
    std::uint64_t vector_bytes = 0;     // held by the answer to an Embed so far
    std::uint32_t preemptions = 0;
    std::uint32_t num_faults = 0;
    StreamTimes times;
    StreamWork work;
    ChargedTime::Mark charged;  // when it arrived
    std::optional<TimePoint> deadline;
    bool promised = false;
    std::unique_ptr<Proof> proof;  // wanted, and encoded; its ids come with the end
    std::string recomputed_from;   // End
    // Not passed to the sink yet. One thread at a time empties it.
    std::deque<std::variant<TokenRun, End, Admitted>> outbox;
    bool handing_over = false;

    bool is_encoded() const { return prompt || inputs; }
    double seconds_parked(TimePoint now) const {
      const TimePoint::duration now_parked = parked_since ? now - *parked_since : TimePoint::duration{};
      return std::chrono::duration<double>(parked_before + now_parked).count();
    }
  };
  using RecordPtr = std::shared_ptr<Record>;

  // work(record), or `ended` if the stream has ended.
  template <class Result, class Work>
  Result with(RequestId id, Result ended, Work work) const {
    const std::lock_guard lock(mutex_);
    const RecordPtr record = find(id);
    return record ? Result(work(*record)) : ended;
  }
  // Calls work(record). False: the stream has ended or has another generation by now.
  template <class Work>
  bool update(RequestId id, std::uint64_t generation, Work work) {
    const std::lock_guard lock(mutex_);
    const RecordPtr record = current(id, generation);
    if (record) work(*record);
    return record != nullptr;
  }
  const std::shared_ptr<UnitStreams>& streams_of(UnitId unit);
  template <class Wanted>
  std::vector<RequestId> ids_of(Wanted wanted) const;
  RecordPtr find(RequestId id) const;                               // null if ended
  RecordPtr current(RequestId id, std::uint64_t generation) const;  // null if ended or another generation
  std::vector<RecordPtr> choices_of(RequestId first) const;         // the live ones; `first` is a live first choice
  void insert(RequestId id, Request request, std::shared_ptr<StreamSink> sink, TimePoint now, UnitId unit);
  void move_to(Record& record, RequestState state);
  static std::vector<RequestLimits::Held*> held_by(const std::vector<RecordPtr>& choices);
  RecordPtr slowest_reader(TimePoint now) const;
  bool end_locked(std::unique_lock<std::mutex>& lock, RequestId id, const End& end, TimePoint now, News* news);
  void charge_locked(std::span<const Charge> charges, double step_seconds, TimePoint now, News& news);
  bool take_tokens(Record& record, Emission& emission, TimePoint now);
  UsageEntry end_one(Record& record, End end, TimePoint now);
  static void add_proof(Record& record, End& end);
  static std::uint64_t bytes_of(const Record& record);
  void hand_over(std::unique_lock<std::mutex>& lock, const RecordPtr& record);
  static AssignmentPtr assignment(const Record& record);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, RecordPtr> records_;
  Deadlines deadlines_;  // of the records that have one
  RequestLimits limits_;
  RequestId last_id_ = 0;
  std::uint64_t ends_pending_ = 0;  // streams with an End not delivered to the sink yet, live ones included
  std::vector<std::function<void()>> when_empty_;
  StreamCounts counts_;
  std::unordered_map<UnitId, std::shared_ptr<UnitStreams>> units_;
  TenantCounters tenants_;
  Accounting accounting_;
  ChargedTime charged_;
};

}  // namespace troupe::actors
