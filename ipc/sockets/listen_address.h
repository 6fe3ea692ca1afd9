// An address to listen on over TCP: "tcp://127.0.0.1:8080". Plain.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/result.h"

namespace troupe::ipc {

struct TcpAddress {
  bool is_v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // in network order; the first 4 for IPv4
  std::uint16_t port = 0;                // 0: any free one

  // 127.0.0.0/8 or ::1.
  bool is_loopback() const;
  // "tcp://127.0.0.1:8080", "tcp://[::1]:8080".
  std::string text() const;
  friend bool operator==(const TcpAddress&, const TcpAddress&) = default;
};

// Reads "tcp://HOST:PORT"; HOST is an IPv4 address, an IPv6 one in brackets, or "localhost", which is 127.0.0.1. Error:
// invalid_argument.
[[nodiscard]] Result<TcpAddress> parse_tcp_address(std::string_view text);

// A bound, listening, non-blocking socket; the caller closes it. Errors: busy, permission, io.
[[nodiscard]] Result<int> listen_on(const TcpAddress& address);
// The host of the peer of a TCP socket, as text: "192.0.2.1", "2001:db8::1"; empty: not known.
[[nodiscard]] std::string host_of_peer(int fd);
// The address that a socket is bound to.
[[nodiscard]] TcpAddress address_of(int fd);

}  // namespace troupe::ipc
