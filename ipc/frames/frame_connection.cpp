#include "ipc/frames/frame_connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "ipc/refused_callers.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

// After this many frames of one connection the io thread runs the handlers of other connections.
constexpr int kFramesPerTurn = 8;

// A request that waits for its model is told so each time.
constexpr std::chrono::milliseconds kWaitingInterval{1000};

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// The refusal of a connection that exceeded a time limit; `field` names it.
Refusal timed_out(Outcome code, const char* field, std::string message, std::chrono::milliseconds timeout) {
  return {.outcome = code,
          .message = std::move(message),
          .field = field,
          .limit = static_cast<std::uint64_t>(timeout.count())};
}

Refusal stalled(const char* what, std::chrono::milliseconds timeout) {
  return timed_out(Outcome::quota, "stall_timeout", fmt::format("{} for {} ms (stall_timeout)", what, timeout.count()),
                   timeout);
}

}  // namespace

FrameConnection::FrameConnection(Hub& hub, Socket socket, Peer peer)
    : Connection(hub, local_caller(hub, peer, socket.native_handle()), std::move(socket)),
      decoder_(hub.options.limits.max_frame_bytes) {}

void FrameConnection::start() {
  spawn(read_loop());
  spawn(write_loop());
  hub_.arm_tick();
}

asio::awaitable<void> FrameConnection::read_loop() {
  const auto self = shared_from_this();
  asio::error_code error;
  while (!closing_) {
    co_await socket_.async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    // Reads no more of a large frame than its missing bytes: its buffer has exactly that much room.
    const std::size_t most = input_.bytes() > 0 ? decoder_.missing_bytes() : hub_.scratch.size();
    std::size_t size = 0;
    {
      const Doing doing(hub_.activity, "reads frames", "", active_for());
      size = socket_.read_some(asio::buffer(hub_.scratch, most), error);
      if (error == asio::error::would_block || error == asio::error::try_again) continue;
      if (error) break;  // end of stream: a client that has closed its side gets no more answers
      last_read_ = Clock::now();
      if (!decoder_.mid_frame()) frame_arrival_.begin(last_read_);
      decoder_.append(std::string_view(hub_.scratch.data(), size));
    }
    const bool frame_ended = co_await take_frames();
    if (const auto time = pace_.after_read(size, frame_ended); time.count() > 0 && !closing_) co_await wait(time);
  }
  if (!closing_) close();
}

std::optional<Refusal> FrameConnection::handle(Decoded&& decoded, std::size_t bytes) {
  const Doing doing(hub_.activity, "handles a frame", "", active_for());
  return on_frame(std::move(decoded), bytes);
}

asio::awaitable<bool> FrameConnection::take_frames() {
  int handled = 0;
  for (; !closing_; ++handled) {
    const auto body = decoder_.next();
    if (!body) {
      if (!welcomed_ && begins_http(decoder_.rest()))
        become_http();
      else
        co_await end_as_broken(too_long(body.error().message));
      co_return true;
    }
    if (!body->has_value()) break;
    if (handled > 0 && handled % kFramesPerTurn == 0)
      co_await asio::post(hub_.io, asio::use_awaitable);  // lets handlers of other connections run
    if (outbox_->is_half_full() || !user_->frames.take(Clock::now())) co_await wait_for_leave();
    if (closing_) co_return true;
    const std::size_t size = (*body)->size();
    Decoded decoded;
    if (size <= kMaxInlineFrameBytes)
      decoded = decode(**body);
    else
      decoded = co_await decode_elsewhere(**body);
    const bool is_request = decoded.kind != RequestKind::other;  // credits and cancels help to end requests
    if (is_request) co_await wait_after_refusals();
    if (closing_) co_return true;
    if (auto why = handle(std::move(decoded), size)) co_await end_as_broken(std::move(*why));
  }
  streams_.pass_on_granted();
  decoder_.drop_taken();
  if (handled > 0) input_.shrink_to(0);  // the large frame, if there was one, has been handled
  if (handled > 0) frame_arrival_.begin(Clock::now());
  if (decoder_.mid_frame()) hub_.arm_tick();
  if (const std::size_t bytes = decoder_.next_frame_bytes(); bytes > kSmallFrameBytes && input_.bytes() == 0) {
    const Clock::time_point begun = Clock::now();
    co_await wait_for_room(bytes);
    frame_arrival_.excuse(Clock::now() - begun);
    if (!closing_) decoder_.reserve_next_frame();
  }
  co_return handled > 0;
}

Refusal FrameConnection::too_long(const std::string& why) const {
  return {.outcome = Outcome::invalid_argument,
          .message = why,
          .field = "max_frame_bytes",
          .limit = hub_.options.limits.max_frame_bytes};
}

asio::awaitable<void> FrameConnection::end_as_broken(Refusal why) {
  co_await wait_after_refusals();
  if (closing_) co_return;
  tally_->refusals.refused(Clock::now());
  break_off(why);
}

void FrameConnection::become_http() {
  serve_http(hub_, caller_, std::move(socket_), std::string(decoder_.rest()));
  leave_socket();
}

asio::awaitable<Decoded> FrameConnection::decode_elsewhere(std::string_view body) {
  Decoded decoded;
  co_await elsewhere([&decoded, body] { decoded = decode(body); });
  co_return decoded;
}

void FrameConnection::encode(Outgoing&& item, std::string& bytes) {
  const std::uint64_t stream = item.stream;
  std::visit(Overloaded{
                 [&](actors::TokenRun& run) { encode_tokens(stream, std::move(run), bytes); },
                 [&](std::unique_ptr<actors::End>& end) { encode_end(stream, std::move(*end), bytes); },
                 [&](EncodedAnswer& answer) { encode_answer(stream, std::move(answer), bytes); },
                 [&](const actors::Admitted& admitted) { encode_admission(stream, admitted); },
                 [&](Silence) { encode_waiting(stream, bytes); },
             },
             item.body);
}

// Comes before the first token, with the model that answers. Its choices have one prompt.
void FrameConnection::encode_admission(std::uint64_t number, const actors::Admitted& admitted) {
  const auto found = tool_answers_.find(number);
  if (found == tool_answers_.end() || !found->second.choices.empty()) return;
  ToolAnswers& answers = found->second;
  const auto& model = admitted.model;
  if (!model || model->tool_format == nullptr) return;
  for (std::uint32_t choice = 0; choice < answers.num_choices; ++choice)
    answers.choices.emplace_back(CallReader(*model->tool_format, answers.tools, answers.id_seed, choice),
                                 engine::ContentFinder(model->reasoning, admitted.in_reasoning));
}

void FrameConnection::encode_tokens(std::uint64_t number, actors::TokenRun&& run, std::string& bytes) {
  if (!streams_.enter_tokens(number, run)) return;
  const auto answers = tool_answers_.find(number);
  if (answers == tool_answers_.end() || answers->second.choices.empty())
    return append_frame(bytes, to_frame(number, std::move(run)));
  std::vector<AnswerPiece> pieces = answers->second.choices.at(run.choice).push(run.text);
  for (const v1::ServerFrame& frame : to_frames(number, std::move(run), std::move(pieces))) append_frame(bytes, frame);
}

// What was held back of the text of an answer with tools, before its end.
void FrameConnection::encode_rest(std::uint64_t number, const actors::End& end, std::string& bytes) {
  const auto answers = tool_answers_.find(number);
  if (answers == tool_answers_.end() || answers->second.choices.empty()) return;
  actors::TokenRun rest;
  rest.choice = end.choice;
  rest.first_index = end.usage.completion_tokens;
  using enum scheduler::Outcome;
  const bool ends_itself =
      end.outcome == eos || end.outcome == stop_id || end.outcome == stop_string || end.outcome == tool_call;
  std::vector<AnswerPiece> pieces = answers->second.choices.at(end.choice).finish(!ends_itself);
  for (const v1::ServerFrame& frame : to_frames(number, std::move(rest), std::move(pieces))) append_frame(bytes, frame);
}

void FrameConnection::encode_waiting(std::uint64_t number, std::string& bytes) {
  if (const auto wait = load_wait(number)) append_frame(bytes, to_frame(number, *wait));
}

void FrameConnection::encode_end(std::uint64_t number, actors::End&& end, std::string& bytes) {
  const auto ended = streams_.enter_end(number, end);
  if (!ended) return;
  // The choices of a request are refused together: only the last refusal is sent.
  const bool is_refused = scheduler::info(end.outcome).kind == scheduler::OutcomeKind::refused;
  if (!is_refused) encode_rest(number, end, bytes);
  if (ended->is_last) tool_answers_.erase(number);
  if (!ended->is_last && is_refused) return;
  v1::ServerFrame frame = to_frame(number, std::move(end));
  if (const std::uint64_t size = frame.ByteSizeLong();
      frame.done().receipt().has_proof() && size > hub_.options.limits.max_frame_bytes) {
    frame.mutable_done()->mutable_receipt()->clear_proof();
    frame.mutable_done()->set_message(
        fmt::format("there is no proof: with it this frame has {} bytes, above the limit of "
                    "{} (max_frame_bytes)",
                    size, hub_.options.limits.max_frame_bytes));
  }
  append_frame(bytes, frame);
}

void FrameConnection::encode_answer(std::uint64_t number, EncodedAnswer&& answer, std::string& bytes) {
  if (number != 0 && !streams_.enter_answer(number, answer.outcome)) return;
  bytes += answer.frame;
}

// Before a Hello the client may yet speak HTTP. Welcome says the same in its health.
void FrameConnection::announce_draining() {
  if (!welcomed_) return;
  v1::ServerFrame frame;
  frame.mutable_draining()->set_message(scheduler::server_drains().message);
  outbox_->push({0, EncodedAnswer{to_bytes(frame)}});
}

std::optional<Refusal> FrameConnection::overdue(Clock::time_point now) {
  const std::chrono::milliseconds hello = hub_.options.limits.hello_timeout, stall = hub_.options.limits.stall_timeout,
                                  idle = hub_.options.limits.idle_timeout;
  if (!welcomed_ && now - accepted_at_ >= hello)
    return timed_out(Outcome::invalid_argument, "hello",
                     fmt::format("no Hello came within {} ms; it is the first frame of a connection", hello.count()),
                     hello);
  if (awaits_rest_of_frame() && now - last_read_ >= stall)
    return stalled("a frame was begun and nothing more came", stall);
  const std::chrono::milliseconds body = hub_.options.limits.body_timeout;
  if (awaits_rest_of_frame() && frame_arrival_.is_late(now, decoder_.rest().size(), body))
    return timed_out(Outcome::quota, "body_timeout",
                     fmt::format("a frame was not complete after {} ms (body_timeout) and 1 s for each {} bytes that "
                                 "had come; send it faster",
                                 body.count(), MessageArrival::kMinBodyRate),
                     body);
  if (idle.count() > 0 && welcomed_ && streams_.empty() && !decoding_ &&
      now - std::max(last_read_, streams_.last_end()) >= idle)
    return timed_out(
        Outcome::quota, "idle_timeout",
        fmt::format("nothing was asked for {} ms (idle_timeout); connect again when there is something to ask",
                    idle.count()),
        idle);
  return std::nullopt;
}

// Tells the streams that wait for their model how that is; returns whether there are any.
bool FrameConnection::tell_waiting(Clock::time_point now) {
  std::erase_if(next_waiting_, [&](const auto& each) { return !load_wait(each.first); });
  for (auto& [number, next] : next_waiting_) {
    if (now < next) continue;
    next = now + kWaitingInterval;
    if (outbox_->bytes() == 0) outbox_->push({number, Silence()});  // else the client does not read
  }
  return !next_waiting_.empty();
}

bool FrameConnection::watch(Clock::time_point now) {
  const bool any_without_credit = streams_.cancel_stalled(now);
  const bool any_waits = tell_waiting(now);
  return any_without_credit || any_waits || !welcomed_ || awaits_rest_of_frame() ||
         hub_.options.limits.idle_timeout.count() > 0;
}

std::optional<Refusal> FrameConnection::decide_tenant() {
  auto tenant = tenant_for(hub_.options.tenants, caller_.facts, acts_for_, "hello.tenant");
  if (Refusal* refusal = std::get_if<Refusal>(&tenant)) return std::move(*refusal);
  set_tenant(std::get<scheduler::Tenant>(std::move(tenant)));
  return std::nullopt;
}

std::string FrameConnection::last_words(const Refusal& refusal) {
  return to_bytes(to_frame(0, refusal, /*closing=*/true));
}

void FrameConnection::close_when_flushed() {
  if (closing_) return;
  for (const std::uint64_t number : streams_.questions())  // the process ends before their answers would come
    answer(number, scheduler::server_drains());
  if (!welcomed_)
    outbox_->close_with(
        {0, EncodedAnswer{
                LastWords(scheduler::server_drains()).in_protocol_of(socket_.native_handle(), decoder_.rest())}});
  close_after_writing();
}

}  // namespace troupe::ipc
