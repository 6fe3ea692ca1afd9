#include "ipc/sockets/listening_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <utility>

#include "config/file_descriptor.h"
#include "config/system_error.h"
#include "ipc/sockets/socket_path.h"
#include "ipc/sockets/strict_modes.h"

namespace troupe::ipc {
namespace {

// As long as systems allow (net.core.somaxconn): connections that arrive faster than they are accepted wait in this
// queue, and one user could fill a short one.
constexpr int kBacklog = 4096;

std::string reason(int error) { return std::string(": ") + std::strerror(error); }

// The error of a system call that has just failed.
Error failed(const std::string& what, int error = errno) {
  return system_error(what, error, error == EROFS ? ErrorCode::permission : ErrorCode::io);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());  // at most 107 bytes; the rest is zero
  return address;
}

mode_t directory_mode(const Guests& guests) { return guests.none() ? 0700 : 0711; }

mode_t socket_mode(const Guests& guests) {
  if (guests.none()) return 0600;
  return guests.uids.empty() && guests.gids.size() == 1 ? 0660 : 0666;
}

Status check_own_directory(const std::string& directory, const Guests& guests) {
  const mode_t wanted = directory_mode(guests);
  if (::mkdir(directory.c_str(), wanted) != 0 && errno != EEXIST)
    return failed("cannot make the socket's directory " + directory);
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return failed("cannot look at the socket's directory " + directory);
  if (!S_ISDIR(status.st_mode))
    return Error{ErrorCode::permission, directory + " is not a directory; remove it, or choose another --socket"};
  if (status.st_uid != ::geteuid())
    return Error{
        ErrorCode::permission,
        fmt::format("the socket's directory {} belongs to uid {}, not to uid {}; choose another path with --socket",
                    directory, status.st_uid, ::geteuid())};
  const mode_t forbidden = guests.none() ? 0077 : 0022;
  if (status.st_mode & forbidden)
    return Error{ErrorCode::permission,
                 fmt::format("the socket's directory {0} has mode {1}, which lets others in; chmod {2} {0}", directory,
                             octal(status.st_mode), octal(wanted))};
  return Ok{};
}

Status check_given_directory(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return failed("cannot use the socket's directory " + directory);
  if (!S_ISDIR(status.st_mode)) return Error{ErrorCode::io, directory + " is not a directory"};
  return Ok{};
}

// Makes `path` free for our socket: removes the file of a dead socket; an error if a live server or another file is
// there.
Status clear_path(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Ok{};
    return failed("cannot look at " + path);
  }
  if (Status free = check_no_other_file(path); !free) return free;
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (probe.get() < 0) return failed("cannot make a socket");
  const sockaddr_un address = address_of(path);
  const int connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  // EAGAIN: its queue of connections is full; EPROTOTYPE: it is no stream socket. In both cases a server is alive.
  if (connected == 0 || errno == EAGAIN || errno == EPROTOTYPE)
    return Error{ErrorCode::busy, fmt::format("another server listens on {0}; stop it, talk to it (troupe status "
                                              "--socket {0}), or choose another --socket",
                                              path)};
  if (errno == EACCES || errno == EPERM)
    return Error{ErrorCode::permission,
                 fmt::format("{} belongs to uid {} and cannot be asked whether it is alive; choose another --socket",
                             path, status.st_uid)};
  if (errno == ENOENT) return Ok{};  // removed meanwhile
  if (errno != ECONNREFUSED) return failed("cannot tell whether " + path + " is alive");
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return failed("cannot remove the dead socket " + path);
  return Ok{};
}

Status give_to_group(const std::string& path, const Guests& guests) {
  if (socket_mode(guests) != 0660 || ::chown(path.c_str(), static_cast<uid_t>(-1), guests.gids[0]) == 0) return Ok{};
  const Error why = failed(fmt::format("cannot give the socket {} to group {}", path, guests.gids[0]));
  return Error{why.code, why.message + " (only groups that we are a member of can be let in)"};
}

// The path of a listening Unix stream socket; an error if `fd` is something else.
Result<std::string> path_of_listening(int fd) {
  int listens = 0, type = 0;
  socklen_t size = sizeof(int);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0)
    return Error{ErrorCode::bad_config, "is not a socket" + reason(errno)};
  size = sizeof(int);
  sockaddr_un address{};
  socklen_t length = sizeof(address);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return Error{ErrorCode::bad_config, "cannot be looked at" + reason(errno)};
  if (address.sun_family != AF_UNIX || type != SOCK_STREAM || listens == 0)
    return Error{ErrorCode::bad_config, "is not a listening Unix stream socket"};
  if (length <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == '\0')
    return Error{ErrorCode::bad_config, "has no path: abstract sockets have no permissions and are not served"};
  return std::string(address.sun_path, ::strnlen(address.sun_path, length - offsetof(sockaddr_un, sun_path)));
}

}  // namespace

void SocketFile::remember() noexcept {
  struct stat status {};
  if (::lstat(path_.c_str(), &status) != 0) return;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  kept_ = true;
}

bool SocketFile::is_there() const { return kept_ && is_at_path(); }

void SocketFile::remove() noexcept {
  if (kept_.exchange(false) && is_at_path()) ::unlink(path_.c_str());
}

bool SocketFile::is_at_path() const noexcept {
  struct stat status {};
  return ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

std::string directory_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? std::string(".") : parent.string();
}

std::string octal(mode_t mode) { return fmt::format("{:04o}", mode & 07777); }

Result<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return Error{ErrorCode::permission, "the kernel does not say who is connecting" + reason(errno)};
  return Peer{credentials.uid, credentials.gid, credentials.pid};
}

bool is_owner(std::uint32_t uid) { return uid == ::geteuid() || uid == 0; }

std::vector<std::uint32_t> supplementary_groups(int fd) {
  std::vector<gid_t> groups(256);
  socklen_t size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  int got = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  if (got != 0 && errno == ERANGE) {  // `size` is now the size needed
    groups.resize(size / sizeof(gid_t));
    got = ::getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
  }
  groups.resize(got == 0 ? size / sizeof(gid_t) : 0);
  return groups;
}

bool admitted(std::uint32_t uid, std::span<const std::uint32_t> gids, const Guests& guests) {
  const auto contains = [](const std::vector<std::uint32_t>& ids, std::uint32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return is_owner(uid) || contains(guests.uids, uid) ||
         std::any_of(gids.begin(), gids.end(), [&](std::uint32_t gid) { return contains(guests.gids, gid); });
}

bool admitted(const Peer& peer, int fd, const Guests& guests) {
  if (admitted(peer.uid, {&peer.gid, 1}, guests)) return true;
  return !guests.gids.empty() && admitted(peer.uid, supplementary_groups(fd), guests);
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path, const Guests& guests, bool own_directory,
                                              bool strict_modes) {
  const std::string directory = directory_of(path);
  if (Status checked = own_directory ? check_own_directory(directory, guests) : check_given_directory(directory);
      !checked)
    return checked.error();
  if (strict_modes)
    if (Status way = check_way_to(directory); !way) return way.error();

  // Two servers that start at once must not remove each other's socket between clear_path() and bind(). In a directory
  // that other users can open, any of them could hold this lock for ever, so there it is not taken.
  const FileDescriptor lock(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  if (lock.get() >= 0 && ::fstat(lock.get(), &status) == 0 && status.st_uid == ::geteuid() &&
      (status.st_mode & 0077) == 0)
    ::flock(lock.get(), LOCK_EX);

  if (Status cleared = clear_path(path); !cleared) return cleared.error();
  ListeningSocket socket(-1, path);
  socket.fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket.fd_ < 0) return failed("cannot make a socket");
  if (own_directory) socket.own_directory_ = directory;
  socket.file_ = std::make_shared<SocketFile>(path);
  const sockaddr_un address = address_of(path);
  const mode_t mode = socket_mode(guests);
  const mode_t before = ::umask(0777 & ~mode);
  const int bound = ::bind(socket.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int bind_error = errno;
  if (bound == 0) socket.file_->remember();  // from here on the file is removed if we fail
  ::umask(before);
  if (bound != 0) {
    Error error = failed("cannot make the socket " + path, bind_error);
    if (bind_error == EADDRINUSE) error.code = ErrorCode::busy;
    return error;
  }
  if (Status given = give_to_group(path, guests); !given) return given.error();
  if (::listen(socket.fd_, kBacklog) != 0) return failed("cannot listen on " + path);
  return socket;
}

Result<ListeningSocket> ListeningSocket::adopt(int fd) {
  auto path = path_of_listening(fd);
  if (!path)
    return Error{
        path.error().code,
        fmt::format(
            "descriptor {}, which the service manager passed, {}; the socket unit needs ListenStream= with a path", fd,
            path.error().message)};
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return failed("cannot set up the socket that the service manager passed");
  return ListeningSocket(fd, std::move(*path));
}

Status ListeningSocket::admit(const Guests& guests) {
  if (!file_ || !file_->is_there()) return Ok{};
  // Group first: the new mode must not admit the file's previous group.
  if (Status given = give_to_group(path_, guests); !given) return given.error();
  if (::chmod(path_.c_str(), socket_mode(guests)) != 0) return failed("cannot change the mode of " + path_);
  if (!own_directory_.empty() && ::chmod(own_directory_.c_str(), directory_mode(guests)) != 0)
    return failed("cannot change the mode of " + own_directory_);
  return Ok{};
}

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      own_directory_(std::move(other.own_directory_)),
      file_(std::move(other.file_)) {}

ListeningSocket::~ListeningSocket() {
  remove_file();
  if (fd_ >= 0) ::close(fd_);
}

int ListeningSocket::release() { return std::exchange(fd_, -1); }

void ListeningSocket::remove_file() {
  if (file_) file_->remove();
}

}  // namespace troupe::ipc
