#include "ipc/sockets/strict_modes.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <filesystem>
#include <vector>

#include "config/printable.h"
#include "config/system_error.h"
#include "ipc/sockets/listening_socket.h"

namespace troupe::ipc {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's own bound (path_resolution(7))
constexpr const char* kOtherwise = ", or accept it with --no-strict-modes";

constexpr std::size_t kMaxShownPath = 512;

std::string shown(const std::string& path) { return Printable(path, kMaxShownPath).text(); }

bool others_may_write(const struct stat& status) { return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0; }
bool is_sticky(const struct stat& status) { return (status.st_mode & S_ISVTX) != 0; }

Error cannot_look_at(const std::string& path, int error) {
  return system_error("cannot look at " + shown(path) + ", on the way to the socket", error);
}

// Resolves a path as the kernel does, and checks every directory and link on it.
class Walk {
 public:
  explicit Walk(std::vector<uid_t> trusted, bool allows_sticky = true)
      : trusted_(std::move(trusted)), allows_sticky_(allows_sticky) {}

  // Resolves `path` from /. Only its last component may be something else than a directory.
  Status to(const std::string& path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::absolute(path, error);
    if (error) return cannot_look_at(path, error.value());
    push_front(whole);
    if (Status root = enter("/"); !root) return root;
    while (!left_.empty()) {
      const std::string name = left_.front();
      left_.pop_front();
      if (name.empty() || name == "." || name == "/") continue;
      if (Status step = name == ".." ? enter(at_.parent_path()) : enter(at_ / name); !step) return step;
    }
    return Ok{};
  }

  // The last directory on the path.
  const std::filesystem::path& directory() const { return at_; }
  const struct stat& status() const { return status_; }

 private:
  void push_front(const std::filesystem::path& path) {
    const std::vector<std::string> names(path.begin(), path.end());
    left_.insert(left_.begin(), names.begin(), names.end());
  }

  Status enter(const std::filesystem::path& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return cannot_look_at(path, errno);
    if (S_ISLNK(status.st_mode)) return follow(path, status);
    if (!S_ISDIR(status.st_mode)) return left_.empty() ? Status(Ok{}) : Status(cannot_look_at(path, ENOTDIR));
    if (Status owned = check_owner(path, status); !owned) return owned;
    if (others_may_write(status) && !(allows_sticky_ && is_sticky(status))) return writable(path, status);
    at_ = path;
    status_ = status;
    return Ok{};
  }

  Status follow(const std::filesystem::path& link, const struct stat& status) {
    if (Status owned = check_owner(link, status); !owned) return owned;
    if (++num_links_ > kMaxLinks) return cannot_look_at(link, ELOOP);
    std::error_code error;
    const std::filesystem::path target = std::filesystem::read_symlink(link, error);
    if (error) return cannot_look_at(link, error.value());
    push_front(target);
    return target.is_absolute() ? enter("/") : Status(Ok{});
  }

  Status check_owner(const std::filesystem::path& path, const struct stat& status) const {
    if (std::find(trusted_.begin(), trusted_.end(), status.st_uid) != trusted_.end()) return Ok{};
    return Error{ErrorCode::permission,
                 fmt::format("{}, on the way to the socket, belongs to uid {}, who is neither uid {} nor root and "
                             "could put another socket in its place; choose a directory of your own with --socket{}",
                             shown(path), status.st_uid, ::geteuid(), kOtherwise)};
  }

  static Status writable(const std::filesystem::path& path, const struct stat& status) {
    const bool all = (status.st_mode & S_IWOTH) != 0;
    return Error{ErrorCode::permission,
                 fmt::format("{} can write to {} (mode {}), on the way to the socket, and could put another socket in "
                             "its place; chmod {} {}, or choose a private directory with --socket{}",
                             all ? "everybody" : fmt::format("group {}", status.st_gid), shown(path),
                             octal(status.st_mode), all ? "go-w" : "g-w", shown(path), kOtherwise)};
  }

  const std::vector<uid_t> trusted_;
  const bool allows_sticky_;
  std::deque<std::string> left_;  // names that are not resolved yet
  std::filesystem::path at_;
  struct stat status_ {};  // of at_
  int num_links_ = 0;
};

}  // namespace

Status check_way_to(const std::string& directory) { return Walk({0, ::geteuid()}).to(directory); }

bool is_private(const std::string& directory) {
  Walk walk({0, ::geteuid()}, /*allows_sticky=*/false);
  return walk.to(directory) && walk.status().st_uid == ::geteuid();
}

Status check_server(int fd, const std::string& path) {
  const Result<Peer> server = peer_of(fd);
  if (!server) return server.error();
  if (is_owner(server->uid)) return Ok{};
  const std::string who = fmt::format("the server at {} runs as uid {}", shown(path), server->uid);
  Walk walk({0, ::geteuid(), server->uid});
  if (Status way = walk.to(path); !way) return Error{way.error().code, who + ", and " + way.error().message};
  // A file in a directory that others cannot write to was put there by root, by us or by the server's user.
  if (!others_may_write(walk.status()) || walk.status().st_uid == server->uid) return Ok{};
  return Error{
      ErrorCode::permission,
      fmt::format("{}, which is neither you nor root nor the owner of {} (uid {}), where everybody may make a socket: "
                  "it may not be the server that you mean; ask its user for a socket in a directory of their own{}",
                  who, shown(walk.directory()), walk.status().st_uid, kOtherwise)};
}

}  // namespace troupe::ipc
