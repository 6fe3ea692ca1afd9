// One connection: its frames, its streams, its limits. Lives on the server's io thread; only its outbox
// is touched by others.
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
#include <unordered_set>
#include <utility>
#include <vector>

#include "ipc/decode.h"
#include "ipc/framing.h"
#include "ipc/listening_socket.h"
#include "ipc/log_quota.h"
#include "ipc/outbox.h"
#include "ipc/server.h"
#include "ipc/wire.h"

namespace troupe::ipc {

using Clock = std::chrono::steady_clock;
using Socket = asio::local::stream_protocol::socket;

class Session;

// What the sessions of a server share. Io thread only, but for `io` itself.
struct Hub {
  explicit Hub(ServerOptions server_options);

  // Asks for a look at every session's deadlines soon. Nothing ticks while nobody asks, or once stopped:
  // a write that ends just before its connection is closed would keep the io thread for another tick.
  void arm_tick();
  void stop_ticking();
  void remember(const std::shared_ptr<Session>& session);
  void forget(const std::shared_ptr<Session>& session);
  // Takes the outboxes of all sessions out of "heap", and lists them.
  void add_outboxes(std::vector<actors::MemoryUse>& memory);
  // Logs a line, unless its kind had enough of them this second.
  void warn(LogQuota& kind, const std::string& line);

  asio::io_context io{1};
  asio::thread_pool decoders{1};  // of large frames; its jobs post back to io, and hold what they read
  ServerOptions options;
  actors::Gateway* gateway = nullptr;
  std::unordered_set<std::shared_ptr<Session>> sessions;
  std::unordered_map<std::uint32_t, std::uint32_t> connections_of;  // by uid, of `sessions`
  std::chrono::steady_clock::time_point
      empty_since;            // when the last of `sessions` went; meaningless while there are some
  std::vector<char> scratch;  // what any session reads into: an idle connection has no buffer of its own
  std::uint64_t connections_accepted = 0;
  std::uint64_t connections_refused = 0;
  std::uint64_t connections_broken = 0;
  std::uint64_t outbox_peak_bytes = 0;  // of all sessions together, as far as anybody asked
  LogQuota refused_lines;               // connections not accepted
  LogQuota broken_lines;                // connections ended by us
  std::function<void()> on_empty;       // set while draining: the last session has gone

 private:
  void tick();

  asio::steady_timer tick_timer_;
  bool tick_armed_ = false;
  bool stopped_ = false;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Hub& hub, Socket socket, Peer peer);

  void start();
  // Tells the client that the server stops.
  void announce_draining();
  // Sends what is queued, then closes.
  void close_when_flushed();
  // Cancels all streams, tells the client why, and closes once that is sent.
  void break_off(const Refusal& refusal);
  // Cancels all streams and closes, now. Idempotent.
  void close();
  // Looks at the deadlines; whether there is one to look at again.
  bool tick(Clock::time_point now);
  std::uint32_t uid() const { return peer_.uid; }
  bool is_admitted(const Guests& guests) { return admitted(peer_, socket_.native_handle(), guests); }
  std::size_t num_streams() const { return streams_.size(); }
  std::uint64_t outbox_bytes() const { return outbox_->bytes(); }

 private:
  // One of the answers to a request.
  struct Choice {
    actors::RequestId request = 0;
    std::uint64_t credit = 0;       // granted by the client and not used
    std::uint64_t to_credit = 0;    // of that, not yet told to the gateway
    Clock::time_point empty_since;  // when credit became 0
    bool stalled = false;           // cancelled by us for that
    bool cancelled = false;         // by whomever; its end is on the way
    bool ended = false;
  };
  // A request that has not been answered to its end.
  struct Stream {
    std::vector<Choice> choices;   // none: a question that one frame answers
    std::size_t num_open = 0;      // of them have not ended
    bool implicit_credit = false;  // granted by us as the socket takes the tokens
    actors::CancelFlag unwanted;   // of a question that computes for a while; else null
  };

  asio::awaitable<void> read_loop();
  asio::awaitable<void> write_loop();
  asio::awaitable<void> on_bytes(std::string_view bytes);
  asio::awaitable<Decoded> decode_elsewhere(std::string_view body);
  void on_wake();
  void encode(Outgoing&& item, std::string& bytes);
  void encode_tokens(std::uint64_t stream, actors::TokenRun&& run, std::string& bytes);
  void encode_end(std::uint64_t stream, actors::End&& end, std::string& bytes);
  void encode_answer(std::uint64_t stream, v1::ServerFrame&& frame, std::string& bytes);
  // Once per choice: a client may repeat itself faster than anybody can listen.
  void cancel_choice(Choice& choice) const;
  void cancel_stream(Stream& stream) const;
  void cancel_streams();
  // Tells the gateway, once per choice, what one read brought of credit.
  void pass_on_credit();
  void arm_goodbye();
  std::string ended_line(const std::string& why) const;  // for the log

  // session_requests.cpp: one per frame of the protocol.
  void on_frame(Decoded&& decoded, std::size_t bytes);
  void on_hello(const v1::Hello& hello);
  void on_request(v1::ClientFrame& frame);
  void on_generate(v1::Generate& generate);
  void on_cancel(const v1::Cancel& cancel);
  void on_credit(const v1::Credit& credit);
  void on_tokenize(v1::Tokenize& tokenize);
  void on_detokenize(const v1::Detokenize& detokenize);
  void on_embed(v1::Embed& embed);
  void on_status(const v1::StatusRequest& question);
  // Enters a new stream, or refuses (its number is 0, is in use, or there are too many) and returns null.
  Stream* open_stream(std::uint64_t stream);
  void refuse(std::uint64_t stream, const Refusal& refusal);
  void answer(std::uint64_t stream, v1::ServerFrame frame);
  bool refuse_unknown_model(std::uint64_t stream, const std::string& model);

  Hub& hub_;
  Socket socket_;
  const Peer peer_;
  const std::shared_ptr<Outbox> outbox_;
  asio::steady_timer wake_;     // never expires; cancelled when the outbox has something
  asio::steady_timer goodbye_;  // how long the last words may take
  asio::steady_timer decoded_;  // never expires; cancelled when a large frame has been decoded
  FrameDecoder decoder_;
  std::unordered_map<std::uint64_t, Stream> streams_;
  std::vector<std::pair<actors::RequestId, std::uint64_t>> to_grant_;  // once the write is through
  std::vector<std::uint64_t> credited_;  // streams with something to_credit, perhaps twice
  const Clock::time_point accepted_at_ = Clock::now();
  Clock::time_point last_read_ = Clock::now();
  Clock::time_point last_answer_ = Clock::now();     // the last end of a request
  std::optional<Clock::time_point> write_progress_;  // while a write is under way
  bool decoding_ = false;                            // a large frame, elsewhere
  bool welcomed_ = false;
  bool closing_ = false;
};

}  // namespace troupe::ipc
