#include "ipc/client/stream.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "ipc/client/conversions.h"

namespace troupe::client {
namespace {

// Servers ask for seconds; a much larger retry_after, or one that overflows, is a protocol error.
constexpr std::uint64_t kMaxRetryAfterMs = 3'600'000;
// A token has at most 4096 bytes; those that are no UTF-8 become characters of three.
constexpr std::uint64_t kMaxTokenBytes = 16u << 10;
constexpr std::uint64_t kMostTokens = std::numeric_limits<std::uint64_t>::max();

std::uint64_t text_bytes_of(const Tokens& tokens) {
  std::uint64_t bytes = tokens.text.size();
  for (const CallPart& part : tokens.calls) bytes += part.id.size() + part.name.size() + part.arguments.size();
  return bytes;
}

std::uint64_t text_bytes_of(const v1::Tokens& tokens) {
  std::uint64_t bytes = tokens.text().size();
  for (const v1::CallPart& part : tokens.calls())
    bytes += part.id().size() + part.name().size() + part.arguments().size();
  return bytes;
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) { return a > kMostTokens - b ? kMostTokens : a + b; }

}  // namespace

Error inside_callback() {
  return {ErrorCode::invalid_argument, "this call waits, and would wait for ever inside a callback of its client"};
}

void send_cancel(Connection& connection, std::uint64_t stream) {
  v1::ClientFrame frame;
  frame.mutable_cancel()->set_stream(stream);
  connection.tell(frame);
}

Error breach(Connection& connection, const std::string& how) {
  Error error{ErrorCode::protocol, "the server breaks the protocol: " + how};
  connection.break_off(error);
  return error;
}

bool Question::on_frame(v1::ServerFrame& frame) {
  answer_.set_value(frame.has_refused() ? Result<v1::ServerFrame>(to_error(frame.refused())) : std::move(frame));
  return true;
}

bool Reply::on_frame(v1::ServerFrame& frame) {
  Result<Ended> ended = Ended{};
  if (frame.has_refused() || frame.has_done() || frame.has_failed()) {
    ended = to_ended(frame);
  } else if (const std::string wrong = check_(frame); !wrong.empty()) {
    ended = breach(*connection_, wrong);
    frame.Clear();
  } else {
    ended->outcome = Outcome::eos;
    ended->usage.prompt_tokens = frame.has_embeddings() ? frame.embeddings().usage().prompt_tokens()
                                                        : static_cast<std::uint32_t>(frame.tokenized().ids_size());
  }
  on_end_(ended, frame);
  return true;
}

void Reply::on_lost(const Error& error) {
  v1::ServerFrame none;
  on_end_(error, none);
}

bool Ended::done() const { return scheduler::info(outcome).kind == scheduler::OutcomeKind::done; }

Stream::State::State(std::shared_ptr<Connection> stream_connection, std::uint64_t number, Callbacks stream_callbacks,
                     std::uint32_t num_choices, const Request& request)
    : connection(std::move(stream_connection)),
      id(number),
      callbacks(std::move(stream_callbacks)),
      automatic(!request.credit.has_value()),
      logprobs(request.logprobs.has_value()),
      tools(!request.tools.empty()),
      most(request.sampling.max_tokens.value_or(kMostTokens)),
      open(num_choices),
      choices(num_choices),
      granted(num_choices, request.credit.value_or(kCreditWindow)) {}

bool Stream::State::on_frame(v1::ServerFrame& frame) {
  if (frame.has_waiting() && callbacks.on_waiting) {
    callbacks.on_waiting(to_waiting(std::move(*frame.mutable_waiting())));
    return false;
  }
  if (const std::string wrong = what_is_wrong(frame); !wrong.empty()) {
    finish(breach(*connection, wrong));
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
  choice.text_bytes += text_bytes_of(tokens);
  for (const CallPart& part : tokens.calls) {
    if (!part.id.empty()) ++choice.num_calls;
    choice.is_within_call = !part.ends;
  }
  choice.since_grant += tokens.ids.size();
  if (callbacks.on_tokens) callbacks.on_tokens(tokens);
  if (automatic && choice.since_grant >= kCreditWindow / 2) grant(std::exchange(choice.since_grant, 0), tokens.choice);
  return false;
}

std::string Stream::State::what_is_wrong(const v1::ServerFrame& frame) {
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
  return frame.has_tokens() ? what_is_wrong(frame.tokens()) : "";
}

std::string Stream::State::what_is_wrong(const v1::Tokens& tokens) {
  const Choice& choice = choices[tokens.choice()];
  if (tokens.first_index() != choice.next_index)
    return fmt::format("it sends tokens of choice {} from {} on, and {} is next", tokens.choice(), tokens.first_index(),
                       choice.next_index);
  if (tokens.ids().empty() && tokens.text().empty() && tokens.calls().empty())
    return "it sends neither a token nor text of one";
  if (!tokens.calls().empty() && !tools) return "it sends calls of tools, and the request offers none";
  std::uint32_t num_calls = choice.num_calls;
  bool is_within_call = choice.is_within_call;
  for (const v1::CallPart& part : tokens.calls()) {
    const bool begins = !part.id().empty();
    if (begins != !part.name().empty() || begins == is_within_call || part.index() + (begins ? 0 : 1) != num_calls)
      return fmt::format("it sends a part of call {} that does not follow the part before it", part.index());
    num_calls += begins ? 1 : 0;
    is_within_call = !part.ends();
  }
  if (const int expected = logprobs ? tokens.ids_size() : 0; tokens.logprobs_size() != expected)
    return fmt::format("it sends logprobs of {} tokens, not of {}", tokens.logprobs_size(), expected);
  const std::uint64_t num_tokens = choice.next_index + static_cast<std::uint64_t>(tokens.ids_size());
  if (num_tokens > most) return fmt::format("it sends {} tokens of an answer of at most {}", num_tokens, most);
  if (const std::uint64_t bytes = choice.text_bytes + text_bytes_of(tokens); bytes > (num_tokens + 1) * kMaxTokenBytes)
    return fmt::format("it sends {} bytes of text for {} tokens", bytes, num_tokens);
  const std::lock_guard lock(mutex);
  if (num_tokens > granted[tokens.choice()])
    return fmt::format("it sends {} tokens with credit for {}", num_tokens, granted[tokens.choice()]);
  return "";
}

void Stream::State::grant(std::uint64_t tokens, std::uint32_t choice) {
  {
    const std::lock_guard lock(mutex);
    if (choice < granted.size()) granted[choice] = saturating_sum(granted[choice], tokens);
  }
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
