#include "engine/formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "config/system_error.h"

namespace troupe::engine {
namespace {

Error open_error(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR)
    return {ErrorCode::model_missing, path + ": there is no such model file; check the path given with -m"};
  if (error == EACCES || error == EPERM)
    return {ErrorCode::permission, path + ": no permission to read this model file; check its owner and mode"};
  return system_error(path + ": cannot be read", error);
}

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// The whole pages of an open file's mapping. The handler may read this at any moment.
struct Mapping {
  std::atomic<bool> taken = false;
  std::atomic<std::uintptr_t> begin = 0;  // 0: none
  std::atomic<std::uintptr_t> end = 0;
  std::atomic<bool> is_whole = true;
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::array<Mapping, MappedFile::kMaxOpen> mappings;
struct sigaction previous_handler;

// Only what a signal handler may do: atomics and system calls. Other threads may read the same mapping meanwhile: they
// read zeros from here on, too, or raise the signal themselves.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (Mapping& mapping : mappings) {
    const std::uintptr_t begin = mapping.begin.load();
    const std::uintptr_t end = mapping.end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    const std::uintptr_t from = address / page * page;
    void* const zeros = ::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) break;
    mapping.is_whole.store(false);
    errno = saved_errno;
    return;
  }
  errno = saved_errno;
  if ((previous_handler.sa_flags & SA_SIGINFO) != 0) return previous_handler.sa_sigaction(signal, info, context);
  if (previous_handler.sa_handler != SIG_DFL && previous_handler.sa_handler != SIG_IGN)
    return previous_handler.sa_handler(signal);
  ::sigaction(signal, &previous_handler, nullptr);  // the same instruction faults again, and ends the process
}

void handle_bus_errors() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction handler {};
    handler.sa_sigaction = on_bus_error;
    handler.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&handler.sa_mask);
    ::sigaction(SIGBUS, &handler, &previous_handler);
  });
}

std::optional<std::size_t> take_place() {
  for (std::size_t place = 0; place < mappings.size(); ++place)
    if (!mappings[place].taken.exchange(true)) return place;
  return std::nullopt;
}

}  // namespace

MappedFile::MappedFile(FileDescriptor file, std::byte* base, const FileStamp& stamp, std::size_t place)
    : file_(std::move(file)), base_(base), size_(stamp.bytes), stamp_(stamp), place_(place) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  Mapping& mapping = mappings[place];
  mapping.is_whole = true;
  mapping.end = begin + (size_ + page - 1) / page * page;
  mapping.begin = begin;
}

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must not hang.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return open_error(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return open_error(path, errno);
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::bad_model, path + ": is not a plain file"};
  if (status.st_size == 0) return Error{ErrorCode::bad_model, path + ": is empty"};
  const auto size = static_cast<std::size_t>(status.st_size);
  handle_bus_errors();
  const auto place = take_place();
  if (!place) return Error{ErrorCode::io, fmt::format("{}: {} model files are open already", path, kMaxOpen)};
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    mappings[*place].taken = false;
    return open_error(path, error);
  }
  ::madvise(base, size, MADV_SEQUENTIAL);
  const FileStamp stamp{.inode = status.st_ino,
                        .bytes = size,
                        .mtime_ns = nanoseconds(status.st_mtim),
                        .ctime_ns = nanoseconds(status.st_ctim)};
  return std::unique_ptr<MappedFile>(new MappedFile(std::move(file), static_cast<std::byte*>(base), stamp, *place));
}

MappedFile::~MappedFile() {
  mappings[place_].begin = 0;  // before another mapping can have the address
  ::munmap(base_, size_);
  mappings[place_].taken = false;
}

bool MappedFile::is_whole() const { return mappings[place_].is_whole; }

Status MappedFile::check_unchanged() const {
  struct stat now {};
  if (::fstat(file_.get(), &now) != 0)
    return Error{ErrorCode::bad_model, fmt::format("cannot be read any more: {}", std::strerror(errno))};
  const auto size = static_cast<std::uint64_t>(now.st_size);
  if (size < stamp_.bytes) {
    return Error{ErrorCode::bad_model,
                 fmt::format("was cut off while it was read: it has {} of the {} bytes that it had; is it still being "
                             "copied or downloaded?",
                             size, stamp_.bytes)};
  }
  if (size != stamp_.bytes || nanoseconds(now.st_mtim) != stamp_.mtime_ns) {
    return Error{ErrorCode::bad_model,
                 "was written to while it was read; start again when the copy or download is complete"};
  }
  if (!is_whole())
    return Error{ErrorCode::bad_model,
                 "cannot be read to its end: the disk fails, or the file was cut off for a moment"};
  return Ok{};
}

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(part.data() - base_);  // the mapping begins on a page
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + part.size()) / page * page;
  if (begin < end) ::madvise(base_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace troupe::engine
