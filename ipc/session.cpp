#include "ipc/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "config/printable.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

// After this many frames of one connection the io thread runs the handlers of other connections.
constexpr int kFramesPerTurn = 8;
// The shortest wait of a connection whose user sends too many frames: it then handles several frames at once, and
// passes their credit to the gateway in one call.
constexpr std::chrono::milliseconds kPaceInterval{10};
// A connection that waits for its client to read checks this often whether the client has hung up.
constexpr std::chrono::milliseconds kHangUpInterval{100};
// A connection that waits for room in max_buffer_bytes tries this often.
constexpr std::chrono::milliseconds kRoomInterval{5};
// Bytes of answers that are encoded and written at once.
constexpr std::uint64_t kBytesPerWrite = 64u << 10;
// How long a client may take to read the last frame before its connection is closed.
constexpr std::chrono::milliseconds kGoodbyeTimeout{5000};
// The same at the end of a drain: the process is ended by force a few seconds later.
constexpr std::chrono::milliseconds kLastGoodbyeTimeout{2000};

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// The refusal of a connection that exceeded a time limit; `field` names it.
Refusal timed_out(Outcome code, const char* field, std::string message, std::chrono::milliseconds timeout) {
  return {.code = code,
          .field = field,
          .message = std::move(message),
          .limit = static_cast<std::uint64_t>(timeout.count())};
}

Refusal stalled(const char* what, std::chrono::milliseconds timeout) {
  return timed_out(Outcome::quota, "stall_timeout", fmt::format("{} for {} ms (stall_timeout)", what, timeout.count()),
                   timeout);
}

}  // namespace

Session::Session(Hub& hub, Socket socket, Peer peer)
    : hub_(hub),
      socket_(std::move(socket)),
      peer_(peer),
      facts_(facts_of(peer, socket_.native_handle(), hub.options.tenants)),
      tenant_(tenant_of(hub.options.tenants, facts_)),
      tally_(hub.tally(tenant_.id)),
      user_(hub.user(peer.uid)),
      outbox_(std::make_shared<Outbox>(hub.options.max_outbox_bytes,
                                       std::make_unique<BufferShare>(hub.answers, tenant_),
                                       [this, &io = hub.io] {
                                         asio::post(io, [weak = weak_from_this()] {
                                           if (const auto self = weak.lock()) self->on_wake();
                                         });
                                       })),
      wake_(hub.io, Clock::time_point::max()),
      goodbye_(hub.io),
      decoded_(hub.io, Clock::time_point::max()),
      leave_(hub.io),
      decoder_(hub.options.max_frame_bytes),
      input_(hub.frames, tenant_) {}

void Session::start() {
  const auto on_exit = [self = shared_from_this()](const std::exception_ptr& exception) {
    // Only std::bad_alloc is thrown here; it ends this connection and no other.
    if (!exception) return;
    spdlog::error("connection of uid {} ended: out of memory", self->peer_.uid);
    self->close();
  };
  asio::co_spawn(hub_.io, read_loop(), on_exit);
  asio::co_spawn(hub_.io, write_loop(), on_exit);
  hub_.arm_tick();
}

asio::awaitable<void> Session::read_loop() {
  const auto self = shared_from_this();
  asio::error_code error;
  while (!closing_) {
    co_await socket_.async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (error) break;
    // Reads no more of a large frame than its missing bytes: its buffer has exactly that much room.
    const std::size_t most = input_.bytes() > 0 ? decoder_.missing_bytes() : hub_.scratch.size();
    const std::size_t size = socket_.read_some(asio::buffer(hub_.scratch, most), error);
    if (error == asio::error::would_block || error == asio::error::try_again) continue;
    if (error) break;  // end of stream: a client that has closed its side gets no more answers
    last_read_ = Clock::now();
    decoder_.append(std::string_view(hub_.scratch.data(), size));
    const bool frame_ended = co_await take_frames();
    if (const auto time = pace_.after_read(size, frame_ended); time.count() > 0 && !closing_) co_await wait(time);
  }
  if (!closing_) close();
}

asio::awaitable<bool> Session::take_frames() {
  int handled = 0;
  for (; !closing_; ++handled) {
    const auto body = decoder_.next();
    if (!body) {
      refuse_length(body.error().message);
      co_return true;
    }
    if (!body->has_value()) break;
    if (handled > 0 && handled % kFramesPerTurn == 0)
      co_await asio::post(hub_.io, asio::use_awaitable);  // lets handlers of other connections run
    if (outbox_->is_half_full() || !user_.frames.take(Clock::now())) co_await wait_for_leave();
    if (closing_) co_return true;
    const std::size_t size = (*body)->size();
    Decoded decoded;
    if (size <= kMaxInlineFrameBytes)
      decoded = decode(**body);
    else
      decoded = co_await decode_elsewhere(**body);
    const bool is_request = decoded.kind != RequestKind::other;  // credits and cancels help to end requests
    if (is_request && tally_->refusals.wait(Clock::now()).count() > 0) co_await wait_after_refusals();
    if (!closing_) on_frame(std::move(decoded), size);
  }
  pass_on_credit();
  decoder_.drop_taken();
  if (handled > 0) input_.shrink_to(0);  // the large frame, if there was one, has been handled
  if (decoder_.mid_frame()) hub_.arm_tick();
  co_await wait_for_room();
  co_return handled > 0;
}

void Session::refuse_length(const std::string& why) {
  if (!welcomed_ && begins_http(decoder_.rest())) return break_off(why, http_refusal(decoder_.rest()));
  break_off({.code = Outcome::invalid_argument,
             .field = "max_frame_bytes",
             .message = why,
             .limit = hub_.options.max_frame_bytes});
}

// A user with unfinished large frames on many connections waits for its own share; other users have shares of theirs.
asio::awaitable<void> Session::wait_for_room() {
  const std::size_t bytes = decoder_.next_frame_bytes();
  if (bytes <= kSmallFrameBytes || input_.bytes() > 0) co_return;
  held_back_ = true;
  while (!closing_ && !input_.grow_to(bytes)) co_await wait(kRoomInterval);  // polls until bytes are given back
  held_back_ = false;
  if (!closing_) decoder_.reserve_next_frame();
  last_read_ = Clock::now();
}

asio::awaitable<void> Session::wait_for_leave() {
  pass_on_credit();
  held_back_ = true;
  while (!closing_ && outbox_->is_half_full()) co_await wait(kHangUpInterval);  // write_loop() ends this wait
  while (!closing_ && !user_.frames.take(Clock::now()))
    co_await wait(std::max(kPaceInterval, user_.frames.time_to_next(Clock::now())));
  held_back_ = false;
  last_read_ = Clock::now();  // this wait must not count as a stall of the client
}

asio::awaitable<void> Session::wait_after_refusals() {
  pass_on_credit();
  held_back_ = true;
  // Until the time that is right now: refusals on the tenant's other connections meanwhile must not delay it further.
  const Clock::time_point until = Clock::now() + tally_->refusals.wait(Clock::now());
  while (!closing_ && Clock::now() < until)
    co_await wait(std::max(kPaceInterval, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now())));
  held_back_ = false;
  last_read_ = Clock::now();  // this wait must not count as a stall of the client
}

// Polls for a hang-up, because nothing is read meanwhile: otherwise all frames of a client that has hung up would still
// be handled, each after its wait.
asio::awaitable<void> Session::wait(std::chrono::milliseconds time) {
  asio::error_code ignored;
  leave_.expires_after(time);
  co_await leave_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (!socket_.is_open()) co_return;
  pollfd entry{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&entry, 1, 0) > 0) close();
}

// Decodes on the decoder thread, so that other connections need not wait. The view `body` stays valid, because this
// connection reads nothing meanwhile.
asio::awaitable<Decoded> Session::decode_elsewhere(std::string_view body) {
  struct Job {
    std::shared_ptr<Session> session;  // owns the buffer of `body`; must not be destroyed on the decoder thread
    std::string_view body;
    Decoded decoded;
    std::exception_ptr out_of_memory;
  };
  auto job = std::make_shared<Job>(Job{shared_from_this(), body, {}, {}});  // not const: its copy is moved from below
  decoding_ = true;
  asio::post(hub_.decoders, [job, &io = hub_.io]() mutable {
    try {
      job->decoded = decode(job->body);
    } catch (...) {
      job->out_of_memory = std::current_exception();
    }
    asio::post(io, [job = std::move(job)] { job->session->decoded_.cancel(); });
  });
  asio::error_code ignored;
  co_await decoded_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  decoding_ = false;
  last_read_ = Clock::now();
  if (job->out_of_memory) std::rethrow_exception(job->out_of_memory);
  co_return std::move(job->decoded);
}

void Session::on_wake() {
  if (outbox_->overflowed() && !closing_) {
    const bool of_all = outbox_->share_was_full();
    const std::uint64_t limit = of_all ? hub_.options.max_buffer_bytes : hub_.options.max_outbox_bytes;
    const std::string name = of_all ? "max_buffer_bytes" : "max_outbox_bytes";
    break_off(
        {.code = Outcome::quota,
         .field = name,
         .message =
             of_all ? fmt::format("the answers that wait unread on this user's connections leave no room in the {} "
                                  "bytes of all ({}); read faster, or grant less credit",
                                  limit, name)
                    : fmt::format("more than {} bytes of answers wait unread ({}); read faster, or grant less credit",
                                  limit, name),
         .limit = limit});
  }
  wake_.cancel();
}

asio::awaitable<void> Session::write_loop() {
  const auto self = shared_from_this();
  asio::error_code error;
  std::string bytes;
  while (socket_.is_open()) {
    std::vector<Outgoing> batch = outbox_->take(kBytesPerWrite);
    if (batch.empty()) {
      if (closing_) break;
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    for (Outgoing& item : batch) encode(std::move(item), bytes);
    batch.clear();
    for (std::size_t sent = 0; sent < bytes.size();) {
      write_progress_ = Clock::now();
      hub_.arm_tick();
      const auto rest = asio::buffer(bytes.data() + sent, bytes.size() - sent);
      sent += co_await socket_.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
      if (error) {
        close();
        co_return;
      }
    }
    write_progress_.reset();
    bytes = std::string();  // frees the buffer, which may be as large as the largest frame
    outbox_->written();
    if (held_back_ && !outbox_->is_half_full()) leave_.cancel();
    for (const auto& [request, tokens] : std::exchange(to_grant_, {})) hub_.gateway->credit(request, tokens);
  }
  close();
}

void Session::encode(Outgoing&& item, std::string& bytes) {
  const std::uint64_t stream = item.stream;
  std::visit(Overloaded{
                 [&](actors::TokenRun& run) { encode_tokens(stream, std::move(run), bytes); },
                 [&](std::unique_ptr<actors::End>& end) { encode_end(stream, std::move(*end), bytes); },
                 [&](Answer& answer) { encode_answer(stream, std::move(answer), bytes); },
             },
             item.body);
}

void Session::encode_tokens(std::uint64_t number, actors::TokenRun&& run, std::string& bytes) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return;
  Choice& choice = found->second.choices.at(run.choice);
  const std::uint64_t count = run.ids.size();
  if (found->second.implicit_credit) {
    to_grant_.emplace_back(choice.request, count);
  } else {
    choice.credit -= std::min(choice.credit, count);
    if (choice.credit == 0) {
      choice.empty_since = Clock::now();
      hub_.arm_tick();
    }
  }
  append_frame(bytes, to_frame(number, std::move(run)));
}

void Session::encode_end(std::uint64_t number, actors::End&& end, std::string& bytes) {
  const auto found = streams_.find(number);
  if (found == streams_.end()) return;
  Stream& stream = found->second;
  Choice& choice = stream.choices.at(end.choice);
  choice.ended = true;
  const bool is_last = --stream.num_open == 0;
  if (choice.stalled && end.outcome == Outcome::cancelled)
    end.message = stalled("no credit was granted", hub_.options.stall_timeout).message;
  else if (choice.cancelled_by && end.outcome == Outcome::cancelled)
    end.message = fmt::format("uid {} asked for it with CancelRequest", *choice.cancelled_by);
  const RequestKind kind = stream.kind;
  const std::shared_ptr<Tally> tally = stream.tally;
  if (is_last) streams_.erase(found);  // before the client can see the end and reuse the number
  last_answer_ = Clock::now();
  count_ended(*tally, kind, end.outcome);
  tally->tokens.prompt += end.usage.prompt_tokens;
  tally->tokens.cached += end.usage.cached_tokens;
  tally->tokens.generated += end.usage.completion_tokens;
  // The choices of a request are refused together: only the last refusal is sent.
  if (!is_last && scheduler::info(end.outcome).kind == scheduler::OutcomeKind::refused) return;
  append_frame(bytes, to_frame(number, std::move(end)));
}

void Session::encode_answer(std::uint64_t number, Answer&& answer, std::string& bytes) {
  if (number != 0) {
    const auto found = streams_.find(number);
    if (found == streams_.end()) return;
    const Stream& stream = found->second;
    count_ended(*stream.tally, stream.kind, answer.outcome, stream.count);
    streams_.erase(found);
  }
  last_answer_ = Clock::now();
  bytes += answer.frame;
}

void Session::announce_draining() {
  v1::ServerFrame frame;
  frame.mutable_draining()->set_message("the server is stopping; running requests are finished");
  outbox_->push({0, Answer{to_bytes(frame)}});
}

std::optional<Refusal> Session::overdue(Clock::time_point now) const {
  const std::chrono::milliseconds hello = hub_.options.hello_timeout, stall = hub_.options.stall_timeout,
                                  idle = hub_.options.idle_timeout;
  if (!welcomed_ && now - accepted_at_ >= hello)
    return timed_out(Outcome::invalid_argument, "hello",
                     fmt::format("no Hello came within {} ms; it is the first frame of a connection", hello.count()),
                     hello);
  if (awaits_rest_of_frame() && now - last_read_ >= stall)
    return stalled("a frame was begun and nothing more came", stall);
  if (idle.count() > 0 && welcomed_ && streams_.empty() && !decoding_ &&
      now - std::max(last_read_, last_answer_) >= idle)
    return timed_out(
        Outcome::quota, "idle_timeout",
        fmt::format("nothing was asked for {} ms (idle_timeout); connect again when there is something to ask",
                    idle.count()),
        idle);
  return std::nullopt;
}

bool Session::tick(Clock::time_point now) {
  if (closing_) return false;  // goodbye_ closes the connection
  if (const auto refusal = overdue(now)) {
    break_off(*refusal);
    return false;
  }
  const std::chrono::milliseconds stall_timeout = hub_.options.stall_timeout;
  if (write_progress_ && now - *write_progress_ >= stall_timeout) {
    hub_.warn(hub_.broken_lines, [&] {
      return ended_line(fmt::format("it read nothing for {} ms (stall_timeout)", stall_timeout.count()));
    });
    ++hub_.connections_broken;
    close();
    return false;
  }
  bool again = !welcomed_ || awaits_rest_of_frame() || hub_.options.idle_timeout.count() > 0 || write_progress_;
  for (auto& [number, stream] : streams_) {
    if (stream.implicit_credit) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || choice.credit > 0 || choice.stalled) continue;
      if (now - choice.empty_since >= stall_timeout) {
        choice.stalled = true;
        cancel_choice(choice);
      }
      again = true;
    }
  }
  return again;
}

std::string Session::ended_line(const std::string& why) const {
  return fmt::format("connection of uid {} pid {} ended: {}", peer_.uid, peer_.pid, why);
}

void Session::break_off(const Refusal& refusal) {
  break_off(refusal.message, to_bytes(to_frame(0, refusal, /*closing=*/true)));
}

void Session::break_off(const std::string& why, std::string last_bytes) {
  if (closing_) return;
  closing_ = true;
  ++hub_.connections_broken;
  hub_.warn(hub_.broken_lines, [&] { return ended_line(Printable(why, kMaxMessageBytes).text()); });
  cancel_streams();
  outbox_->close_with({0, Answer{std::move(last_bytes)}});
  arm_goodbye(kGoodbyeTimeout);
}

void Session::close_when_flushed() {
  if (closing_) return;
  for (const auto& [number, stream] : streams_)
    if (stream.choices.empty()) answer(number, server_drains());  // the process ends before its answer would come
  closing_ = true;
  if (!welcomed_) outbox_->close_with({0, Answer{to_bytes(to_frame(0, server_drains(), /*closing=*/true))}});
  arm_goodbye(kLastGoodbyeTimeout);
}

void Session::arm_goodbye(std::chrono::milliseconds time) {
  wake_.cancel();
  leave_.cancel();
  goodbye_.expires_after(time);
  goodbye_.async_wait([weak = weak_from_this()](asio::error_code error) {
    const auto self = weak.lock();
    if (self && !error) self->close();
  });
}

void Session::cancel_choice(Choice& choice) const {
  if (!choice.ended && !std::exchange(choice.cancelled, true)) hub_.gateway->cancel(choice.request);
}

void Session::cancel_stream(Stream& stream) const {
  for (Choice& choice : stream.choices) cancel_choice(choice);
  if (stream.unwanted) *stream.unwanted = true;
}

void Session::add_requests(OwnRequests& own, TenantId tenant, bool is_asking) const {
  for (const auto& [number, stream] : streams_) {
    if (stream.tally->tenant != tenant) continue;
    for (const Choice& choice : stream.choices)
      if (!choice.ended) own[choice.request] = {.number = choice.own_number, .stream = is_asking ? number : 0};
  }
}

bool Session::cancel_request(std::uint64_t number, const scheduler::Tenant& by, std::uint32_t by_uid) {
  for (auto& [id, stream] : streams_) {
    if (!by.is_owner && stream.tally->tenant != by.id) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || number != (by.is_owner ? choice.request : choice.own_number)) continue;
      choice.cancelled_by = by_uid;
      cancel_choice(choice);
      return true;
    }
  }
  return false;
}

void Session::cancel_streams() {
  for (auto& [number, stream] : streams_) {
    cancel_stream(stream);
    count_ended(*stream.tally, stream.kind, Outcome::cancelled,
                stream.choices.empty() ? stream.count : stream.num_open);
  }
  streams_.clear();
}

void Session::count_received(RequestKind kind, std::uint64_t count) {
  hub_.counts.received(kind, count);
  tally_->counts.received(kind, count);
}

void Session::count_ended(Tally& tally, RequestKind kind, Outcome outcome, std::uint64_t count) {
  hub_.counts.ended(kind, outcome, count);
  tally.counts.ended(kind, outcome, count);
  if (scheduler::info(outcome).kind == scheduler::OutcomeKind::refused) tally.refusals.refused(Clock::now());
}

void Session::close() {
  if (!socket_.is_open()) return;
  closing_ = true;
  cancel_streams();
  outbox_->close();
  asio::error_code ignored;
  socket_.close(ignored);
  wake_.cancel();
  leave_.cancel();
  goodbye_.cancel();
  spdlog::debug("connection of uid {} pid {} closed", peer_.uid, peer_.pid);
  hub_.forget(shared_from_this());
}

}  // namespace troupe::ipc
