// The server's listening socket and its file: created safely, with permissions, and removed at the end. Plain POSIX.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "config/result.h"

namespace troupe::ipc {

// The file of a socket that we bound, identified by device and inode: a file that has replaced it is never removed.
class SocketFile {
 public:
  explicit SocketFile(std::string path) : path_(std::move(path)) {}
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  // Call right after the socket was bound to the path. Allocates nothing.
  void remember() noexcept;
  // Whether our file is still at its path.
  [[nodiscard]] bool is_there() const;
  // The first call removes the file if it is there. Any thread; takes no lock and allocates nothing, so that it can be
  // called when the process is ended by force.
  void remove() noexcept;

 private:
  bool is_at_path() const noexcept;

  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::atomic<bool> kept_{false};  // an inode may be used again once its file is removed
};

// The users that may connect besides our own uid and root.
struct Guests {
  std::vector<std::uint32_t> uids;
  std::vector<std::uint32_t> gids;  // primary or supplementary

  bool none() const { return uids.empty() && gids.empty(); }
};

// The credentials of the process at the other end, as the kernel recorded them at connect() (unix(7), SO_PEERCRED). The
// pid is only a hint: it may have been reused since.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int32_t pid = 0;
};

[[nodiscard]] Result<Peer> peer_of(int fd);

// The supplementary groups of the peer, as the kernel recorded them at connect() (SO_PEERGROUPS); empty if it does not
// say.
[[nodiscard]] std::vector<std::uint32_t> supplementary_groups(int fd);

// The permission bits: "0755".
[[nodiscard]] std::string octal(mode_t mode);
// The directory of a socket's file: "." for a name alone.
[[nodiscard]] std::string directory_of(const std::string& path);

// Whether the uid is our own user or root: always admitted, and with rights that guests do not have.
[[nodiscard]] bool is_owner(std::uint32_t uid);

// Whether the user is an owner or a guest; gids: its groups.
[[nodiscard]] bool admitted(std::uint32_t uid, std::span<const std::uint32_t> gids, const Guests& guests);
// Whether the peer is an owner or a guest. Reads SO_PEERGROUPS of `fd` where only supplementary groups decide.
[[nodiscard]] bool admitted(const Peer& peer, int fd, const Guests& guests);

// A bound, listening, non-blocking socket and its file.
class ListeningSocket {
 public:
  // `path` has passed check_socket_path(). own_directory: the directory is for this socket only (a default path): it is
  // made if missing, must belong to us, and other users must have no access (with guests: no write access). Otherwise
  // it must exist. No other user may be able to replace it or the files in it (check_way_to() in strict_modes.h),
  // unless strict_modes is false. Changes the process's umask for a moment: call before other threads make files.
  // Errors: busy, permission, io; see Server::bind().
  static Result<ListeningSocket> open(const std::string& path, const Guests& guests, bool own_directory,
                                      bool strict_modes = true);
  // Takes over a listening socket that a service manager has bound. Its file, with owner and mode, belongs to the
  // manager: it is neither changed nor removed. Error: bad_config, if `fd` is no listening Unix stream socket with a
  // path; it is left open then.
  static Result<ListeningSocket> adopt(int fd);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();  // closes the descriptor unless it was released, and removes the file

  const std::string& path() const { return path_; }
  // Returns the descriptor; the caller closes it.
  int release();
  // Sets the mode of our own file and directory to what `guests` need, and no more. Does nothing to an adopted socket.
  // Error: permission or io.
  [[nodiscard]] Status admit(const Guests& guests);
  // Removes the file unless another file has replaced it. Idempotent.
  void remove_file();
  // Null for an adopted socket.
  const std::shared_ptr<SocketFile>& file() const { return file_; }

 private:
  ListeningSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
  std::string own_directory_;  // empty: the directory was given
  std::shared_ptr<SocketFile> file_;
};

}  // namespace troupe::ipc
