// The sockets of connections.
#pragma once

#include <asio.hpp>

#include "config/file_descriptor.h"

namespace troupe::ipc {

using Socket = asio::generic::stream_protocol::socket;

// Takes over a connected socket of this address family. Asio is told that it does not block: of a socket that only the
// kernel knows not to block, Asio's read_some() waits in poll() without a limit when there is nothing to read, and that
// happens: epoll may report a socket as readable once more for bytes that have been read already.
inline Socket connected_socket(asio::io_context& io, int family, FileDescriptor fd) {
  Socket socket(io, asio::generic::stream_protocol(family, 0), fd.release());
  socket.non_blocking(true);
  return socket;
}

}  // namespace troupe::ipc
