// A connection that speaks HTTP/1.1, on the Unix socket or over TCP. docs/api.md has the endpoints.
//
// Requests are read and answered one after the other; what a client sends ahead waits in a bounded buffer and in the
// socket. A client that closes its sending side has gone: requests for tokens are cancelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/connection.h"
#include "ipc/http/api/stream_silence.h"
#include "ipc/http/exchange.h"
#include "ipc/http/request_reader.h"
#include "ipc/http/response.h"

namespace troupe::ipc::http {

class HttpConnection final : public Connection, private Exchange {
 public:
  // received: what the client has sent so far.
  HttpConnection(Hub& hub, Caller caller, Socket&& socket, std::string received);

  void start() override;
  void announce_draining() override {}  // each answer says that it is the connection's last
  std::optional<Clock::time_point> idle_since() override;
  Stranger stranger() override;
  bool has_unread() override;
  void close_when_flushed() override;

 private:
  // The request that is being answered.
  struct Answering {
    Answering(std::uint64_t stream, const api::SilenceLimits& limits) : number(stream), silence(limits) {}

    std::uint64_t number;  // of its stream
    Framing framing;
    api::Dialect dialect = api::Dialect::openai;
    RequestKind kind = RequestKind::other;
    std::string id{};         // its X-Request-Id
    std::string model{};      // that it asks for, once it is read
    std::string asked_for{};  // method and path, for the log
    const Clock::time_point since = Clock::now();
    scheduler::Outcome outcome = scheduler::Outcome::eos;  // for the log: of the last part
    bool opened = false;                                   // it has a stream, and was counted
    std::unique_ptr<api::ApiAnswer> answer;                // of a request for the gateway
    bool streams = false;                                  // the head of an answer in pieces has been written, or waits
    api::StreamSilence silence;                            // of an answer in pieces
    std::size_t num_admitted = 0;                          // choices
    Clock::duration waited{};                              // in wait_in_line()
    bool has_place = false;                                // Request::has_place
    scheduler::RequestLine::Held held;                     // until it has a stream, which takes it over
  };

  // Reads bytes and keeps them for serve_loop().
  asio::awaitable<void> read_loop();
  // Takes requests from the bytes and answers them.
  asio::awaitable<void> serve_loop();
  // Feeds the reader with what has come. False: more must come first.
  bool push_pending();
  // A head is complete: decides whether its body is to be read.
  asio::awaitable<void> on_head();
  // Whether a request of a client that the rules refuse is looked at all the same.
  bool may_come_by_key(const RequestHead& head) const;
  // Whether the request's key decides for which tenant it counts.
  bool needs_key(const RequestHead& head) const;
  asio::awaitable<void> wait_for_tenant(std::optional<api::ApiError>& refused);
  // The request is complete: begins to answer, and waits for the end of the answer.
  asio::awaitable<void> on_request();
  asio::awaitable<void> make_room_for_body();
  asio::awaitable<void> wait_until_loaded(std::string model, bool streams);
  // Until the gateway has room for the request beside others of its tenant.
  asio::awaitable<void> wait_in_line(const Asked& asked, std::size_t body_bytes);
  // The same of an answer in pieces that waits for its model: the head, then what clients pass over.
  void end_silence_of_load();
  // Waits until bytes have come, an answer has ended, or the connection closes.
  asio::awaitable<void> something();
  void on_end_of_input(bool is_broken);
  // Chooses the endpoint; nullopt and endpoint_ set: go on. Else the answer at once.
  std::optional<Response> choose_endpoint(const RequestHead& head);
  // Answers a request whose body is not read, and ends the connection if there is one.
  void reject(Response response);
  // Answers bytes that are no request, and ends the connection.
  asio::awaitable<void> fail_reading();
  void begin_answering(const RequestHead& head);
  void begin_answering();  // to what is no request
  void open_stream(std::uint64_t count);
  void write(api::AnswerOutput&& output, std::string& bytes);
  void flush_piece(std::string& bytes);
  void finish_answer();
  void on_admitted(const actors::Admitted& admitted);
  // An answer in pieces whose request waits for its model to be loaded says how that stands.
  void watch_load();
  void send_before_answer(std::string event);
  // For the time when an answer in pieces has been silent for too long.
  void arm_silence();
  void on_silence();
  bool owes_answer() const { return answering_ && answering_->opened; }
  // The answer is still to come from the gateway's stream table.
  bool awaits_gateway() const;
  // Ends the connection once what is owed has been written.
  void end_after_writing();

  // Connection
  std::optional<Refusal> overdue(Clock::time_point) override { return std::nullopt; }
  bool watch(Clock::time_point now) override;
  std::string last_words(const Refusal& refusal) override;
  void encode(Outgoing&& item, std::string& bytes) override;
  void end_batch(std::string& bytes) override { flush_piece(bytes); }
  void written() override;
  void flushed() override;
  void on_close() override;
  std::optional<Refusal> decide_tenant() override;

  // Exchange
  const scheduler::Tenant& tenant() const override { return tenant_; }
  const ServerOptions& options() const override { return hub_.options; }
  actors::Gateway& gateway() const override { return *hub_.gateway; }
  bool is_draining() const override { return hub_.draining; }
  void ask_status(std::function<void(v1::Status)> done) override;
  void respond(Response response) override;
  Reply reply_later() override;
  void cancel_with_client(actors::CancelFlag flag) override;
  void submit(std::vector<actors::Request> requests, std::unique_ptr<api::ApiAnswer> answer) override;

  const std::string peer_;  // over TCP: guessing_peer()
  RequestReader reader_;
  std::string pending_;        // bytes that the reader has not used; empty while nothing is sent ahead
  asio::steady_timer event_;   // never expires; cancelled for something()
  asio::steady_timer resume_;  // the timer of read_loop()
  asio::steady_timer silence_timer_;
  asio::steady_timer line_timer_;  // of wait_in_line()
  const api::EndpointInfo* endpoint_ = nullptr;
  std::uint64_t number_ = 0;  // of the last request
  std::optional<Answering> answering_;
  std::string piece_;                            // of an answer in pieces, to be written as one chunk
  Clock::time_point head_since_ = Clock::now();  // when the current head began, or the connection became idle
  // The last time when enough of a body had come, and how much there was then.
  Clock::time_point body_mark_{};
  std::size_t body_then_ = 0;
  MessageArrival body_arrival_;
  bool key_is_checked_ = false;  // the request that is being answered waits for it
  bool in_line_ = false;         // the request that is being answered is in wait_in_line()
  bool request_ended_ = false;   // since the last read
  bool input_ended_ = false;     // the client has closed its sending side
  bool end_after_writing_ = false;
  bool must_linger_ = false;  // the client may still be sending what is not read
  bool lingering_ = false;    // the answer is sent and our side is closed: what comes is dropped
};

}  // namespace troupe::ipc::http
