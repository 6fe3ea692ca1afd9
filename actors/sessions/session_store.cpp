#include "actors/sessions/session_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace troupe::actors {
namespace {

constexpr std::string_view kTokensEnding = ".tokens", kContentsEnding = ".kv";

std::string file_of(const SessionKey& key, SessionPart part) {
  return key.name + std::string(part == SessionPart::tokens ? kTokensEnding : kContentsEnding);
}

std::string folder_of(TenantId tenant) { return fmt::format("{}", static_cast<std::uint64_t>(tenant)); }

std::optional<TenantId> tenant_of(const std::string& folder) {
  std::uint64_t number = 0;
  const auto [end, failure] = std::from_chars(folder.data(), folder.data() + folder.size(), number);
  if (failure != std::errc() || end != folder.data() + folder.size()) return std::nullopt;
  return TenantId{number};
}

// The name of the session with this file of that part; none: it is not one.
std::optional<std::string> name_in(const std::string& file, std::string_view suffix) {
  if (!file.ends_with(suffix)) return std::nullopt;
  std::string name = file.substr(0, file.size() - suffix.size());
  return is_session_name(name) ? std::optional(std::move(name)) : std::nullopt;
}

std::optional<struct stat> regular_file(const PrivateDirectory& directory, const std::string& name) {
  struct stat info {};
  if (::fstatat(directory.fd(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
    return std::nullopt;
  return info;
}

}  // namespace

Result<SessionStore> SessionStore::open(const std::string& directory) {
  auto opened = PrivateDirectory::open(directory);
  if (!opened) return opened.error();
  if (::flock(opened->fd(), LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorCode::busy,
                 fmt::format("{}: {}", directory,
                             errno == EWOULDBLOCK ? "another server keeps its sessions here; name another directory"
                                                  : std::strerror(errno))};
  return SessionStore(std::move(*opened));
}

Result<std::vector<SessionStore::Found>> SessionStore::scan() const {
  std::vector<Found> all;
  const auto folders = directory_.names();
  if (!folders) return folders.error();
  for (const std::string& folder : *folders) {
    const auto tenant = tenant_of(folder);
    if (!tenant) continue;
    const auto directory = of(*tenant);
    if (!directory) return directory.error();
    const auto files = directory->names();
    if (!files) return files.error();
    for (const std::string& file : *files) {
      if (file.starts_with('.')) {
        ::unlinkat(directory->fd(), file.c_str(), 0);
      } else if (const auto name = name_in(file, kTokensEnding)) {
        const auto info = regular_file(*directory, file);
        if (!info) continue;
        Found& found = all.emplace_back();
        found.key = {*tenant, *name};
        found.token_bytes = static_cast<std::uint64_t>(info->st_size);
        found.last_used = static_cast<std::uint64_t>(info->st_mtime);
        if (const auto contents = regular_file(*directory, file_of(found.key, SessionPart::contents)))
          found.content_bytes = static_cast<std::uint64_t>(contents->st_size);
      } else if (const auto without = name_in(file, kContentsEnding)) {
        const SessionKey key{*tenant, *without};
        if (!regular_file(*directory, file_of(key, SessionPart::tokens))) unlink(key, SessionPart::contents);
      }
    }
  }
  return all;
}

Result<PrivateDirectory> SessionStore::of(TenantId tenant) const { return directory_.sub(folder_of(tenant)); }

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

Status SessionStore::write_tokens(const SessionKey& key, const engine::SequenceRecord& record) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::write_sequence(*directory, file_of(key, SessionPart::tokens), record, nullptr);
}

Status SessionStore::write_contents(const SessionKey& key, const engine::SequenceRecord& record,
                                    const engine::SequenceImage& image) const {
  const auto directory = of(key.tenant);
  if (!directory) return directory.error();
  return engine::write_sequence(*directory, file_of(key, SessionPart::contents), record, &image);
}

Status SessionStore::link_contents(const SessionKey& from, const SessionKey& to) const {
  const auto directory = of(from.tenant);
  if (!directory) return directory.error();
  const std::string source = file_of(from, SessionPart::contents), target = file_of(to, SessionPart::contents);
  ::unlinkat(directory->fd(), target.c_str(), 0);
  if (::linkat(directory->fd(), source.c_str(), directory->fd(), target.c_str(), 0) == 0) return Ok{};
  return Error{ErrorCode::io, fmt::format("{}: {}", directory->path_of(target), std::strerror(errno))};
}

void SessionStore::unlink(const SessionKey& key, SessionPart part) const {
  if (const auto directory = of(key.tenant)) ::unlinkat(directory->fd(), file_of(key, part).c_str(), 0);
}

void SessionStore::remove_contents(const SessionKey& key) const { unlink(key, SessionPart::contents); }

// Tokens first: without them contents are not used, and the next scan deletes them.
void SessionStore::remove(const SessionKey& key) const {
  unlink(key, SessionPart::tokens);
  unlink(key, SessionPart::contents);
}

}  // namespace troupe::actors
