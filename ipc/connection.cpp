#include "ipc/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "config/printable.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

// A connection that waits for its client to read checks this often whether the client has hung up.
constexpr std::chrono::milliseconds kHangUpInterval{100};
// A connection that waits for room in max_buffer_bytes tries this often.
constexpr std::chrono::milliseconds kRoomInterval{5};
// Bytes of answers that are encoded and written at once.
constexpr std::uint64_t kBytesPerWrite = 64u << 10;
// How long a client may take to read the last bytes before its connection is closed.
constexpr std::chrono::milliseconds kGoodbyeTimeout{5000};
// The same at the end of a drain: the process is ended by force a few seconds later.
constexpr std::chrono::milliseconds kLastGoodbyeTimeout{2000};

}  // namespace

Caller local_caller(const Hub& hub, const Peer& peer, int fd) {
  return {.peer = peer, .facts = facts_of(peer, fd, hub.options.tenants)};
}

Caller tcp_caller(std::string address) {
  const std::uint32_t uid = ::geteuid();
  return {.peer = {.uid = uid, .gid = ::getegid(), .pid = 0},
          .facts = {.uid = uid},
          .address = std::move(address),
          .is_tcp = true,
          .is_known = false};
}

Caller named_tcp_caller(std::string address, std::optional<std::uint32_t> uid, std::vector<std::uint32_t> gids) {
  Caller caller = tcp_caller(std::move(address));
  caller.facts = {.uid = uid.value_or(0), .has_uid = uid.has_value(), .gids = std::move(gids)};
  if (!uid) return caller;
  caller.is_known = true;
  caller.peer.uid = *uid;
  if (!caller.facts.gids.empty()) caller.peer.gid = caller.facts.gids.front();
  return caller;
}

std::uint32_t user_of(const Caller& caller) { return caller.is_known ? caller.peer.uid : kTcpUser; }

bool comes_as_stranger(const Hub& hub, const Caller& caller) {
  const HttpOptions& http = hub.options.http;
  return caller.is_tcp && !caller.is_known && http.authenticator && (!http.kernel_names || caller.refused);
}

scheduler::Tenant first_tenant(const Hub& hub, const Caller& caller) {
  scheduler::Tenant tenant = tenant_of(hub.options.tenants, caller.facts);
  if (!caller.is_known) tenant.is_owner = false;
  // A name that no tenant has: what strangers are refused and leave unread is not counted for the server's own user.
  if (comes_as_stranger(hub, caller)) tenant.id = scheduler::named_tenant("without a key");
  return tenant;
}

Connection::Connection(Hub& hub, Caller caller, Socket&& socket)
    : hub_(hub),
      socket_(std::move(socket)),
      caller_(std::move(caller)),
      tenant_(first_tenant(hub, caller_)),
      tally_(hub.tally(tenant_.id)),
      user_(comes_as_stranger(hub, caller_) ? &hub.strangers : &hub.user(user_of(caller_))),
      outbox_(std::make_shared<Outbox>(hub.options.limits.max_outbox_bytes,
                                       std::make_unique<BufferShare>(hub.answers, tenant_),
                                       [this, &io = hub.io] {
                                         asio::post(io, [weak = weak_from_this()] {
                                           if (const auto self = weak.lock()) self->on_wake();
                                         });
                                       })),
      input_(hub.frames, tenant_),
      streams_(hub, caller_.peer.uid),
      wake_(hub.io, Clock::time_point::max()),
      goodbye_(hub.io),
      decoded_(hub.io, Clock::time_point::max()),
      leave_(hub.io) {}

void Connection::spawn(asio::awaitable<void> loop) {
  asio::co_spawn(hub_.io, std::move(loop), [self = shared_from_this()](const std::exception_ptr& exception) {
    if (!exception) return;
    spdlog::error("connection of {} ended: out of memory", self->peer_name());
    self->close();
  });
}

std::optional<actors::LoadWait> Connection::load_wait(std::uint64_t stream) const {
  const Streams::Stream* const found = streams_.find(stream);
  if (!found || found->choices.empty()) return std::nullopt;
  return hub_.gateway->wait_of(found->choices.front().request);
}

std::string Connection::peer_name() const {
  if (caller_.is_tcp) return caller_.is_known ? fmt::format("uid {} over TCP", caller_.peer.uid) : "a TCP client";
  return fmt::format("uid {} pid {}", caller_.peer.uid, caller_.peer.pid);
}

ActiveFor Connection::active_for() const {
  return {.uid = caller_.peer.uid, .pid = caller_.peer.pid, .is_known = !caller_.is_tcp || caller_.is_known};
}

asio::awaitable<void> Connection::wait_for_leave() {
  before_wait();
  held_back_ = true;
  while (!closing_ && outbox_is_full()) co_await wait(kHangUpInterval);  // write_loop() ends this wait
  while (!closing_ && !user_->frames.take(Clock::now())) {
    const std::chrono::duration<double> to_next(user_->frames.seconds_to_next(Clock::now()));
    co_await wait(std::max(kPaceInterval, std::chrono::ceil<std::chrono::milliseconds>(to_next)));
  }
  held_back_ = false;
  last_read_ = Clock::now();  // this wait must not count as a stall of the client
}

asio::awaitable<void> Connection::wait_after_refusals() {
  const Clock::time_point begin = Clock::now();
  // The end of the wait is fixed here: refusals on the tenant's other connections during it must not delay it further.
  const Clock::time_point until = begin + tally_->refusals.wait(begin);
  if (until == begin) co_return;
  before_wait();
  held_back_ = true;
  while (!closing_ && Clock::now() < until)
    co_await wait(std::max(kPaceInterval, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now())));
  held_back_ = false;
  last_read_ = Clock::now();  // this wait must not count as a stall of the client
}

// A user with unfinished large messages on many connections waits for its own share; other users have shares of theirs.
asio::awaitable<bool> Connection::wait_for_room(std::uint64_t bytes, std::optional<Clock::time_point> until) {
  held_back_ = true;
  bool has_room = false;
  while (!closing_ && !(has_room = input_.grow_to(bytes))) {  // polls until bytes are given back
    if (until && Clock::now() >= *until) break;
    co_await wait(kRoomInterval);
  }
  held_back_ = false;
  last_read_ = Clock::now();
  co_return has_room;
}

// Polls for a hang-up, because nothing is read meanwhile: otherwise all frames of a client that has hung up would still
// be handled, each after its wait.
asio::awaitable<void> Connection::wait(std::chrono::milliseconds time) {
  asio::error_code ignored;
  leave_.expires_after(time);
  co_await leave_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  if (!socket_.is_open()) co_return;
  pollfd entry{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&entry, 1, 0) > 0) close();
}

asio::awaitable<void> Connection::elsewhere(std::function<void()> work) {
  struct Job {
    std::shared_ptr<Connection> connection;  // owns what is worked on; must not be destroyed on the decoder thread
    std::function<void()> work;
    std::exception_ptr out_of_memory;
  };
  auto job = std::make_shared<Job>(Job{shared_from_this(), std::move(work), {}});
  decoding_ = true;
  asio::post(hub_.decoders, [job, &io = hub_.io]() mutable {
    try {
      job->work();
    } catch (...) {
      job->out_of_memory = std::current_exception();
    }
    asio::post(io, [job = std::move(job)] { job->connection->decoded_.cancel(); });
  });
  asio::error_code ignored;
  co_await decoded_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  decoding_ = false;
  last_read_ = Clock::now();
  if (job->out_of_memory) std::rethrow_exception(job->out_of_memory);
}

void Connection::on_wake() {
  if (outbox_->overflowed() && !closing_) {
    const bool of_all = outbox_->share_was_full();
    const std::uint64_t limit = of_all ? hub_.options.limits.max_buffer_bytes : hub_.options.limits.max_outbox_bytes;
    const std::string name = of_all ? "max_buffer_bytes" : "max_outbox_bytes";
    break_off(
        {.outcome = Outcome::quota,
         .message =
             of_all ? fmt::format("the answers that wait unread on this user's connections leave no room in the {} "
                                  "bytes of all ({}); read faster, or grant less credit",
                                  limit, name)
                    : fmt::format("more than {} bytes of answers wait unread ({}); read faster, or grant less credit",
                                  limit, name),
         .field = name,
         .limit = limit});
  }
  wake_.cancel();
}

asio::awaitable<void> Connection::write_loop() {
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
    {
      const Doing doing(hub_.activity, "writes an answer", "", active_for());
      for (Outgoing& item : batch) encode(std::move(item), bytes);
      end_batch(bytes);
    }
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
    written();
    if (held_back_ && !outbox_is_full()) leave_.cancel();
    streams_.pass_on_written();
  }
  if (socket_.is_open()) flushed();
}

bool Connection::tick(Clock::time_point now) {
  if (closing_) return false;  // goodbye_ closes the connection
  if (const auto refusal = overdue(now)) {
    break_off(*refusal);
    return false;
  }
  const std::chrono::milliseconds stall_timeout = hub_.options.limits.stall_timeout;
  if (write_progress_ && now - *write_progress_ >= stall_timeout) {
    note_broken(fmt::format("it read nothing for {} ms (stall_timeout)", stall_timeout.count()));
    close();
    return false;
  }
  const bool watches = watch(now);
  return watches || write_progress_;
}

void Connection::note_broken(const std::string& why) {
  ++hub_.connections_broken;
  hub_.warn(hub_.broken_lines, [&] {
    return fmt::format("connection of {} ended: {}", peer_name(), Printable(why, kMaxMessageBytes).text());
  });
}

void Connection::break_off(const Refusal& refusal) { break_off(refusal.message, last_words(refusal)); }

void Connection::break_off(const std::string& why, std::string last_bytes) {
  if (closing_) return;
  closing_ = true;
  note_broken(why);
  streams_.cancel_all();
  outbox_->close_with({0, EncodedAnswer{std::move(last_bytes)}});
  arm_goodbye(kGoodbyeTimeout);
}

void Connection::close_after_writing() {
  closing_ = true;
  arm_goodbye(kLastGoodbyeTimeout);
}

void Connection::arm_goodbye(std::chrono::milliseconds time) {
  wake_.cancel();
  leave_.cancel();
  goodbye_.expires_after(time);
  goodbye_.async_wait([weak = weak_from_this()](asio::error_code error) {
    const auto self = weak.lock();
    if (self && !error) self->close();
  });
}

void Connection::leave_socket() {
  closing_ = true;
  outbox_->close();
  wake_.cancel();
  hub_.forget(shared_from_this());
}

void Connection::close() {
  if (!socket_.is_open()) return;
  closing_ = true;
  streams_.cancel_all();
  outbox_->close();
  asio::error_code ignored;
  socket_.close(ignored);
  wake_.cancel();
  leave_.cancel();
  goodbye_.cancel();
  on_close();
  spdlog::debug("connection of {} closed", peer_name());
  hub_.forget(shared_from_this());
}

}  // namespace troupe::ipc
