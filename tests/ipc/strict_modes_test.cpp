#include "ipc/sockets/strict_modes.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "config/file_descriptor.h"
#include "ipc/sockets/listening_socket.h"
#include "tests/ipc/support.h"

namespace troupe::ipc {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

constexpr uid_t kStranger = 12345;

bool is_root() {
  if (::geteuid() == 0) return true;
  WARN("skipped: only root can act for another user");
  return false;
}

std::string make_directory(const std::string& path, mode_t mode, uid_t owner = ::geteuid(), gid_t group = ::getegid()) {
  fs::create_directory(path);
  REQUIRE(::chown(path.c_str(), owner, group) == 0);
  REQUIRE(::chmod(path.c_str(), mode) == 0);
  return path;
}

std::string refusal(const std::string& directory) {
  const Status way = check_way_to(directory);
  REQUIRE_FALSE(way);
  CHECK(way.error().code == ErrorCode::permission);
  return way.error().message;
}

bool has(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// A process of another user that listens on `path`, until the end.
class Impostor {
 public:
  Impostor(const std::string& path, uid_t uid) {
    std::array<int, 2> ready{};
    REQUIRE(::pipe(ready.data()) == 0);
    child_ = ::fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) {  // plain calls only from here on
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      const sockaddr_un address = address_of(path);
      if (::setgid(uid) != 0 || ::setuid(uid) != 0) ::_exit(3);
      if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd, 8) != 0)
        ::_exit(4);
      (void)!::write(ready[1], "x", 1);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    const ssize_t size = ::read(ready[0], &byte, 1);
    ::close(ready[0]);
    REQUIRE(size == 1);
  }
  ~Impostor() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

 private:
  pid_t child_;
};

// The result of check_server() after connecting to `path`.
Status check_at(const std::string& path) {
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return check_server(fd.get(), path);
}

TEST_CASE("a private directory is accepted, however it is named and also below sticky ones") {
  const TempDir dir;
  make_directory(dir / "shared", 01777);
  make_directory(dir / "shared/own", 0700);
  fs::create_directory_symlink("shared/own", dir / "link");
  fs::create_directory_symlink(dir / "link", dir / "second");
  for (const char* name : {"", "shared/own", "shared/../shared/./own//", "link", "second", "second/.."})
    CHECK(check_way_to(dir / name));
}

TEST_CASE("nothing below a directory that others may write to is private, not even where it is sticky") {
  const TempDir dir;
  make_directory(dir / "shared", 01777);
  const std::string own = make_directory(dir / "shared/own", 0700);
  CHECK(check_way_to(own));
  CHECK_FALSE(is_private(own));
  CHECK_FALSE(is_private(dir / "none"));
  if (!is_root()) {
    CHECK_FALSE(is_private("/usr"));  // root's
    return;
  }
  CHECK(is_private("/usr"));
  make_directory(dir / "theirs", 0755, kStranger, kStranger);
  CHECK_FALSE(is_private(dir / "theirs"));
}

TEST_CASE("a directory that its group may write to is refused, wherever it is on the way, with what to do") {
  const TempDir dir;
  const std::string open = make_directory(dir / "open", 0775);
  make_directory(dir / "open/own", 0700);
  fs::create_directory_symlink("open/own", dir / "link");
  for (const char* name : {"open", "open/own", "link", "open/own/../own"}) {
    const std::string message = refusal(dir / name);
    CHECK(has(message, "group " + std::to_string(::getegid()) + " can write to " + open + " (mode 0775)"));
    CHECK(has(message, "chmod g-w " + open));
    CHECK(has(message, "--no-strict-modes"));
  }
  REQUIRE(::chmod(open.c_str(), 0757) == 0);
  CHECK(has(refusal(dir / "open/own"), "everybody can write to " + open));
  REQUIRE(::chmod(open.c_str(), 0755) == 0);
  CHECK(check_way_to(dir / "open/own"));
}

TEST_CASE("a server listens below a directory of others only with no-strict-modes") {
  const TempDir dir;
  make_directory(dir / "open", 0775);
  make_directory(dir / "open/own", 0700);
  REQUIRE_FALSE(ListeningSocket::open(dir / "open/own/a.sock", {}, false));
  REQUIRE_FALSE(ListeningSocket::open(dir / "open/troupe/a.sock", {}, true));
  REQUIRE(ListeningSocket::open(dir / "open/own/a.sock", {}, false, /*strict_modes=*/false));
}

TEST_CASE("a directory or a link of another user on the way is refused with both uids") {
  if (!is_root()) return;
  const TempDir dir;
  const std::string theirs = make_directory(dir / "theirs", 0755, kStranger, kStranger);
  make_directory(dir / "theirs/own", 0700);
  const std::string message = refusal(dir / "theirs/own");
  CHECK(has(message, theirs + ", on the way to the socket, belongs to uid 12345"));
  CHECK(has(message, "neither uid 0 nor root"));
  make_directory(dir / "shared", 01777);
  make_directory(dir / "own", 0700);
  fs::create_directory_symlink(dir / "own", dir / "shared/link");
  CHECK(check_way_to(dir / "shared/link"));
  REQUIRE(::lchown((dir / "shared/link").c_str(), kStranger, kStranger) == 0);
  CHECK(has(refusal(dir / "shared/link"), "shared/link, on the way"));
}

TEST_CASE("a path that does not exist or whose links form a loop is an error") {
  const TempDir dir;
  fs::create_directory_symlink("round", dir / "round");
  std::ofstream(dir / "file") << "x";
  for (const char* name : {"none", "round", "file/below"}) {
    const Status way = check_way_to(dir / name);
    REQUIRE_FALSE(way);
    CHECK(way.error().code == ErrorCode::io);
  }
}

TEST_CASE("our own server is trusted wherever it listens") {
  const TempDir dir;
  make_directory(dir / "open", 0777);
  const auto socket = ListeningSocket::open(dir / "open/a.sock", {}, false, /*strict_modes=*/false);
  REQUIRE(socket);
  CHECK(check_at(dir / "open/a.sock"));
}

TEST_CASE("another user's server is trusted in a directory of its own, and not where several users can write") {
  if (!is_root()) return;
  const TempDir dir;
  REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  make_directory(dir / "theirs", 0755, kStranger, kStranger);
  {
    const Impostor server(dir / "theirs/a.sock", kStranger);
    CHECK(check_at(dir / "theirs/a.sock"));
    REQUIRE(::chmod((dir / "theirs").c_str(), 0777) == 0);
    CHECK_FALSE(check_at(dir / "theirs/a.sock"));
  }
  const std::string group = make_directory(dir / "group", 0775, 0, kStranger);
  const Impostor member(dir / "group/a.sock", kStranger);
  const Status replaced = check_at(dir / "group/a.sock");
  REQUIRE_FALSE(replaced);
  CHECK(replaced.error().code == ErrorCode::permission);
  CHECK(has(replaced.error().message, "the server at " + group + "/a.sock runs as uid 12345"));
  CHECK(has(replaced.error().message, "group 12345 can write to " + group));
  make_directory(dir / "shared", 01777);
  const Impostor first_come(dir / "shared/a.sock", kStranger);
  const Status squatted = check_at(dir / "shared/a.sock");
  REQUIRE_FALSE(squatted);
  CHECK(has(squatted.error().message, "nor the owner of " + (dir / "shared") + " (uid 0)"));
}

}  // namespace
}  // namespace troupe::ipc
