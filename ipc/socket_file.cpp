#include "ipc/socket_file.h"

#include <sys/stat.h>
#include <unistd.h>

namespace troupe::ipc {

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

}  // namespace troupe::ipc
