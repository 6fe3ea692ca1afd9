// The server's socket file: made safely, guarded, and removed again. Plain POSIX.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/result.h"
#include "ipc/socket_file.h"

namespace troupe::ipc {

// Who may connect besides our own uid.
struct Guests {
  std::vector<std::uint32_t> uids;
  std::vector<std::uint32_t> gids;  // primary or supplementary

  bool none() const { return uids.empty() && gids.empty(); }
};

// Who is at the other end, as the kernel noted it at connect() (unix(7), SO_PEERCRED). The pid is a
// hint: it may have been reused since.
struct Peer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int32_t pid = 0;
};

[[nodiscard]] Result<Peer> peer_of(int fd);

// "0755"
[[nodiscard]] std::string octal(mode_t mode);
// Where the file of a socket lies: "." for a name alone.
[[nodiscard]] std::string directory_of(const std::string& path);

// Our own user, or root, who could become it: always let in, and with rights that guests have not.
[[nodiscard]] bool is_owner(std::uint32_t uid);

// Whether the peer is an owner or a guest. Reads SO_PEERGROUPS of `fd` where only supplementary groups decide.
[[nodiscard]] bool admitted(const Peer& peer, int fd, const Guests& guests);

// A bound, listening, non-blocking socket and its file.
class ListeningSocket {
 public:
  // `path` has passed check_socket_path(). own_directory: the directory is ours alone (a default path):
  // it is made if missing, and must belong to us with nobody else let in. Otherwise it must exist. No other user
  // may be able to replace it or the files in it (check_way_to() in strict_modes.h), unless strict_modes is false.
  // Changes the process's umask for a moment: call before other threads make files.
  // Errors: busy, permission, io; see Server::bind().
  static Result<ListeningSocket> open(const std::string& path, const Guests& guests, bool own_directory,
                                      bool strict_modes = true);
  // Takes over a socket that a service manager has bound and listens on. Its file, with owner and mode, is the
  // manager's: it is neither changed nor removed. Error: bad_config, if `fd` is no listening Unix stream socket with a
  // path; it is left open then.
  static Result<ListeningSocket> adopt(int fd);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();  // closes the descriptor if it is still here, and removes the file

  const std::string& path() const { return path_; }
  // Gives the descriptor away.
  int release();
  // Opens our own file, and our own directory, as far as `guests` need, and no further. Does nothing to an adopted
  // one. Error: permission or io.
  [[nodiscard]] Status admit(const Guests& guests);
  // Removes the file unless another one lies in its place. Idempotent.
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
