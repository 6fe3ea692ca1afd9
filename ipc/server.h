// The Unix-socket server: frames in, gateway calls out, and back. docs/protocol.md says what it speaks.
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
#include "config/result.h"
#include "ipc/frames/framing.h"
#include "ipc/socket_file.h"

namespace troupe::ipc {

struct ServerOptions {
  std::string socket_path{};                   // empty: default_socket_path()
  std::optional<int> inherited_socket{};       // bound by a service manager: used instead of socket_path
  bool strict_modes = true;                    // false: a directory that others can write to is only logged
  std::vector<std::uint32_t> allow_uids{};     // besides our own
  std::vector<std::uint32_t> allow_gids{};     // members (primary or supplementary) may connect
  std::uint32_t max_connections = 256;         // more are refused with queue_full; see kept_for_owner()
  std::uint32_t max_connections_per_uid = 64;  // of these, our own uid's too; more are refused with quota
  std::uint32_t max_streams = 64;              // per connection, unanswered requests of every kind
  std::uint32_t max_frame_bytes = 4u << 20;    // of one frame's body, both ways; at most the ceiling
  std::uint64_t max_outbox_bytes = 16u << 20;  // unsent answers at which a connection ends
  // Of all connections: half for frames being read, half for answers unread. At least four times max_frame_bytes.
  std::uint64_t max_buffer_bytes = 512u << 20;
  std::uint32_t max_frames_per_second = 20000;     // of one user; what comes faster is read later
  std::uint32_t max_questions_per_second = 1000;   // Health, Models and Status of one user; more are refused with quota
  std::chrono::milliseconds hello_timeout{5000};   // from accept to a whole Hello
  std::chrono::milliseconds stall_timeout{60000};  // without credit, or with no byte taken of a blocked write
  std::chrono::milliseconds idle_timeout{0};       // with no request under way and nothing sent; 0: never ended for it
};

// Connections that guests cannot take: whoever runs the server can always ask it what is going on.
[[nodiscard]] constexpr std::uint32_t kept_for_owner(std::uint32_t max_connections) {
  return max_connections / 16 < 8 ? max_connections / 16 : 8;
}

// What a connection reads into without asking for a part of max_buffer_bytes.
inline constexpr std::uint32_t kSmallFrameBytes = 64u << 10;

// Descriptors that a server needs besides its connections: libraries, the model file, logs, timers, listening.
inline constexpr std::uint32_t kOtherDescriptors = 64;

// How many of `wanted` connections a process with so many descriptors can hold; at least 1.
[[nodiscard]] constexpr std::uint32_t connections_within(std::uint32_t wanted, std::uint64_t descriptors) {
  if (descriptors >= std::uint64_t{wanted} + kOtherDescriptors) return wanted;
  return descriptors > kOtherDescriptors ? static_cast<std::uint32_t>(descriptors - kOtherDescriptors) : 1;
}

// The socket of this user's server: $XDG_RUNTIME_DIR/troupe/troupe.sock, without the variable
// /run/user/UID/troupe/troupe.sock where that directory exists, and /run/troupe/troupe.sock for root.
// Error: permission, when none of them can be (never a path under /tmp).
[[nodiscard]] Result<std::string> default_socket_path();

// One socket, one io thread, any number of connections. Every call may come from any thread.
class Server {
 public:
  // Creates the socket: with a missing default directory made (0700), a dead socket file replaced, mode
  // 0600, or 0660 with that group for exactly one allow_gid, or 0666 for any other guest list (the
  // kernel tells who connects, and only our uid and the listed ones are let in).
  // Raises the process's soft limit of descriptors to the hard one; where that is too low for max_connections, fewer
  // are let in and the log says so: a connection beyond them is refused by name, not left waiting.
  // Clients that connect from now on wait until start(). Errors, each with its own message:
  //   invalid_argument  path empty or over 107 bytes, a limit out of range
  //   busy              a live server listens there
  //   permission        the directory, one above it, or the file belongs to another user, or is open to others
  //   io                a plain file is in the way, no such directory, any other failure
  //   bad_config        inherited_socket is no listening Unix socket with a path
  // Of an inherited socket the file is left as it is, now and at the end; who may connect is still checked.
  static Result<std::unique_ptr<Server>> bind(ServerOptions options);

  // Stops as stop() does and removes the socket file.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& socket_path() const;
  // Ours, for an end of the process by force; null for an inherited socket.
  std::shared_ptr<SocketFile> socket_file() const;

  // Begins to serve on a thread of its own. The gateway must outlive stop(). Call once.
  void start(actors::Gateway& gateway);

  // Takes over, for a server that runs: allow_uids, allow_gids, max_connections, max_connections_per_uid,
  // max_outbox_bytes (of connections from now on), the rates, hello_timeout and stall_timeout; the rest of `options` is
  // ignored. Connections of users who are no longer allowed are ended with a refusal; our own socket file gets the mode
  // that bind() would have given it (a failure is logged, and nobody is let in who is not allowed). Error:
  // invalid_argument, as bind(); then nothing changes.
  [[nodiscard]] Status reconfigure(const ServerOptions& options);

  // As Gateway::status(), but asked by the io thread, as for a client: an answer shows that both are alive. `done` is
  // not called after stop(). Ignored before start().
  void status(std::function<void(actors::StatusSnapshot)> done);

  // If nobody has been connected for `time`: stops accepting, so that whoever comes now is left to the next server on
  // an inherited socket, removes a socket file of our own, and calls `done` on the io thread. Else does nothing.
  void end_if_idle(std::chrono::milliseconds time, std::function<void()> done);

  // Stops accepting, removes the socket file, tells clients (Draining), drains the gateway, sends what
  // is still to be sent and closes the connections; then calls `done` on the io thread, once.
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
