// What is known of every live stream, kept where no actor's death can lose it.
//
// The table sits behind the gateway. Actors report to it (a request was encoded, started, emitted
// tokens, ended), and it alone talks to the sinks: it hands tokens on in order, ends each stream exactly
// once, and counts. What a batcher that died had sent is remembered, so another one can go on: resume()
// gives every live request a new generation, and what still arrives from the old one is dropped.
//
// Plain and thread-safe: every function may be called from any thread and holds the one lock only for
// bookkeeping. Sinks and callbacks are called outside of it, one call at a time per stream, so they may
// call back into the gateway.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "actors/request.h"
#include "actors/serving/stream_sink.h"
#include "actors/status_snapshot.h"
#include "scheduler/admission.h"
#include "scheduler/shared_limit.h"

namespace troupe::actors {

using TimePoint = std::chrono::steady_clock::time_point;

// In so many broken steps (or texts) a request may be before it is given up.
inline constexpr std::uint32_t kMaxFaults = 2;

// All that a batcher needs to run a request, or to go on running it. Immutable, shared between actors.
struct Assignment {
  RequestId request = 0;
  std::uint64_t generation = 0;
  std::shared_ptr<const Request> body;  // its seed is filled in
  std::shared_ptr<const std::vector<TokenId>> prompt;
  std::vector<TokenId> emitted;  // sent before: replayed, never sent again
  std::uint32_t num_faults = 0;  // see StreamTable::record_fault()
};

// Some tokens and text of one stream, from the batcher that runs it.
struct Emission {
  RequestId request = 0;
  std::uint64_t generation = 0;
  std::uint64_t first_index = 0;  // of ids[0] among the stream's tokens
  std::vector<TokenId> ids;
  std::uint64_t text_offset = 0;  // of text[0] among the stream's bytes of text
  std::string text;
  std::vector<engine::SampledToken> logprobs;  // one per id, or none
};

// Counters since the start, and how many streams are in each state now.
struct StreamCounts {
  std::uint64_t received = 0;
  std::vector<std::pair<std::string, std::uint64_t>> ended;  // by outcome name, all names
  std::array<std::uint64_t, kNumRequestStates> in_state{};
  std::uint64_t prompt_tokens = 0;  // of requests that started
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  Latencies latencies;      // of streams
  std::uint64_t bytes = 0;  // of the requests, prompts and answers that are live
  TimePoint work_since;     // when the last stream came, or got credit again, while no other waited or ran

  std::uint64_t in(RequestState state) const { return in_state[static_cast<std::size_t>(state)]; }
  std::uint64_t waiting() const {
    return in(RequestState::received) + in(RequestState::encoding) + in(RequestState::queued);
  }
  bool has_work() const { return waiting() + in(RequestState::running) > 0; }
};

// As in GatewayOptions.
struct StreamLimits {
  std::uint32_t max_requests_per_uid = 512;
  std::uint32_t max_queued_requests = 1024;
  std::uint64_t max_queued_tokens = 1u << 22;
  std::uint32_t max_parked_requests = 1024;
};

// What became of a stream that ran out of credit.
struct Parked {
  bool is_live = false;  // false: the batcher should forget it
  RequestId ended = 0;   // this stream had to go in return, and the batcher should forget it, too; 0: none
};

class StreamTable {
 public:
  explicit StreamTable(const StreamLimits& limits);
  ~StreamTable();  // every stream has ended (asserted)
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // A new stream in state `received`, which owns its request and sink until it ends. A request for n answers becomes n
  // streams, of which the first owns the prompt; until that is known as ids, the others do what the first does, and
  // end as it ends. The id of the first; the others' follow it.
  RequestId add(Request request, std::shared_ptr<StreamSink> sink, TimePoint now);

  // Null if the stream has ended.
  std::shared_ptr<const Request> request(RequestId id) const;
  RequestState state(RequestId id) const;  // ended also for ids that never were
  // Credit since the beginning, in tokens; nothing if the stream has ended or has another generation by now.
  std::optional<std::uint64_t> granted(RequestId id, std::uint64_t generation) const;
  // The earliest deadline of a live stream, and all streams whose deadline is at or before `now`, earliest first.
  std::optional<TimePoint> next_deadline() const;
  std::vector<RequestId> overdue(TimePoint now) const;
  std::vector<RequestId> live() const;  // ascending
  // The live requests whose prompt is not known as ids yet (`received` or `encoding`), ascending. Only the first choice
  // of each.
  std::vector<RequestId> unassigned() const;

  // Gives all its choices places among the waiting requests, and its prompt among the waiting tokens (a text counts one
  // for four bytes), each until it first runs, is parked or ends; what is preempted waits without a place. Once,
  // however often it is called. What is wrong, if a limit or its user's share is met; nothing also if the stream has
  // ended.
  std::optional<scheduler::Refusal> take_place(RequestId id);
  // Its prompt turned out to be so many tokens.
  std::optional<scheduler::Refusal> retake_place(RequestId id, std::uint64_t prompt_tokens);
  // Counts all its choices against their user's quota, each from here to its end; once, however often it is called.
  // What is wrong, if the quota is used up; nothing also if the stream has ended.
  std::optional<scheduler::Refusal> take_quota(RequestId id);
  // For requests that are no streams (Embed): one counts against the same quota, from here to give_back_quota_of().
  std::optional<scheduler::Refusal> take_quota_of(std::uint32_t uid);
  void give_back_quota_of(std::uint32_t uid);
  // As take_quota(), and from `received` to `encoding`. Refused is also a user with a whole share of parked streams.
  std::optional<scheduler::Refusal> admit(RequestId id);
  // From `encoding` to `queued`: the prompt is known. One for each choice; none if the stream has ended.
  std::vector<std::shared_ptr<const Assignment>> assign(RequestId id, std::vector<TokenId> prompt);
  // Every request that a batcher had or was about to get, under a new generation, oldest first.
  std::vector<std::shared_ptr<const Assignment>> resume();

  // Reports of a batcher. All are ignored for another generation than the current one, or a stream that
  // has ended; then they return false: the batcher should forget the request.
  bool set_state(RequestId id, std::uint64_t generation, RequestState state);
  bool started(RequestId id, std::uint64_t generation, std::uint32_t cached_tokens, TimePoint now);
  bool preempted(RequestId id, std::uint64_t generation);
  // It is out of credit. If more streams are parked now than may be, one is ended: of the user with most of them, who
  // for this keeps the owner's reserve apart, the one whose client reads most slowly: the longest time parked for each
  // token that it took.
  Parked park(RequestId id, std::uint64_t generation, TimePoint now);
  // Hands tokens on. What the stream has already is dropped, a gap is a bug (asserted).
  bool deliver(Emission emission, TimePoint now);
  bool end(RequestId id, std::uint64_t generation, const End& end, TimePoint now);

  // Ends the stream whatever its generation, unless it has ended (false). Seed and usage are filled in.
  bool end(RequestId id, const End& end, TimePoint now);
  // Ends every stream: `running` for those that have begun to be computed, `waiting` for the others.
  void end_all(const End& running, const End& waiting, TimePoint now);

  // Work with this request in it broke: once more. How often by now; 0 if the stream has ended. Whoever finds
  // kMaxFaults, and nothing else that could be to blame, ends it (failed_with() in request_check.h).
  std::uint32_t record_fault(RequestId id);
  // It was done alone and nothing broke: it was not this request.
  void clear_faults(RequestId id);

  // Adds to what the client lets us send and returns the sum so far; nothing for a stream that has ended.
  std::optional<std::uint64_t> grant(RequestId id, std::uint64_t tokens, TimePoint now);

  // Calls `done` once no stream is left and the last sink heard its end; at once if that is so now.
  void when_empty(std::function<void()> done);

  StreamCounts counts() const;  // O(live streams)
  // StreamCounts::work_since while streams wait or run; nothing while none does. O(1).
  std::optional<TimePoint> work_since() const;
  std::vector<RequestView> views(TimePoint now) const;

 private:
  struct Record {
    RequestId id = 0;
    std::shared_ptr<const Request> request;
    std::shared_ptr<StreamSink> sink;
    std::shared_ptr<const std::vector<TokenId>> prompt;  // null until it is known as ids
    std::vector<TokenId> emitted;
    std::uint64_t text_bytes = 0;
    std::uint64_t granted = 0;
    std::uint64_t generation = 1;
    RequestState state = RequestState::received;
    bool has_quota = false;
    bool has_place = false;
    std::uint64_t place_tokens = 0;
    std::optional<TimePoint> parked_since;  // until its client granted more
    TimePoint::duration parked_before{};
    std::uint32_t cached_tokens = 0;
    std::uint32_t preemptions = 0;
    std::uint32_t num_faults = 0;
    TimePoint submitted;
    std::optional<TimePoint> deadline;
    std::optional<TimePoint> first_step, first_token, last_token;
    // What the sink has not heard yet. One thread at a time empties it.
    std::deque<std::variant<TokenRun, End>> outbox;
    bool handing_over = false;
  };
  using RecordPtr = std::shared_ptr<Record>;

  RecordPtr find(RequestId id) const;                               // null if ended
  RecordPtr current(RequestId id, std::uint64_t generation) const;  // null if ended or another generation
  std::vector<RecordPtr> choices_of(RequestId first) const;         // the live ones, `first` being live and the first
  void insert(RequestId id, Request request, std::shared_ptr<StreamSink> sink, TimePoint now);
  void move_to(Record& record, RequestState state);
  std::optional<scheduler::Refusal> take_quota(const std::vector<RecordPtr>& choices);
  void give_back_place(Record& record);
  RecordPtr slowest_reader(TimePoint now) const;
  static TimePoint::duration time_parked(const Record& record, TimePoint now);
  bool end_locked(std::unique_lock<std::mutex>& lock, RequestId id, const End& end, TimePoint now);
  void end_one(Record& record, End end, TimePoint now);
  void count_request(const Record& record, const Usage& usage, TimePoint now);
  static std::uint64_t bytes_of(const Record& record);
  void hand_over(std::unique_lock<std::mutex>& lock, const RecordPtr& record);
  static std::shared_ptr<const Assignment> assignment(const Record& record);

  mutable std::mutex mutex_;
  std::unordered_map<RequestId, RecordPtr> records_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;  // of the records that have one
  scheduler::Quota quota_;
  scheduler::SharedLimit queued_requests_, queued_tokens_;
  scheduler::SharedLimit parked_;
  RequestId last_id_ = 0;
  std::uint64_t ends_pending_ = 0;  // streams whose sink has not heard its end
  std::vector<std::function<void()>> when_empty_;
  StreamCounts counts_;
  std::array<std::uint64_t, 256> ended_{};  // by scheduler::index_of()
};

}  // namespace troupe::actors
