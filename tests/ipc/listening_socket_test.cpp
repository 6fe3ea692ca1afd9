#include "ipc/sockets/listening_socket.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>

#include "tests/ipc/support.h"

namespace troupe::ipc {
namespace {

using test::TempDir;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

Error refusal(const std::string& path, const Guests& guests = {}, bool own_directory = false) {
  const auto socket = ListeningSocket::open(path, guests, own_directory);
  REQUIRE_FALSE(socket);
  INFO(socket.error().message);
  return socket.error();
}

TEST_CASE("the socket file has mode 0600 and is removed with its server") {
  const TempDir dir;
  const std::string path = dir / "troupe.sock";
  {
    const auto socket = ListeningSocket::open(path, {}, false);
    REQUIRE(socket);
    REQUIRE(mode_of(path) == 0600);
  }
  REQUIRE_FALSE(std::filesystem::exists(path));
}

TEST_CASE("opening a socket restores the umask") {
  const TempDir dir;
  const mode_t before = ::umask(027);
  const auto socket = ListeningSocket::open(dir / "a.sock", {}, false);
  REQUIRE(::umask(before) == 027);
}

TEST_CASE("one guest group gets a socket of its own, any other list of guests one that the uid check guards") {
  const TempDir dir;
  {
    const auto socket = ListeningSocket::open(dir / "a.sock", {.uids = {}, .gids = {::getegid()}}, false);
    REQUIRE(socket);
    REQUIRE(mode_of(dir / "a.sock") == 0660);
  }
  {
    const auto socket = ListeningSocket::open(dir / "b.sock", {.uids = {12345}, .gids = {}}, false);
    REQUIRE(socket);
    REQUIRE(mode_of(dir / "b.sock") == 0666);
  }
}

TEST_CASE("a dead socket is replaced") {
  const TempDir dir;
  const std::string path = dir / "dead.sock";
  {
    auto socket = ListeningSocket::open(path, {}, false);
    REQUIRE(socket);
    ::close(socket->release());                      // as a killed server leaves it
    ::rename(path.c_str(), (dir / "kept").c_str());  // so that the destructor does not find it
  }
  ::rename((dir / "kept").c_str(), path.c_str());
  REQUIRE(std::filesystem::exists(path));
  REQUIRE(ListeningSocket::open(path, {}, false));
}

TEST_CASE("a socket that a server listens on is refused as busy and keeps working") {
  const TempDir dir;
  const std::string path = dir / "live.sock";
  const auto first = ListeningSocket::open(path, {}, false);
  REQUIRE(first);
  const Error error = refusal(path);
  REQUIRE(error.code == ErrorCode::busy);
  REQUIRE(error.message.find(path) != std::string::npos);
  test::RawClient still_there(path);
}

TEST_CASE("a plain file at the path is refused and not changed") {
  const TempDir dir;
  const std::string path = dir / "notes.txt";
  std::ofstream(path) << "precious";
  const Error error = refusal(path);
  REQUIRE(error.code == ErrorCode::io);
  REQUIRE(error.message.find("not a socket") != std::string::npos);
  REQUIRE(std::filesystem::file_size(path) == 8);
}

TEST_CASE("a symbolic link at the path is refused, wherever it leads") {
  const TempDir dir;
  std::filesystem::create_symlink(dir / "elsewhere", dir / "link.sock");
  REQUIRE(refusal(dir / "link.sock").code == ErrorCode::io);
}

TEST_CASE("a directory that is missing is made for a default path only") {
  const TempDir dir;
  const Error error = refusal(dir / "none/troupe.sock");
  REQUIRE(error.code == ErrorCode::io);
  REQUIRE(error.message.find("No such file") != std::string::npos);
  const auto socket = ListeningSocket::open(dir / "troupe/troupe.sock", {}, true);
  REQUIRE(socket);
  REQUIRE(mode_of(dir / "troupe") == 0700);
}

TEST_CASE("a default directory that lets others in is refused with the mode to give it") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "troupe");
  ::chmod((dir / "troupe").c_str(), 0755);
  const Error error = refusal(dir / "troupe/troupe.sock", {}, true);
  REQUIRE(error.code == ErrorCode::permission);
  REQUIRE(error.message.find("0755") != std::string::npos);
  REQUIRE(error.message.find("chmod 0700") != std::string::npos);
}

TEST_CASE("a default directory that is a link or a file is refused") {
  const TempDir dir;
  std::filesystem::create_directory_symlink(dir.path(), dir / "link");
  REQUIRE(refusal(dir / "link/troupe.sock", {}, true).code == ErrorCode::permission);
  std::ofstream(dir / "file") << "x";
  REQUIRE_FALSE(ListeningSocket::open(dir / "file/troupe.sock", {}, true));
}

TEST_CASE("a directory that all users may write to is refused unless it is sticky") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "open");
  ::chmod((dir / "open").c_str(), 0777);
  const Error error = refusal(dir / "open/troupe.sock");
  REQUIRE(error.code == ErrorCode::permission);
  REQUIRE(error.message.find("0777") != std::string::npos);
  ::chmod((dir / "open").c_str(), 01777);
  REQUIRE(ListeningSocket::open(dir / "open/troupe.sock", {}, false));
}

TEST_CASE("a directory of another user is refused with both uids") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a directory away");
    return;
  }
  const TempDir dir;
  std::filesystem::create_directory(dir / "theirs");
  REQUIRE(::chown((dir / "theirs").c_str(), 12345, 12345) == 0);
  for (const bool own : {false, true}) {
    const Error error = refusal(dir / "theirs/troupe.sock", {}, own);
    REQUIRE(error.code == ErrorCode::permission);
    REQUIRE(error.message.find("12345") != std::string::npos);
  }
}

TEST_CASE("a file that has replaced our socket's is not removed") {
  const TempDir dir;
  const std::string path = dir / "troupe.sock";
  {
    const auto socket = ListeningSocket::open(path, {}, false);
    REQUIRE(socket);
    std::filesystem::remove(path);
    std::ofstream(path) << "theirs";
  }
  REQUIRE(std::filesystem::exists(path));
}

// A socket as a service manager passes it: bound outside of the server, with another mode.
int bound_elsewhere(const std::string& path, int type = SOCK_STREAM, bool listening = true) {
  const int fd = ::socket(AF_UNIX, type, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())) == 0);
  if (listening) REQUIRE(::listen(fd, 8) == 0);
  return fd;
}

TEST_CASE("a socket that a service manager bound is used as it is: its file keeps its mode, and stays") {
  const TempDir dir;
  const std::string path = dir / "troupe.sock";
  const int fd = bound_elsewhere(path);
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  {
    auto socket = ListeningSocket::adopt(fd);
    REQUIRE(socket);
    REQUIRE(socket->path() == path);
    REQUIRE((::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    REQUIRE((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    REQUIRE(socket->admit({.uids = {12345}, .gids = {}}));
    REQUIRE(mode_of(path) == 0640);
    socket->remove_file();
  }
  REQUIRE(std::filesystem::is_socket(path));
  REQUIRE(::fcntl(fd, F_GETFD) < 0);  // it was ours to close
}

TEST_CASE("a descriptor that is no listening Unix stream socket with a path is not adopted, and says why") {
  const TempDir dir;
  const auto reason = [](int fd) {
    const auto socket = ListeningSocket::adopt(fd);
    REQUIRE_FALSE(socket);
    REQUIRE(socket.error().code == ErrorCode::bad_config);
    ::close(fd);
    return socket.error().message;
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  REQUIRE(contains(reason(::open("/dev/null", O_RDONLY)), "is not a socket"));
  REQUIRE(contains(reason(::socket(AF_INET, SOCK_STREAM, 0)), "is not a listening Unix stream socket"));
  REQUIRE(contains(reason(bound_elsewhere(dir / "d.sock", SOCK_DGRAM, false)), "is not a listening Unix stream"));
  REQUIRE(contains(reason(bound_elsewhere(dir / "q.sock", SOCK_SEQPACKET)), "is not a listening Unix stream"));
  REQUIRE(contains(reason(bound_elsewhere(dir / "s.sock", SOCK_STREAM, false)), "is not a listening Unix stream"));
  const std::string abstract = std::string(1, '\0') + "troupe-test-" + std::to_string(::getpid());
  REQUIRE(contains(reason(bound_elsewhere(abstract)), "abstract sockets"));
}

TEST_CASE("modes of our own socket and directory follow the list of guests") {
  const TempDir dir;
  const std::string directory = dir / "troupe", path = directory + "/troupe.sock";
  auto socket = ListeningSocket::open(path, {}, true);
  REQUIRE(socket);
  REQUIRE(mode_of(path) == 0600);
  REQUIRE(mode_of(directory) == 0700);
  REQUIRE(socket->admit({.uids = {12345}, .gids = {}}));
  REQUIRE(mode_of(path) == 0666);
  REQUIRE(mode_of(directory) == 0711);
  REQUIRE(socket->admit({.uids = {}, .gids = {::getegid()}}));
  REQUIRE(mode_of(path) == 0660);
  REQUIRE(socket->admit({}));
  REQUIRE(mode_of(path) == 0600);
  REQUIRE(mode_of(directory) == 0700);
}

TEST_CASE("root and the server's own user are owners, no other user is") {
  REQUIRE(is_owner(0));
  REQUIRE(is_owner(::geteuid()));
  REQUIRE_FALSE(is_owner(::geteuid() + 1));
}

TEST_CASE("the server's user, listed uids, and members of listed groups may connect") {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const auto self = peer_of(pair[0]);
  REQUIRE(self);
  REQUIRE(self->uid == ::geteuid());
  REQUIRE(self->pid == ::getpid());
  REQUIRE(admitted(*self, pair[0], {}));
  const Peer stranger{.uid = ::geteuid() + 1, .gid = 54321, .pid = 1};
  REQUIRE_FALSE(admitted(stranger, pair[0], {}));
  REQUIRE_FALSE(admitted(stranger, pair[0], {.uids = {::geteuid() + 2}, .gids = {54322}}));
  REQUIRE(admitted(stranger, pair[0], {.uids = {::geteuid() + 1}, .gids = {}}));
  REQUIRE(admitted(stranger, pair[0], {.uids = {}, .gids = {54321}}));
  gid_t groups[64];
  if (const int count = ::getgroups(64, groups); count > 0)  // the kernel's list of this very socket's peer
    REQUIRE(admitted(stranger, pair[0], {.uids = {}, .gids = {groups[count - 1]}}));
  ::close(pair[0]);
  ::close(pair[1]);
}

}  // namespace
}  // namespace troupe::ipc
