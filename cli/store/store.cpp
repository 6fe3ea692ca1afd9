#include "cli/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/store/model_source.h"
#include "cli/terminal/accounts.h"
#include "config/plain_file.h"
#include "config/printable.h"
#include "config/state_directory.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

constexpr const char* kFolders[] = {"names", "blobs", "files", "partial"};
constexpr mode_t kOwnMode = 0755, kSharedMode = 03775;
constexpr std::string_view kRecordEnd = ".json";
constexpr std::string_view kTemporary = ".new";  // no name of a record, a blob or a link ends so

std::string record_file(const std::string& name) {
  return fmt::format("names/{}{}", percent_encoded(name, false), kRecordEnd);
}

bool is_missing(int number) { return number == ENOENT || number == ENOTDIR; }

// The uid of the service's user; none: the system has no such user.
std::optional<std::uint32_t> service_user() {
  static const std::optional<std::uint32_t> uid = [] {
    const auto found = find_user("troupe");
    return found ? *found : std::nullopt;
  }();
  return uid;
}

Status make_folder(int parent, const std::string& name, const std::string& path, bool is_shared) {
  const mode_t mode = is_shared ? kSharedMode : kOwnMode;
  if (::mkdirat(parent, name.c_str(), 0700) != 0)
    return errno == EEXIST ? Status(Ok{}) : Status(system_error(path + ": cannot be made", errno));
  // Not mkdir's mode, of which the umask takes bits, and systems the setgid one.
  const FileDescriptor made(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (made.get() < 0) return system_error(path + ": cannot be made", errno);
  const auto group =
      is_shared && ::geteuid() == 0 ? find_group("troupe") : Result<std::optional<std::uint32_t>>(std::nullopt);
  if (group && *group && ::fchown(made.get(), static_cast<uid_t>(-1), **group) != 0)
    return system_error(path + ": cannot be given to the group troupe", errno);
  if (::fchmod(made.get(), mode) != 0) return system_error(path + ": cannot be made", errno);
  return Ok{};
}

}  // namespace

std::string blob_name(const std::string& sha256) { return "sha256-" + sha256; }

Result<StorePlace> own_store(const std::string& option) {
  if (!option.empty()) return StorePlace{std::filesystem::absolute(option).lexically_normal().string(), false};
  if (const std::string data = absolute_variable("XDG_DATA_HOME"); !data.empty())
    return StorePlace{data + "/troupe/models", false};
  if (const std::string home = absolute_variable("HOME"); !home.empty())
    return StorePlace{home + "/.local/share/troupe/models", false};
  return Error{ErrorCode::bad_config,
               "none of XDG_DATA_HOME and HOME is an absolute path; name a folder with --store DIR"};
}

std::vector<StorePlace> searched_stores(const std::string& option) {
  std::vector<StorePlace> places;
  if (auto own = own_store(option)) places.push_back(*std::move(own));
  // It may be in a folder that the service alone enters.
  if (option.empty() && ::access(kMachineStore, R_OK | X_OK) == 0) places.push_back({kMachineStore, true});
  return places;
}

Result<Store> Store::open(const StorePlace& place, bool makes) {
  if (makes) {
    std::error_code failed;
    const std::filesystem::path path(place.path);
    std::filesystem::create_directories(path.parent_path(), failed);
    if (failed) return system_error(path.parent_path().string() + ": cannot be made", failed.value());
    if (Status made = make_folder(AT_FDCWD, place.path, place.path, place.is_shared); !made) return made.error();
  }
  FileDescriptor folder(::open(place.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 && is_missing(errno))
    return Error{ErrorCode::model_missing,
                 fmt::format("{}: there are no models yet; `troupe pull` fetches them", place.path)};
  if (folder.get() < 0) return system_error(place.path + ": cannot be opened", errno);
  Store store(place, std::move(folder));
  struct stat info {};
  if (::fstat(store.fd(), &info) != 0) return system_error(place.path + ": cannot be read", errno);
  if (Status safe = store.check_owner(info, place.path); !safe) return safe.error();
  if (Status opened = store.open_folders(makes); !opened) return opened.error();
  return store;
}

Status Store::open_folders(bool makes) const {
  for (const char* const name : kFolders) {
    const std::string path = path_of(name);
    if (makes)
      if (Status made = make_folder(fd(), name, path, place_.is_shared); !made) return made;
    struct stat info {};
    if (::fstatat(fd(), name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT && !makes) continue;
      return system_error(path + ": cannot be read", errno);
    }
    if (!S_ISDIR(info.st_mode)) return Error{ErrorCode::permission, path + ": is no folder, or a symbolic link"};
    if (Status safe = check_owner(info, path); !safe) return safe;
  }
  return Ok{};
}

Status Store::check_owner(const struct stat& info, const std::string& what) const {
  const bool is_trusted =
      info.st_uid == 0 || info.st_uid == ::geteuid() || (place_.is_shared && service_user() == info.st_uid);
  if (!is_trusted)
    return Error{ErrorCode::permission,
                 fmt::format("{}: belongs to {}, who could change it while it is used; it must belong to root, {}you "
                             "(root can chown it)",
                             what, user_name(info.st_uid), place_.is_shared ? "troupe or " : "or ")};
  // In a folder with the sticky bit, nobody but its owner replaces a file.
  const bool is_shared_folder = place_.is_shared && S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
  if ((info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && !is_shared_folder))
    return Error{ErrorCode::permission,
                 fmt::format("{}: others may write to it (mode {:o}); chmod go-w it, and pull what is in it again",
                             what, info.st_mode & 07777)};
  return Ok{};
}

Result<std::vector<std::string>> Store::names_in(const std::string& inside) const {
  FileDescriptor folder(::openat(fd(), inside.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  std::vector<std::string> names;
  if (folder.get() < 0 && is_missing(errno)) return names;
  DIR* const opened = folder.get() < 0 ? nullptr : ::fdopendir(folder.get());
  if (opened == nullptr) return system_error(path_of(inside) + ": cannot be read", errno);
  (void)folder.release();  // closedir() closes it
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opened, ::closedir);
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Store::Listing> Store::list() const {
  const auto names = names_in("names");
  if (!names) return names.error();
  Listing listing;
  for (const std::string& name : *names) {
    if (!name.ends_with(kRecordEnd)) continue;
    if (listing.models.size() == kMaxStoredModels) {
      listing.problems.push_back(fmt::format("{}: more than {} models", path(), kMaxStoredModels));
      break;
    }
    const std::string inside = "names/" + name;
    const auto text = read(inside, kMaxRecordBytes, false);
    if (!text) {
      if (text.error().code != ErrorCode::model_missing) listing.problems.push_back(text.error().message);
      continue;
    }
    auto model = parse_record(*text);
    if (model && record_file(model->name) != inside)
      model = Error{ErrorCode::io, fmt::format("it is of '{}'", Printable(model->name).text())};
    if (model)
      listing.models.push_back(*std::move(model));
    else
      listing.problems.push_back(fmt::format("{}: {}", path_of(inside), model.error().message));
  }
  return listing;
}

Result<std::string> Store::read(const std::string& inside, std::size_t max_bytes, bool own) const {
  const std::string path = path_of(inside);
  const FileDescriptor opened(::openat(fd(), inside.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (opened.get() < 0 && errno == ENOENT) return Error{ErrorCode::model_missing, path + ": is not there"};
  if (opened.get() < 0 || ::fstat(opened.get(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (Status safe = check_owner(info, path); !safe) return safe.error();
  if (own && info.st_uid != ::geteuid()) return Error{ErrorCode::permission, path + ": is another user's"};
  // The very file that was looked at, whatever the name means meanwhile.
  return read_plain_file(fmt::format("/proc/self/fd/{}", opened.get()), max_bytes);
}

Result<std::string> Store::read_own(const std::string& inside, std::size_t max_bytes) const {
  return read(inside, max_bytes, true);
}

Result<bool> Store::has_blob(const std::string& sha256, std::uint64_t bytes) const {
  const std::string inside = "blobs/" + blob_name(sha256);
  struct stat info {};
  if (::fstatat(fd(), inside.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return is_missing(errno) ? Result<bool>(false) : system_error(path_of(inside) + ": cannot be read", errno);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::permission, path_of(inside) + ": is no plain file"};
  if (Status safe = check_owner(info, path_of(inside)); !safe) return safe.error();
  if (static_cast<std::uint64_t>(info.st_size) != bytes)
    return Error{ErrorCode::io, fmt::format("{}: has {} bytes, and {} are expected; remove it (rm) and pull again",
                                            path_of(inside), info.st_size, bytes)};
  return true;
}

Result<std::string> Store::file_of(const StoredModel& model) const {
  const std::string folder = "files/" + model.folder();
  struct stat info {};
  if (::fstatat(fd(), folder.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return Error{ErrorCode::io,
                 fmt::format("{}: is missing; `troupe pull {}` makes it again", path_of(folder), model.name)};
  if (!S_ISDIR(info.st_mode)) return Error{ErrorCode::permission, path_of(folder) + ": is no folder"};
  if (Status safe = check_owner(info, path_of(folder)); !safe) return safe.error();
  for (const StoredFile& file : model.files) {
    const auto whole = has_blob(file.sha256, file.bytes);
    if (!whole) return whole.error();
    if (!*whole)
      return Error{ErrorCode::io, fmt::format("{}: its file {} is missing; `troupe pull {}` fetches it again",
                                              model.name, blob_name(file.sha256), model.name)};
    const std::string link = folder + "/" + file.name, expected = "../../blobs/" + blob_name(file.sha256);
    char target[256];
    const ssize_t length = ::readlinkat(fd(), link.c_str(), target, sizeof target);
    if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != expected)
      return Error{ErrorCode::permission, fmt::format("{}: leads not to {}; `troupe rm {}`, and pull it again",
                                                      path_of(link), expected, model.name)};
  }
  return path_of(folder + "/" + model.files.front().name);
}

Result<std::string> Store::link_files(const StoredModel& model) const {
  const std::string folder = "files/" + model.folder();
  // Made by its own mode, not that of the store: who else may add links to it would choose files for its readers.
  if (Status made = make_folder(fd(), folder, path_of(folder), false); !made) return made.error();
  for (const StoredFile& file : model.files) {
    const std::string link = folder + "/" + file.name, target = "../../blobs/" + blob_name(file.sha256);
    if (::symlinkat(target.c_str(), fd(), link.c_str()) != 0 && errno != EEXIST)
      return system_error(path_of(link) + ": cannot be made", errno);
  }
  if (Status synced = sync_folder(folder); !synced) return synced.error();
  if (Status synced = sync_folder("files"); !synced) return synced.error();
  return file_of(model);
}

Status Store::publish(const StoredModel& model) const {
  return write_whole(record_file(model.name), record_text(model));
}

Status Store::unlist(const std::string& name) const {
  const std::string inside = record_file(name);
  if (::unlinkat(fd(), inside.c_str(), 0) != 0) return system_error(path_of(inside) + ": cannot be removed", errno);
  return sync_folder("names");
}

Status Store::remove(const std::string& inside, bool is_folder) const {
  if (is_folder) {
    const auto links = names_in(inside);
    if (!links) return links.error();
    for (const std::string& link : *links) (void)::unlinkat(fd(), (inside + "/" + link).c_str(), 0);
  }
  if (::unlinkat(fd(), inside.c_str(), is_folder ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT) return Ok{};
  return system_error(path_of(inside) + ": cannot be removed", errno);
}

Result<Store::Unused> Store::unused(bool removes, const StoredModel* of) const {
  const auto listing = list();
  if (!listing) return listing.error();
  if (!listing->problems.empty())
    return Error{ErrorCode::io, fmt::format("no file is removed while a record cannot be read, which may need it: {}",
                                            listing->problems.front())};
  const auto files_of = [](const StoredModel& model, std::set<std::string>& paths) {
    paths.insert("files/" + model.folder());
    for (const StoredFile& file : model.files) paths.insert("blobs/" + blob_name(file.sha256));
  };
  std::set<std::string> needed{"partial/in-use"}, meant;
  for (const StoredModel& model : listing->models) files_of(model, needed);
  if (of != nullptr) files_of(*of, meant);
  Unused unused;
  for (const char* const folder : {"files", "blobs", "partial", "names"}) {
    const auto names = names_in(folder);
    if (!names) return names.error();
    for (const std::string& name : *names) {
      const std::string inside = std::string(folder) + "/" + name;
      // Of names only what was left of one that was being written.
      if (needed.contains(inside) || (std::string_view(folder) == "names" && !name.ends_with(kTemporary))) continue;
      if (of != nullptr && !meant.contains(inside)) continue;
      struct stat info {};
      if (::fstatat(fd(), inside.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      unused.paths.push_back(inside);
      if (S_ISREG(info.st_mode)) unused.bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
      if (!removes) continue;
      if (Status removed = remove(inside, S_ISDIR(info.st_mode)); !removed) return removed.error();
    }
  }
  return unused;
}

Result<std::optional<StoreLock>> Store::lock(const std::string& inside, int operation) const {
  for (;;) {
    // Not O_CREAT alone: of a file that is another's in a folder with the sticky bit the system may refuse it.
    FileDescriptor file(::openat(fd(), inside.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.get() < 0 && errno == ENOENT) {
      file = FileDescriptor(::openat(fd(), inside.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
      if (file.get() < 0 && errno == EEXIST) continue;
    }
    if (file.get() < 0) return system_error(path_of(inside) + ": cannot be opened", errno);
    int failed;
    do failed = ::flock(file.get(), operation) == 0 ? 0 : errno;
    while (failed == EINTR && (operation & LOCK_NB) != 0);
    if (failed == EWOULDBLOCK) return std::optional<StoreLock>();
    if (failed != 0) return system_error(path_of(inside) + ": cannot be locked", failed);
    // `prune` may have removed it before it was locked.
    struct stat held {
    }, named{};
    if (::fstat(file.get(), &held) == 0 && ::fstatat(fd(), inside.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        held.st_ino == named.st_ino)
      return std::optional<StoreLock>(StoreLock(std::move(file)));
  }
}

Result<std::optional<StoreLock>> Store::in_use(bool alone) const {
  return lock("partial/in-use", (alone ? LOCK_EX : LOCK_SH) | LOCK_NB);
}

Result<std::optional<StoreLock>> Store::lock_partial(const std::string& key, bool waits) const {
  return lock(fmt::format("partial/{}.lock", key), LOCK_EX | (waits ? 0 : LOCK_NB));
}

std::uint64_t Store::used_bytes() const {
  std::uint64_t sum = 0;
  for (const char* const folder : {"blobs", "partial"}) {
    const auto names = names_in(folder);
    if (!names) continue;
    for (const std::string& name : *names) {
      struct stat info {};
      if (::fstatat(fd(), (std::string(folder) + "/" + name).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
        sum += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return sum;
}

Result<std::uint64_t> Store::free_bytes() const {
  struct statvfs disk {};
  if (::fstatvfs(fd(), &disk) != 0) return system_error(path() + ": its disk cannot be asked", errno);
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

Status Store::sync_folder(const std::string& inside) const {
  const FileDescriptor folder(::openat(fd(), inside.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || ::fsync(folder.get()) != 0)
    return system_error(path_of(inside) + ": cannot be synced", errno);
  return Ok{};
}

Status Store::write_whole(const std::string& inside, const std::string& text) const {
  const std::string fresh = fmt::format("{}.{}{}", inside, ::getpid(), kTemporary);
  const auto failed = [&](int number) {
    (void)::unlinkat(fd(), fresh.c_str(), 0);
    return system_error(path_of(inside) + ": cannot be written", number);
  };
  (void)::unlinkat(fd(), fresh.c_str(), 0);  // of a process with this number that was killed
  const FileDescriptor file(::openat(fd(), fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0 || ::fchmod(file.get(), 0644) != 0) return failed(errno);
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + written, text.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed(errno);
    written += static_cast<std::size_t>(wrote);
  }
  if (::fsync(file.get()) != 0) return failed(errno);
  if (::renameat(fd(), fresh.c_str(), fd(), inside.c_str()) != 0) return failed(errno);
  return sync_folder(inside.substr(0, inside.find('/')));
}

}  // namespace troupe::cli
