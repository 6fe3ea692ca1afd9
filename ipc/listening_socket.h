// The server's socket file: made safely, guarded, and removed again. Plain POSIX.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/result.h"

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

// Our own user, or root, who could become it: always let in, and with rights that guests have not.
[[nodiscard]] bool is_owner(std::uint32_t uid);

// Whether the peer is an owner or a guest. Reads SO_PEERGROUPS of `fd` where only supplementary groups decide.
[[nodiscard]] bool admitted(const Peer& peer, int fd, const Guests& guests);

// A bound, listening, non-blocking socket and its file.
class ListeningSocket {
 public:
  // `path` has passed check_socket_path(). own_directory: the directory is ours alone (a default path):
  // it is made if missing, and must belong to us with nobody else let in. Otherwise it must exist and
  // nobody but its owner (root or us) may be able to replace files in it.
  // Changes the process's umask for a moment: call before other threads make files.
  // Errors: busy, permission, io; see Server::bind().
  static Result<ListeningSocket> open(const std::string& path, const Guests& guests, bool own_directory);
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
  // Removes the file unless somebody has put another one in its place. Idempotent.
  void remove_file();

 private:
  ListeningSocket(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  void remember_file();
  bool file_is_ours() const;

  int fd_ = -1;
  std::string path_;
  std::string own_directory_;  // empty: the directory was given
  dev_t device_ = 0;           // of the file we made; with inode_, how we know it again
  ino_t inode_ = 0;            // 0: no file of ours
};

}  // namespace troupe::ipc
