// Tries to have one user's bytes taken for another's over TCP: a socket of one user connects, sends that user's uid and
// resets at some moment; at once one of another user connects from the same port, and does the same. Several processes
// do that, more than there are cores, so that this one is often interrupted while it asks which user the kernel names.
// As root. Prints how often a user was named, and how often it was not the one that had sent the bytes; exit code 1 if
// that ever happened. A moment passes before each question, so that the connections change hands in it often enough.
//
//   tcp_peer_race [TRIES]      default 200000
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <utility>

#include "config/file_descriptor.h"
#include "ipc/sockets/tcp_peer.h"

namespace {

using troupe::FileDescriptor;

constexpr std::array<std::uint32_t, 2> kUids{23456, 23457};
constexpr std::size_t kProcesses = 3;
constexpr std::chrono::microseconds kLongestSpin{100};

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void spin(std::minstd_rand& random) {
  const auto until = std::chrono::steady_clock::now() + kLongestSpin * (random() % 100) / 100;
  while (std::chrono::steady_clock::now() < until) {
  }
}

// A socket that the kernel takes for this user's, bound to the port.
FileDescriptor socket_of(std::uint32_t uid, std::uint16_t port) {
  const timeval patience{.tv_sec = 0, .tv_usec = 2000};  // instead of a second until a lost SYN is sent again
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  const int yes = 1;
  const sockaddr_in from = loopback(port);
  if (::setresuid(static_cast<uid_t>(-1), uid, 0) != 0) ::_exit(1);
  FileDescriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::setresuid(static_cast<uid_t>(-1), 0, 0) != 0) ::_exit(1);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) == 0 ? std::move(fd)
                                                                                       : FileDescriptor(-1);
}

// The users take turns on one port: each has its socket ready when the one before resets.
[[noreturn]] void attack(std::uint16_t server, std::uint16_t port, std::uint32_t seed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::minstd_rand random(seed);
  const sockaddr_in to = loopback(server);
  FileDescriptor before(-1);
  for (std::size_t turn = 0;; ++turn) {
    const std::uint32_t uid = kUids[turn % kUids.size()];
    FileDescriptor next = socket_of(uid, port);
    spin(random);
    before = FileDescriptor(-1);
    if (::connect(next.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) continue;
    static_cast<void>(::send(next.get(), &uid, sizeof(uid), MSG_NOSIGNAL));
    before = std::move(next);
  }
}

// What a connection has sent; nullopt: nothing comes.
std::optional<std::uint32_t> sent_by(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  std::uint32_t uid = 0;
  if (::poll(&entry, 1, 100) <= 0 || ::recv(fd, &uid, sizeof(uid), MSG_DONTWAIT) != sizeof(uid)) return std::nullopt;
  return uid;
}

}  // namespace

int main(int argc, char** argv) {
  const long tries = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 200'000;
  if (::geteuid() != 0 || tries <= 0) {
    std::fputs("usage: tcp_peer_race [TRIES], as root: it needs two other users\n", stderr);
    return 2;
  }
  const FileDescriptor door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own = loopback(0);
  socklen_t size = sizeof(own);
  if (::bind(door.get(), reinterpret_cast<const sockaddr*>(&own), size) != 0 || ::listen(door.get(), 1) != 0 ||
      ::getsockname(door.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
    std::perror("tcp_peer_race: cannot listen");
    return 1;
  }
  const std::uint16_t port = ntohs(own.sin_port);
  const auto first_port = static_cast<std::uint16_t>(port < 40'000 ? port + 10'000 : port - 10'000);
  std::array<pid_t, kProcesses> children{};
  for (std::size_t i = 0; i < kProcesses; ++i)
    if ((children[i] = ::fork()) == 0)
      attack(port, static_cast<std::uint16_t>(first_port + i), static_cast<std::uint32_t>(i + 1));
  std::minstd_rand random(1);
  long named = 0, wrong = 0, silent = 0;
  for (long i = 0; i < tries; ++i) {
    const FileDescriptor fd(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto uid = troupe::ipc::uid_of_tcp_peer(fd.get(), [&] { spin(random); });
    const auto sender = uid ? sent_by(fd.get()) : std::nullopt;
    named += uid.has_value();
    silent += uid && !sender;
    wrong += sender && *sender != *uid;
  }
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  std::printf("%ld connections: a user was named for %ld, of which %ld had sent nothing; wrong: %ld\n", tries, named,
              silent, wrong);
  return wrong == 0 ? 0 : 1;
}
