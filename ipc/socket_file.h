// The file of a socket that we bound, known again by its device and inode: another's in its place is never removed.
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

  // Call when the socket was just bound to the path. Takes no memory.
  void remember() noexcept;
  // Whether it still lies at its path.
  [[nodiscard]] bool is_there() const;
  // The first call removes it if it is there. Any thread; takes no lock and no memory, so that it can be called where
  // the process ends by force.
  void remove() noexcept;

 private:
  bool is_at_path() const noexcept;

  const std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::atomic<bool> kept_{false};  // an inode may be used again once its file is removed
};

}  // namespace troupe::ipc
