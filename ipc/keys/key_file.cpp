#include "ipc/keys/key_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "config/private_directory.h"
#include "config/state_directory.h"
#include "config/system_error.h"

namespace troupe::ipc {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerOnly = 0600;

Error file_error(ErrorCode code, const std::string& path, const std::string& why) {
  return {code, fmt::format("{}: {}", path, why)};
}
Error failed(const std::string& path, const std::string& doing) {
  return system_error(fmt::format("{}: cannot {}", path, doing), errno);
}

bool is_credential(const std::string& path) {
  const std::string directory = absolute_variable("CREDENTIALS_DIRECTORY");
  return !directory.empty() && fs::path(path).parent_path() == fs::path(directory);
}

enum class Purpose { read, change };

// Whether the open file is one that only its owner can read, and its owner the right one.
Status check_file(int fd, const std::string& path, Purpose purpose) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return failed(path, "be examined");
  if (!S_ISREG(info.st_mode)) return file_error(ErrorCode::bad_config, path, "is no file");
  const bool root_changes = purpose == Purpose::change && ::geteuid() == 0;
  if (info.st_uid != ::geteuid() && info.st_uid != 0 && !root_changes)
    return file_error(ErrorCode::permission, path,
                      fmt::format("belongs to uid {}, and this is uid {}; chown it", info.st_uid, ::geteuid()));
  // systemd gives a service its credentials by an access list, which shows as bits of the group.
  const mode_t forbidden = is_credential(path) ? 037 : 077;
  if ((info.st_mode & forbidden) != 0)
    return file_error(ErrorCode::permission, path,
                      fmt::format("has mode {:03o}: other users may read the hashes of keys, or add some; chmod 600 it",
                                  info.st_mode & 0777));
  if (static_cast<std::uint64_t>(info.st_size) > kMaxKeyFileBytes)
    return file_error(ErrorCode::bad_config, path,
                      fmt::format("has {} bytes; a file of keys has at most {}", info.st_size, kMaxKeyFileBytes));
  return Ok{};
}

Result<FileDescriptor> open_file(const std::string& path, int flags) {
  FileDescriptor fd(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() >= 0) return fd;
  if (errno == ELOOP) return file_error(ErrorCode::permission, path, "is a symbolic link; name the file itself");
  if (errno == ENOENT)
    return file_error(ErrorCode::bad_config, path, "there is no such file; `troupe key add NAME` makes it");
  return failed(path, "be opened");
}

Result<std::vector<KeyRow>> read_from(int fd, const std::string& path, std::vector<std::string>* wrong = nullptr) {
  std::string text;
  std::array<char, 16384> part{};
  while (text.size() <= kMaxKeyFileBytes) {  // it may have grown since it was examined
    const ssize_t got = ::pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(path, "be read");
    if (got == 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return parse_keys(text, path, wrong);
}

Status write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed(path, "be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return Ok{};
}

// Whether the path still names the open file: another process may have replaced it before we had the lock.
bool is_still(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

Status make_directory_of(const std::string& path) {
  const fs::path directory = fs::path(path).parent_path();
  std::error_code ignored;
  if (directory.empty() || fs::is_directory(directory, ignored)) return Ok{};
  const auto made = PrivateDirectory::open(directory.string());
  if (!made) return made.error();
  return Ok{};
}

std::string directory_of(const std::string& path) {
  const fs::path directory = fs::path(path).parent_path();
  return directory.empty() ? "." : directory.string();
}

// Opens the file to change it. One that is not there is made, for the owner of the directory: root makes it for a
// service that runs as another user.
Result<FileDescriptor> open_or_make(const std::string& path) {
  constexpr int kMake = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  FileDescriptor made(::open(path.c_str(), kMake, kOwnerOnly));
  if (made.get() < 0) return errno == EEXIST ? open_file(path, O_RDWR) : failed(path, "be made");
  struct stat directory {};
  if (::geteuid() == 0 && ::stat(directory_of(path).c_str(), &directory) == 0 && directory.st_uid != 0 &&
      ::fchown(made.get(), directory.st_uid, directory.st_gid) != 0)
    return failed(path, "be given to the owner of its directory");
  return made;
}

}  // namespace

Result<std::vector<KeyRow>> read_keys(const std::string& path, std::vector<std::string>* wrong) {
  const auto fd = open_file(path, O_RDONLY);
  if (!fd) return fd.error();
  if (const Status good = check_file(fd->get(), path, Purpose::read); !good) return good.error();
  return read_from(fd->get(), path, wrong);
}

Result<std::string> keys_path(const std::string& option) {
  if (option != "auto") return option;
  std::error_code ignored;
  if (const std::string given = absolute_variable("CREDENTIALS_DIRECTORY"); !given.empty())
    if (const std::string path = given + "/troupe-keys"; fs::exists(path, ignored)) return path;
  return state_path("keys-file", "keys");
}

Result<KeyFile> KeyFile::open(const std::string& path) {
  if (const Status made = make_directory_of(path); !made) return made.error();
  // Each turn another process has replaced the file between open() and flock().
  constexpr int kMaxTurns = 100;
  for (int turn = 0; turn < kMaxTurns; ++turn) {
    auto fd = open_or_make(path);
    if (!fd) return fd.error();
    if (const Status good = check_file(fd->get(), path, Purpose::change); !good) return good.error();
    while (::flock(fd->get(), LOCK_EX) != 0)
      if (errno != EINTR) return failed(path, "be locked");
    if (!is_still(fd->get(), path)) continue;
    auto rows = read_from(fd->get(), path);
    if (!rows) return rows.error();
    KeyFile file(path, std::move(*fd));
    file.rows_ = std::move(*rows);
    return file;
  }
  return file_error(ErrorCode::busy, path, "other processes change it all the time; try again");
}

Status KeyFile::replace(std::vector<KeyRow> rows) {
  const std::string temporary = fmt::format("{}.{}.new", path_, ::getpid());
  const auto fail = [&](const Error& error) {
    ::unlink(temporary.c_str());
    return error;
  };
  ::unlink(temporary.c_str());  // of a process with our number that was killed
  FileDescriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
  if (fd.get() < 0) return failed(temporary, "be made");
  struct stat info {};
  if (::fstat(locked_.get(), &info) != 0) return fail(failed(path_, "be examined"));
  if (::fchmod(fd.get(), kOwnerOnly) != 0) return fail(failed(temporary, "get its mode"));
  if (info.st_uid != ::geteuid() && ::fchown(fd.get(), info.st_uid, info.st_gid) != 0)
    return fail(failed(temporary, "be given to the file's owner"));
  if (const Status written = write_all(fd.get(), format_keys(rows), temporary); !written) return fail(written.error());
  if (::fsync(fd.get()) != 0) return fail(failed(temporary, "be written"));
  // The lock goes along: one that waits for the old file's sees that it has been replaced.
  if (::flock(fd.get(), LOCK_EX) != 0) return fail(failed(temporary, "be locked"));
  if (::rename(temporary.c_str(), path_.c_str()) != 0) return fail(failed(path_, "be replaced"));
  const FileDescriptor parent(::open(directory_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.get() >= 0) ::fsync(parent.get());
  locked_ = std::move(fd);
  rows_ = std::move(rows);
  return Ok{};
}

}  // namespace troupe::ipc
