#include "ipc/socket_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace troupe::ipc {
namespace {

constexpr std::string_view kUnix = "unix://";

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;  // the XDG specification: empty counts as unset
  return std::string(value);
}

std::optional<std::string> user_socket_path(const SocketEnvironment& environment) {
  if (environment.xdg_runtime_dir) return *environment.xdg_runtime_dir + "/troupe/troupe.sock";
  if (!environment.user_runtime_dir.empty()) return environment.user_runtime_dir + "/troupe/troupe.sock";
  return std::nullopt;
}

}  // namespace

SocketEnvironment SocketEnvironment::current() {
  const std::string run_user = "/run/user/" + std::to_string(::geteuid());
  struct stat status {};
  const bool exists = ::stat(run_user.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return {.troupe_host = variable("TROUPE_HOST"),
          .xdg_runtime_dir = variable("XDG_RUNTIME_DIR"),
          .user_runtime_dir = exists ? run_user : std::string(),
          .is_root = ::geteuid() == 0};
}

Status check_socket_path(const std::string& path) {
  if (path.empty()) return Error{ErrorCode::invalid_argument, "the socket path is empty; give one with --socket"};
  if (path.find('\0') != std::string::npos)
    return Error{ErrorCode::invalid_argument,
                 "the socket path holds a zero byte; abstract sockets have no permissions and are not served"};
  if (path.size() > kMaxSocketPathBytes)
    return Error{ErrorCode::invalid_argument,
                 "the socket path has " + std::to_string(path.size()) + " bytes, but the system takes at most " +
                     std::to_string(kMaxSocketPathBytes) + "; choose a shorter one with --socket: " + path};
  return Ok{};
}

Result<std::string> server_socket_path(const SocketEnvironment& environment) {
  if (auto path = user_socket_path(environment)) return *path;
  if (environment.is_root) return std::string(kSystemSocketPath);
  return Error{ErrorCode::permission,
               "there is no private directory for the socket: XDG_RUNTIME_DIR is not set and /run/user/UID does not "
               "exist; name a path in a directory of your own with --socket"};
}

Result<std::vector<std::string>> client_socket_paths(const SocketEnvironment& environment) {
  if (environment.troupe_host) {
    const std::string_view host = *environment.troupe_host;
    if (host.starts_with('/')) return std::vector<std::string>{std::string(host)};
    if (host.starts_with("tcp://"))
      return Error{ErrorCode::unsupported, "TROUPE_HOST is " + *environment.troupe_host +
                                               ", but this version speaks only Unix sockets: unix:///path"};
    if (!host.starts_with(kUnix) || !host.substr(kUnix.size()).starts_with('/'))
      return Error{ErrorCode::invalid_argument, "TROUPE_HOST is " + *environment.troupe_host +
                                                    "; it must be unix:/// and the absolute path of a socket"};
    return std::vector<std::string>{std::string(host.substr(kUnix.size()))};
  }
  std::vector<std::string> paths;
  if (auto path = user_socket_path(environment)) paths.push_back(*path);
  paths.push_back(kSystemSocketPath);
  return paths;
}

}  // namespace troupe::ipc
