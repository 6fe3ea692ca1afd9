// The requests of a connection that are not fully answered: their choices, credit and cancellation, and what is counted
// of them. Used by the io thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ipc/hub.h"

namespace troupe::ipc {

class Streams {
 public:
  // One of the answers to a request.
  struct Choice {
    actors::RequestId request = 0;
    std::uint64_t own_number = 0;                 // among the tenant's requests
    std::uint64_t credit = 0;                     // granted by the client and not used
    std::uint64_t to_credit = 0;                  // of that, not yet told to the gateway
    Clock::time_point empty_since;                // when credit became 0
    bool stalled = false;                         // cancelled by cancel_stalled()
    bool cancelled = false;                       // its end is on the way
    std::optional<std::uint32_t> cancelled_by{};  // the uid that asked for it with CancelRequest
    bool ended = false;
  };
  // A request that is not fully answered.
  struct Stream {
    std::shared_ptr<Tally> tally;         // of the tenant that it came for
    scheduler::RequestLine::Held held{};  // of the tally's line
    Arrival arrival;
    RequestKind kind = RequestKind::other;
    std::uint64_t count = 1;       // of requests, as RequestCounts counts them
    std::vector<Choice> choices;   // empty: not a request of the gateway's stream table
    std::size_t num_open = 0;      // choices that have not ended
    bool implicit_credit = false;  // granted as tokens are written to the socket; else by the client
    actors::CancelFlag unwanted;   // for Tokenize and Detokenize; else null
  };

  // uid: of the connection. The hub outlives this.
  Streams(Hub& hub, std::uint32_t uid) : hub_(hub), uid_(uid) {}

  bool empty() const { return streams_.empty(); }
  std::size_t size() const { return streams_.size(); }
  bool contains(std::uint64_t number) const { return streams_.contains(number); }
  // Null: there is none. Valid until the stream has ended.
  Stream* find(std::uint64_t number);
  const Stream* find(std::uint64_t number) const;
  // Those without choices: questions, texts.
  std::vector<std::uint64_t> questions() const;
  // When the last one ended, or the connection began.
  Clock::time_point last_end() const { return last_end_; }

  // Enters a request, whose number is not in use.
  Stream& enter(std::uint64_t number, RequestKind kind, std::shared_ptr<Tally> tally, std::uint64_t count,
                Arrival arrival = {});
  // Submits a request of a stream: its choices follow those that the stream has.
  void submit(Stream& stream, actors::Request request, std::shared_ptr<actors::StreamSink> sink);

  // What the outbox says of a stream, entered before the client can see it. Null, nullopt, false: there is no such
  // stream any more, and nothing is to be sent.
  Stream* enter_tokens(std::uint64_t number, const actors::TokenRun& run);
  struct EndedChoice {
    bool is_last = false;
  };
  std::optional<EndedChoice> enter_end(std::uint64_t number, actors::End& end);
  bool enter_answer(std::uint64_t number, scheduler::Outcome outcome);

  // Credit that the client grants a choice. The gateway gets it with pass_on_granted(), in one call per choice.
  void grant(std::uint64_t number, std::uint32_t choice, std::uint64_t tokens);
  void pass_on_granted();
  // The implicit credit of what enter_tokens() was told: after it was written.
  void pass_on_written();
  // Cancels the choices whose client has granted nothing for stall_timeout; returns whether any is without credit.
  bool cancel_stalled(Clock::time_point now);

  // A cancel goes to the gateway once per choice: a client could repeat it faster than actors handle it.
  void cancel(std::uint64_t number);
  void cancel_all();  // and forgets them

  // The tenant's requests for tokens that have not ended.
  void add_requests(OwnRequests& own, TenantId tenant, bool is_asking) const;
  // Cancels one of them at the request of user `by_uid` of that tenant, on any connection: an owner names its id, a
  // guest its number among the tenant's own. Returns whether there is such a request.
  bool cancel_request(std::uint64_t number, const scheduler::Tenant& by, std::uint32_t by_uid);

 private:
  void cancel(Choice& choice) const;
  void cancel(Stream& stream) const;

  Hub& hub_;
  const std::uint32_t uid_;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::vector<std::uint64_t> granted_;  // streams with a choice whose to_credit is not 0; may have duplicates
  std::vector<std::pair<actors::RequestId, std::uint64_t>> written_;  // implicit credit to pass on
  Clock::time_point last_end_ = Clock::now();
};

}  // namespace troupe::ipc
