// Which user the kernel names at the other end of a TCP connection, and when it names none.
#include "ipc/sockets/tcp_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "config/file_descriptor.h"
#include "tests/ipc/connect_as.h"
#include "tests/support/skip.h"

namespace troupe::ipc {
namespace {

using test::AsUser;
using test::may_be_others;

constexpr std::uint32_t kAnn = 23456;
constexpr std::uint32_t kBen = 23457;

sockaddr_in6 v6_address(const char* text, std::uint16_t port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, text, &address.sin6_addr) == 1);
  return address;
}

// A listening socket on the loopback address of its family. fd is below 0 where the machine has no such address.
struct Listening {
  explicit Listening(int family) : fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    int bound = -1;
    if (family == AF_INET) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    } else if (fd.get() >= 0) {
      const sockaddr_in6 address = v6_address("::1", 0);
      bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    }
    if (bound != 0 || ::listen(fd.get(), 8) != 0) {
      fd = FileDescriptor(-1);
      return;
    }
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
    port = ntohs(reinterpret_cast<const sockaddr_in*>(&own)->sin_port);  // the same place in both families
  }
  FileDescriptor accept() const {
    FileDescriptor accepted(::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(accepted.get() >= 0);
    return accepted;
  }
  FileDescriptor fd;
  std::uint16_t port = 0;
};

// From a port that no other socket has: connect() alone may choose one that others have, too, and another socket could
// not take it over then.
FileDescriptor connect_v4(std::uint16_t port) {
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  address.sin_port = htons(port);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

FileDescriptor connect_v6(const char* to, std::uint16_t port) {
  FileDescriptor fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in6 address = v6_address(to, port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return FileDescriptor(-1);
  return fd;
}

TEST_CASE("tcp peer: our own uid, over IPv4, over IPv6, and over IPv4 that is written as IPv6") {
  const Listening v4(AF_INET);
  const FileDescriptor client = connect_v4(v4.port);
  const FileDescriptor accepted = v4.accept();
  CHECK(uid_of_tcp_peer(accepted.get()) == ::geteuid());
  CHECK(uid_of_tcp_peer(client.get()) == ::geteuid());  // and the other way round
  if (const FileDescriptor mapped = connect_v6("::ffff:127.0.0.1", v4.port); mapped.get() >= 0)
    CHECK(uid_of_tcp_peer(v4.accept().get()) == ::geteuid());
  const Listening v6(AF_INET6);
  if (v6.fd.get() < 0) return troupe::test::skip("this machine has no address ::1");
  const FileDescriptor six = connect_v6("::1", v6.port);
  CHECK(uid_of_tcp_peer(v6.accept().get()) == ::geteuid());
}

TEST_CASE("tcp peer: another user's uid, among many connections to the same port") {
  if (!may_be_others()) return;
  const Listening listening(AF_INET);
  for (const std::uint32_t uid : {kAnn, kBen, 0u, kAnn}) {
    std::optional<FileDescriptor> client;
    {
      const AsUser user(uid);
      client.emplace(connect_v4(listening.port));
    }
    const FileDescriptor accepted = listening.accept();
    CHECK(uid_of_tcp_peer(accepted.get()) == uid);
  }
}

TEST_CASE("tcp peer: one that has closed, half closed or reset its socket is nobody") {
  const Listening listening(AF_INET);
  FileDescriptor client = connect_v4(listening.port);
  FileDescriptor accepted = listening.accept();
  REQUIRE(::shutdown(client.get(), SHUT_WR) == 0);
  CHECK_FALSE(uid_of_tcp_peer(accepted.get()));
  client = FileDescriptor(-1);
  CHECK_FALSE(uid_of_tcp_peer(accepted.get()));
  client = connect_v4(listening.port);
  accepted = listening.accept();
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  client = FileDescriptor(-1);
  CHECK_FALSE(uid_of_tcp_peer(accepted.get()));
}

TEST_CASE("tcp peer: a listening socket at the peer's address is not the peer") {
  const Listening listening(AF_INET);
  std::optional<FileDescriptor> client(connect_v4(listening.port));
  sockaddr_in own{};
  socklen_t size = sizeof(own);
  REQUIRE(::getsockname(client->get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
  const FileDescriptor accepted = listening.accept();
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(client->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  client.reset();
  const FileDescriptor other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  REQUIRE(::setsockopt(other.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
  REQUIRE(::bind(other.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  REQUIRE(::listen(other.get(), 1) == 0);
  CHECK_FALSE(uid_of_tcp_peer(accepted.get()));
}

TEST_CASE("tcp peer: a socket stays its maker's when another user's process has it") {
  if (!may_be_others()) return;
  const Listening listening(AF_INET);
  std::optional<FileDescriptor> client;
  {
    const AsUser user(kAnn);
    client.emplace(connect_v4(listening.port));
  }
  const FileDescriptor accepted = listening.accept();
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kBen) != 0 || ::setuid(kBen) != 0) ::_exit(1);
    const char byte = 'x';
    ::_exit(::send(client->get(), &byte, 1, 0) == 1 ? 0 : 2);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(uid_of_tcp_peer(accepted.get()) == kAnn);
}

// Ends the connection at once and frees its port.
void reset(std::optional<FileDescriptor>& client) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  REQUIRE(::setsockopt(client->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
  client.reset();
}

// A connection of another user, if this process can be one, from an address that another socket has left.
FileDescriptor take_over(const sockaddr_in& own, std::uint16_t port) {
  std::optional<AsUser> user;
  if (::geteuid() == 0) user.emplace(kBen);
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0);
  sockaddr_in server = own;
  server.sin_port = htons(port);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)) == 0);
  return fd;
}

TEST_CASE("tcp peer: another socket that takes over the port before the kernel answers is not the peer") {
  const Listening listening(AF_INET);
  for (const bool is_accepted : {false, true}) {
    std::optional<FileDescriptor> client(connect_v4(listening.port));
    sockaddr_in own{};
    socklen_t size = sizeof(own);
    REQUIRE(::getsockname(client->get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
    const FileDescriptor accepted = listening.accept();
    const char bytes[] = "what is to be run as somebody else";
    REQUIRE(::send(client->get(), bytes, sizeof(bytes), 0) == sizeof(bytes));
    std::optional<FileDescriptor> later, later_accepted;
    const auto uid = uid_of_tcp_peer(accepted.get(), [&] {
      reset(client);
      later.emplace(take_over(own, listening.port));
      if (is_accepted) later_accepted.emplace(listening.accept());
    });
    CHECK_FALSE(uid);
    if (!is_accepted) later_accepted.emplace(listening.accept());
    CHECK(uid_of_tcp_peer(later_accepted->get()) == (::geteuid() == 0 ? kBen : ::geteuid()));
  }
}

TEST_CASE("tcp peer: one that resets before the kernel answers is nobody, one that stays is itself") {
  const Listening listening(AF_INET);
  std::optional<FileDescriptor> client(connect_v4(listening.port));
  const FileDescriptor accepted = listening.accept();
  CHECK(uid_of_tcp_peer(accepted.get(), [] {}) == ::geteuid());
  CHECK_FALSE(uid_of_tcp_peer(accepted.get(), [&] { reset(client); }));
}

TEST_CASE("tcp peer: what is no connected TCP socket has none") {
  CHECK_FALSE(uid_of_tcp_peer(-1));
  const FileDescriptor alone(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK_FALSE(uid_of_tcp_peer(alone.get()));
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const FileDescriptor one(pair[0]), two(pair[1]);
  CHECK_FALSE(uid_of_tcp_peer(one.get()));
}

}  // namespace
}  // namespace troupe::ipc
