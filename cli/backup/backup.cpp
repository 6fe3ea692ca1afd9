// troupe backup: copies a server's state, also while it serves.
//
// Everything is copied to a hidden directory beside the one that was named, which is renamed at the end. Nothing waits
// for the server: SQLite copies its database as it is at one moment, and a file of a session is replaced by the server
// as a whole, never changed.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>

#include "actors/sessions/session_store.h"
#include "cli/backup/copying.h"
#include "cli/backup/manifest.h"
#include "cli/backup/state_places.h"
#include "cli/subcommands.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/output.h"
#include "cli/terminal/text.h"
#include "cli/usage/usage_database.h"
#include "cli/version.h"
#include "config/private_directory.h"
#include "config/system_error.h"

namespace troupe::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 4;  // to copy a session that is used meanwhile

// What lies at the path, without following a link; nullopt: nothing. Error: that cannot be seen.
Result<std::optional<struct stat>> look_at_path(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return std::optional(info);
  if (errno == ENOENT) return std::optional<struct stat>();
  Error error = system_error(path + ": cannot be seen", errno);
  if (errno == EACCES) error.message += "; run this as the user that the server runs as, or as root";
  return error;
}

// The same for a part of the state, which this user must own, or be root.
Result<std::optional<struct stat>> look_at_part(const std::string& path) {
  if (path.empty()) return std::optional<struct stat>();
  auto info = look_at_path(path);
  if (info && *info && ::geteuid() != 0 && (*info)->st_uid != ::geteuid())
    return not_the_owner(path, {(*info)->st_uid, (*info)->st_gid});
  return info;
}

// About how many bytes the files below a path have.
std::uint64_t bytes_below(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code failed;
  const auto add = [&](const fs::path& file) {
    std::error_code gone;
    if (const auto size = fs::file_size(file, gone); !gone) bytes += size;
  };
  if (!fs::is_directory(fs::symlink_status(path, failed))) {
    add(path);
    return bytes;
  }
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator each(path, kSkip, failed), end; !failed && each != end; each.increment(failed))
    if (std::error_code gone; each->is_regular_file(gone)) add(each->path());
  return bytes;
}

class Backup {
 public:
  Backup(std::string target, const StatePlaces& places) : target_(std::move(target)), places_(places) {
    while (target_.size() > 1 && target_.ends_with('/')) target_.pop_back();
  }
  // Takes away what is not finished.
  ~Backup() {
    std::error_code ignored;
    if (!staged_.empty()) fs::remove_all(staged_, ignored);
  }
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;

  Status run(Copying& copying) {
    copying_ = &copying;
    if (Status done = check_target(); !done) return done;
    const auto usage = look_at_part(places_.usage_db), sessions = look_at_part(places_.sessions),
               keys = look_at_part(places_.keys);
    for (const auto* each : {&usage, &sessions, &keys})
      if (!*each) return each->error();
    const bool has_usage = usage->has_value(), has_sessions = sessions->has_value(), has_keys = keys->has_value();
    if (!places_.keys.empty() && !has_keys)
      return Error{ErrorCode::io, places_.keys + ": there is no file of keys; leave --keys out"};
    if (!has_usage && !has_sessions && !has_keys) return nothing_there();
    if (Status done = stage(); !done) return done;
    if (has_usage)
      if (Status done = copy_usage(); !done) return done;
    if (has_sessions)
      if (Status done = copy_sessions(); !done) return done;
    if (has_keys)
      if (Status done = copy_keys(); !done) return done;
    copying.end();
    return publish();
  }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }  // what is not as it should be

 private:
  Status check_target() {
    const auto there = look_at_path(target_);
    if (!there) return there.error();
    std::error_code failed;
    if (*there && !(S_ISDIR((*there)->st_mode) && fs::is_empty(target_, failed) && !failed))
      return Error{ErrorCode::invalid_argument,
                   target_ + ": there is something already; name a new directory, such as one with today's date"};
    const fs::path absolute = fs::absolute(target_, failed);
    parent_ = absolute.parent_path().string();
    if (!fs::is_directory(parent_, failed))
      return Error{ErrorCode::invalid_argument, parent_ + ": there is no such directory; make it first"};
    const fs::path inside = fs::relative(parent_, places_.sessions, failed);
    if (!places_.sessions.empty() && !failed && !inside.empty() && *inside.begin() != "..")
      return Error{ErrorCode::invalid_argument, target_ + ": lies in the directory of sessions; name one elsewhere"};
    return Ok{};
  }

  [[nodiscard]] Error nothing_there() const {
    std::string looked;
    for (const std::string* each : {&places_.usage_db, &places_.sessions})
      if (!each->empty()) looked += (looked.empty() ? "" : " and ") + *each;
    return {ErrorCode::io, fmt::format("there is no state of a server: looked at {}; name the directory with --state "
                                       "(the machine's server: --state {})",
                                       looked.empty() ? "nothing" : looked, kServiceState)};
  }

  // Makes the hidden directory.
  Status stage() {
    std::uint64_t bytes = 0;
    for (const std::string* each : {&places_.usage_db, &places_.sessions, &places_.keys})
      if (!each->empty()) bytes += bytes_below(*each);
    struct statvfs space {};
    if (::statvfs(parent_.c_str(), &space) == 0 && bytes / space.f_frsize > space.f_bavail)
      return Error{ErrorCode::io, fmt::format("{}: the backup takes {}, and {} are free", parent_, human_bytes(bytes),
                                              human_bytes(std::uint64_t{space.f_bavail} * space.f_frsize))};
    std::string path = fmt::format("{}/.{}.partial-XXXXXX", parent_, fs::path(target_).filename().string());
    if (::mkdtemp(path.data()) == nullptr) return system_error(parent_ + ": nothing can be made in it", errno);
    staged_ = path;
    auto opened = PrivateDirectory::open(staged_);
    if (!opened) return opened.error();
    directory_.emplace(std::move(*opened));
    copying_->begin("copying", bytes);
    return Ok{};
  }

  // Copies an open file to a new one.
  Status copy_file(int from, const std::string& from_path, const PrivateDirectory& to, const std::string& name,
                   const std::string& listed) {
    auto made = make_file_in(to.fd(), name, to.path_of(name));
    if (!made) return made.error();
    const auto copied = copying_->copy(from, from_path, made->get(), to.path_of(name));
    if (!copied) return copied.error();
    return list(from, *copied, listed);
  }

  Status list(int file, const CopiedFile& copied, const std::string& name) {
    struct stat info {};
    if (::fstat(file, &info) != 0) return system_error(name, errno);
    manifest_.files.push_back({name, copied.size, copied.sha256, info.st_mtime});
    return Ok{};
  }

  Status copy_usage() {
    const std::string name(kUsagePart), path = directory_->path_of(name);
    auto database = UsageDatabase::open_to_read(places_.usage_db);
    std::string raw;
    struct statvfs place {};
    if (!database && ::statvfs(places_.usage_db.c_str(), &place) == 0 && (place.f_flag & ST_RDONLY) != 0) {
      // There SQLite cannot make what it needs beside the file, and nothing changes it: its log is read into a copy.
      raw = directory_->path_of("raw-" + name);
      for (const char* const suffix : {"", "-wal"})
        if (Status done = copy_plain(places_.usage_db + suffix, "raw-" + name + suffix); !done) return done;
      database = UsageDatabase::open(raw);
    }
    if (!database) return database.error();
    if (Status done = (*database)->copy_to(path); !done) return done;
    database = Error{ErrorCode::io, ""};  // closed
    if (!raw.empty())
      for (const char* const suffix : {"", "-wal", "-shm"}) ::unlink((raw + suffix).c_str());
    auto copy = open_regular(directory_->fd(), name, path);
    if (!copy) return copy.error();
    const auto read = copying_->copy(copy->get(), path, -1, path);
    if (!read) return read.error();
    return list(copy->get(), *read, name);
  }

  // A file that may not be there.
  Status copy_plain(const std::string& from, const std::string& name) {
    int number = 0;
    const auto file = open_regular(AT_FDCWD, from, from, &number);
    if (number == ENOENT) return Ok{};
    if (!file) return file.error();
    auto made = make_file_in(directory_->fd(), name, directory_->path_of(name));
    if (!made) return made.error();
    const auto copied = copying_->copy(file->get(), from, made->get(), directory_->path_of(name));
    return copied ? Status(Ok{}) : copied.error();
  }

  Status copy_keys() {
    const auto file = open_regular(AT_FDCWD, places_.keys, places_.keys);
    if (!file) return file.error();
    return copy_file(file->get(), places_.keys, *directory_, std::string(kKeysPart), std::string(kKeysPart));
  }

  Status copy_sessions() {
    const auto names = names_in(AT_FDCWD, places_.sessions, places_.sessions);
    if (!names) return names.error();
    auto to = directory_->sub(std::string(kSessionsPart));
    if (!to) return to.error();
    const FileDescriptor from(::open(places_.sessions.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    for (const std::string& folder : *names)
      if (actors::tenant_of_folder(folder))
        if (Status done = copy_tenant(from.get(), folder, *to); !done) return done;
    return ::fsync(to->fd()) == 0 ? Status(Ok{}) : system_error(to->path(), errno);
  }

  Status copy_tenant(int parent, const std::string& folder, const PrivateDirectory& sessions) {
    const std::string path = fmt::format("{}/{}", places_.sessions, folder);
    const FileDescriptor from(::openat(parent, folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (from.get() < 0 && (errno == ELOOP || errno == ENOTDIR)) {
      notes_.push_back(path + ": is no directory, and is left out");
      return Ok{};
    }
    if (from.get() < 0) return system_error(path + ": cannot be read", errno);
    const auto names = names_in(parent, folder, path);
    if (!names) return names.error();
    std::set<std::string> all;
    for (const std::string& name : *names)
      if (const auto file = actors::parse_session_file(name); file && !file->is_temporary) all.insert(file->session);
    if (all.empty()) return Ok{};
    auto to = sessions.sub(folder);
    if (!to) return to.error();
    for (const std::string& session : all)
      if (Status done = copy_session(from.get(), path, session, *to, folder); !done) return done;
    return ::fsync(to->fd()) == 0 ? Status(Ok{}) : system_error(to->path(), errno);
  }

  static Result<std::vector<std::string>> names_in(int parent, const std::string& name, const std::string& path) {
    const FileDescriptor folder(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (folder.get() < 0) return system_error(path + ": cannot be read", errno);
    std::error_code failed;
    std::vector<std::string> names;
    for (fs::directory_iterator each(fmt::format("/proc/self/fd/{}", folder.get()), failed), end;
         !failed && each != end; each.increment(failed))
      names.push_back(each->path().filename().string());
    if (failed) return system_error(path + ": cannot be read", failed.value());
    return names;
  }

  // Copies the contents and then the tokens: so those continue what these are of, or the session was begun anew in
  // between, and both are copied again. A session that is deleted meanwhile is left out.
  Status copy_session(int from, const std::string& from_path, const std::string& session, const PrivateDirectory& to,
                      const std::string& folder) {
    const std::string tokens = actors::session_file_name(session, actors::SessionPart::tokens);
    const std::string contents = actors::session_file_name(session, actors::SessionPart::contents);
    const std::size_t listed = manifest_.files.size();
    for (int attempt = 1;; ++attempt) {
      const bool last = attempt == kMostAttempts;  // then without the contents, which are computed again
      for (const std::string* name : {&contents, &tokens})
        if (!last || name == &tokens)
          if (Status done = copy_part(from, from_path, *name, to, folder); !done) return done;
      if (last || belong_together(to, tokens, contents, listed)) return Ok{};
      manifest_.files.resize(listed);
      for (const std::string* name : {&contents, &tokens}) ::unlinkat(to.fd(), name->c_str(), 0);
    }
  }

  // One that is not there, or no file, is left out.
  Status copy_part(int from, const std::string& from_path, const std::string& name, const PrivateDirectory& to,
                   const std::string& folder) {
    const std::string path = fmt::format("{}/{}", from_path, name);
    struct stat info {};
    if (::fstatat(from, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(info.st_mode)) {
      notes_.push_back(path + ": is not a plain file, and is left out");
      return Ok{};
    }
    int number = 0;
    const auto file = open_regular(from, name, path, &number);
    if (number == ENOENT) return Ok{};
    if (!file) return file.error();
    return copy_file(file->get(), path, to, name, fmt::format("{}/{}/{}", kSessionsPart, folder, name));
  }

  // Of the copies that are listed from there on. Damaged ones stay as they are: `troupe session repair` knows them.
  bool belong_together(const PrivateDirectory& to, const std::string& tokens, const std::string& contents,
                       std::size_t listed) const {
    if (manifest_.files.size() - listed < 2) return true;
    const auto of_tokens = engine::SequenceFile::open(to, tokens),
               of_contents = engine::SequenceFile::open(to, contents);
    if (!of_tokens || !of_contents || of_contents->num_computed() == 0) return true;
    return engine::is_prefix(*of_contents, of_tokens->record().tokens);
  }

  // Writes the manifest and gives the directory its name.
  Status publish() {
    manifest_.program = kVersionAndCommit;
    manifest_.made = static_cast<std::int64_t>(std::time(nullptr));
    const std::string text = manifest_text(manifest_), path = directory_->path_of(kManifestName);
    const auto file = make_file_in(directory_->fd(), kManifestName, path);
    if (!file) return file.error();
    if (::write(file->get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        ::fsync(file->get()) != 0 || ::fsync(directory_->fd()) != 0)
      return system_error(path + ": cannot be written", errno);
    if (copying_->signal() != 0) return Error{ErrorCode::io, "interrupted; nothing was changed"};
    if (::rename(staged_.c_str(), target_.c_str()) != 0) {
      Error error = system_error(target_ + ": cannot get its name", errno);
      if (errno == EBUSY) error.message += "; name a directory in it";
      return error;
    }
    staged_.clear();
    return sync_folder(parent_);
  }

  std::string target_, parent_;
  const StatePlaces places_;
  Copying* copying_ = nullptr;
  std::string staged_;  // the hidden directory, while it is there
  std::optional<PrivateDirectory> directory_;
  Manifest manifest_;
  std::vector<std::string> notes_;
};

// "usage.db, 2 files of sessions, 1.20 MiB"
std::string contents_of(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  std::size_t num_session_files = 0;
  std::string parts;
  for (const ManifestFile& each : manifest.files) {
    bytes += each.size;
    if (part_of(each.name) == kSessionsPart)
      ++num_session_files;
    else
      parts += each.name + ", ";
  }
  return fmt::format("{}{} files of sessions, {}", parts, num_session_files, human_bytes(bytes));
}

// What a caller may have meant instead: root's own state is seldom that of the machine's server.
void mention_other_state(const config::BackupOptions& options, const StatePlaces& places) {
  std::error_code ignored;
  if (!options.state.empty() || places.usage_db.starts_with(kServiceState) || ::geteuid() != 0 ||
      !fs::exists(kServiceState, ignored))
    return;
  complain("troupe backup",
           fmt::format("what the machine's server keeps in {0} is not in it (--state {0})", kServiceState));
}

}  // namespace

Result<int> backup(const config::BackupOptions& options, const config::Given& given) {
  if (given.arguments.size() != 1 || given.arguments.front().empty())
    return Error{ErrorCode::invalid_argument, "name one new directory: troupe backup DIR"};
  const auto places = state_places(options);
  if (!places) return places.error();
  Copying copying;
  Backup all(given.arguments.front(), *places);
  const Status done = all.run(copying);
  copying.end();
  if (!done && copying.signal() != 0) {
    complain("troupe backup", done.error().message, Tone::error);
    return kExitSignalBase + copying.signal();
  }
  if (!done) return done.error();
  for (const std::string& note : all.notes()) complain("troupe backup", "warning: " + note);
  for (const std::string* each : {&places->usage_db, &places->sessions, &places->keys})
    if (!each->empty()) std::cout << fmt::format("from {}\n", *each);
  std::cout << fmt::format("{}: {}\n", given.arguments.front(), contents_of(all.manifest()));
  mention_other_state(options, *places);
  return kExitOk;
}

}  // namespace troupe::cli
