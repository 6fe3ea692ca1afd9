// The server: turns frames (docs/protocol.md), and requests of HTTP (docs/api.md), into calls of the gateway, and its
// answers into theirs.
//
//   auto server = ipc::Server::bind({.socket_path = path});   // before the model loads: fails early
//   auto gateway = actors::Gateway::start(...);
//   (*server)->start(**gateway);                               // serves while the model is loading
//   ...
//   (*server)->drain([&] { drained.set_value(); });            // SIGTERM
//   (*server)->stop();                                         // before the gateway is destroyed
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway.h"
#include "actors/requests/ended_request.h"
#include "actors/requests/usage_report.h"
#include "config/options/server_limits.h"
#include "config/result.h"
#include "ipc/frames/framing.h"
#include "ipc/http/api/stream_silence.h"
#include "ipc/http/border.h"
#include "ipc/sockets/listen_address.h"
#include "ipc/sockets/listening_socket.h"
#include "ipc/tenant_rules.h"

namespace troupe::ipc {

namespace http {
class Authenticator;
class TlsFront;
}  // namespace http

// HTTP is spoken on the Unix socket, and over TCP where `listen` says so.
struct HttpOptions {
  std::vector<TcpAddress> listen{};  // port 0: any free one
  bool no_auth = false;              // any program that reaches a TCP address may use the server
  http::BorderRules border{};        // over TCP
  api::SilenceLimits silence{};      // of answers that stream
  // Null: TCP needs loopback addresses, and without no_auth the kernel is asked which user a client is: it has the
  // rights that it has on the Unix socket. A client that the kernel does not name needs a tenant rule of TCP.
  std::shared_ptr<http::Authenticator> authenticator{};
  // With an authenticator, for its page alone: the kernel is asked all the same, and its word counts unless a request
  // has the page's key. Clients that the kernel does not name, or that no rule lets in, may come with keys.
  bool kernel_names = false;
  std::shared_ptr<http::TlsFront> tls{};  // null: TCP is not encrypted, and needs a loopback address

  bool asks_kernel() const { return !listen.empty() && !no_auth && (!authenticator || kernel_names); }
};

struct ServerOptions {
  std::string socket_path{};                // empty: default_socket_path()
  std::optional<int> inherited_socket{};    // bound by a service manager: used instead of socket_path
  bool strict_modes = true;                 // false: a directory that others can write to is only logged
  std::vector<std::uint32_t> allow_uids{};  // besides the server's own uid and root
  std::vector<std::uint32_t> allow_gids{};  // members (primary or supplementary) may connect
  TenantRules tenants{};                    // which tenant a connection is; it lets no user in
  config::ConnectionLimits limits{};
  HttpOptions http{};
  actors::AskUsage ask_usage{};  // for UsageRequest; empty: no usage is kept
  // Called for every request for tokens, vectors, ids or text that ended without a stream of the gateway's, which tells
  // of its own (GatewayOptions::on_usage): one that was refused before, and Tokenize and Detokenize. On the io thread;
  // must not block. May be empty.
  std::function<void(const actors::EndedRequest&)> on_ended{};
  // The groups of a user over TCP, asked for on a thread of its own. Empty: the machine's database says them.
  std::function<std::vector<std::uint32_t>(std::uint32_t uid)> find_groups{};
  // The io thread is watched: a turn of it that is late by a second is a line in the log, and the second in a row that
  // is late by turn_patience (at least a second) is told to on_stuck, on the watch's thread: no client is served any
  // more. Empty: that is a line in the log, too.
  std::chrono::milliseconds turn_patience{60'000};
  std::function<void(const std::string&)> on_stuck{};
};

// Frames up to this size do not count against max_buffer_bytes while they are read.
inline constexpr std::uint32_t kSmallFrameBytes = 16u << 10;

// Descriptors that a server needs besides its connections: libraries, the model file, logs, timers, listening.
inline constexpr std::uint32_t kOtherDescriptors = 64;

// How many of `wanted` connections a process with this limit of descriptors can hold; at least 1.
[[nodiscard]] constexpr std::uint32_t connections_within(std::uint32_t wanted, std::uint64_t descriptors,
                                                         std::uint32_t each = 1) {
  if (descriptors >= std::uint64_t{wanted} * each + kOtherDescriptors) return wanted;
  const std::uint64_t rest = descriptors > kOtherDescriptors ? (descriptors - kOtherDescriptors) / each : 0;
  return rest > 0 ? static_cast<std::uint32_t>(rest) : 1;
}

// The socket of this user's server: $XDG_RUNTIME_DIR/troupe/troupe.sock, without the variable
// /run/user/UID/troupe/troupe.sock where that directory exists, else /run/troupe/troupe.sock for root and
// ~/.troupe/HOST.sock for others, if no other user but root can write to the home and the directories above it.
// Error: permission, when none of them can be (never a path under /tmp).
[[nodiscard]] Result<std::string> default_socket_path();

// A Unix socket, any number of TCP addresses, and one io thread for all connections. Every call may come from any
// thread.
class Server {
 public:
  // Creates the socket. Makes the default directory if it is missing (0700, or 0711 with guests) and replaces the file
  // of a dead socket. Mode 0600; 0660 and that group for exactly one allow_gid; 0666 for any other guest list (the
  // kernel reports each peer's uid, and only the server's own, root and the listed ones are admitted).
  // Raises the process's soft limit of descriptors to the hard one; if that is too low for max_connections, fewer
  // are admitted and a warning is logged: a connection beyond them is refused with a message, not left waiting.
  // Clients that connect from now on wait until start(). Errors, each with its own message:
  //   invalid_argument  path empty or over 107 bytes, a limit out of range
  //   busy              a live server listens there
  //   permission        the directory, one above it, or the file belongs to another user or has too open a mode
  //   io                the path is a plain file, no such directory, any other failure
  //   bad_config        a TCP address that is not loopback without keys or TLS; inherited_socket is no listening Unix
  //   socket with a path
  // The file of an inherited socket is never changed or removed; each peer's uid is still checked.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options);

  // Stops as stop() does and removes the socket file.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& socket_path() const;
  // The TCP addresses that are listened on, with the ports that were chosen.
  std::vector<TcpAddress> tcp_addresses() const;
  // Our own socket file, to be removed when the process is ended by force; null for an inherited socket.
  std::shared_ptr<SocketFile> socket_file() const;

  // Begins to serve on a new thread. The gateway must outlive stop(). Call once.
  void start(actors::Gateway& gateway);

  // Changes options of a running server: allow_uids, allow_gids, tenants, max_connections, max_connections_per_uid,
  // max_outbox_bytes (of new connections), the rates, the time limits, and what HTTP over TCP lets in (http.border);
  // the rest of `options` is ignored. Requests that are live keep their tenant and its policy; the next ones of every
  // connection have those of the new rules. Connections of users that are no longer allowed are ended with a refusal;
  // our own socket file gets the mode that bind() would have given it (a failure is logged; peers' uids are checked in
  // any case). Error: invalid_argument, as bind(); then nothing changes.
  [[nodiscard]] Status reconfigure(const ServerOptions& options);

  // As Gateway::status(), but called on the io thread, as for a client's request: an answer shows that the io thread
  // works too. `done` is not called after stop(). Ignored before start().
  void status(std::function<void(actors::StatusSnapshot)> done);

  // If there has been no connection for `time`: stops accepting (new clients of an inherited socket wait for the next
  // server on it), removes our own socket file, and calls `done` on the io thread. Else does nothing.
  void end_if_idle(std::chrono::milliseconds time, std::function<void()> done);

  // Tells clients (Draining), drains the gateway, removes the socket file, sends what is still to be sent and closes
  // the connections; then calls `done` on the io thread, once. Until the gateway is drained a socket of our own goes on
  // listening: new connections are refused (draining), and a second server finds the socket in use. On an inherited one
  // nothing is accepted any more: new connections wait for the next server.
  // A second call, or one before start(), is ignored; after stop() `done` is not called any more.
  void drain(std::function<void()> done);

  // Stops now: cancels every stream, closes every connection, joins the thread. Idempotent; blocks for
  // milliseconds. Not from `done` of drain().
  void stop();

 private:
  struct Impl;
  explicit Server(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace troupe::ipc
