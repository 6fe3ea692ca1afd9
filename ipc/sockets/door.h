// A listening socket and the loop that accepts its connections. Used by the io thread only.
#pragma once

#include <asio.hpp>

#include <functional>
#include <system_error>

#include "config/file_descriptor.h"
#include "ipc/sockets/listen_address.h"

namespace troupe::ipc {

class Door {
 public:
  using OnConnection = std::function<void(FileDescriptor)>;

  // Takes over a listening, non-blocking socket of this address family (AF_UNIX, AF_INET, AF_INET6). The door must live
  // until `io` has stopped.
  Door(asio::io_context& io, int family, int fd, OnConnection on_connection);

  void open();  // begins to accept
  void close();
  bool is_open() const { return acceptor_.is_open(); }
  int fd() { return acceptor_.native_handle(); }
  // Where it listens; of a TCP door.
  const TcpAddress& address() const { return address_; }

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

  asio::awaitable<void> accept_loop();
  std::error_code accept_waiting();

  asio::io_context& io_;
  Acceptor acceptor_;
  asio::steady_timer retry_;
  OnConnection on_connection_;
  const TcpAddress address_;
};

}  // namespace troupe::ipc
