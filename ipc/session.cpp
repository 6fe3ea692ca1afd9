#include "ipc/session.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "config/printable.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

constexpr std::size_t kReadBytes = 64u << 10;
// How long a client that is being sent away may take to read why.
constexpr std::chrono::milliseconds kGoodbyeTimeout{5000};

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

Refusal stalled(const std::string& what, std::chrono::milliseconds timeout) {
  return {.code = Outcome::quota,
          .field = "stall_timeout",
          .message = what + " for " + std::to_string(timeout.count()) + " ms (stall_timeout)",
          .limit = static_cast<std::uint64_t>(timeout.count()),
          .retry_after = {}};
}

}  // namespace

Hub::Hub(ServerOptions server_options) : options(std::move(server_options)), scratch(kReadBytes), tick_timer_(io) {}

void Hub::remember(const std::shared_ptr<Session>& session) {
  if (sessions.insert(session).second) ++connections_of[session->uid()];
}

void Hub::add_outboxes(std::vector<actors::MemoryUse>& memory) {
  std::uint64_t bytes = 0;
  for (const auto& session : sessions) bytes += session->outbox_bytes();
  outbox_peak_bytes = std::max(outbox_peak_bytes, bytes);
  for (actors::MemoryUse& use : memory) {
    if (use.kind == "heap") use.bytes -= std::min(use.bytes, bytes);
  }
  memory.push_back({.kind = "outboxes", .bytes = bytes, .peak_bytes = outbox_peak_bytes});
}

void Hub::forget(const std::shared_ptr<Session>& session) {
  if (sessions.erase(session) == 0) return;
  const auto count = connections_of.find(session->uid());
  if (--count->second == 0) connections_of.erase(count);
  if (sessions.empty()) empty_since = Clock::now();
  if (sessions.empty() && on_empty) std::exchange(on_empty, nullptr)();
}

void Hub::warn(LogQuota& kind, const std::string& line) {
  const auto left_out = kind.take(Clock::now());
  if (!left_out) return;
  if (*left_out > 0) spdlog::warn("{} lines like the next were left out", *left_out);
  spdlog::warn("{}", line);
}

void Hub::arm_tick() {
  if (stopped_ || std::exchange(tick_armed_, true)) return;
  using std::chrono::milliseconds;
  milliseconds shortest = std::min(options.hello_timeout, options.stall_timeout);
  if (options.idle_timeout.count() > 0) shortest = std::min(shortest, options.idle_timeout);
  tick_timer_.expires_after(std::clamp(shortest / 4, milliseconds(5), milliseconds(1000)));
  tick_timer_.async_wait([this](asio::error_code error) {
    tick_armed_ = false;
    if (!error) tick();
  });
}

void Hub::stop_ticking() {
  stopped_ = true;
  tick_timer_.cancel();
}

void Hub::tick() {
  const Clock::time_point now = Clock::now();
  const std::vector<std::shared_ptr<Session>> all(sessions.begin(), sessions.end());  // a tick may close some
  bool again = false;
  for (const std::shared_ptr<Session>& session : all) again |= session->tick(now);
  if (again) arm_tick();
}

Session::Session(Hub& hub, Socket socket, Peer peer)
    : hub_(hub),
      socket_(std::move(socket)),
      peer_(peer),
      outbox_(std::make_shared<Outbox>(hub.options.max_outbox_bytes,
                                       [this, &io = hub.io] {
                                         asio::post(io, [weak = weak_from_this()] {
                                           if (const auto self = weak.lock()) self->on_wake();
                                         });
                                       })),
      wake_(hub.io, Clock::time_point::max()),
      goodbye_(hub.io),
      decoded_(hub.io, Clock::time_point::max()),
      decoder_(hub.options.max_frame_bytes) {}

void Session::start() {
  const auto on_exit = [self = shared_from_this()](const std::exception_ptr& exception) {
    // Only the lack of memory throws here; it costs this connection and nobody else's.
    if (exception) spdlog::error("connection of uid {} ended: out of memory", self->peer_.uid);
    if (exception) self->close();
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
    const std::size_t size = socket_.read_some(asio::buffer(hub_.scratch), error);
    if (error == asio::error::would_block || error == asio::error::try_again) continue;
    if (error) break;  // the end: a client that has gone, or has closed its half, wants no more answers
    co_await on_bytes(std::string_view(hub_.scratch.data(), size));
  }
  if (!closing_) close();
}

// bytes: gone at the first co_await; the decoder has its own.
asio::awaitable<void> Session::on_bytes(std::string_view bytes) {
  last_read_ = Clock::now();
  decoder_.append(bytes);
  while (!closing_) {
    const auto body = decoder_.next();
    if (!body) {
      break_off({.code = Outcome::invalid_argument,
                 .field = "max_frame_bytes",
                 .message = body.error().message,
                 .limit = hub_.options.max_frame_bytes,
                 .retry_after = {}});
      co_return;
    }
    if (!body->has_value()) break;
    const std::size_t size = (*body)->size();
    if (size <= kMaxInlineFrameBytes) {
      on_frame(decode(**body), size);
      continue;
    }
    Decoded decoded = co_await decode_elsewhere(**body);
    if (!closing_) on_frame(std::move(decoded), size);
  }
  pass_on_credit();
  if (decoder_.mid_frame()) hub_.arm_tick();
}

// The frames of this connection wait, and those of others do not. The view stays good: nothing is read meanwhile.
asio::awaitable<Decoded> Session::decode_elsewhere(std::string_view body) {
  struct Job {
    std::shared_ptr<Session> session;  // whose buffer is read; never let go on the other thread
    std::string_view body;
    Decoded decoded;
    std::exception_ptr out_of_memory;
  };
  auto job = std::make_shared<Job>(Job{shared_from_this(), body, {}, {}});  // not const: the copy below moves on
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
  if (outbox_->overflowed() && !closing_)
    break_off({.code = Outcome::quota,
               .field = "max_outbox_bytes",
               .message = "more than " + std::to_string(hub_.options.max_outbox_bytes) +
                          " bytes of answers wait unread (max_outbox_bytes); read faster, or grant less credit",
               .limit = hub_.options.max_outbox_bytes,
               .retry_after = {}});
  wake_.cancel();
}

asio::awaitable<void> Session::write_loop() {
  const auto self = shared_from_this();
  asio::error_code error;
  std::string bytes;
  while (socket_.is_open()) {
    std::vector<Outgoing> batch = outbox_->take();
    if (batch.empty()) {
      if (closing_) break;
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    bytes.clear();
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
    outbox_->written();
    for (const auto& [request, tokens] : std::exchange(to_grant_, {})) hub_.gateway->credit(request, tokens);
  }
  close();
}

void Session::encode(Outgoing&& item, std::string& bytes) {
  const std::uint64_t stream = item.stream;
  std::visit(Overloaded{
                 [&](actors::TokenRun& run) { encode_tokens(stream, std::move(run), bytes); },
                 [&](actors::End& end) { encode_end(stream, std::move(end), bytes); },
                 [&](v1::ServerFrame& frame) { encode_answer(stream, std::move(frame), bytes); },
                 [&](actors::StatusSnapshot& snapshot) {
                   hub_.add_outboxes(snapshot.memory);
                   v1::ServerFrame frame = to_frame(stream, std::move(snapshot));
                   v1::Status& status = *frame.mutable_status();
                   status.set_connections(static_cast<std::uint32_t>(hub_.sessions.size()));
                   std::size_t streams = 0;
                   for (const auto& session : hub_.sessions) streams += session->num_streams();
                   status.set_streams(static_cast<std::uint32_t>(streams));
                   status.set_connections_accepted(hub_.connections_accepted);
                   status.set_connections_refused(hub_.connections_refused);
                   status.set_connections_broken(hub_.connections_broken);
                   status.set_server(server_name());
                   encode_answer(stream, std::move(frame), bytes);
                 },
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
  if (is_last) streams_.erase(found);  // before the client can see the end and use the number again
  last_answer_ = Clock::now();
  // The choices of a request are refused together: one answer says it.
  if (!is_last && scheduler::info(end.outcome).kind == scheduler::OutcomeKind::refused) return;
  append_frame(bytes, to_frame(number, std::move(end)));
}

void Session::encode_answer(std::uint64_t number, v1::ServerFrame&& frame, std::string& bytes) {
  if (number != 0 && streams_.erase(number) == 0) return;
  last_answer_ = Clock::now();
  const std::size_t size = frame.ByteSizeLong();
  if (size <= hub_.options.max_frame_bytes) return append_frame(bytes, frame);
  append_frame(bytes,
               to_frame(number, {.code = Outcome::too_long,
                                 .field = "max_frame_bytes",
                                 .message = "the answer has " + std::to_string(size) + " bytes, above the limit of " +
                                            std::to_string(hub_.options.max_frame_bytes) +
                                            " (max_frame_bytes); ask in smaller pieces",
                                 .limit = hub_.options.max_frame_bytes,
                                 .retry_after = {}}));
}

void Session::announce_draining() {
  v1::ServerFrame frame;
  frame.mutable_draining()->set_message("the server is stopping; running requests are finished");
  outbox_->push({0, std::move(frame)});
}

bool Session::tick(Clock::time_point now) {
  if (closing_) return false;  // the goodbye has a timer of its own
  const ServerOptions& options = hub_.options;
  bool again = false;
  if (!welcomed_) {
    if (now - accepted_at_ >= options.hello_timeout) {
      break_off({.code = Outcome::invalid_argument,
                 .field = "hello",
                 .message = "no Hello came within " + std::to_string(options.hello_timeout.count()) +
                            " ms; it is the first frame of a connection",
                 .limit = static_cast<std::uint64_t>(options.hello_timeout.count()),
                 .retry_after = {}});
      return false;
    }
    again = true;
  }
  if (decoder_.mid_frame() && !decoding_) {
    if (now - last_read_ >= options.stall_timeout) {
      break_off(stalled("a frame was begun and nothing more came", options.stall_timeout));
      return false;
    }
    again = true;
  }
  if (options.idle_timeout.count() > 0) {
    if (welcomed_ && streams_.empty() && !decoding_ &&
        now - std::max(last_read_, last_answer_) >= options.idle_timeout) {
      break_off({.code = Outcome::quota,
                 .field = "idle_timeout",
                 .message = "nothing was asked for " + std::to_string(options.idle_timeout.count()) +
                            " ms (idle_timeout); connect again when there is something to ask",
                 .limit = static_cast<std::uint64_t>(options.idle_timeout.count()),
                 .retry_after = {}});
      return false;
    }
    again = true;
  }
  if (write_progress_) {
    if (now - *write_progress_ >= options.stall_timeout) {
      hub_.warn(hub_.broken_lines, ended_line("it read nothing for " + std::to_string(options.stall_timeout.count()) +
                                              " ms (stall_timeout)"));
      ++hub_.connections_broken;
      close();
      return false;
    }
    again = true;
  }
  for (auto& [number, stream] : streams_) {
    if (stream.implicit_credit) continue;
    for (Choice& choice : stream.choices) {
      if (choice.ended || choice.credit > 0 || choice.stalled) continue;
      if (now - choice.empty_since >= options.stall_timeout) {
        choice.stalled = true;
        cancel_choice(choice);
      }
      again = true;
    }
  }
  return again;
}

std::string Session::ended_line(const std::string& why) const {
  return "connection of uid " + std::to_string(peer_.uid) + " pid " + std::to_string(peer_.pid) + " ended: " + why;
}

void Session::break_off(const Refusal& refusal) {
  if (closing_) return;
  closing_ = true;
  ++hub_.connections_broken;
  hub_.warn(hub_.broken_lines, ended_line(printable(refusal.message)));
  cancel_streams();
  outbox_->close_with({0, to_frame(0, refusal, /*closing=*/true)});
  arm_goodbye();
}

void Session::close_when_flushed() {
  if (closing_) return;
  closing_ = true;
  arm_goodbye();
}

void Session::arm_goodbye() {
  wake_.cancel();
  goodbye_.expires_after(kGoodbyeTimeout);
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

void Session::cancel_streams() {
  for (auto& [number, stream] : streams_) cancel_stream(stream);
  streams_.clear();
}

void Session::close() {
  if (!socket_.is_open()) return;
  closing_ = true;
  cancel_streams();
  outbox_->close();
  asio::error_code ignored;
  socket_.close(ignored);
  wake_.cancel();
  goodbye_.cancel();
  spdlog::debug("connection of uid {} pid {} closed", peer_.uid, peer_.pid);
  hub_.forget(shared_from_this());
}

}  // namespace troupe::ipc
