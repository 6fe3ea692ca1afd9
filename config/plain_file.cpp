#include "config/plain_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>

#include "config/file_descriptor.h"
#include "config/system_error.h"

namespace troupe {

Result<std::string> read_plain_file(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (S_ISDIR(info.st_mode)) return system_error(path + ": cannot be read", EISDIR);
  const bool is_null = S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
  if (!S_ISREG(info.st_mode) && !is_null)
    return Error{ErrorCode::bad_config, path + ": is a device, a pipe or a socket; name a plain file"};
  std::string bytes;
  while (bytes.size() <= max_bytes) {  // one more than is taken tells that there are too many
    const std::size_t had = bytes.size();
    bytes.resize(std::min(had + (std::size_t{1} << 16), max_bytes + 1));
    const ssize_t got = ::read(file.get(), bytes.data() + had, bytes.size() - had);
    bytes.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path + ": cannot be read", errno);
    if (got == 0) return bytes;
  }
  return Error{ErrorCode::bad_config, fmt::format("{}: has more than {} bytes", path, max_bytes)};
}

}  // namespace troupe
