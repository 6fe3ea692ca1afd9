// Which user of this machine is at the other end of a TCP connection, as the kernel says (sock_diag(7)).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace troupe::ipc {

// The uid of the process that made the socket at the other end of `fd`; nullopt: the kernel does not say, because the
// peer is on another machine or in another network namespace, has closed or half closed its socket, or because this
// process may not ask (RestrictAddressFamilies= without AF_NETLINK).
//
// The kernel is asked for the socket whose local address is our peer's and whose peer is our address: no other socket
// has those while the connection is open, and afterwards it is looked at whether it still is. A socket that was passed
// to another process, or inherited by one, is still the user's that made it, as with SO_PEERCRED. Some microseconds;
// blocks no longer. Thread-safe.
//
// before_answer: of a test, called between reading the addresses and asking for them.
[[nodiscard]] std::optional<std::uint32_t> uid_of_tcp_peer(int fd, const std::function<void()>& before_answer = {});

}  // namespace troupe::ipc
