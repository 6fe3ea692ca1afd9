// Connections of other users: the kernel tells the server the credentials of the thread that called connect().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/result.h"

namespace troupe::load {

// What a thread needs to act as a user.
struct User {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups{};
};

// The user of this name, or of this number. A number without an account has the gid of the same number, and no further
// groups. Error: invalid_argument, for an unknown name.
[[nodiscard]] Result<User> find_user(std::string_view name_or_number);

// Whether this process can act as the user: it is that user already, or root. Error: permission, saying what to do.
[[nodiscard]] Status check_can_act_as(const User& user);

// Calls `work` on a thread of its own that has the uid, gid and groups of `user`, and waits for it; threads that it
// starts keep them. The rest of the process stays what it is, and so does its process id, by which a server may look
// for the caller's cgroup. Error: permission, if the kernel refuses; `work` is not called then.
[[nodiscard]] Status act_as(const User& user, const std::function<void()>& work);

}  // namespace troupe::load
