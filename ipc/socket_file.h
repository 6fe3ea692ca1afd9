// The file of a socket that we bound, identified by device and inode: a file that has replaced it is never removed.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <utility>

namespace troupe::ipc {

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

}  // namespace troupe::ipc
