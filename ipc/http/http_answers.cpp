// The answers of an HTTP connection: what endpoints and the gateway give becomes bytes.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "config/assert.h"
#include "config/printable.h"
#include "ipc/frames/status_frame.h"
#include "ipc/http/http_connection.h"

namespace troupe::ipc::http {
namespace {

using scheduler::Outcome;

// After the last answer the client's bytes are read and dropped for so long: closing before it has sent them would
// destroy the answer on its way (RFC 9112, section 9.6).
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr std::size_t kMaxLoggedPath = 128;

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

Response response_of(const api::AnswerHead& head) {
  Response response{.status = head.status, .content_type = std::string(head.content_type)};
  add_retry_fields(response, head.retry_after, head.should_retry);
  return response;
}

// What an Outbox counts for an answer beside its bytes, and something over.
constexpr std::uint64_t kOutboxItemBytes = 512;

// An answer that an outbox of `most` bytes could never hold is an error in its place: it would end the connection.
EncodedAnswer to_answer(const Response& response, const Framing& framing, api::Dialect dialect, std::uint64_t most) {
  EncodedAnswer answer{response_bytes(response, framing), response.outcome};
  const std::uint64_t bytes = answer.frame.size() + kOutboxItemBytes;
  if (bytes <= most) return answer;
  const Response error = error_response(too_large_an_answer(bytes, most, "ask for less"), dialect, Outcome::too_long);
  return {response_bytes(error, framing), error.outcome};
}

// An answer that is complete.
Response whole_response(api::AnswerOutput&& output, Outcome outcome) {
  TROUPE_ASSERT(output.head && output.last);
  Response response = response_of(*output.head);
  response.body = std::move(output.bytes);
  response.outcome = outcome;
  return response;
}

// The sink of a request for vectors: its answer is written on the thread that ends it, as it may have megabytes.
class WholeAnswerSink final : public actors::StreamSink {
 public:
  WholeAnswerSink(Reply reply, std::unique_ptr<api::ApiAnswer> answer)
      : reply_(std::move(reply)), answer_(std::move(answer)) {}
  void admitted(const actors::Admitted& choice) override {
    if (choice.model) answer_->set_model(*choice.model);
  }
  void tokens(actors::TokenRun) override {}
  void end(actors::End end) override {
    const Outcome outcome = end.outcome;
    try {
      reply_(whole_response(answer_->on_end(std::move(end)), outcome));
    } catch (const std::bad_alloc&) {
      reply_(error_response(Refusal{.outcome = Outcome::out_of_memory, .message = "there was no memory to answer it"},
                            api::Dialect::openai));
    }
  }

 private:
  const Reply reply_;
  const std::unique_ptr<api::ApiAnswer> answer_;
};

}  // namespace

void HttpConnection::open_stream(std::uint64_t count) {
  TROUPE_ASSERT(answering_ && !answering_->opened);
  answering_->opened = true;
  hub_.count_received(*tally_, answering_->kind, count);
  Arrival arrival{
      .tenant = tenant_, .protocol = actors::Protocol::http, .client_id = answering_->id, .at = answering_->since};
  arrival.set_model(answering_->model);
  streams_.enter(answering_->number, answering_->kind, tally_, count, std::move(arrival)).held =
      std::move(answering_->held);
}

void HttpConnection::respond(Response response) { reply_later()(std::move(response)); }

Reply HttpConnection::reply_later() {
  if (!answering_->opened) open_stream(1);
  return [outbox = outbox_, number = answering_->number, framing = answering_->framing,
          dialect = answering_->dialect](const Response& response) {
    outbox->push({number, to_answer(response, framing, dialect, outbox->max_bytes())});
  };
}

void HttpConnection::cancel_with_client(actors::CancelFlag flag) {
  if (Streams::Stream* const stream = streams_.find(answering_->number)) stream->unwanted = std::move(flag);
}

void HttpConnection::submit(std::vector<actors::Request> requests, std::unique_ptr<api::ApiAnswer> answer) {
  for (actors::Request& each : requests) {
    each.client_id = answering_->id;
    each.has_place = answering_->has_place;
    // It counts from the request's arrival.
    if (each.deadline)
      each.deadline = std::max(*each.deadline - std::chrono::round<std::chrono::milliseconds>(answering_->waited),
                               std::chrono::milliseconds(0));
  }
  if (requests.front().embed) {
    TROUPE_ASSERT(requests.size() == 1);
    auto sink = std::make_shared<WholeAnswerSink>(reply_later(), std::move(answer));
    return streams_.submit(*streams_.find(answering_->number), std::move(requests.front()), std::move(sink));
  }
  std::uint32_t num_choices = 0;
  for (const actors::Request& each : requests) num_choices += each.num_choices;
  open_stream(num_choices);
  answering_->answer = std::move(answer);
  Streams::Stream& stream = *streams_.find(answering_->number);
  stream.implicit_credit = true;
  std::uint32_t first_choice = 0;
  for (actors::Request& each : requests) {
    const std::uint32_t first = std::exchange(first_choice, first_choice + each.num_choices);
    each.credit = kImplicitCredit;
    streams_.submit(stream, std::move(each),
                    std::make_shared<OutboxSink>(outbox_, answering_->number, first, /*notes_admission=*/true));
  }
  if (answering_->answer->streams()) watch_load();
}

// Of several prompts for one model, the first one's.
std::optional<actors::LoadWait> HttpConnection::load_wait() const {
  const Streams::Stream* const stream = streams_.find(answering_->number);
  if (!stream || stream->choices.empty()) return std::nullopt;
  return hub_.gateway->wait_of(stream->choices.front().request);
}

void HttpConnection::watch_load() {
  if (!load_wait()) return;
  answering_->silence.waits_for_load(Clock::now());
  arm_silence();
}

void HttpConnection::encode(Outgoing&& item, std::string& bytes) {
  const std::uint64_t number = item.stream;
  // A stream whose answer is complete goes on until all its choices have ended; nothing of it is sent any more.
  const bool is_current = answering_ && answering_->number == number && answering_->answer;
  std::visit(Overloaded{
                 [&](actors::TokenRun& run) {
                   if (streams_.enter_tokens(number, run) && is_current)
                     write(answering_->answer->on_tokens(std::move(run)), bytes);
                 },
                 [&](std::unique_ptr<actors::End>& end) {
                   const auto ended = streams_.enter_end(number, *end);
                   if (!ended || !is_current) return;
                   answering_->outcome = end->outcome;
                   // The head was sent while it waited: an error is one of the events then.
                   if (answering_->streams && !answering_->answer->has_begun())
                     write(answering_->answer->on_silence(), bytes);
                   write(answering_->answer->on_end(std::move(*end)), bytes);
                   TROUPE_ASSERT(!ended->is_last || !answering_ || answering_->number != number);
                 },
                 [&](EncodedAnswer& answer) {
                   if (number != 0 && !streams_.enter_answer(number, answer.outcome)) return;
                   bytes += answer.frame;
                   if (number == 0) return;
                   answering_->outcome = answer.outcome;
                   finish_answer();
                 },
                 [&](const actors::Admitted& admitted) {
                   if (is_current && streams_.contains(number)) on_admitted(admitted);
                 },
                 [&](Silence) {
                   if (is_current && streams_.contains(number)) write(answering_->answer->on_silence(), bytes);
                 },
             },
             item.body);
}

void HttpConnection::on_admitted(const actors::Admitted& admitted) {
  if (answering_->num_admitted == 0) {
    if (admitted.model) answering_->answer->set_model(*admitted.model);
    answering_->answer->set_drawing(admitted.temperature, admitted.top_p);
    if (admitted.in_reasoning) answering_->answer->set_reasoning_open();  // so are the other choices: one prompt
  }
  Streams::Stream& stream = *streams_.find(answering_->number);
  if (++answering_->num_admitted < stream.choices.size()) return;
  stream.held.encoded();
  if (!answering_->answer->streams()) return;
  answering_->silence.admitted(Clock::now());
  arm_silence();
}

void HttpConnection::arm_silence() {
  silence_timer_.expires_at(*answering_->silence.due());
  silence_timer_.async_wait([weak = weak_from_this()](asio::error_code error) {
    const auto self = std::static_pointer_cast<HttpConnection>(weak.lock());
    if (self && !error) self->on_silence();
  });
}

void HttpConnection::on_silence() {
  if (closing_ || !answering_ || !answering_->answer || !answering_->silence.due()) return;
  const Streams::Stream* const stream = streams_.find(answering_->number);
  if (stream && answering_->num_admitted < stream->choices.size()) {
    if (Clock::now() >= *answering_->silence.due()) {
      const auto wait = load_wait();
      if (!wait) return answering_->silence.loaded();
      if (outbox_->bytes() == 0 && !write_progress_)
        send_before_answer(api::waiting_event(to_text(*wait), answering_->dialect));
      answering_->silence.waits_for_load(Clock::now());
    }
    return arm_silence();
  }
  if (const Clock::time_point now = Clock::now(); now >= *answering_->silence.due()) {
    // While something is being written, the client does not hear silence; or it reads nothing at all.
    if (outbox_->bytes() == 0 && !write_progress_) outbox_->push({answering_->number, Silence()});
    answering_->silence.sent(now);
  }
  arm_silence();
}

void HttpConnection::end_silence_of_load() {
  const Clock::time_point now = Clock::now();
  answering_->silence.admitted(now);
  if (now < *answering_->silence.due()) return;
  answering_->silence.sent(now);
  if (outbox_->bytes() > 0) return;  // the client does not read
  send_before_answer(api::passed_over_event(answering_->dialect));
}

// Behind the head, which is sent now if it was not yet.
void HttpConnection::send_before_answer(std::string event) {
  std::string bytes;
  if (!std::exchange(answering_->streams, true)) {
    answering_->framing.keep_alive &= answering_->framing.is_http11;
    bytes = stream_head(response_of(api::stream_answer_head()), answering_->framing);
  }
  append_chunk(bytes, event, answering_->framing);
  outbox_->push({0, EncodedAnswer{std::move(bytes)}});
}

void HttpConnection::write(api::AnswerOutput&& output, std::string& bytes) {
  if (output.head || !output.bytes.empty()) answering_->silence.sent(Clock::now());
  // Where the head was sent while the model was loaded, no answer has another head: see encode().
  if (output.head && !(answering_->streams && output.head->streams)) {
    if (output.head->streams) {
      answering_->streams = true;
      answering_->framing.keep_alive &= answering_->framing.is_http11;  // else its end is that of the connection
      bytes += stream_head(response_of(*output.head), answering_->framing);
    } else {
      bytes += response_bytes(whole_response(std::move(output), Outcome::eos), answering_->framing);
    }
  }
  const bool is_last = output.last;
  if (answering_->streams) piece_ += output.bytes;
  if (!is_last) return;
  if (answering_->streams) {
    flush_piece(bytes);
    if (output.cut_off)
      answering_->framing.keep_alive = false;  // the end of the connection shows that the body has none
    else
      append_last_chunk(bytes, answering_->framing);
  }
  streams_.cancel(answering_->number);
  finish_answer();
}

void HttpConnection::flush_piece(std::string& bytes) {
  if (piece_.empty()) return;
  append_chunk(bytes, piece_, answering_->framing);
  piece_.clear();
}

void HttpConnection::finish_answer() {
  const bool keep_alive = answering_->framing.keep_alive;
  spdlog::debug("{}: {} ended as {} after {} ms, X-Request-Id {}", peer_name(),
                Printable(answering_->asked_for, kMaxLoggedPath).text(), scheduler::info(answering_->outcome).name,
                std::chrono::round<std::chrono::milliseconds>(Clock::now() - answering_->since).count(),
                answering_->id);
  answering_.reset();
  silence_timer_.cancel();
  if (!keep_alive) end_after_writing_ = true;
  event_.cancel();
}

void HttpConnection::written() {
  if (end_after_writing_ && !owes_answer()) closing_ = true;  // the write loop ends
}

void HttpConnection::end_after_writing() {
  end_after_writing_ = true;
  if (!owes_answer() && outbox_->bytes() == 0) close_after_writing();
}

void HttpConnection::flushed() {
  if (input_ended_ || !(must_linger_ || !pending_.empty())) return close();
  asio::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
  lingering_ = true;
  pending_ = std::string();
  resume_.cancel();
  arm_goodbye(kLingerTime);
}

void HttpConnection::on_close() {
  event_.cancel();
  resume_.cancel();
  silence_timer_.cancel();
  line_timer_.cancel();
}

void HttpConnection::close_when_flushed() {
  if (closing_) return;
  const Streams::Stream* const stream = answering_ ? streams_.find(answering_->number) : nullptr;
  if (answering_ && answering_->streams && !answering_->answer)  // its model has not been loaded
    outbox_->push({stream ? answering_->number : 0, EncodedAnswer{last_words(scheduler::server_drains())}});
  else if (stream && stream->choices.empty())  // the process ends before its answer would come
    outbox_->push({answering_->number,
                   EncodedAnswer{response_bytes(error_response(scheduler::server_drains(), answering_->dialect),
                                                answering_->framing),
                                 Outcome::draining}});
  must_linger_ = false;
  close_after_writing();
}

std::string HttpConnection::last_words(const Refusal& refusal) {
  if (!answering_) return {};
  must_linger_ = true;
  answering_->framing.keep_alive = false;
  const api::ApiError error = api::api_error(refusal);
  if (!answering_->streams) return response_bytes(error_response(error, answering_->dialect), answering_->framing);
  std::string bytes;  // the answer has no end, so that the client sees that it was cut off
  append_chunk(bytes, api::error_event(error, answering_->dialect), answering_->framing);
  return bytes;
}

std::optional<Refusal> HttpConnection::decide_tenant() {
  // A key decides for each request; the one that is being read keeps its tenant.
  if (caller_.is_tcp && hub_.options.http.authenticator && answering_) return std::nullopt;
  if (!caller_.facts.has_uid && !caller_.refused && !hub_.options.tenants.name_tcp()) return unnamed_over_tcp();
  set_tenant(first_tenant(hub_, caller_));
  return std::nullopt;
}

void HttpConnection::ask_status(std::function<void(v1::Status)> done) {
  hub_.ask_status([weak = weak_from_this(), done = std::move(done),
                   number = answering_->number](const actors::StatusSnapshot& snapshot) {
    const auto self = std::static_pointer_cast<HttpConnection>(weak.lock());
    if (!self || !self->streams_.contains(number)) return;
    v1::ServerFrame frame = status_frame(0, snapshot, {.tenant = self->tenant_});
    v1::Status& status = *frame.mutable_status();
    self->tenant_.is_owner ? self->hub_.add_counts(status) : self->tally_->add_counts(status);
    done(std::move(status));
  });
}

}  // namespace troupe::ipc::http
