#include "ipc/sockets/door.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

namespace troupe::ipc {
namespace {

// Each takes about 10 us of the io thread, so other handlers wait for at most a third of a millisecond.
constexpr int kMaxAcceptsPerTurn = 32;

}  // namespace

Door::Door(asio::io_context& io, int family, int fd, OnConnection on_connection)
    : io_(io), acceptor_(io), retry_(io), on_connection_(std::move(on_connection)), address_(address_of(fd)) {
  acceptor_.assign(asio::generic::stream_protocol(family, 0), fd);
  acceptor_.non_blocking(true);
}

void Door::open() {
  asio::co_spawn(io_, accept_loop(), [this](const std::exception_ptr& thrown) {
    if (!thrown) return;
    // Only std::bad_alloc is thrown there; it ends the new connection only.
    spdlog::error("a connection could not be accepted: out of memory");
    open();
  });
}

void Door::close() {
  asio::error_code ignored;
  acceptor_.close(ignored);
  retry_.cancel();
}

asio::awaitable<void> Door::accept_loop() {
  while (acceptor_.is_open()) {
    asio::error_code error;
    co_await acceptor_.async_wait(Acceptor::wait_read, asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor_.is_open()) co_return;  // closed by drain(), stop() or end_if_idle()
    const std::error_code failed = accept_waiting();
    if (!failed) continue;
    // Most likely out of descriptors: new connections stay in the kernel's queue until some are free again.
    spdlog::warn("cannot accept a connection: {}; trying again in 100 ms", failed.message());
    retry_.expires_after(std::chrono::milliseconds(100));
    co_await retry_.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

// Accepts all waiting connections, so that many of one user do not delay another user's, but at most
// kMaxAcceptsPerTurn, so that open connections do not wait. Returns an error only if trying again at once would not
// help.
std::error_code Door::accept_waiting() {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    FileDescriptor connection(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.get() >= 0) {
      on_connection_(std::move(connection));
      continue;
    }
    if (errno == EAGAIN) return {};
    if (errno != ECONNABORTED && errno != EINTR) return {errno, std::system_category()};
  }
  return {};
}

}  // namespace troupe::ipc
