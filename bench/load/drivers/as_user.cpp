#include "bench/load/drivers/as_user.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>

#include "config/options/values.h"
#include "config/printable.h"

namespace troupe::load {
namespace {

constexpr std::size_t kAccountBytes = 64u << 10;  // of the texts of an account and of a group
constexpr int kMaxGroups = 1024;                  // of one user; the kernel takes 65,536

// glibc's functions would change every thread of the process.
bool set_credentials(const User& user) {
  return ::syscall(SYS_setgroups, user.groups.size(), user.groups.data()) == 0 &&
         ::syscall(SYS_setresgid, user.gid, user.gid, user.gid) == 0 &&
         ::syscall(SYS_setresuid, user.uid, user.uid, user.uid) == 0;
}

User user_of(const passwd& account) {
  User user{.uid = account.pw_uid, .gid = account.pw_gid, .groups = std::vector<std::uint32_t>(kMaxGroups)};
  int count = kMaxGroups;
  if (::getgrouplist(account.pw_name, account.pw_gid, user.groups.data(), &count) < 0) count = kMaxGroups;
  user.groups.resize(static_cast<std::size_t>(count));
  return user;
}

}  // namespace

Result<User> find_user(std::string_view name_or_number) {
  const auto number = config::parse_integer(name_or_number);
  if (number && (*number < 0 || *number >= std::numeric_limits<std::uint32_t>::max()))
    return Error{ErrorCode::invalid_argument, fmt::format("there is no user {}: it must be 0 to 4294967294", *number)};
  std::vector<char> texts(kAccountBytes);
  passwd account{};
  passwd* found = nullptr;
  if (number)
    ::getpwuid_r(static_cast<uid_t>(*number), &account, texts.data(), texts.size(), &found);
  else
    ::getpwnam_r(std::string(name_or_number).c_str(), &account, texts.data(), texts.size(), &found);
  if (found) return user_of(account);
  if (!number)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("there is no user '{}'; name one of this machine, or give a number",
                             Printable(name_or_number).text())};
  const auto uid = static_cast<std::uint32_t>(*number);
  return User{.uid = uid, .gid = uid, .groups = {}};
}

Status check_can_act_as(const User& user) {
  if (::geteuid() == 0 || ::geteuid() == user.uid) return Ok{};
  return Error{ErrorCode::permission,
               fmt::format("only root can connect as uid {}; run this as root, or leave uid out: then the server sees "
                           "the requests of uid {}",
                           user.uid, ::geteuid())};
}

Status act_as(const User& user, const std::function<void()>& work) {
  if (::geteuid() != 0 && ::geteuid() == user.uid) {
    work();
    return Ok{};
  }
  int error = 0;
  std::thread([&] {
    if (set_credentials(user))
      work();
    else
      error = errno;
  }).join();
  if (error == 0) return Ok{};
  return Error{ErrorCode::permission, fmt::format("cannot act as uid {}: {}", user.uid, std::strerror(error))};
}

}  // namespace troupe::load
