#include "engine/formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "config/file_descriptor.h"

namespace troupe::engine {
namespace {

Error open_error(const std::string& path, int error) {
  if (error == ENOENT || error == ENOTDIR)
    return {ErrorCode::model_missing, path + ": there is no such model file; check the path given with -m"};
  if (error == EACCES || error == EPERM)
    return {ErrorCode::permission, path + ": no permission to read this model file; check its owner and mode"};
  return {ErrorCode::io, path + ": cannot be read: " + std::strerror(error)};
}

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must not hang.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return open_error(path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return open_error(path, errno);
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::bad_model, path + ": is not a plain file"};
  if (status.st_size == 0) return Error{ErrorCode::bad_model, path + ": is empty"};
  const auto size = static_cast<std::size_t>(status.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (base == MAP_FAILED) return open_error(path, errno);
  ::madvise(base, size, MADV_SEQUENTIAL);
  const FileStamp stamp{.inode = status.st_ino,
                        .bytes = size,
                        .mtime_ns = nanoseconds(status.st_mtim),
                        .ctime_ns = nanoseconds(status.st_ctim)};
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<std::byte*>(base), stamp));
}

MappedFile::~MappedFile() { ::munmap(base_, size_); }

void MappedFile::drop_pages(std::span<const std::byte> part) const {
  if (part.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(part.data() - base_);  // the mapping begins on a page
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + part.size()) / page * page;
  if (begin < end) ::madvise(base_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace troupe::engine
