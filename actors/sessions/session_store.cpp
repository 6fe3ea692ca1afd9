#include "actors/sessions/session_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>

#include "config/system_error.h"

namespace troupe::actors {
namespace {

constexpr std::string_view kTokensEnding = ".tokens", kContentsEnding = ".kv", kTemporaryEnding = ".tmp";

std::string file_of(const SessionKey& key, SessionPart part) { return session_file_name(key.name, part); }

// What has the name, if it is there.
std::optional<struct stat> entry_of(const PrivateDirectory& directory, const std::string& name) {
  struct stat info {};
  if (::fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
  return info;
}

std::uint64_t size_of(const struct stat& info) { return static_cast<std::uint64_t>(info.st_size); }

// A time before 1970, or one to come, would last longest in the order of use.
std::uint64_t last_used_of(const struct stat& info) {
  return static_cast<std::uint64_t>(std::clamp<std::time_t>(info.st_mtime, 0, std::time(nullptr)));
}

// Why the file cannot be a session's; empty: it may be one.
std::string wrong_with(const struct stat& info, SessionPart part) {
  if (S_ISLNK(info.st_mode)) return "it is a symbolic link";
  if (S_ISDIR(info.st_mode)) return "it is a folder";
  if (!S_ISREG(info.st_mode)) return "it is not a regular file";
  if (info.st_size == 0) return "it is empty";
  if (part == SessionPart::tokens && size_of(info) > engine::max_token_file_bytes())
    return fmt::format("it has {} bytes; a file of tokens has {} at most", info.st_size,
                       engine::max_token_file_bytes());
  return "";
}

// Contents without tokens are what is left of a session whose tokens were lost, or the first thing of one that no
// client was told of: kept by another name, so that the session's is free. Returns what there is to say.
std::string keep_lost(const PrivateDirectory& directory, const std::string& file) {
  const std::string kept = file + ".lost";
  if (::renameat(directory.fd(), file.c_str(), directory.fd(), kept.c_str()) != 0)
    return system_error(directory.path_of(file) + ": has no tokens beside it, and cannot be renamed", errno).message;
  return fmt::format(
      "{}: has no tokens beside it; it is kept as {}. To have the session again, stop the server, give the file its "
      "name back and run `troupe session repair`; else delete it",
      directory.path_of(file), kept);
}

}  // namespace

std::string session_file_name(const std::string& session, SessionPart part) {
  return session + std::string(part == SessionPart::tokens ? kTokensEnding : kContentsEnding);
}

std::string session_folder_name(TenantId tenant) { return fmt::format("{}", static_cast<std::uint64_t>(tenant)); }

std::optional<TenantId> tenant_of_folder(const std::string& folder) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(folder.data(), folder.data() + folder.size(), number);
  if (failure != std::errc() || end != folder.data() + folder.size()) return std::nullopt;
  if (session_folder_name(TenantId{number}) != folder) return std::nullopt;  // "01000" is not 1000's
  return TenantId{number};
}

std::optional<SessionFileName> parse_session_file(const std::string& file) {
  SessionFileName parsed{.session = file};
  if (file.starts_with('.')) {
    if (!file.ends_with(kTemporaryEnding)) return std::nullopt;
    parsed.session = file.substr(1, file.size() - 1 - kTemporaryEnding.size());
    parsed.is_temporary = true;
  }
  for (const SessionPart part : {SessionPart::tokens, SessionPart::contents}) {
    const std::string_view ending = part == SessionPart::tokens ? kTokensEnding : kContentsEnding;
    if (!parsed.session.ends_with(ending)) continue;
    parsed.session.resize(parsed.session.size() - ending.size());
    parsed.part = part;
    if (!is_session_name(parsed.session)) return std::nullopt;
    return parsed;
  }
  return std::nullopt;
}

Result<SessionStore> SessionStore::open(const std::string& directory) {
  auto opened = PrivateDirectory::open(directory);
  if (!opened) return opened.error();
  if (::flock(opened->fd(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error(directory, errno, ErrorCode::busy);
    return Error{ErrorCode::busy, directory + ": another server keeps its sessions here; name another directory"};
  }
  (void)::fsync(opened->fd());  // folders that a killed server has made
  return SessionStore(std::move(*opened));
}

Result<std::vector<SessionStore::Found>> SessionStore::scan(std::vector<SessionProblem>* problems) const {
  std::vector<Found> all;
  std::vector<SessionProblem> unused;
  if (problems == nullptr) problems = &unused;
  const auto folders = directory_.names();
  if (!folders) return folders.error();
  for (const std::string& folder : *folders) {
    const auto tenant = tenant_of_folder(folder);
    if (!tenant) continue;
    const auto found = scan_tenant(*tenant, *problems);
    if (found)
      all.insert(all.end(), found->begin(), found->end());
    else
      problems->push_back({.tenant = *tenant, .session = {}, .message = found.error().message});
  }
  return all;
}

Result<std::vector<SessionStore::Found>> SessionStore::scan_tenant(TenantId tenant,
                                                                   std::vector<SessionProblem>& problems) const {
  std::vector<Found> all;
  const auto directory = of(tenant);
  if (!directory) return directory.error();
  const auto files = directory->names();
  if (!files) return files.error();
  for (const std::string& file : *files) {
    const auto name = parse_session_file(file);
    if (!name) continue;
    const SessionKey key{tenant, name->session};
    const auto info = entry_of(*directory, file);
    if (name->is_temporary) {
      ::unlinkat(directory->fd(), file.c_str(), 0);
    } else if (name->part == SessionPart::contents) {
      if (!info || entry_of(*directory, file_of(key, SessionPart::tokens))) continue;
      if (info->st_nlink > 1)
        remove_contents(key);  // of a fork that was cut off: the other session has them
      else
        problems.push_back({.tenant = tenant,
                            .session = key.name,
                            .part = SessionPart::contents,
                            .message = keep_lost(*directory, file),
                            .last_used = last_used_of(*info)});
    } else if (info) {
      const auto wrong = [&](SessionPart part, const std::string& what) {
        problems.push_back(
            {.tenant = tenant,
             .session = key.name,
             .part = part,
             .message = fmt::format("{}: cannot be used: {}", directory->path_of(file_of(key, part)), what),
             .last_used = last_used_of(*info)});
      };
      const auto contents = entry_of(*directory, file_of(key, SessionPart::contents));
      const std::string no_contents = contents ? wrong_with(*contents, SessionPart::contents) : "";
      if (!no_contents.empty()) wrong(SessionPart::contents, no_contents);
      if (const std::string no_tokens = wrong_with(*info, SessionPart::tokens); !no_tokens.empty()) {
        wrong(SessionPart::tokens, no_tokens);
        continue;
      }
      Found& found = all.emplace_back();
      found.key = key;
      found.token_bytes = size_of(*info);
      found.last_used = last_used_of(*info);
      if (contents && no_contents.empty()) found.content_bytes = size_of(*contents);
    }
  }
  return all;
}

Result<PrivateDirectory> SessionStore::of(TenantId tenant) const { return directory_.sub(session_folder_name(tenant)); }

Result<engine::SequenceFile> SessionStore::open_tokens(const SessionKey& key) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::SequenceFile::open(*directory, file_of(key, SessionPart::tokens));
}

Result<engine::SequenceFile> SessionStore::open_contents(const SessionKey& key) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::SequenceFile::open(*directory, file_of(key, SessionPart::contents));
}

Status SessionStore::write_tokens(const SessionKey& key, const engine::SequenceRecord& record,
                                  const engine::PublishSequence& publish) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::write_sequence(*directory, file_of(key, SessionPart::tokens), record, nullptr, publish);
}

Status SessionStore::write_contents(const SessionKey& key, const engine::SequenceRecord& record,
                                    const engine::SequenceImage& image, const engine::PublishSequence& publish) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::write_sequence(*directory, file_of(key, SessionPart::contents), record, &image, publish);
}

Status SessionStore::link_contents(const SessionKey& from, const SessionKey& to) const {
  const auto directory = of(from.tenant);
  if (!directory) return directory.error();
  const std::string source = file_of(from, SessionPart::contents), target = file_of(to, SessionPart::contents);
  ::unlinkat(directory->fd(), target.c_str(), 0);
  if (::linkat(directory->fd(), source.c_str(), directory->fd(), target.c_str(), 0) == 0) return Ok{};
  return system_error(directory->path_of(target), errno);
}

Result<FileDescriptor> SessionStore::unlink(const SessionKey& key, SessionPart part) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  const std::string name = file_of(key, part);
  FileDescriptor held(::openat(directory->fd(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (::unlinkat(directory->fd(), name.c_str(), 0) != 0 && errno != ENOENT)
    return system_error(directory->path_of(name), errno);
  return held;
}

bool SessionStore::has(const SessionKey& key, SessionPart part) const {
  const auto directory = of(key.tenant);
  return !directory || entry_of(*directory, file_of(key, part));
}

void SessionStore::remove_contents(const SessionKey& key) const { (void)unlink(key, SessionPart::contents); }

// Contents first: tokens without them are a session, contents without tokens look like one whose tokens were lost.
void SessionStore::remove(const SessionKey& key) const {
  (void)unlink(key, SessionPart::contents);
  (void)unlink(key, SessionPart::tokens);
}

Status SessionStore::sync(TenantId tenant) const {
  const auto directory = of(tenant);
  if (!directory) return directory.error();
  if (::fsync(directory->fd()) == 0) return Ok{};
  return system_error(directory->path() + ": cannot be synced", errno);
}

}  // namespace troupe::actors
