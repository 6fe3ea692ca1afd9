// Connections of other users.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdint>

namespace troupe::ipc::test {

// While this object exists the calling thread alone has another effective uid: connections and threads that it makes
// have that uid. Only root can do this.
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

// Whether this process can act as other users; if not, warns that the test is skipped.
inline bool may_be_others() {
  if (::geteuid() == 0) return true;
  WARN("skipped: only root can act as another user");
  return false;
}

}  // namespace troupe::ipc::test
