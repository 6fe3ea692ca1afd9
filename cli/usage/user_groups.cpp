#include "cli/usage/user_groups.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>

#include "cli/terminal/accounts.h"
#include "config/options/values.h"
#include "config/printable.h"

namespace troupe::cli {

Result<UserGroups> UserGroups::of(const std::vector<std::string>& names) {
  std::vector<std::uint32_t> gids;
  for (const std::string& list : names)
    for (const std::string& name : config::split(list, ',')) {
      const auto gid = find_group(name);
      if (!gid) return gid.error();
      if (!*gid)
        return Error{ErrorCode::invalid_argument, fmt::format("this system has no group '{}'", Printable(name).text())};
      gids.push_back(**gid);
    }
  return UserGroups(std::move(gids));
}

std::optional<std::uint32_t> UserGroups::group_of(std::uint32_t uid) const {
  const auto account = find_account(uid);
  if (!account) return std::nullopt;
  if (gids_.empty()) return account->gid;
  std::vector<gid_t> own(64);
  int count = static_cast<int>(own.size());
  while (::getgrouplist(account->name.c_str(), account->gid, own.data(), &count) < 0) {
    own.resize(std::max<std::size_t>(own.size() * 2, static_cast<std::size_t>(count)));
    count = static_cast<int>(own.size());
  }
  own.resize(static_cast<std::size_t>(count));
  const auto first = std::ranges::find_first_of(gids_, own);
  return first == gids_.end() ? std::nullopt : std::optional(*first);
}

std::string group_name(std::uint32_t gid) {
  std::vector<char> buffer(1u << 20);  // with the names of its members
  group record{};
  group* found = nullptr;
  if (::getgrgid_r(gid, &record, buffer.data(), buffer.size(), &found) == 0 && found) return found->gr_name;
  return fmt::format("{}", gid);
}

}  // namespace troupe::cli
