#include "ipc/sockets/socket_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "ipc/sockets/strict_modes.h"

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

// The machine is part of the name, because a home may be on a network: the socket of a server on another machine looks
// dead from here, and would be replaced.
std::string socket_in_home() {
  const auto home = variable("HOME");
  if (!home || !home->starts_with('/') || !is_private(*home)) return "";
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return "";
  const std::string name = host.data();
  if (name.empty() || name.find('/') != std::string::npos) return "";
  std::string path = *home + "/.troupe/" + name + ".sock";
  return path.size() <= kMaxSocketPathBytes ? path : "";
}

// XDG_RUNTIME_DIR, unless it belongs to another user, as after su.
std::optional<std::string> runtime_dir() {
  auto directory = variable("XDG_RUNTIME_DIR");
  struct stat status {};
  const bool is_of_another = directory && ::stat(directory->c_str(), &status) == 0 && status.st_uid != ::geteuid();
  return is_of_another && ::geteuid() != 0 ? std::nullopt : directory;
}

}  // namespace

SocketEnvironment SocketEnvironment::current() {
  const std::string run_user = fmt::format("/run/user/{}", ::geteuid());
  struct stat status {};
  const bool exists = ::stat(run_user.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const bool is_root = ::geteuid() == 0;
  return {.troupe_host = variable("TROUPE_HOST"),
          .xdg_runtime_dir = runtime_dir(),
          .user_runtime_dir = exists ? run_user : std::string(),
          .home_socket = is_root ? std::string() : socket_in_home(),
          .is_root = is_root};
}

Status check_socket_path(const std::string& path) {
  if (path.empty()) return Error{ErrorCode::invalid_argument, "the socket path is empty; give one with --socket"};
  if (path.find('\0') != std::string::npos)
    return Error{ErrorCode::invalid_argument,
                 "the socket path holds a zero byte; abstract sockets have no permissions and are not served"};
  if (path.size() > kMaxSocketPathBytes)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format(
            "the socket path has {} bytes, but the system takes at most {}; choose a shorter one with --socket: {}",
            path.size(), kMaxSocketPathBytes, path)};
  return Ok{};
}

Status check_no_other_file(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || S_ISSOCK(info.st_mode)) return Ok{};
  return Error{ErrorCode::io, path + " exists and is not a socket; move it away, or choose another --socket"};
}

Result<std::string> server_socket_path(const SocketEnvironment& environment) {
  if (auto path = user_socket_path(environment)) return *path;
  if (environment.is_root) return std::string(kSystemSocketPath);
  if (!environment.home_socket.empty()) return environment.home_socket;
  return Error{
      ErrorCode::permission,
      "there is no private directory for the socket: XDG_RUNTIME_DIR is not set, /run/user/UID does not exist, "
      "and HOME is not a directory of your own that, like those above it, nobody else can write to; name a "
      "path in such a directory with --socket"};
}

Result<std::vector<std::string>> client_socket_paths(const SocketEnvironment& environment) {
  if (environment.troupe_host) {
    const std::string_view host = *environment.troupe_host;
    if (host.starts_with('/')) return std::vector<std::string>{std::string(host)};
    if (host.starts_with("tcp://"))
      return Error{ErrorCode::unsupported,
                   fmt::format("TROUPE_HOST is {}, but this version speaks only Unix sockets: unix:///path", host)};
    if (!host.starts_with(kUnix) || !host.substr(kUnix.size()).starts_with('/'))
      return Error{ErrorCode::invalid_argument,
                   fmt::format("TROUPE_HOST is {}; it must be unix:/// and the absolute path of a socket", host)};
    return std::vector<std::string>{std::string(host.substr(kUnix.size()))};
  }
  std::vector<std::string> paths;
  if (auto path = user_socket_path(environment)) paths.push_back(*path);
  // Also beside the first: a server that cron started has no runtime directory where its user's session has one.
  if (!environment.home_socket.empty()) paths.push_back(environment.home_socket);
  paths.push_back(kSystemSocketPath);
  return paths;
}

}  // namespace troupe::ipc
