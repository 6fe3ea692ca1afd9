#include "ipc/sockets/listen_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include "config/file_descriptor.h"
#include "config/printable.h"
#include "config/system_error.h"

namespace troupe::ipc {
namespace {

constexpr std::string_view kScheme = "tcp://";
// Connections that the kernel keeps until they are accepted.
constexpr int kTcpBacklog = 128;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

SocketAddress to_socket_address(const TcpAddress& address) {
  SocketAddress out;
  if (address.is_v6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(address.port);
    std::memcpy(&in.sin6_addr, address.bytes.data(), 16);
    std::memcpy(&out.storage, &in, out.size = sizeof(in));
  } else {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(address.port);
    std::memcpy(&in.sin_addr, address.bytes.data(), 4);
    std::memcpy(&out.storage, &in, out.size = sizeof(in));
  }
  return out;
}

Error failed(const TcpAddress& address) {
  const int number = errno;
  Error error = system_error("cannot listen on " + address.text(), number,
                             number == EADDRINUSE ? ErrorCode::busy : ErrorCode::io);
  if (number == EADDRINUSE) error.message += "; another program listens there: choose another port";
  if (number == EACCES) error.message += "; ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one";
  return error;
}

}  // namespace

bool TcpAddress::is_loopback() const {
  if (!is_v6) return bytes[0] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t b) { return b == 0; }) && bytes[15] == 1;
}

std::string TcpAddress::text() const {
  char host[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(is_v6 ? AF_INET6 : AF_INET, bytes.data(), host, sizeof(host));
  return fmt::format("tcp://{}{}{}:{}", is_v6 ? "[" : "", static_cast<const char*>(host), is_v6 ? "]" : "", port);
}

Result<TcpAddress> parse_tcp_address(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("'{}' is no address to listen on: {}; write tcp://127.0.0.1:8080 or tcp://[::1]:8080",
                             Printable(text).text(), what)};
  };
  std::string_view rest = text;
  if (!rest.starts_with(kScheme)) return wrong("it does not begin with tcp://");
  rest.remove_prefix(kScheme.size());
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos) return wrong("it has no port");
  std::string host(rest.substr(0, colon));
  const std::string_view digits = rest.substr(colon + 1);
  TcpAddress address;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc{} || end != digits.data() + digits.size()) return wrong("its port is no number up to 65535");
  if (host == "localhost") host = "127.0.0.1";
  address.is_v6 = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (address.is_v6) host = host.substr(1, host.size() - 2);
  if (::inet_pton(address.is_v6 ? AF_INET6 : AF_INET, host.c_str(), address.bytes.data()) != 1)
    return wrong("its host is no IP address");
  return address;
}

Result<int> listen_on(const TcpAddress& address) {
  FileDescriptor fd(::socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return failed(address);
  const int on = 1;
  static_cast<void>(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
  // Tokens are small and go out at once; accepted sockets inherit it.
  static_cast<void>(::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  const SocketAddress to = to_socket_address(address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0) return failed(address);
  if (::listen(fd.get(), kTcpBacklog) != 0) return failed(address);
  return fd.release();
}

std::string host_of_peer(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  char host[INET6_ADDRSTRLEN] = {};
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return {};
  return host;
}

TcpAddress address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  TcpAddress address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return address;
  if (storage.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &storage, sizeof(in));
    address.is_v6 = true;
    std::memcpy(address.bytes.data(), &in.sin6_addr, 16);
    address.port = ntohs(in.sin6_port);
  } else {
    sockaddr_in in{};
    std::memcpy(&in, &storage, sizeof(in));
    std::memcpy(address.bytes.data(), &in.sin_addr, 4);
    address.port = ntohs(in.sin_port);
  }
  return address;
}

}  // namespace troupe::ipc
