#include "config/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "config/system_error.h"

namespace troupe {
namespace {

Error refused(const std::string& path, const std::string& why) {
  return {ErrorCode::permission, fmt::format("{}: {}", path, why)};
}

// So that a directory made in this one is still there after a crash. Some cannot be read, or synced: what is made in
// them counts all the same.
void sync_directory(int parent, const std::filesystem::path& path) {
  const FileDescriptor directory(
      ::openat(parent, path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) (void)::fsync(directory.get());
}

void make_with_parents(const std::filesystem::path& path, std::error_code& failed) {
  if (path.empty() || std::filesystem::exists(path, failed)) return;
  failed.clear();
  make_with_parents(path.parent_path(), failed);
  if (!failed && std::filesystem::create_directory(path, failed)) sync_directory(AT_FDCWD, path.parent_path());
}

}  // namespace

Result<PrivateDirectory> PrivateDirectory::open(const std::string& given) {
  std::string path = given;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();  // else its parent is the directory itself
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code failed;
  make_with_parents(parent, failed);
  if (failed) return system_error(parent.string() + ": cannot be made", failed.value());
  return open_at(AT_FDCWD, path, path);
}

Result<PrivateDirectory> PrivateDirectory::sub(const std::string& name) const {
  return open_at(fd(), name, path_of(name));
}

Result<PrivateDirectory> PrivateDirectory::open_at(int parent, const std::string& name, std::string path) {
  constexpr mode_t kOwnerOnly = 0700;
  if (::mkdirat(parent, name.c_str(), kOwnerOnly) == 0)
    sync_directory(parent, std::filesystem::path(name).parent_path());
  else if (errno != EEXIST)
    return system_error(path + ": cannot be made", errno);
  FileDescriptor fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.get() < 0) {
    if (errno == ELOOP || errno == ENOTDIR)
      return refused(path, "is not a directory, or a symbolic link; name a directory");
    return system_error(path + ": cannot be opened", errno);
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (info.st_uid != ::geteuid())
    return refused(path, fmt::format("belongs to uid {}, and this is uid {}", info.st_uid, ::geteuid()));
  if ((info.st_mode & 077) != 0) return refused(path, "other users may enter it; chmod 700 it");
  return PrivateDirectory(std::move(path), std::move(fd));
}

Result<std::vector<std::string>> PrivateDirectory::names() const {
  FileDescriptor again(::openat(fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const opened = again.get() < 0 ? nullptr : ::fdopendir(again.get());
  if (opened == nullptr) return system_error(path_ + ": cannot be read", errno);
  (void)again.release();  // closedir() closes it
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opened, ::closedir);
  std::vector<std::string> names;
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace troupe
