#include "ipc/sockets/tcp_peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>

#include "config/file_descriptor.h"

namespace troupe::ipc {
namespace {

// One end of a connection; IPv4 in the first word.
struct End {
  std::array<std::uint32_t, 4> address{};
  std::uint16_t port = 0;
  friend bool operator==(const End&, const End&) = default;
};

struct Ends {
  std::uint8_t family = AF_INET;
  End own, peer;
  friend bool operator==(const Ends&, const Ends&) = default;
};

// IPv4 also where it is written as IPv6 (::ffff:127.0.0.1): the kernel finds both as IPv4.
std::optional<End> end_of(const sockaddr_storage& storage, std::uint8_t& family) {
  End end;
  if (storage.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &storage, sizeof(in));
    family = AF_INET;
    end.address[0] = in.sin_addr.s_addr;
    end.port = in.sin_port;
    return end;
  }
  if (storage.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, &storage, sizeof(in));
  end.port = in.sin6_port;
  family = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr) ? AF_INET : AF_INET6;
  std::memcpy(end.address.data(), in.sin6_addr.s6_addr + (family == AF_INET ? 12 : 0), family == AF_INET ? 4 : 16);
  return end;
}

std::optional<Ends> ends_of(int fd) {
  Ends ends;
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof(own), peer_size = sizeof(peer);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return std::nullopt;
  std::uint8_t peer_family = AF_UNSPEC;
  const auto a = end_of(own, ends.family), b = end_of(peer, peer_family);
  if (!a || !b || ends.family != peer_family) return std::nullopt;
  ends.own = *a;
  ends.peer = *b;
  return ends;
}

struct Question {
  nlmsghdr header{};
  inet_diag_req_v2 request{};
};

// Asks for the socket at the peer's end: what is our peer is its own address.
bool ask(int netlink, const Ends& ends) {
  Question question;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;  // without NLM_F_DUMP: this one socket
  question.request.sdiag_family = ends.family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0u;
  inet_diag_sockid& id = question.request.id;
  id.idiag_sport = ends.peer.port;
  id.idiag_dport = ends.own.port;
  std::memcpy(id.idiag_src, ends.peer.address.data(), sizeof(id.idiag_src));
  std::memcpy(id.idiag_dst, ends.own.address.data(), sizeof(id.idiag_dst));
  id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  return ::sendto(netlink, &question, sizeof(question), 0, reinterpret_cast<const sockaddr*>(&kernel),
                  sizeof(kernel)) == static_cast<ssize_t>(sizeof(question));
}

// IPv4 as above. A socket of IPv6 that speaks IPv4 is found by its IPv4 addresses, and has them written as IPv6 in the
// answer.
End end_of(std::uint8_t family, const __be32 (&words)[4], __be16 port) {
  End end{.port = port};
  in6_addr address{};
  std::memcpy(&address, words, sizeof(address));
  const bool is_mapped = family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&address);
  if (family == AF_INET || is_mapped)
    end.address[0] = words[is_mapped ? 3 : 0];
  else
    std::memcpy(end.address.data(), words, sizeof(words));
  return end;
}

// Without an established connection at these addresses the kernel answers with a listening socket at them, if there is
// one, so the answer is compared with the question.
std::optional<std::uint32_t> uid_in(const char* bytes, std::size_t size, const Ends& ends) {
  nlmsghdr header{};
  inet_diag_msg answer{};
  if (size < NLMSG_LENGTH(sizeof(answer))) return std::nullopt;
  std::memcpy(&header, bytes, sizeof(header));
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;  // NLMSG_ERROR: there is no such socket
  std::memcpy(&answer, bytes + NLMSG_HDRLEN, sizeof(answer));
  const End own = end_of(answer.idiag_family, answer.id.idiag_src, answer.id.idiag_sport);
  const End peer = end_of(answer.idiag_family, answer.id.idiag_dst, answer.id.idiag_dport);
  // No inode: the process has closed the socket, and the kernel keeps it to send what is left.
  if (answer.idiag_state != TCP_ESTABLISHED || answer.idiag_inode == 0 || own != ends.peer || peer != ends.own)
    return std::nullopt;
  return answer.idiag_uid;
}

// Whether the connection has existed all the time since its ends were read.
//
// As long as it does, every segment between these two ends reaches our socket, which answers no handshake: another
// socket at the peer's end is not established before ours is reset. A socket that was reset or closed never comes back
// to one of these states, so one that is in them now was in them when the kernel answered, and the answer was about its
// peer. CLOSE_WAIT: the peer closed its sending side after the answer, which would have named no user otherwise.
bool still_connected(int fd, const Ends& ends) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT) && ends_of(fd) == ends;
}

}  // namespace

std::optional<std::uint32_t> uid_of_tcp_peer(int fd, const std::function<void()>& before_answer) {
  const auto ends = ends_of(fd);
  if (!ends) return std::nullopt;
  const FileDescriptor netlink(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (before_answer) before_answer();
  if (netlink.get() < 0 || !ask(netlink.get(), *ends)) return std::nullopt;
  // The kernel has put the answer there before sendto() returned.
  alignas(nlmsghdr) char bytes[1024];
  const ssize_t size = ::recv(netlink.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (size < 0) return std::nullopt;
  const auto uid = uid_in(bytes, static_cast<std::size_t>(size), *ends);
  return uid && still_connected(fd, *ends) ? uid : std::nullopt;
}

}  // namespace troupe::ipc
