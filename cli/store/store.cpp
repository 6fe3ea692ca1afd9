#include "cli/store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
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

constexpr mode_t kFolderMode = 0755;
constexpr std::string_view kRecordEnd = ".json";
constexpr std::string_view kTemporary = ".new";  // no name of a record, a blob or a link ends so

std::string record_file(const std::string& name) {
  return fmt::format("names/{}{}", percent_encoded(name, false), kRecordEnd);
}

// Also of a folder that is not there, which has no descriptor.
bool is_missing(int number) { return number == ENOENT || number == EBADF; }

// The uid of the service's user; none: the system has no such user.
std::optional<std::uint32_t> service_user() {
  static const std::optional<std::uint32_t> uid = [] {
    const auto found = find_user("troupe");
    return found ? *found : std::nullopt;
  }();
  return uid;
}

// Opens a folder without following a symbolic link, unless it may be one; makes it if it is not there. Its mode is
// that, whatever the umask.
Result<FileDescriptor> open_folder(int parent, const std::string& name, const std::string& path, bool makes,
                                   mode_t mode, bool may_be_link = false) {
  const bool is_new = makes && ::mkdirat(parent, name.c_str(), 0700) == 0;
  if (makes && !is_new && errno != EEXIST) return system_error(path + ": cannot be made", errno);
  FileDescriptor folder(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (may_be_link ? 0 : O_NOFOLLOW)));
  if (folder.get() < 0 && (errno == ELOOP || errno == ENOTDIR))
    return Error{ErrorCode::permission, path + ": is a symbolic link, or no folder; remove it"};
  if (folder.get() < 0 && errno == ENOENT) return Error{ErrorCode::model_missing, path + ": is not there"};
  if (folder.get() < 0) return system_error(path + ": cannot be opened", errno);
  struct stat info {};
  // Of one that was killed before it had its mode, too.
  const bool is_unfinished = makes && ::fstat(folder.get(), &info) == 0 && info.st_uid == ::geteuid() &&
                             (info.st_mode & 0777) == 0700 && mode != 0700;
  if ((is_new || is_unfinished) && ::fchmod(folder.get(), mode) != 0)
    return system_error(path + ": cannot be made", errno);
  return folder;
}

// What is in an open folder, sorted.
Result<std::vector<std::string>> entries_of(int folder, const std::string& path) {
  FileDescriptor again(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const opened = again.get() < 0 ? nullptr : ::fdopendir(again.get());
  if (opened == nullptr) return system_error(path + ": cannot be read", errno);
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

std::string random_text() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) number = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{:016x}", number);
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
    const std::filesystem::path parent = std::filesystem::path(place.path).parent_path();
    std::filesystem::create_directories(parent, failed);
    if (failed) return system_error(parent.string() + ": cannot be made", failed.value());
  }
  // One's own may be on another disk, by a link.
  const auto folder = open_folder(AT_FDCWD, place.path, place.path, makes, kFolderMode, !place.is_shared);
  if (!folder && folder.error().code == ErrorCode::model_missing)
    return Error{ErrorCode::model_missing, place.path + ": there are no models yet; `troupe pull` fetches them"};
  if (!folder) return folder.error();
  Store store(place);
  struct stat info {};
  if (::fstat(folder->get(), &info) != 0) return system_error(place.path + ": cannot be read", errno);
  if (Status safe = store.check_owner(info, place.path); !safe) return safe.error();
  if (Status opened = store.open_folders(folder->get(), makes); !opened) return opened.error();
  return store;
}

Status Store::open_folders(int store, bool makes) {
  for (const std::string name : kFolders) {
    // Locks and what is unfinished are nobody else's.
    const bool is_private = name == "partial";
    auto folder = open_folder(store, name, path_of(name), makes, is_private ? 0700 : kFolderMode);
    const bool is_needless = !makes && (is_private || (!folder && folder.error().code == ErrorCode::model_missing));
    if (!folder && !is_needless) return folder.error();
    struct stat info {};
    if (folder && ::fstat(folder->get(), &info) != 0) return system_error(path_of(name) + ": cannot be read", errno);
    if (folder)
      if (Status safe = check_owner(info, path_of(name)); !safe) return safe;
    folders_.push_back(FileDescriptor(folder ? folder->release() : -1));
  }
  return Ok{};
}

Store::At Store::at(const std::string& inside) const {
  const std::size_t slash = inside.find('/');
  for (std::size_t i = 0; i < folders_.size(); ++i)
    if (inside.compare(0, slash, kFolders[i]) == 0)
      return {folders_[i].get(), slash == std::string::npos ? "." : inside.substr(slash + 1)};
  return {-1, {}};
}

Status Store::check_owner(const struct stat& info, const std::string& what) const {
  const bool is_trusted =
      info.st_uid == 0 || info.st_uid == ::geteuid() || (place_.is_shared && service_user() == info.st_uid);
  if (!is_trusted)
    return Error{ErrorCode::permission,
                 fmt::format("{}: belongs to {}, who could change it while it is used; it must belong to root, {}you: "
                             "remove it, and pull again",
                             what, user_name(info.st_uid), place_.is_shared ? "troupe or " : "or ")};
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{ErrorCode::permission, fmt::format("{}: others may write to it (mode {:o}); remove it, and pull again",
                                                    what, info.st_mode & 07777)};
  return Ok{};
}

Result<std::vector<std::string>> Store::names_in(const std::string& folder) const {
  const int opened = at(folder).fd;
  return opened < 0 ? Result<std::vector<std::string>>(std::vector<std::string>())
                    : entries_of(opened, path_of(folder));
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
  const At place = at(inside);
  const FileDescriptor opened(::openat(place.fd, place.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (opened.get() < 0 && is_missing(errno)) return Error{ErrorCode::model_missing, path + ": is not there"};
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
  const At place = at(inside);
  struct stat info {};
  if (::fstatat(place.fd, place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return is_missing(errno) ? Result<bool>(false) : system_error(path_of(inside) + ": cannot be read", errno);
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::permission, path_of(inside) + ": is no plain file; remove it, and pull again"};
  if (Status safe = check_owner(info, path_of(inside)); !safe) return safe.error();
  if (static_cast<std::uint64_t>(info.st_size) != bytes)
    return Error{ErrorCode::io, fmt::format("{}: has {} bytes, and {} are expected; remove it, and pull again",
                                            path_of(inside), info.st_size, bytes)};
  return true;
}

Result<FileDescriptor> Store::open_links(const std::string& folder) const {
  const std::string path = path_of(folder);
  const At place = at(folder);
  auto opened = open_folder(place.fd, place.name, path, false, 0);
  if (!opened) return opened;
  struct stat info {};
  if (::fstat(opened->get(), &info) != 0) return system_error(path + ": cannot be read", errno);
  if (Status safe = check_owner(info, path); !safe) return safe.error();
  return opened;
}

Result<std::string> Store::file_of(const StoredModel& model) const {
  const std::string folder = "files/" + model.folder();
  const auto links = open_links(folder);
  if (!links) return links.error();
  for (const StoredFile& file : model.files) {
    const auto whole = has_blob(file.sha256, file.bytes);
    if (!whole) return whole.error();
    if (!*whole)
      return Error{ErrorCode::io,
                   fmt::format("{}: its file {} is missing; pull it again", model.name, blob_name(file.sha256))};
    const std::string expected = "../../blobs/" + blob_name(file.sha256);
    char target[256];
    const ssize_t length = ::readlinkat(links->get(), file.name.c_str(), target, sizeof target);
    if (length < 0 || std::string_view(target, static_cast<std::size_t>(length)) != expected)
      return Error{ErrorCode::permission, fmt::format("{}/{}: leads not to {}; `troupe rm {}`, and pull it again",
                                                      path_of(folder), file.name, expected, model.name)};
  }
  return path_of(folder + "/" + model.files.front().name);
}

Result<std::string> Store::link_files(const StoredModel& model) const {
  const std::string folder = "files/" + model.folder();
  const At place = at(folder);
  const auto links = open_folder(place.fd, place.name, path_of(folder), true, kFolderMode);
  if (!links) return links.error();
  for (const StoredFile& file : model.files) {
    const std::string target = "../../blobs/" + blob_name(file.sha256);
    if (::symlinkat(target.c_str(), links->get(), file.name.c_str()) != 0 && errno != EEXIST)
      return system_error(fmt::format("{}/{}: cannot be made", path_of(folder), file.name), errno);
  }
  if (::fsync(links->get()) != 0) return system_error(path_of(folder) + ": cannot be synced", errno);
  if (Status synced = sync_folder("files"); !synced) return synced.error();
  return file_of(model);
}

Status Store::publish(const StoredModel& model) const {
  const std::string text = record_text(model);
  if (const auto readable = parse_record(text); !readable) return readable.error();
  return write_whole(record_file(model.name), text);
}

Status Store::unlist(const std::string& name) const {
  const std::string inside = record_file(name);
  const At place = at(inside);
  if (::unlinkat(place.fd, place.name.c_str(), 0) == 0) return sync_folder("names");
  if (is_missing(errno) || errno == ENAMETOOLONG)
    return Error{ErrorCode::model_missing, fmt::format("'{}' is no model in {}; `troupe list` shows their whole names",
                                                       Printable(name, 256).text(), path())};
  return system_error(path_of(inside) + ": cannot be removed", errno);
}

// A folder is emptied by the descriptor that was looked at: its name may mean another one meanwhile.
Status Store::remove(const std::string& inside, bool is_folder) const {
  const At place = at(inside);
  if (is_folder) {
    const auto links = open_links(inside);
    if (!links) return links.error();
    const auto names = entries_of(links->get(), path_of(inside));
    if (!names) return names.error();
    for (const std::string& link : *names) (void)::unlinkat(links->get(), link.c_str(), 0);
  }
  if (::unlinkat(place.fd, place.name.c_str(), is_folder ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT) return Ok{};
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
      if (::fstatat(at(folder).fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (removes)
        if (Status removed = remove(inside, S_ISDIR(info.st_mode)); !removed) {
          unused.kept.push_back(removed.error().message);
          continue;
        }
      unused.paths.push_back(inside);
      if (S_ISREG(info.st_mode)) unused.bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return unused;
}

Result<std::optional<StoreLock>> Store::lock(const std::string& inside, int operation) const {
  const At place = at(inside);
  if (place.fd < 0)
    return Error{ErrorCode::permission, path() + ": is not yours to change (partial/ cannot be entered)"};
  for (;;) {
    FileDescriptor file(
        ::openat(place.fd, place.name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    if (file.get() < 0) return system_error(path_of(inside) + ": cannot be opened", errno);
    // What root makes here, the store's owner must be able to hold, too.
    struct stat folder {};
    if (::geteuid() == 0 && ::fstat(place.fd, &folder) == 0 && folder.st_uid != 0)
      (void)!::fchown(file.get(), folder.st_uid, folder.st_gid);
    int failed;
    do failed = ::flock(file.get(), operation) == 0 ? 0 : errno;
    while (failed == EINTR);
    if (failed == EWOULDBLOCK) return std::optional<StoreLock>();
    if (failed != 0) return system_error(path_of(inside) + ": cannot be locked", failed);
    // `prune` may have removed it before it was locked.
    struct stat held {
    }, named{};
    if (::fstat(file.get(), &held) == 0 && ::fstatat(place.fd, place.name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
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
      if (::fstatat(at(folder).fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
        sum += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }
  return sum;
}

Result<std::uint64_t> Store::free_bytes() const {
  struct statvfs disk {};
  if (::fstatvfs(at("blobs").fd, &disk) != 0) return system_error(path() + ": its disk cannot be asked", errno);
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

Status Store::sync_folder(const std::string& folder) const {
  const FileDescriptor opened(::openat(at(folder).fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.get() < 0 || ::fsync(opened.get()) != 0)
    return system_error(path_of(folder) + ": cannot be synced", errno);
  return Ok{};
}

Status Store::write_whole(const std::string& inside, const std::string& text) const {
  const At place = at(inside);
  const std::string fresh = fmt::format("{}{}", random_text(), kTemporary);
  const auto failed = [&](int number) {
    (void)::unlinkat(place.fd, fresh.c_str(), 0);
    return system_error(path_of(inside) + ": cannot be written", number);
  };
  const FileDescriptor file(
      ::openat(place.fd, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (file.get() < 0 || ::fchmod(file.get(), 0644) != 0) return failed(errno);
  for (std::size_t written = 0; written < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + written, text.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return failed(errno);
    written += static_cast<std::size_t>(wrote);
  }
  if (::fsync(file.get()) != 0) return failed(errno);
  if (::renameat(place.fd, fresh.c_str(), place.fd, place.name.c_str()) != 0) return failed(errno);
  return sync_folder(inside.substr(0, inside.find('/')));
}

}  // namespace troupe::cli
