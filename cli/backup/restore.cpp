// troupe restore: puts back what troupe backup has copied.
//
// All files are checked against the manifest before anything is made. Then each part of the state is copied beside the
// place where it belongs; when all parts are there, they change places with what was there before, which is kept.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>

#include "actors/sessions/session_store.h"
#include "cli/backup/copying.h"
#include "cli/backup/manifest.h"
#include "cli/backup/state_places.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "cli/usage/usage_database.h"
#include "config/printable.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

// While it exists, root makes files as their owner: a path of that user leads no further than that user may go.
class AsOwner {
 public:
  explicit AsOwner(const Owner& owner) : group_(::getegid()) {
    if (::geteuid() != 0 || owner.uid == 0) return;
    if (::setegid(owner.gid) != 0 || ::seteuid(owner.uid) != 0)
      throw std::system_error(errno, std::generic_category(), fmt::format("cannot act as uid {}", owner.uid));
    changed_ = true;
  }
  ~AsOwner() {
    if (changed_ && (::seteuid(0) != 0 || ::setegid(group_) != 0)) std::terminate();
  }
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;

 private:
  const gid_t group_;
  bool changed_ = false;
};

bool is_there(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// A part of the state, and what becomes of it.
struct Part {
  std::string name;
  std::string path;  // where it belongs
  Owner owner;
  bool is_there = false;
  std::string staged;  // the new one, while it has not got its name
  std::string before;  // what was there, once it has another name
  std::uint64_t bytes = 0;
  std::size_t num_files = 0;
};

class Restore {
 public:
  Restore(std::string backup, const StatePlaces& places, const config::RestoreOptions& options)
      : backup_(std::move(backup)), places_(places), replace_(options.replace) {}
  // Takes away what did not get its name.
  ~Restore() {
    std::error_code ignored;
    for (const Part& part : parts_)
      if (!part.staged.empty()) fs::remove_all(part.staged, ignored);
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) ::rmdir(made->c_str());  // if it is empty
  }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

  // Reads and checks the whole backup.
  Status check(Copying& copying) {
    directory_ = FileDescriptor(::open(backup_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory_.get() < 0) return system_error(backup_ + ": cannot be read", errno);
    if (Status done = read_manifest(); !done) return done;
    if (Status done = look_for_others(); !done) return done;
    std::uint64_t bytes = 0;
    for (const ManifestFile& each : manifest_.files) bytes += each.size;
    copying.begin("checking", bytes);
    for (const ManifestFile& each : manifest_.files)
      if (Status done = copy_checked(copying, each, -1, ""); !done) return done;
    copying.end();
    return Ok{};
  }

  // Which parts are restored, and whether they may be. Holds what keeps a server from using them.
  Status plan() {
    for (const auto& [name, path] : {std::pair(kUsagePart, places_.usage_db),
                                     std::pair(kSessionsPart, places_.sessions), std::pair(kKeysPart, places_.keys)}) {
      Part part;
      part.name = name;
      part.path = path;
      for (const ManifestFile& each : manifest_.files) {
        if (part_of(each.name) != name) continue;
        ++part.num_files;
        part.bytes += each.size;
      }
      if (part.num_files == 0 || path.empty()) {
        if (part.num_files > 0) left_.push_back(part.name);
        continue;
      }
      if (Status done = look_at(part); !done) return done;
      parts_.push_back(std::move(part));
    }
    if (parts_.empty()) return Error{ErrorCode::invalid_argument, backup_ + ": nothing in it is to be restored"};
    if (Status done = lock_sessions(); !done) return done;
    if (Status done = lock_usage(); !done) return done;
    for (const Part& part : parts_)
      if (part.is_there && !replace_)
        return Error{ErrorCode::invalid_argument,
                     part.path + ": there is one already; --replace keeps it as " + part.path + ".before-restore"};
    return Ok{};
  }

  Status stage(Copying& copying) {
    std::uint64_t bytes = 0;
    for (const Part& part : parts_) bytes += part.bytes;
    copying.begin("copying", bytes);
    for (Part& part : parts_)
      if (Status done = stage_part(copying, part); !done) return done;
    copying.end();
    if (copying.signal() != 0) return Error{ErrorCode::io, "interrupted; nothing was changed"};
    return Ok{};
  }

  // All parts get their names, or none.
  Status publish() {
    std::vector<Part*> done;
    for (Part& part : parts_) {
      const Status swapped = swap(part);
      done.push_back(&part);
      if (swapped) continue;
      for (auto each = done.rbegin(); each != done.rend(); ++each) swap_back(**each);
      return swapped;
    }
    made_.clear();
    std::set<std::string> folders;
    for (const Part& part : parts_) folders.insert(fs::path(part.path).parent_path().string());
    for (const std::string& folder : folders)
      if (const Status synced = sync_folder(folder); !synced) return synced;
    return Ok{};
  }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  [[nodiscard]] const std::vector<std::string>& left() const { return left_; }  // in the backup, and not restored

 private:
  [[nodiscard]] Error damaged(const std::string& name, const std::string& why) const {
    return {ErrorCode::io, fmt::format("{}/{}: {}; the backup is damaged, and nothing was changed", backup_,
                                       Printable(name).text(), why)};
  }

  Status read_manifest() {
    const std::string path = fmt::format("{}/{}", backup_, kManifestName);
    int number = 0;
    const auto file = open_regular(directory_.get(), kManifestName, path, &number);
    if (number == ENOENT)
      return Error{ErrorCode::io, backup_ + ": has no manifest.json; this is no backup, or an unfinished one"};
    if (!file) return file.error();
    struct stat info {};
    if (::fstat(file->get(), &info) != 0) return system_error(path, errno);
    if (static_cast<std::uint64_t>(info.st_size) > kMaxManifestBytes) return damaged(kManifestName, "is too large");
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    std::size_t size = 0;
    while (size < text.size()) {
      const ssize_t got = ::pread(file->get(), text.data() + size, text.size() - size, static_cast<off_t>(size));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error(path + ": cannot be read", errno);
      if (got == 0) break;
      size += static_cast<std::size_t>(got);
    }
    auto parsed = parse_manifest(text.substr(0, size));
    if (!parsed) return Error{parsed.error().code, fmt::format("{}/{}", backup_, parsed.error().message)};
    manifest_ = std::move(*parsed);
    return Ok{};
  }

  // What the manifest does not name was not checked: somebody has put it there.
  Status look_for_others() const {
    std::set<std::string> known{kManifestName};
    for (const ManifestFile& each : manifest_.files) known.insert(each.name);
    std::error_code failed;
    for (fs::recursive_directory_iterator each(backup_, failed), end; !failed && each != end; each.increment(failed)) {
      const std::string name = fs::path(each->path()).lexically_relative(backup_).string();
      if (each->symlink_status(failed).type() != fs::file_type::directory && !known.contains(name))
        return damaged(name, "is not in manifest.json; take it away if you know what it is");
    }
    return failed ? Status(system_error(backup_ + ": cannot be read", failed.value())) : Status(Ok{});
  }

  // Reads a file of the backup, compares it with the manifest, and copies it unless to < 0.
  Status copy_checked(Copying& copying, const ManifestFile& file, int to, const std::string& to_path) const {
    const std::string path = fmt::format("{}/{}", backup_, file.name);
    int number = 0;
    const auto opened = open_regular(directory_.get(), file.name, path, &number);
    if (number == ENOENT) return damaged(file.name, "is missing");
    if (!opened) return opened.error();
    const auto copied = copying.copy(opened->get(), path, to, to_path);
    if (!copied) return copied.error();
    if (copied->size != file.size)
      return damaged(file.name, fmt::format("has {} bytes in place of {}", copied->size, file.size));
    if (copied->sha256 != file.sha256) return damaged(file.name, "is not what was copied (SHA-256)");
    if (to >= 0) set_modified(to, file.modified);
    return Ok{};
  }

  // What is at the part's place, and whose files it gets: root gives them to the owner of what is there, or of the
  // nearest directory above.
  static Status look_at(Part& part) {
    std::error_code failed;
    for (fs::path path = fs::absolute(part.path, failed);; path = path.parent_path()) {
      struct stat info {};
      if (::lstat(path.c_str(), &info) != 0) {
        if (errno == ENOENT && path.has_relative_path()) continue;
        return system_error(path.string() + ": cannot be seen", errno);
      }
      part.owner = {info.st_uid, info.st_gid};
      const bool is_itself = path == fs::absolute(part.path, failed);
      part.is_there = is_itself && !(S_ISDIR(info.st_mode) && fs::is_empty(path, failed));
      if (::geteuid() != 0 && is_itself && info.st_uid != ::geteuid()) return not_the_owner(part.path, part.owner);
      return Ok{};
    }
  }

  Status lock_sessions() {
    if (places_.sessions.empty()) return Ok{};
    sessions_ = FileDescriptor(::open(places_.sessions.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (sessions_.get() < 0 || ::flock(sessions_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return Ok{};
    return Error{ErrorCode::busy, places_.sessions + ": a server keeps its sessions here; stop it first"};
  }

  Status lock_usage() {
    struct stat info {};
    if (places_.usage_db.empty() || ::lstat(places_.usage_db.c_str(), &info) != 0) return Ok{};
    const AsOwner owner({info.st_uid, info.st_gid});
    auto opened = UsageDatabase::open_alone(places_.usage_db);
    if (!opened && opened.error().code == ErrorCode::busy) return opened.error();
    if (opened) usage_ = std::move(*opened);  // else it is no database that a server could use
    return Ok{};
  }

  Status stage_part(Copying& copying, Part& part) {
    const fs::path path(part.path), parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (Status done = make_folders(parent, part.owner); !done) return done;
    std::string staged = (parent / fmt::format(".{}.restore-XXXXXX", path.filename().string())).string();
    {
      const AsOwner owner(part.owner);
      if (::mkdtemp(staged.data()) == nullptr)
        return system_error(parent.string() + ": nothing can be made in it", errno);
    }
    part.staged = staged;
    std::set<std::string> folders;
    for (const ManifestFile& file : manifest_.files) {
      if (part_of(file.name) != part.name) continue;
      const std::string below = part.name == kSessionsPart ? file.name.substr(part.name.size() + 1) : file.name;
      const std::string target = fmt::format("{}/{}", staged, below);
      FileDescriptor made(-1);
      {
        const AsOwner owner(part.owner);
        const std::string folder = fs::path(target).parent_path().string();
        if (folders.insert(folder).second && folder != staged && ::mkdir(folder.c_str(), 0700) != 0)
          return system_error(folder + ": cannot be made", errno);
        auto file_made = make_file_in(AT_FDCWD, target, target);
        if (!file_made) return file_made.error();
        made = std::move(*file_made);
      }
      if (Status done = copy_checked(copying, file, made.get(), target); !done) return done;
    }
    folders.insert(staged);
    for (const std::string& each : folders)
      if (Status done = sync_folder(each); !done) return done;
    return Ok{};
  }

  Status make_folders(const fs::path& folder, const Owner& as) {
    std::error_code failed;
    if (folder.empty() || fs::exists(folder, failed)) return Ok{};
    if (Status done = make_folders(folder.parent_path(), as); !done) return done;
    const AsOwner owner(as);
    if (::mkdir(folder.c_str(), 0700) != 0) return system_error(folder.string() + ": cannot be made", errno);
    made_.push_back(folder.string());
    return Ok{};
  }

  // Where the new one of a part lies: a part that is a file lies in its staging directory.
  static std::string staged_path(const Part& part) {
    return part.name == kSessionsPart ? part.staged : fmt::format("{}/{}", part.staged, part.name);
  }

  // A name beside it that nothing has.
  static std::string free_name(const std::string& path) {
    std::string name = path + ".before-restore";
    for (int number = 2; is_there(name); ++number) name = fmt::format("{}.before-restore.{}", path, number);
    return name;
  }

  Status swap(Part& part) {
    const AsOwner owner(part.owner);
    const std::string fresh = staged_path(part);
    const auto failed = [&](const std::string& path) { return system_error(path + ": cannot be moved", errno); };
    if (is_there(part.path)) {
      part.before = free_name(part.path);
      // A log beside an old database must not meet the new one.
      for (const char* const suffix : {"-wal", "-shm", "-journal"})
        if (part.name == kUsagePart && is_there(part.path + suffix) &&
            ::rename((part.path + suffix).c_str(), (part.before + suffix).c_str()) != 0)
          return failed(part.path + suffix);
      if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, part.path.c_str(), RENAME_EXCHANGE) != 0) {
        // This file system does not know that: nothing has the name for a moment.
        if (::rename(part.path.c_str(), part.before.c_str()) != 0) return failed(part.path);
        if (::rename(fresh.c_str(), part.path.c_str()) != 0) return failed(part.path);
      } else if (::rename(fresh.c_str(), part.before.c_str()) != 0) {
        const Error why = failed(fresh);
        // What was there must not stay where what is left over is taken away.
        if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, part.path.c_str(), RENAME_EXCHANGE) != 0)
          part.staged.clear();
        return why;
      }
    } else if (::rename(fresh.c_str(), part.path.c_str()) != 0) {
      return failed(part.path);
    }
    if (part.name != kSessionsPart) ::rmdir(part.staged.c_str());
    part.staged.clear();
    if (!part.before.empty() && !part.is_there && ::rmdir(part.before.c_str()) == 0)
      part.before.clear();  // an empty one
    return Ok{};
  }

  // Undoes what swap() has done, as far as it came.
  static void swap_back(Part& part) {
    const AsOwner owner(part.owner);
    std::error_code ignored;
    if (part.staged.empty()) fs::remove_all(part.path, ignored);
    if (part.before.empty()) return;
    for (const char* const suffix : {"", "-wal", "-shm", "-journal"})
      ::rename((part.before + suffix).c_str(), (part.path + suffix).c_str());
  }

  const std::string backup_;
  const StatePlaces places_;
  const bool replace_;
  FileDescriptor directory_{-1};
  Manifest manifest_;
  std::vector<Part> parts_;
  std::vector<std::string> left_;
  std::vector<std::string> made_;  // directories above the parts, while nothing is in them
  FileDescriptor sessions_{-1};    // locked, as a server does it
  std::unique_ptr<UsageDatabase> usage_;
};

std::string done_text(const Restore& restore, const std::string& backup, bool dry_run) {
  const Manifest& manifest = restore.manifest();
  std::string text = fmt::format("{}: whole; made {} by troupe {}\n", backup,
                                 local_time(manifest.made, "%Y-%m-%d %H:%M:%S"), Printable(manifest.program).text());
  for (const Part& part : restore.parts()) {
    text += fmt::format("{}: {} files, {}, {}{}\n", part.name, part.num_files, human_bytes(part.bytes),
                        dry_run ? "would be restored to " : "restored to ", part.path);
    if (!part.before.empty()) text += fmt::format("  what was there is kept as {}\n", part.before);
  }
  for (const std::string& name : restore.left())
    text += fmt::format("{}: in the backup, and not restored{}\n", name, name == kKeysPart ? " (--keys)" : "");
  return text;
}

}  // namespace

Result<int> restore(const config::RestoreOptions& options, const config::Given& given) {
  if (given.arguments.size() != 1 || given.arguments.front().empty())
    return Error{ErrorCode::invalid_argument, "name the directory of a backup: troupe restore DIR"};
  const std::string& backup = given.arguments.front();
  const auto places = state_places(options);
  if (!places) return places.error();
  Copying copying;
  Restore all(backup, *places, options);
  Status done = all.check(copying);
  if (done) done = all.plan();
  if (done && !options.dry_run) done = all.stage(copying);
  if (done && !options.dry_run) done = all.publish();
  copying.end();
  if (done) {
    std::cout << done_text(all, backup, options.dry_run);
    return kExitOk;
  }
  if (copying.signal() == 0 && done.error().code != ErrorCode::busy) return done.error();
  complain("troupe restore", done.error().message, Tone::error);
  return copying.signal() != 0 ? kExitSignalBase + copying.signal() : kExitTryLater;
}

}  // namespace troupe::cli
