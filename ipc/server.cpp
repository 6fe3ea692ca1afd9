#include "ipc/server.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <thread>
#include <utility>

#include "config/assert.h"
#include "config/file_descriptor.h"
#include "config/options/option_groups.h"
#include "config/options/values.h"
#include "ipc/frames/frame_connection.h"
#include "ipc/http/response.h"
#include "ipc/http/tls_front.h"
#include "ipc/io_watch.h"
#include "ipc/refused_callers.h"
#include "ipc/sockets/door.h"
#include "ipc/sockets/group_lookup.h"
#include "ipc/sockets/listening_socket.h"
#include "ipc/sockets/peer_facts.h"
#include "ipc/sockets/socket_path.h"
#include "ipc/sockets/strict_modes.h"
#include "ipc/sockets/tcp_peer.h"
#include "ipc/troupe.pb.h"
#include "scheduler/shares/shared_limit.h"

namespace troupe::ipc {
namespace {

using scheduler::Outcome;

Status check(const ServerOptions& options) {
  if (Status checked = config::check_ranges(options.limits); !checked) return checked;
  // Half of it is for frames being read, and a part of that half is kept for the owner: if the rest is below one frame,
  // a guest's frame could wait for ever.
  if (options.limits.max_buffer_bytes < 4 * options.limits.max_frame_bytes)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("max_buffer_bytes is {}; it must be at least four times max_frame_bytes",
                             config::format_bytes(options.limits.max_buffer_bytes))};
  return Ok{};
}

// Raises the soft limit of file descriptors to the hard one; returns the limit.
std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::numeric_limits<std::uint64_t>::max();
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) return limit.rlim_max;
  return limit.rlim_cur;
}

void fit_to_descriptors(ServerOptions& options) {
  const std::uint64_t descriptors = raise_descriptor_limit();
  // A TLS connection has its own and the two of a socket pair.
  const std::uint32_t each = options.http.tls ? 3 : 1;
  const std::uint32_t fit = connections_within(options.limits.max_connections, descriptors, each);
  if (fit == options.limits.max_connections) return;
  spdlog::warn(
      "this process may have {} file descriptors: {} connections are let in instead of {} (max_connections); raise "
      "the hard limit (ulimit -Hn, LimitNOFILE=) to at least {}",
      descriptors, fit, options.limits.max_connections,
      std::uint64_t{options.limits.max_connections} * each + kOtherDescriptors);
  options.limits.max_connections = fit;
}

void warn_of_hidden_cgroups(const TenantRules& rules) {
  if (rules.need_cgroup() && !sees_other_processes())
    spdlog::warn(
        "tenant rules by cgroup match no process of another user: /proc hides them (ProtectProc= of the unit)");
}

Guests guests_of(const ServerOptions& options) { return {options.allow_uids, options.allow_gids}; }

// Why a connection is refused, without texts: thousands a second may be refused.
struct Rejection {
  Outcome code{};  // permission: this user may not connect; quota: too many of this user; queue_full: too many in all
  std::uint32_t uid = 0;
  bool is_owner = false;
  std::uint64_t open = 0;  // of this uid; of all users nothing is said
  std::uint64_t limit = 0;

  bool operator==(const Rejection&) const = default;
};

Refusal to_refusal(const Rejection& why) {
  if (why.code == Outcome::permission)
    return {
        .outcome = why.code,
        .message = fmt::format("uid {} may not use this server; ask its owner for --allow-uid or --allow-gid", why.uid),
        .field = "allow_uid"};
  const bool own = why.code == Outcome::quota;
  const std::string field = own ? "max_connections_per_uid" : "max_connections";
  const std::string whose = why.uid == kTcpUser ? "over TCP" : fmt::format("of uid {}", why.uid);
  const std::string what =
      own ? fmt::format("{} connections {} are open, at most {} may be", why.open, whose, why.limit)
          : fmt::format("{} connections are open{}, and no more may be", why.limit,
                        why.is_owner ? "" : " (those kept for the owner apart)");
  return {.outcome = why.code,
          .message = fmt::format("{} ({}); close one, or try again later", what, field),
          .field = field,
          .limit = why.limit};
}

Result<ListeningSocket> open_socket(ServerOptions& options) {
  const bool own_directory = options.socket_path.empty();
  if (own_directory) {
    auto path = default_socket_path();
    if (!path) return path.error();
    options.socket_path = *path;
  }
  if (Status checked = check_socket_path(options.socket_path); !checked) return checked.error();
  if (!options.strict_modes)
    if (const Status way = check_way_to(directory_of(options.socket_path)); !way)
      spdlog::warn("{} (no-strict-modes)", way.error().message);
  return ListeningSocket::open(options.socket_path, guests_of(options), own_directory, options.strict_modes);
}

}  // namespace

Result<std::string> default_socket_path() { return server_socket_path(SocketEnvironment::current()); }

// Shared, because the gateway's answer to drain() may arrive after the server was destroyed.
struct Server::Impl : std::enable_shared_from_this<Server::Impl> {
  Impl(ServerOptions options, ListeningSocket socket)
      : guests(guests_of(options)),
        listening(std::move(socket)),
        hub(std::move(options)),
        watch(
            hub.io, hub.activity, hub.options.turn_patience, [this] { return hub.connections.empty(); },
            hub.options.on_stuck),
        door(hub.io, AF_UNIX, listening.release(), [this](FileDescriptor fd) { welcome(std::move(fd)); }),
        groups(hub.io, hub.options.find_groups ? hub.options.find_groups : groups_of_user),
        work(hub.io.get_executor()) {
    hub.let_in = [this](Connection& connection) { return let_in(connection); };
  }

  Status listen_on_tcp();
  void welcome(FileDescriptor connection);
  void welcome_tcp(FileDescriptor connection);
  // A caller whom the kernel has named, or not; gids: of the user.
  Caller caller_over_tcp(std::string address, std::optional<std::uint32_t> uid, std::vector<std::uint32_t> gids);
  void serve_tcp(FileDescriptor connection, Caller caller);
  void turn_away_tcp(const FileDescriptor& connection, const Rejection& why);
  void turn_away(FileDescriptor connection, const Peer& peer, const Rejection& why);
  // Why this user may have no more connections, or no more may be in all.
  std::optional<Rejection> has_enough(std::uint32_t uid);
  std::optional<Rejection> are_enough(std::uint32_t uid);
  // As the above; of connections over HTTP that are kept for a next request the one that has waited for it longest is
  // closed instead: the user's own, or, where there are too many in all, also one of a user with more of them, and a
  // stranger before any other.
  std::optional<Rejection> make_room_for(std::uint32_t uid);
  void close_idle_for(std::uint32_t uid, bool of_others);
  std::optional<Rejection> make_room_for_stranger(const std::string& address);
  // A stranger has shown a right key: see Hub::let_in.
  std::optional<Refusal> let_in(Connection& connection);
  void turn_away_waiting();
  void stop_accepting();
  void close_connections(std::function<void()> done);
  void reconfigure(const ServerOptions& options);
  void end_if_idle(std::chrono::milliseconds time, const std::function<void()>& done);
  void begin_drain(std::function<void()> done);
  void end_drain(std::function<void()> done);
  void close_all();

  Guests guests;  // io thread only
  ListeningSocket listening;
  Hub hub;
  IoWatch watch;
  Door door;  // of the Unix socket
  std::vector<std::unique_ptr<Door>> tcp_doors;
  GroupLookup groups;  // of users over TCP, until a reload
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
  std::atomic<bool> draining{false};
  asio::thread_pool files{1};  // changes the socket's file, as its disk may be slow; its jobs post back to io
  RefusedCallers refused{hub.io};
  // The last refusals sent, encoded: in a storm of connections they repeat.
  std::pair<Rejection, std::shared_ptr<const LastWords>> not_allowed_words;
  std::pair<Rejection, std::shared_ptr<const LastWords>> no_room_words;
};

Status Server::Impl::listen_on_tcp() {
  const HttpOptions& http = hub.options.http;
  for (const TcpAddress& address : http.listen) {
    if (!http.authenticator && !address.is_loopback())
      return Error{ErrorCode::bad_config,
                   fmt::format("{}: without keys only this machine may be listened to; use tcp://127.0.0.1:{}",
                               address.text(), address.port)};
    if (!http.tls && !address.is_loopback())
      return Error{ErrorCode::bad_config,
                   fmt::format("{}: keys and texts would cross the network unencrypted; give --tls-cert and --tls-key, "
                               "or listen to tcp://127.0.0.1:{}",
                               address.text(), address.port)};
    const auto fd = listen_on(address);
    if (!fd) return fd.error();
    tcp_doors.push_back(std::make_unique<Door>(hub.io, address.is_v6 ? AF_INET6 : AF_INET, *fd,
                                               [this](FileDescriptor socket) { welcome_tcp(std::move(socket)); }));
  }
  if (http.asks_kernel()) groups.start();
  return Ok{};
}

void Server::Impl::welcome(FileDescriptor connection) {
  watch.wake();
  const Doing doing(hub.activity, "lets a connection in");
  const Result<Peer> peer = peer_of(connection.get());
  if (!peer) {
    ++hub.connections_refused;
    const Refusal refusal{.outcome = Outcome::permission, .message = peer.error().message};
    return refused.refuse(std::move(connection), std::make_shared<const LastWords>(refusal));
  }
  if (!admitted(*peer, connection.get(), guests))
    return turn_away(std::move(connection), *peer, {.code = Outcome::permission, .uid = peer->uid});
  if (const auto why = make_room_for(peer->uid)) return turn_away(std::move(connection), *peer, *why);
  ++hub.connections_accepted;
  const auto client =
      std::make_shared<FrameConnection>(hub, connected_socket(hub.io, AF_UNIX, std::move(connection)), *peer);
  hub.remember(client);
  client->start();
}

Caller Server::Impl::caller_over_tcp(std::string address, std::optional<std::uint32_t> uid,
                                     std::vector<std::uint32_t> gids) {
  Caller caller = named_tcp_caller(std::move(address), uid, std::move(gids));
  if (!uid && !hub.options.tenants.name_tcp()) caller.refused = unnamed_over_tcp();
  if (uid && !admitted(*uid, caller.facts.gids, guests)) {
    caller.refused = to_refusal({.code = Outcome::permission, .uid = *uid});
    caller.is_known = false;  // strangers are one user together
  }
  if (caller.refused)
    hub.warn(hub.refused_lines,
             [&] { return fmt::format("requests from {} are refused: {}", caller.address, caller.refused->message); });
  return caller;
}

void Server::Impl::welcome_tcp(FileDescriptor connection) {
  watch.wake();
  const Doing doing(hub.activity, "lets a connection over TCP in");
  const HttpOptions& http = hub.options.http;
  std::string address = host_of_peer(connection.get());
  if (!http.asks_kernel()) return serve_tcp(std::move(connection), tcp_caller(std::move(address)));
  // Now, while the client has not closed its end: then the kernel names no user any more.
  const std::optional<std::uint32_t> uid = uid_of_tcp_peer(connection.get());
  if (!uid) return serve_tcp(std::move(connection), caller_over_tcp(std::move(address), uid, {}));
  if (const auto why = make_room_for(*uid)) return turn_away_tcp(connection, *why);
  const auto waiting = std::make_shared<FileDescriptor>(std::move(connection));
  groups.ask(*uid, [this, waiting, address = std::move(address), uid](const GroupLookup::Groups& gids) {
    const bool is_open = std::ranges::any_of(tcp_doors, [](const auto& each) { return each->is_open(); });
    if (is_open) serve_tcp(std::move(*waiting), caller_over_tcp(address, uid, gids));
  });
}

void Server::Impl::turn_away_tcp(const FileDescriptor& connection, const Rejection& why) {
  ++hub.connections_refused;
  const Refusal refusal = to_refusal(why);
  hub.warn(hub.refused_lines, [&] { return fmt::format("connection over TCP refused: {}", refusal.message); });
  if (hub.options.http.tls) return;  // its client would need a handshake first
  const std::string answer = http::refusal_bytes(refusal);
  static_cast<void>(::send(connection.get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

void Server::Impl::serve_tcp(FileDescriptor connection, Caller caller) {
  const std::shared_ptr<http::TlsFront>& tls = hub.options.http.tls;
  const auto why =
      comes_as_stranger(hub, caller) ? make_room_for_stranger(caller.address) : make_room_for(user_of(caller));
  if (why) return turn_away_tcp(connection, *why);
  if (tls) {
    auto decrypted = tls->wrap(std::move(connection));
    if (!decrypted) {
      ++hub.connections_refused;
      return hub.warn(hub.refused_lines,
                      [&] { return fmt::format("connection over TCP refused: {}", decrypted.error().message); });
    }
    connection = std::move(*decrypted);
  }
  ++hub.connections_accepted;
  serve_http(hub, std::move(caller), connected_socket(hub.io, tls ? AF_UNIX : AF_INET, std::move(connection)));
}

std::optional<Rejection> Server::Impl::has_enough(std::uint32_t uid) {
  const std::uint32_t most = hub.options.limits.max_connections_per_uid;
  const std::uint32_t own = hub.user(uid).connections + groups.num_waiting(uid);
  if (own < most) return std::nullopt;
  return Rejection{Outcome::quota, uid, false, own, most};
}

std::optional<Rejection> Server::Impl::are_enough(std::uint32_t uid) {
  const std::uint32_t most = hub.options.limits.max_connections;
  const bool of_owner = uid != kTcpUser && is_owner(uid);
  const std::uint64_t kept = of_owner ? 0 : scheduler::kept_for_owner_of(most);
  if (hub.connections.size() + groups.num_waiting() < most - kept) return std::nullopt;
  return Rejection{Outcome::queue_full, 0, kept == 0, 0, most - kept};
}

std::optional<Rejection> Server::Impl::make_room_for(std::uint32_t uid) {
  if (has_enough(uid)) close_idle_for(uid, /*of_others=*/false);
  if (const auto why = has_enough(uid)) return why;
  if (are_enough(uid) && !hub.close_stranger_for({})) close_idle_for(uid, /*of_others=*/true);
  return are_enough(uid);
}

void Server::Impl::close_idle_for(std::uint32_t uid, bool of_others) {
  const User& own = hub.user(uid);
  std::vector<std::pair<Clock::time_point, Connection*>> idle;
  for (const auto& connection : hub.connections) {
    const User& other = connection->user();
    const bool may_go = &other == &own || (of_others && other.connections > own.connections);
    if (const auto since = may_go ? connection->idle_since() : std::nullopt)
      idle.emplace_back(*since, connection.get());
  }
  // What lies in a socket is a request that is not read yet. Asking the kernel costs more than sorting.
  std::ranges::sort(idle);
  const auto longest = std::ranges::find_if_not(idle, &Connection::has_unread,
                                                [](const auto& each) -> Connection& { return *each.second; });
  if (longest != idle.end()) longest->second->close();  // as after the keep-alive timeout
}

std::optional<Rejection> Server::Impl::make_room_for_stranger(const std::string& address) {
  if (!hub.make_room_for_stranger(address))
    return Rejection{Outcome::quota, kTcpUser, false, hub.strangers.connections,
                     strangers_limit(hub.options.limits.max_connections_per_uid)};
  if (are_enough(kTcpUser) && !hub.close_stranger_for(address) && hub.strangers.connections == 0)
    close_idle_for(kTcpUser, /*of_others=*/true);
  return are_enough(kTcpUser);
}

std::optional<Refusal> Server::Impl::let_in(Connection& connection) {
  if (!connection.is_stranger()) return std::nullopt;
  if (has_enough(kTcpUser)) close_idle_for(kTcpUser, /*of_others=*/false);
  if (const auto why = has_enough(kTcpUser)) return to_refusal(*why);
  hub.make_stranger(connection, false);
  return std::nullopt;
}

// Refuses with a few system calls per connection, since there may be thousands a second.
void Server::Impl::turn_away(FileDescriptor connection, const Peer& peer, const Rejection& why) {
  ++hub.connections_refused;
  const bool not_allowed = why.code == Outcome::permission;
  hub.warn(hub.refused_lines, [&] {
    return fmt::format("connection of uid {} gid {} pid {} refused: {}", peer.uid, peer.gid, peer.pid,
                       not_allowed ? "not allowed" : to_refusal(why).message);
  });
  auto& [last, words] = not_allowed ? not_allowed_words : no_room_words;
  if (!words || last != why) {
    words = std::make_shared<const LastWords>(to_refusal(why));
    last = why;
  }
  refused.refuse(std::move(connection), words);
}

// The socket file is gone, so only connections that already wait are left: at most kBacklog.
void Server::Impl::turn_away_waiting() {
  const LastWords words(scheduler::server_drains());
  for (;;) {
    const FileDescriptor connection(::accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0 && errno != ECONNABORTED && errno != EINTR) return;
    if (connection.get() < 0) continue;
    ++hub.connections_refused;
    RefusedCallers::refuse_now(connection.get(), words);
  }
}

void Server::Impl::reconfigure(const ServerOptions& options) {
  const Doing doing(hub.activity, "takes over changed options");
  guests = guests_of(options);
  hub.options.tenants = options.tenants;
  warn_of_hidden_cgroups(options.tenants);
  config::take_reloadable(hub.options.limits, options.limits);
  fit_to_descriptors(hub.options);
  hub.set_rates();
  groups.forget();
  hub.options.http.border = options.http.border;
  if (door.is_open())
    asio::post(files, [this, guests = guests] {
      if (Status changed = listening.admit(guests); !changed) spdlog::warn("{}", changed.error().message);
    });
  for (const auto& connection : hub.all_connections())
    if (!connection->is_admitted(guests))
      connection->break_off(to_refusal({.code = Outcome::permission, .uid = connection->uid()}));
    else
      connection->take_rules();
  hub.arm_tick();
}

void Server::Impl::stop_accepting() {
  door.close();
  for (const auto& each : tcp_doors) each->close();
}

void Server::Impl::close_all() {
  stop_accepting();
  hub.stop_ticking();
  hub.on_empty = nullptr;
  for (const auto& connection : hub.all_connections()) connection->close();
}

void Server::Impl::end_if_idle(std::chrono::milliseconds time, const std::function<void()>& done) {
  if (!door.is_open() || !hub.connections.empty() || Clock::now() - hub.empty_since < time) return;
  stop_accepting();
  asio::post(files, [this, done] {
    listening.remove_file();
    asio::post(hub.io, done);
  });
}

// A socket of our own goes on listening, so that new clients are refused with `draining`. On an inherited one they wait
// for the next server.
void Server::Impl::begin_drain(std::function<void()> done) {
  const Doing doing(hub.activity, "begins the drain");
  if (!listening.file()) stop_accepting();
  hub.draining = true;
  for (const auto& connection : hub.connections) connection->announce_draining();
  hub.gateway->drain([weak = weak_from_this(), done = std::move(done)] {
    if (const auto self = weak.lock())
      asio::post(self->hub.io, [weak, done] {
        if (const auto server = weak.lock()) server->end_drain(done);
      });
  });
}

void Server::Impl::end_drain(std::function<void()> done) {
  const Doing doing(hub.activity, "ends the drain");
  if (!door.is_open()) return close_connections(std::move(done));
  asio::post(files, [this, done = std::move(done)]() mutable {
    listening.remove_file();  // first: after it no new connection can be queued
    asio::post(hub.io, [this, done = std::move(done)]() mutable {
      if (door.is_open()) turn_away_waiting();
      stop_accepting();
      close_connections(std::move(done));
    });
  });
}

void Server::Impl::close_connections(std::function<void()> done) {
  if (hub.connections.empty()) return done();
  hub.on_empty = std::move(done);
  for (const auto& connection : hub.all_connections()) connection->close_when_flushed();
}

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options) {
  if (Status checked = check(options); !checked) return checked.error();
  fit_to_descriptors(options);
  warn_of_hidden_cgroups(options.tenants);
  auto socket = options.inherited_socket ? ListeningSocket::adopt(*options.inherited_socket) : open_socket(options);
  if (!socket) return socket.error();
  // Damaged frames are reported to their sender; protobuf's own messages to stderr are turned off.
  google::protobuf::SetLogHandler(nullptr);
  // Built now, where running out of memory makes the start fail: built during a frame, protobuf would continue with
  // incomplete descriptors.
  v1::ClientFrame::descriptor();
  const auto impl = std::make_shared<Impl>(std::move(options), std::move(*socket));
  impl->hub.self = std::shared_ptr<Hub>(impl, &impl->hub);
  if (Status listens = impl->listen_on_tcp(); !listens) return listens.error();
  return std::unique_ptr<Server>(new Server(impl));
}

Server::Server(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

const std::string& Server::socket_path() const { return impl_->listening.path(); }

std::vector<TcpAddress> Server::tcp_addresses() const {
  std::vector<TcpAddress> addresses;
  for (const auto& each : impl_->tcp_doors) addresses.push_back(each->address());
  return addresses;
}

std::shared_ptr<SocketFile> Server::socket_file() const { return impl_->listening.file(); }

void Server::start(actors::Gateway& gateway) {
  TROUPE_ASSERT(!impl_->thread.joinable());
  impl_->hub.gateway = &gateway;
  impl_->hub.empty_since = Clock::now();
  impl_->door.open();
  for (const auto& each : impl_->tcp_doors) each->open();
  impl_->thread = std::thread([impl = impl_.get()] {
    pthread_setname_np(pthread_self(), "io");
    impl->hub.io.run();
  });
  impl_->watch.start();
}

Status Server::reconfigure(const ServerOptions& options) {
  if (Status checked = check(options); !checked) return checked.error();
  asio::post(impl_->hub.io, [impl = impl_.get(), options] { impl->reconfigure(options); });
  return Ok{};
}

void Server::status(std::function<void(actors::StatusSnapshot)> done) {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->hub.io, [impl = impl_.get(), done = std::move(done)]() mutable {
    impl->hub.ask_status([done = std::move(done)](const actors::StatusSnapshot& snapshot) { done(snapshot); });
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
  impl_->watch.stop();
  if (impl_->thread.joinable()) {
    asio::post(impl_->hub.io, [impl = impl_.get()] { impl->close_all(); });
    impl_->work.reset();
    impl_->thread.join();
  }
  impl_->files.join();
  impl_->listening.remove_file();
}

}  // namespace troupe::ipc
