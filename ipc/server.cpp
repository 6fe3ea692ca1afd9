#include "ipc/server.h"

#include <google/protobuf/stubs/logging.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <asio.hpp>

#include <atomic>
#include <limits>
#include <thread>
#include <utility>

#include "config/assert.h"
#include "ipc/listening_socket.h"
#include "ipc/session.h"
#include "ipc/socket_path.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;
using Acceptor = asio::local::stream_protocol::acceptor;

Status out_of_range(const std::string& name, const std::string& range) {
  return Error{ErrorCode::invalid_argument, name + " is out of range; it must be " + range};
}

Status check(const ServerOptions& options) {
  if (options.max_connections == 0) return out_of_range("max_connections", "at least 1");
  if (options.max_connections_per_uid == 0) return out_of_range("max_connections_per_uid", "at least 1");
  if (options.max_streams == 0) return out_of_range("max_streams", "at least 1");
  if (options.max_frame_bytes < 1024 || options.max_frame_bytes > kMaxFrameBytesCeiling)
    return out_of_range("max_frame_bytes", "from 1024 to 16777216 (16 MiB)");
  if (options.max_outbox_bytes < 4096) return out_of_range("max_outbox_bytes", "at least 4096");
  if (options.hello_timeout.count() <= 0) return out_of_range("hello_timeout", "above 0");
  if (options.stall_timeout.count() <= 0) return out_of_range("stall_timeout", "above 0");
  if (options.idle_timeout.count() < 0) return out_of_range("idle_timeout", "at least 0");
  return Ok{};
}

// The descriptors that this process may have, after raising that as far as it may.
std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::uint64_t>::max();
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) return limit.rlim_max;
  return limit.rlim_cur;
}

void fit_to_descriptors(ServerOptions& options) {
  const std::uint64_t descriptors = raise_descriptor_limit();
  const std::uint32_t fit = connections_within(options.max_connections, descriptors);
  if (fit == options.max_connections) return;
  spdlog::warn(
      "this process may have {} file descriptors: {} connections are let in instead of {} (max_connections); raise "
      "the hard limit (ulimit -Hn, LimitNOFILE=) to at least {}",
      descriptors, fit, options.max_connections, std::uint64_t{options.max_connections} + kOtherDescriptors);
  options.max_connections = fit;
}

Guests guests_of(const ServerOptions& options) { return {options.allow_uids, options.allow_gids}; }

Refusal not_allowed(std::uint32_t uid) {
  return {.code = Outcome::permission,
          .field = "allow_uid",
          .message =
              "uid " + std::to_string(uid) + " may not use this server; ask its owner for --allow-uid or --allow-gid",
          .limit = {},
          .retry_after = {}};
}

Refusal crowded(Outcome code, const std::string& field, const std::string& whose, std::uint64_t open,
                std::uint64_t limit) {
  return {.code = code,
          .field = field,
          .message = std::to_string(open) + " connections" + whose + " are open, at most " + std::to_string(limit) +
                     " may be (" + field + "); close one, or try again later",
          .limit = limit,
          .retry_after = std::chrono::seconds(1)};
}

Result<ListeningSocket> open_socket(ServerOptions& options) {
  const bool own_directory = options.socket_path.empty();
  if (own_directory) {
    auto path = default_socket_path();
    if (!path) return path.error();
    options.socket_path = *path;
  }
  if (Status checked = check_socket_path(options.socket_path); !checked) return checked.error();
  return ListeningSocket::open(options.socket_path, guests_of(options), own_directory);
}

}  // namespace

Result<std::string> default_socket_path() { return server_socket_path(SocketEnvironment::current()); }

// Shared, because the gateway's answer to drain() may come when the server has gone.
struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  Impl(ServerOptions options, ListeningSocket socket)
      : guests(guests_of(options)),
        listening(std::move(socket)),
        hub(std::move(options)),
        acceptor(hub.io),
        retry(hub.io),
        work(hub.io.get_executor()) {
    acceptor.assign(asio::local::stream_protocol(), listening.release());
    acceptor.non_blocking(true);
  }

  asio::awaitable<void> accept_loop();
  void welcome(Socket socket);
  std::optional<Refusal> no_room_for(std::uint32_t uid) const;
  void refuse(Socket& socket, const Refusal& refusal);
  void reconfigure(const ServerOptions& options);
  void warn_refused(const Peer& peer, const std::string& why);
  void end_if_idle(std::chrono::milliseconds time, const std::function<void()>& done);
  void begin_drain(std::function<void()> done);
  void end_drain(std::function<void()> done);
  void close_all();

  Guests guests;  // io thread only
  ListeningSocket listening;
  Hub hub;
  Acceptor acceptor;
  asio::steady_timer retry;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
  std::atomic<bool> draining{false};
};

asio::awaitable<void> Server::Impl::accept_loop() {
  while (acceptor.is_open()) {
    asio::error_code error;
    Socket socket(hub.io);
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
    // Closed meanwhile, by drain() or stop(): whoever was accepted just before must not be served either.
    if (!acceptor.is_open()) co_return;
    if (!error) {
      welcome(std::move(socket));
      continue;
    }
    if (error == asio::error::connection_aborted) continue;
    // Out of descriptors, most likely: whoever waits stays in the queue until some are free again.
    spdlog::warn("cannot accept a connection: {}; trying again in 100 ms", error.message());
    retry.expires_after(std::chrono::milliseconds(100));
    co_await retry.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

void Server::Impl::welcome(Socket socket) {
  asio::error_code error;
  socket.non_blocking(true, error);
  const Result<Peer> peer = peer_of(socket.native_handle());
  if (!peer)
    return refuse(
        socket,
        {.code = Outcome::permission, .field = {}, .message = peer.error().message, .limit = {}, .retry_after = {}});
  if (!admitted(*peer, socket.native_handle(), guests)) {
    warn_refused(*peer, "not allowed");
    return refuse(socket, not_allowed(peer->uid));
  }
  if (const auto refusal = no_room_for(peer->uid)) {
    warn_refused(*peer, refusal->message);
    return refuse(socket, *refusal);
  }
  ++hub.connections_accepted;
  const auto session = std::make_shared<Session>(hub, std::move(socket), *peer);
  hub.remember(session);
  session->start();
}

std::optional<Refusal> Server::Impl::no_room_for(std::uint32_t uid) const {
  const ServerOptions& options = hub.options;
  const auto found = hub.connections_of.find(uid);
  const std::uint32_t own = found == hub.connections_of.end() ? 0 : found->second;
  if (own >= options.max_connections_per_uid)
    return crowded(Outcome::quota, "max_connections_per_uid", " of uid " + std::to_string(uid), own,
                   options.max_connections_per_uid);
  const std::uint32_t kept = is_owner(uid) ? 0 : kept_for_owner(options.max_connections);
  if (hub.sessions.size() >= options.max_connections - kept)
    return crowded(Outcome::queue_full, "max_connections", kept > 0 ? " (those kept for the owner apart)" : "",
                   hub.sessions.size(), options.max_connections - kept);
  return std::nullopt;
}

void Server::Impl::warn_refused(const Peer& peer, const std::string& why) {
  hub.warn(hub.refused_lines, "connection of uid " + std::to_string(peer.uid) + " gid " + std::to_string(peer.gid) +
                                  " pid " + std::to_string(peer.pid) + " refused: " + why);
}

// A fresh socket has room for one small frame, so this neither waits nor fails; if it did, closing says
// enough.
void Server::Impl::refuse(Socket& socket, const Refusal& refusal) {
  ++hub.connections_refused;
  std::string bytes;
  append_frame(bytes, to_frame(0, refusal, /*closing=*/true));
  asio::error_code ignored;
  socket.write_some(asio::buffer(bytes), ignored);
  socket.close(ignored);
}

void Server::Impl::reconfigure(const ServerOptions& options) {
  guests = guests_of(options);
  hub.options.max_connections = options.max_connections;
  fit_to_descriptors(hub.options);
  hub.options.max_connections_per_uid = options.max_connections_per_uid;
  hub.options.max_outbox_bytes = options.max_outbox_bytes;
  hub.options.hello_timeout = options.hello_timeout;
  hub.options.stall_timeout = options.stall_timeout;
  hub.options.idle_timeout = options.idle_timeout;
  if (acceptor.is_open())
    if (Status changed = listening.admit(guests); !changed) spdlog::warn("{}", changed.error().message);
  const std::vector<std::shared_ptr<Session>> all(hub.sessions.begin(), hub.sessions.end());
  for (const auto& session : all)
    if (!session->is_admitted(guests)) session->break_off(not_allowed(session->uid()));
  hub.arm_tick();
}

void Server::Impl::close_all() {
  asio::error_code ignored;
  acceptor.close(ignored);
  retry.cancel();
  hub.stop_ticking();
  hub.on_empty = nullptr;
  const std::vector<std::shared_ptr<Session>> all(hub.sessions.begin(), hub.sessions.end());
  for (const auto& session : all) session->close();
}

void Server::Impl::end_if_idle(std::chrono::milliseconds time, const std::function<void()>& done) {
  if (!acceptor.is_open() || !hub.sessions.empty() || Clock::now() - hub.empty_since < time) return;
  asio::error_code ignored;
  acceptor.close(ignored);
  listening.remove_file();
  done();
}

void Server::Impl::begin_drain(std::function<void()> done) {
  asio::error_code ignored;
  acceptor.close(ignored);
  listening.remove_file();
  for (const auto& session : hub.sessions) session->announce_draining();
  hub.gateway->drain([weak = weak_from_this(), done = std::move(done)] {
    if (const auto self = weak.lock())
      asio::post(self->hub.io, [weak, done] {
        if (const auto server = weak.lock()) server->end_drain(done);
      });
  });
}

void Server::Impl::end_drain(std::function<void()> done) {
  if (hub.sessions.empty()) return done();
  hub.on_empty = std::move(done);
  const std::vector<std::shared_ptr<Session>> all(hub.sessions.begin(), hub.sessions.end());
  for (const auto& session : all) session->close_when_flushed();
}

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options) {
  if (Status checked = check(options); !checked) return checked.error();
  fit_to_descriptors(options);
  auto socket = options.inherited_socket ? ListeningSocket::adopt(*options.inherited_socket) : open_socket(options);
  if (!socket) return socket.error();
  // Damaged frames are answered to their sender; protobuf need not tell stderr, too.
  google::protobuf::SetLogHandler(nullptr);
  return std::unique_ptr<Server>(new Server(std::make_shared<Impl>(std::move(options), std::move(*socket))));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

const std::string& Server::socket_path() const { return impl_->listening.path(); }

void Server::start(actors::Gateway& gateway) {
  TROUPE_ASSERT(!impl_->thread.joinable());
  impl_->hub.gateway = &gateway;
  impl_->hub.empty_since = Clock::now();
  asio::co_spawn(impl_->hub.io, impl_->accept_loop(), asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] { impl->hub.io.run(); });
}

Status Server::reconfigure(const ServerOptions& options) {
  if (Status checked = check(options); !checked) return checked.error();
  asio::post(impl_->hub.io, [impl = impl_.get(), options] { impl->reconfigure(options); });
  return Ok{};
}

void Server::status(std::function<void(actors::StatusSnapshot)> done) {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->hub.io, [impl = impl_.get(), done = std::move(done)]() mutable {
    // The gateway's answer may come when the server has stopped: then nobody waits for it any more.
    impl->hub.gateway->status([weak = impl->weak_from_this(), done = std::move(done)](actors::StatusSnapshot snapshot) {
      const auto self = weak.lock();
      if (!self) return;
      asio::post(self->hub.io, [done, snapshot = std::move(snapshot)]() mutable { done(std::move(snapshot)); });
    });
  });
}

void Server::end_if_idle(std::chrono::milliseconds time, std::function<void()> done) {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->hub.io, [impl = impl_.get(), time, done = std::move(done)] { impl->end_if_idle(time, done); });
}

void Server::drain(std::function<void()> done) {
  if (!impl_->thread.joinable() || impl_->draining.exchange(true)) return;
  asio::post(impl_->hub.io,
             [impl = impl_.get(), done = std::move(done)]() mutable { impl->begin_drain(std::move(done)); });
}

void Server::stop() {
  if (impl_->thread.joinable()) {
    asio::post(impl_->hub.io, [impl = impl_.get()] { impl->close_all(); });
    impl_->work.reset();
    impl_->thread.join();
  }
  impl_->listening.remove_file();
}

}  // namespace troupe::ipc
