#include "cli/backup/copying.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "cli/terminal/logging.h"
#include "config/system_error.h"
#include "ipc/keys/sha256.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;

bool write_whole(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    data = data.subspan(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

Copying::Copying()
    : signals_({SIGINT, SIGTERM, SIGHUP}, [this](int number) { signal_ = number; }),
      progress_(log_is_on_terminal({}), Progress::Clock::now()),
      buffer_(kPieceBytes) {}

void Copying::begin(const std::string& what, std::uint64_t total_bytes) {
  progress_ = Progress(log_is_on_terminal({}), Progress::Clock::now(), what);
  total_ = total_bytes;
  done_ = 0;
}

Result<CopiedFile> Copying::copy(int from, const std::string& from_path, int to, const std::string& to_path) {
  CopiedFile copied;
  ipc::Sha256 hash;
  for (;;) {
    if (signal_ != 0) return Error{ErrorCode::io, "interrupted; nothing was changed"};
    const ssize_t got = ::pread(from, buffer_.data(), buffer_.size(), static_cast<off_t>(copied.size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(from_path + ": cannot be read", errno);
    if (got == 0) break;
    const std::span piece(buffer_.data(), static_cast<std::size_t>(got));
    if (to >= 0 && !write_whole(to, piece)) return system_error(to_path + ": cannot be written", errno);
    hash.add(piece);
    copied.size += piece.size();
    done_ += piece.size();
    if (total_ > 0)
      progress_.update(std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)), Progress::Clock::now());
  }
  copied.sha256 = hash.hex();
  if (to < 0) return copied;
  struct stat info {};
  if (::fstat(from, &info) == 0) set_modified(to, info.st_mtime);
  if (::fsync(to) != 0) return system_error(to_path + ": cannot be written", errno);
  return copied;
}

Result<FileDescriptor> open_regular(int directory, const std::string& name, const std::string& path, int* number) {
  FileDescriptor file(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  const int failure = file.get() < 0 ? errno : 0;
  if (number != nullptr) *number = failure;
  if (failure == ELOOP) return Error{ErrorCode::io, path + ": is a symbolic link"};
  if (failure != 0) return system_error(path + ": cannot be read", failure);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::io, path + ": is not a plain file"};
  return file;
}

Result<FileDescriptor> make_file_in(int directory, const std::string& name, const std::string& path) {
  FileDescriptor file(
      ::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return system_error(path + ": cannot be made", errno);
  return file;
}

void set_modified(int file, std::int64_t seconds) {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = seconds, .tv_nsec = 0}};
  (void)::futimens(file, times);  // what has no times is restored all the same
}

Status sync_folder(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0) return system_error(path + ": cannot be synced", errno);
  return Ok{};
}

}  // namespace troupe::cli
