#include "actors/sessions/session_repair.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "actors/sessions/session_store.h"
#include "config/system_error.h"

namespace troupe::actors {
namespace {

constexpr const char* kDamaged = "damaged";

std::optional<struct stat> look_at(const PrivateDirectory& directory, const std::string& name) {
  struct stat info {};
  if (::fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

// An error's message without the path that it begins with.
std::string without_path(const PrivateDirectory& directory, const std::string& name, const std::string& message) {
  const std::string path = directory.path_of(name) + ": ";
  return message.starts_with(path) ? message.substr(path.size()) : message;
}

class Repair {
 public:
  Repair(const PrivateDirectory& root, bool dry_run) : root_(root), dry_run_(dry_run) {}

  Status run() {
    const auto names = root_.names();
    if (!names) return names.error();
    for (const std::string& name : *names) {
      const bool is_number = std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
      if (const auto tenant = tenant_of_folder(name))
        repair_tenant(name);
      else if (is_number)
        report(name, "no user has this number; it is not read", "rename it, or move it away", false);
    }
    if (!dry_run_) (void)::fsync(root_.fd());
    return Ok{};
  }
  SessionRepair take() { return std::move(out_); }

 private:
  void report(const std::string& path, const std::string& what, const std::string& remedy, bool is_mended) {
    out_.findings.push_back({path, what, remedy, is_mended});
  }
  // "moved to X", "would be moved to X".
  std::string done(const std::string& what) const { return (dry_run_ ? "would be " : "") + what; }

  void repair_tenant(const std::string& folder) {
    const auto info = look_at(root_, folder);
    if (!info) return;
    if (!S_ISDIR(info->st_mode)) {
      const char* const what = S_ISLNK(info->st_mode) ? "a symbolic link in the place of a user's folder"
                                                      : "not a folder, in the place of a user's";
      move_aside(root_, folder, "", folder, what, "");
      return;
    }
    if (info->st_uid != ::geteuid())
      return report(folder, fmt::format("belongs to uid {}, and this is uid {}", info->st_uid, ::geteuid()),
                    "chown it, or run this as that user", false);
    if ((info->st_mode & 077) != 0 && !close_to_others(folder)) return;
    const auto directory = root_.sub(folder);
    if (!directory) return report(folder, without_path(root_, folder, directory.error().message), "", false);
    const auto names = directory->names();
    if (!names) return report(folder, names.error().message, "", false);
    ++out_.num_tenants;
    std::set<std::string> sessions;
    for (const std::string& name : *names) {
      const auto file = parse_session_file(name);
      if (file && file->is_temporary)
        remove_temporary(*directory, folder, name);
      else if (file)
        sessions.insert(file->session);
      else if (name.ends_with(".tokens") || name.ends_with(".kv"))
        report(folder + "/" + name, "not the name of a session's file; it is not read", "rename it, or move it away",
               false);
    }
    for (const std::string& session : sessions) repair_session(*directory, folder, session);
    if (!dry_run_) (void)::fsync(directory->fd());
  }

  // False: what is in the folder cannot be seen.
  bool close_to_others(const std::string& folder) {
    const std::string what = "other users may enter it";
    if (dry_run_) {
      report(folder, what, "would get mode 700; what is in it would be looked at then", true);
      return false;
    }
    const FileDescriptor fd(::openat(root_.fd(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const bool is_closed = fd.get() >= 0 && ::fchmod(fd.get(), 0700) == 0;
    report(folder, what, is_closed ? "has mode 700 now" : fmt::format("chmod 700 it: {}", std::strerror(errno)),
           is_closed);
    return is_closed;
  }

  void remove_temporary(const PrivateDirectory& directory, const std::string& folder, const std::string& name) {
    const auto info = look_at(directory, name);
    const char* const what = "the rest of a write that was cut off";
    if (!info || S_ISDIR(info->st_mode)) {
      move_aside(directory, name, folder, name, what, "");
      return;
    }
    const bool is_gone = dry_run_ || ::unlinkat(directory.fd(), name.c_str(), 0) == 0;
    report(folder + "/" + name, what, is_gone ? done("deleted") : std::strerror(errno), is_gone);
  }

  // Moves what has the name to the damaged ones. more: what else is done about it.
  bool move_aside(const PrivateDirectory& from, const std::string& name, const std::string& folder,
                  const std::string& path, const std::string& what, const std::string& more) {
    const std::string shown = folder.empty() ? path : folder + "/" + name;
    std::string target = folder.empty() ? "folder-" + name : name;
    const std::string place = std::string(kDamaged) + "/" + (folder.empty() ? "" : folder + "/");
    if (dry_run_) {
      report(shown, what, fmt::format("would be moved to {}{}{}", place, target, more), true);
      return true;
    }
    auto to = root_.sub(kDamaged);
    if (to && !folder.empty()) to = to->sub(folder);
    if (!to) {
      report(shown, what, to.error().message, false);
      return false;
    }
    const std::string plain = target;
    for (int number = 2; look_at(*to, target); ++number) target = fmt::format("{}.{}", plain, number);
    if (::renameat(from.fd(), name.c_str(), to->fd(), target.c_str()) != 0) {
      report(shown, what, fmt::format("cannot be moved to {}{}: {}", place, target, std::strerror(errno)), false);
      return false;
    }
    (void)::fsync(to->fd());
    report(shown, what, fmt::format("moved to {}{}{}", place, target, more), true);
    return true;
  }

  // What is wrong with the file; empty: nothing. file: set if its header is whole.
  static std::string wrong_with(const PrivateDirectory& directory, const std::string& name, SessionPart part,
                                std::optional<engine::SequenceFile>& file) {
    auto opened = engine::SequenceFile::open(directory, name);
    if (!opened) return without_path(directory, name, opened.error().message);
    file.emplace(std::move(*opened));
    if (part == SessionPart::contents) {
      if (const Status whole = file->check_contents(); !whole)
        return without_path(directory, name, whole.error().message);
      if (file->num_computed() == 0) return "it has no contents";
    }
    return "";
  }

  // One that a chown, or another version of this program, makes usable: it stays where it is.
  bool stays(const PrivateDirectory& directory, const std::string& folder, const std::string& name) {
    const auto info = look_at(directory, name);
    if (!info || !S_ISREG(info->st_mode)) return false;
    if (info->st_uid != ::geteuid()) {
      report(folder + "/" + name, fmt::format("belongs to uid {}, and this is uid {}", info->st_uid, ::geteuid()),
             "chown it, or run this as that user", false);
      return true;
    }
    if (!engine::is_other_version(directory, name)) return false;
    const auto opened = engine::SequenceFile::open(directory, name);
    report(folder + "/" + name, without_path(directory, name, opened ? "" : opened.error().message), "left where it is",
           false);
    return true;
  }

  void repair_session(const PrivateDirectory& directory, const std::string& folder, const std::string& session) {
    const std::string tokens_name = session_file_name(session, SessionPart::tokens);
    const std::string contents_name = session_file_name(session, SessionPart::contents);
    const bool has_tokens = look_at(directory, tokens_name).has_value();
    const bool has_contents = look_at(directory, contents_name).has_value();
    if (has_tokens && stays(directory, folder, tokens_name)) return;
    std::optional<engine::SequenceFile> tokens, contents;
    const std::string no_tokens = has_tokens ? wrong_with(directory, tokens_name, SessionPart::tokens, tokens) : "";
    const bool contents_stay = has_contents && stays(directory, folder, contents_name);
    const std::string no_contents =
        has_contents && !contents_stay ? wrong_with(directory, contents_name, SessionPart::contents, contents) : "";
    const auto give_contents_up = [&](const std::string& why) {
      move_aside(directory, contents_name, folder, contents_name, why, tokens ? "; they are computed again" : "");
    };
    if (!has_tokens && !contents) {
      if (!contents_stay) give_contents_up("contents without tokens, which cannot give them back: " + no_contents);
      return;
    }
    bool is_whole = has_tokens && no_tokens.empty();
    if (!has_tokens) {
      report(folder + "/" + contents_name, tokens_name + " is missing",
             fmt::format("{} {} tokens from here", dry_run_ ? "the session would get" : "the session gets",
                         contents->record().tokens.size()),
             true);
      is_whole = dry_run_ || restore(directory, folder, tokens_name, contents->record());
    } else if (!is_whole) {
      const std::string more =
          contents ? fmt::format("; {} {} tokens from {}", dry_run_ ? "the session would get" : "the session gets",
                                 contents->record().tokens.size(), contents_name)
                   : "";
      if (!move_aside(directory, tokens_name, folder, tokens_name, no_tokens, more)) return;
      if (contents) is_whole = dry_run_ || restore(directory, folder, tokens_name, contents->record());
    }
    if (is_whole) ++out_.num_sessions;
    if (!has_contents || contents_stay) return;
    if (!no_contents.empty()) return give_contents_up(no_contents);
    if (is_whole && tokens && !engine::is_prefix(*contents, tokens->record().tokens))
      give_contents_up("its tokens are not those of " + tokens_name);
  }

  bool restore(const PrivateDirectory& directory, const std::string& folder, const std::string& name,
               const engine::SequenceRecord& record) {
    const Status written = engine::write_sequence(directory, name, record, nullptr);
    if (!written) report(folder + "/" + name, without_path(directory, name, written.error().message), "", false);
    return static_cast<bool>(written);
  }

  const PrivateDirectory& root_;
  const bool dry_run_;
  SessionRepair out_;
};

}  // namespace

bool SessionRepair::is_well() const { return std::ranges::all_of(findings, &SessionFinding::is_mended); }

Result<SessionRepair> repair_sessions(const std::string& directory, bool dry_run) {
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0) return system_error(directory, errno);
  const auto lock = SessionStore::open(directory);  // until the end
  if (!lock && lock.error().code == ErrorCode::busy)
    return Error{ErrorCode::busy, fmt::format("{}: a server keeps its sessions here; stop it first", directory)};
  if (!lock) return lock.error();
  const auto root = PrivateDirectory::open(directory);
  if (!root) return root.error();
  Repair repair(*root, dry_run);
  if (const Status ran = repair.run(); !ran) return ran.error();
  return repair.take();
}

}  // namespace troupe::actors
