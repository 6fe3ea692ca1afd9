#include "ipc/client/stream.h"

#include <fmt/format.h>

#include <utility>

#include "ipc/client/conversions.h"

namespace troupe::client {
namespace {

// Servers ask for seconds; a much larger retry_after, or one that overflows, is a protocol error.
constexpr std::uint64_t kMaxRetryAfterMs = 3'600'000;

}  // namespace

Error inside_callback() {
  return {ErrorCode::invalid_argument, "this call waits, and would wait for ever inside a callback of its client"};
}

void send_cancel(Connection& connection, std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_cancel()->set_stream(stream);
  connection.tell(frame);
}

bool Question::on_frame(v1::ServerFrame& frame) {
  answer_.set_value(frame.has_refused() ? Result<v1::ServerFrame>(to_error(frame.refused())) : std::move(frame));
  return true;
}

bool Reply::on_frame(v1::ServerFrame& frame) {
  Result<Ended> ended = Ended{};
  if (frame.has_refused() || frame.has_done() || frame.has_failed()) {
    ended = to_ended(frame);
  } else if (frame.has_embeddings() || frame.has_tokenized()) {
    ended->outcome = Outcome::eos;
    ended->usage.prompt_tokens = frame.has_embeddings() ? frame.embeddings().usage().prompt_tokens()
                                                        : static_cast<std::uint32_t>(frame.tokenized().ids_size());
  } else {
    ended = Error{ErrorCode::protocol, "the server breaks the protocol: it answers with another message"};
  }
  on_end_(ended, frame);
  return true;
}

void Reply::on_lost(const Error& error) {
  v1::ServerFrame none;
  on_end_(error, none);
}

bool Ended::done() const { return scheduler::info(outcome).kind == scheduler::OutcomeKind::done; }

bool Stream::State::on_frame(v1::ServerFrame& frame) {
  if (const std::string wrong = what_is_wrong(frame); !wrong.empty()) {
    finish(Error{ErrorCode::protocol, "the server breaks the protocol: " + wrong});
    send_cancel(*connection, id);
    return true;
  }
  if (!frame.has_tokens()) {
    const bool is_last = frame.has_refused() || --open == 0;
    const Ended how = to_ended(frame);
    choices[how.choice].ended = true;
    if (is_last) {
      finish(how);
    } else if (callbacks.on_end) {
      callbacks.on_end(how);
    }
    return is_last;
  }
  Tokens tokens = to_tokens(*frame.mutable_tokens());
  tokens.received_at = connection->read_at();
  Choice& choice = choices[tokens.choice];
  choice.next_index += tokens.ids.size();
  choice.since_grant += tokens.ids.size();
  if (callbacks.on_tokens) callbacks.on_tokens(tokens);
  if (automatic && choice.since_grant >= kCreditWindow / 2) grant(std::exchange(choice.since_grant, 0), tokens.choice);
  return false;
}

std::string Stream::State::what_is_wrong(const v1::ServerFrame& frame) const {
  if (frame.has_refused()) {
    const std::uint64_t ms = frame.refused().retry_after_ms();
    return ms <= kMaxRetryAfterMs
               ? ""
               : fmt::format("it asks for another try after {} ms, at most {} are meant to be", ms, kMaxRetryAfterMs);
  }
  if (!frame.has_tokens() && !frame.has_done() && !frame.has_failed())
    return "it answers a request for tokens with another message";
  const std::uint32_t choice = frame.has_tokens() ? frame.tokens().choice()
                               : frame.has_done() ? frame.done().choice()
                                                  : frame.failed().choice();
  if (choice >= choices.size()) return fmt::format("it sends choice {} of a request for {}", choice, choices.size());
  if (choices[choice].ended) return fmt::format("it sends more of choice {}, which has ended", choice);
  if (frame.has_tokens() && frame.tokens().first_index() != choices[choice].next_index)
    return fmt::format("it sends tokens of choice {} from {} on, and {} is next", choice, frame.tokens().first_index(),
                       choices[choice].next_index);
  return "";
}

void Stream::State::grant(std::uint64_t tokens, std::uint32_t choice) {
  v1::ClientFrame frame;
  frame.mutable_credit()->set_stream(id);
  frame.mutable_credit()->set_tokens(tokens);
  frame.mutable_credit()->set_choice(choice);
  connection->tell(frame);
}

void Stream::State::finish(const Result<Ended>& result) {
  if (callbacks.on_end) callbacks.on_end(result);
  callbacks = {};  // destroys what they captured
  end.set_value(result);
}

Stream::Stream(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::uint64_t Stream::id() const { return state_->id; }

void Stream::cancel() const { send_cancel(*state_->connection, state_->id); }

void Stream::credit(std::uint64_t tokens, std::uint32_t choice) const { state_->grant(tokens, choice); }

Result<Ended> Stream::wait() const {
  if (state_->connection->on_reader()) return inside_callback();
  return state_->ended.get();
}

std::optional<Result<Ended>> Stream::wait_for(std::chrono::milliseconds timeout) const {
  if (state_->connection->on_reader()) return inside_callback();
  if (state_->ended.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return state_->ended.get();
}

}  // namespace troupe::client
