// One connection: its frames, its streams, its limits. Used by the server's io thread only, except for its outbox.
#pragma once

#include <asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ipc/frames/decode.h"
#include "ipc/frames/framing.h"
#include "ipc/frames/wire.h"
#include "ipc/hub.h"
#include "ipc/listening_socket.h"
#include "ipc/outbox.h"
#include "ipc/peer_facts.h"
#include "ipc/rate_limits.h"

namespace troupe::ipc {

using Socket = asio::local::stream_protocol::socket;

// The tenant of a peer, by the rules and with what owners may.
[[nodiscard]] scheduler::Tenant tenant_of(const TenantRules& rules, const PeerFacts& peer);
// The same for a client that acts for the tenant `label` (TenantRules::find(); empty: it does not), or why it may not.
// No such client is an owner.
[[nodiscard]] std::variant<scheduler::Tenant, Refusal> tenant_for(const TenantRules& rules, const PeerFacts& peer,
                                                                  const std::string& label);

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Hub& hub, Socket socket, Peer peer);

  void start();
  // Sends Draining.
  void announce_draining();
  // Sends what is queued, refuses (draining) unanswered questions and a Hello that has not come; then closes.
  void close_when_flushed();
  // Cancels all streams, sends `refusal`, then closes.
  void break_off(const Refusal& refusal);
  // Cancels all streams and closes, now. Idempotent.
  void close();
  // Checks the timeouts; returns whether any is still running.
  bool tick(Clock::time_point now);
  std::uint32_t uid() const { return peer_.uid; }
  User& user() const { return user_; }
  bool is_admitted(const Guests& guests) { return admitted(peer_, socket_.native_handle(), guests); }
  std::size_t num_streams() const { return streams_.size(); }
  // Decides the tenant of the next requests by the rules as they are now. Ends the connection if it acts for a tenant
  // and may not any more.
  void take_rules();
  // The tenant's requests for tokens that have not ended.
  void add_requests(OwnRequests& own, TenantId tenant, bool is_asking) const;
  // Cancels one of them at the request of user `by_uid` of that tenant, on any connection: an owner names its id, a
  // guest its number among the tenant's own. Returns whether there is such a request.
  bool cancel_request(std::uint64_t number, const scheduler::Tenant& by, std::uint32_t by_uid);
  std::uint64_t outbox_bytes() const { return outbox_->bytes(); }

 private:
  // One of the answers to a request.
  struct Choice {
    actors::RequestId request = 0;
    std::uint64_t own_number = 0;                 // among the tenant's requests
    std::uint64_t credit = 0;                     // granted by the client and not used
    std::uint64_t to_credit = 0;                  // of that, not yet told to the gateway
    Clock::time_point empty_since;                // when credit became 0
    bool stalled = false;                         // cancelled by this session, because credit was 0 for too long
    bool cancelled = false;                       // its end is on the way
    std::optional<std::uint32_t> cancelled_by{};  // the uid that asked for it with CancelRequest
    bool ended = false;
  };
  // A request that is not fully answered.
  struct Stream {
    std::shared_ptr<Tally> tally;  // of the tenant that it came for
    RequestKind kind = RequestKind::other;
    std::uint64_t count = 1;       // of requests, as RequestCounts counts them
    std::vector<Choice> choices;   // empty: not a request of the gateway's stream table
    std::size_t num_open = 0;      // choices that have not ended
    bool implicit_credit = false;  // the session grants credit as tokens are written to the socket
    actors::CancelFlag unwanted;   // for Tokenize and Detokenize; else null
  };

  asio::awaitable<void> read_loop();
  asio::awaitable<void> write_loop();
  // Handles the complete frames; returns whether there was one.
  asio::awaitable<bool> take_frames();
  // Ends the connection for a frame above the limit, or for HTTP.
  void refuse_length(const std::string& why);
  // Waits while answers fill half of the outbox, or the user has sent as many frames as the rate allows.
  asio::awaitable<void> wait_for_leave();
  // Waits as long as the tenant's RefusalPace says.
  asio::awaitable<void> wait_after_refusals();
  // If the next frame is a large one, waits until max_buffer_bytes has room for it.
  asio::awaitable<void> wait_for_room();
  // Waits for `time`, or until leave_ is cancelled; then closes the connection if the client has hung up.
  asio::awaitable<void> wait(std::chrono::milliseconds time);
  asio::awaitable<Decoded> decode_elsewhere(std::string_view body);
  void on_wake();
  void encode(Outgoing&& item, std::string& bytes);
  void encode_tokens(std::uint64_t stream, actors::TokenRun&& run, std::string& bytes);
  void encode_end(std::uint64_t stream, actors::End&& end, std::string& bytes);
  void encode_answer(std::uint64_t stream, Answer&& answer, std::string& bytes);
  // Sends a cancel to the gateway once per choice: a client could repeat Cancel faster than actors handle it.
  void cancel_choice(Choice& choice) const;
  void cancel_stream(Stream& stream) const;
  void cancel_streams();
  void count_received(RequestKind kind, std::uint64_t count = 1);
  void count_ended(Tally& tally, RequestKind kind, scheduler::Outcome outcome, std::uint64_t count = 1);
  // Passes the credit that one read brought to the gateway, in one call per choice.
  void pass_on_credit();
  // The same with the bytes that say it to the client; `why` is for the log.
  void break_off(const std::string& why, std::string last_bytes);
  // Whether the client has to send the rest of a frame; false while the session itself does not read.
  bool awaits_rest_of_frame() const { return decoder_.mid_frame() && !decoding_ && !held_back_; }
  // Why the connection ends now, if a timeout of the client has passed.
  std::optional<Refusal> overdue(Clock::time_point now) const;
  void arm_goodbye(std::chrono::milliseconds time);
  std::string ended_line(const std::string& why) const;  // for the log

  // session_tenant.cpp: why the client may not act for the tenant that it names, if it may not; else tenant_ is
  // decided.
  std::optional<Refusal> decide_tenant();

  // session_requests.cpp: one function per kind of frame.
  void on_frame(Decoded&& decoded, std::size_t bytes);
  void on_hello(const v1::Hello& hello);
  void on_request(v1::ClientFrame& frame, std::uint64_t count);
  void on_generate(v1::Generate& generate, std::uint64_t count);
  void on_cancel(const v1::Cancel& cancel);
  void on_credit(const v1::Credit& credit);
  void on_tokenize(v1::Tokenize& tokenize);
  void on_detokenize(const v1::Detokenize& detokenize);
  void on_embed(v1::Embed& embed);
  void on_status(const v1::StatusRequest& question);
  void on_usage(const v1::UsageRequest& question);
  void on_cancel_request(const v1::CancelRequest& cancel);
  void on_session_request(const v1::SessionRequest& asked);
  void on_models(std::uint64_t stream);
  void on_health(std::uint64_t stream);
  // Submits the request of an open stream.
  void submit(Stream& stream, actors::Request request, std::shared_ptr<actors::StreamSink> sink);
  void answer_status(const v1::StatusRequest& question, const actors::StatusSnapshot& status);
  // Enters a new stream for `count` requests, or refuses (its number is 0, is in use, or there are too many) and
  // returns null.
  Stream* open_stream(std::uint64_t stream, RequestKind kind, std::uint64_t count = 1);
  // As open_stream(), for Health, Models and Status; also refuses those above the user's max_questions_per_second.
  Stream* open_control(std::uint64_t stream, RequestKind kind);
  // Answers a request that has no stream.
  void refuse(std::uint64_t stream, RequestKind kind, const Refusal& refusal, std::uint64_t count = 1);
  // Answers the request of an open stream.
  void answer(std::uint64_t stream, const v1::ServerFrame& frame);
  void answer(std::uint64_t stream, const Refusal& refusal);

  Hub& hub_;
  Socket socket_;
  const Peer peer_;
  PeerFacts facts_;
  std::string acts_for_;  // the tenant that Hello names; empty: none
  // Of the next requests. Those that came before keep theirs, and the connection's buffers are always counted for the
  // one at its begin.
  scheduler::Tenant tenant_;
  std::shared_ptr<Tally> tally_;  // of tenant_; not null
  User& user_;
  const std::shared_ptr<Outbox> outbox_;
  asio::steady_timer wake_;     // never expires; cancelled when the outbox has something
  asio::steady_timer goodbye_;  // closes the connection if the last frames are not sent in time
  asio::steady_timer decoded_;  // never expires; cancelled when a large frame has been decoded
  asio::steady_timer leave_;    // the timer of wait()
  FrameDecoder decoder_;
  ReadPace pace_;
  BufferShare input_;  // of a large frame, from its header until it is handled
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::vector<std::pair<actors::RequestId, std::uint64_t>> to_grant_;  // credit to pass on when the write has ended
  std::vector<std::uint64_t> credited_;  // streams with a choice whose to_credit is not 0; may have duplicates
  const Clock::time_point accepted_at_ = Clock::now();
  Clock::time_point last_read_ = Clock::now();
  Clock::time_point last_answer_ = Clock::now();     // the last end of a request
  std::optional<Clock::time_point> write_progress_;  // last progress of the running write; none: no write is running
  bool decoding_ = false;                            // a large frame is being decoded on the decoder thread
  bool held_back_ = false;                           // in wait_for_leave(), wait_after_refusals() or wait_for_room()
  bool welcomed_ = false;
  bool closing_ = false;
};

}  // namespace troupe::ipc
