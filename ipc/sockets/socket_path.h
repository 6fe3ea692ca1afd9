// The paths of the Unix socket that a server listens on and a client connects to.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "config/result.h"

namespace troupe::ipc {

inline constexpr std::size_t kMaxSocketPathBytes = 107;  // sun_path of unix(7), less its terminating zero
inline constexpr const char* kSystemSocketPath = "/run/troupe/troupe.sock";

// The parts of the environment that the paths depend on; a test passes its own.
struct SocketEnvironment {
  std::optional<std::string> troupe_host;      // TROUPE_HOST
  std::optional<std::string> xdg_runtime_dir;  // XDG_RUNTIME_DIR
  std::string user_runtime_dir;                // /run/user/UID; empty where that directory does not exist
  std::string home_socket;                     // ~/.troupe/HOST.sock; empty for root, and where the home is not private
  bool is_root = false;

  static SocketEnvironment current();
};

// Error: invalid_argument, for a path that is empty, too long, or holds a zero byte (abstract sockets are not
// supported, because they have no permissions).
[[nodiscard]] Status check_socket_path(const std::string& path);

// Error: io, if there is something at the path that is no socket. Takes no link for what it leads to.
[[nodiscard]] Status check_no_other_file(const std::string& path);

// Where this user's server listens when nothing else is said: in the user's runtime directory; without one (in a
// container, after su) root's in /run/troupe and others' in the home. Error: permission, where none of them can be
// used.
[[nodiscard]] Result<std::string> server_socket_path(const SocketEnvironment& environment);

// The paths that a client tries, in order; never empty. Error: invalid_argument or unsupported, for a TROUPE_HOST that
// is not unix:///path.
[[nodiscard]] Result<std::vector<std::string>> client_socket_paths(const SocketEnvironment& environment);

}  // namespace troupe::ipc
