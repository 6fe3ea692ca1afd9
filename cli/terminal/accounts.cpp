#include "cli/terminal/accounts.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace troupe::cli {
namespace {

// kFind: getpwnam_r or getgrnam_r.
template <class Record, auto kFind, auto kId>
Result<std::optional<std::uint32_t>> id_of(const std::string& name) {
  constexpr std::size_t kMaxBuffer = 16u << 20;  // enough for a group of all users of a big site
  for (std::vector<char> buffer(4096);; buffer.resize(buffer.size() * 4)) {
    Record record{};
    Record* found = nullptr;
    const int error = kFind(name.c_str(), &record, buffer.data(), buffer.size(), &found);
    if (error == 0 && found != nullptr) return std::optional<std::uint32_t>(record.*kId);
    if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM)
      return std::optional<std::uint32_t>();
    if (error != ERANGE || buffer.size() > kMaxBuffer)
      return Error{ErrorCode::io, fmt::format("cannot look up {}: {}", name, std::strerror(error))};
  }
}

}  // namespace

Result<std::optional<std::uint32_t>> find_user(const std::string& name) {
  return id_of<passwd, &::getpwnam_r, &passwd::pw_uid>(name);
}

Result<std::optional<std::uint32_t>> find_group(const std::string& name) {
  return id_of<group, &::getgrnam_r, &group::gr_gid>(name);
}

std::optional<UserAccount> find_account(std::uint32_t uid) {
  std::vector<char> buffer(4096);  // a record that is longer has an unusual field: as one that is not known
  passwd record{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &record, buffer.data(), buffer.size(), &found) != 0 || !found) return std::nullopt;
  return UserAccount{found->pw_name, found->pw_gid};
}

std::string user_name(std::uint32_t uid) {
  const auto account = find_account(uid);
  return account ? account->name : fmt::format("{}", uid);
}

}  // namespace troupe::cli
