// Connections of other users.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace troupe::ipc::test {

// While it lives, this thread, and no other of the process, is another user to the kernel: what it connects to, and
// threads that it starts, too. Only root can.
class AsUser {
 public:
  explicit AsUser(std::uint32_t uid) { set(uid); }
  ~AsUser() { set(0); }
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

 private:
  // glibc's function would change all threads.
  static void set(std::uint32_t uid) { REQUIRE(::syscall(SYS_setresuid, -1, uid, -1) == 0); }
};

// Whether this process may play other users; says so where not.
inline bool may_be_others() {
  if (::geteuid() == 0) return true;
  WARN("skipped: only root can become somebody else");
  return false;
}

}  // namespace troupe::ipc::test
