#include "cli/guests.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>

namespace troupe::cli {
namespace {

// Calls getpwnam_r or getgrnam_r. nullopt: the name is unknown.
template <class Record>
Result<std::optional<Record>> look_up(const std::string& name,
                                      int (*find)(const char*, Record*, char*, std::size_t, Record**)) {
  constexpr std::size_t kMaxBuffer = 16u << 20;  // enough for a group of all users of a big site
  for (std::vector<char> buffer(4096);; buffer.resize(buffer.size() * 4)) {
    Record record{};
    Record* found = nullptr;
    const int error = find(name.c_str(), &record, buffer.data(), buffer.size(), &found);
    if (error == 0 && found == nullptr) return std::optional<Record>();
    if (error == 0) return std::optional<Record>(record);  // its pointers are not used
    if (error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) return std::optional<Record>();
    if (error != ERANGE || buffer.size() > kMaxBuffer)
      return Error{ErrorCode::io, "cannot look up " + name + ": " + std::strerror(error)};
  }
}

Result<std::optional<std::uint32_t>> uid_of(const std::string& name) {
  auto found = look_up<passwd>(name, &::getpwnam_r);
  if (!found) return found.error();
  return *found ? std::optional<std::uint32_t>((*found)->pw_uid) : std::nullopt;
}

Result<std::optional<std::uint32_t>> gid_of(const std::string& name) {
  auto found = look_up<group>(name, &::getgrnam_r);
  if (!found) return found.error();
  return *found ? std::optional<std::uint32_t>((*found)->gr_gid) : std::nullopt;
}

using Finder = Result<std::optional<std::uint32_t>> (*)(const std::string&);

Status add_named(const config::Given& given, std::string_view option, const std::vector<std::string>& lists,
                 Finder find, std::vector<std::uint32_t>& ids) {
  const auto origin = given.origins.find(option);
  std::string source = origin == given.origins.end() ? "--" + std::string(option) : origin->second;
  const bool is_flag = source.starts_with("--");
  if (!given.file.empty() && source.starts_with(given.file + ":")) source += ": " + std::string(option);
  for (const std::string& list : lists) {
    std::istringstream names(list);
    for (std::string name; std::getline(names, name, ',');) {
      auto id = find(name);
      if (!id) return Error{id.error().code, source + ": " + id.error().message};
      if (!*id)
        return Error{is_flag ? ErrorCode::invalid_argument : ErrorCode::bad_config,
                     source + ": this system knows nobody named '" + name + "'"};
      ids.push_back(**id);
    }
  }
  return Ok{};
}

}  // namespace

Result<GuestIds> guest_ids(const config::ServerOptions& options, const config::Given& given) {
  GuestIds ids{{options.allow_uid.begin(), options.allow_uid.end()},
               {options.allow_gid.begin(), options.allow_gid.end()}};
  if (auto status = add_named(given, "allow-user", options.allow_user, &uid_of, ids.uids); !status)
    return status.error();
  if (auto status = add_named(given, "allow-group", options.allow_group, &gid_of, ids.gids); !status)
    return status.error();
  return ids;
}

}  // namespace troupe::cli
