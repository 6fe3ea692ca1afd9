#include "ipc/refused_callers.h"

#include <sys/socket.h>

#include <utility>

#include "ipc/connection.h"
#include "ipc/frames/framing.h"
#include "ipc/http/response.h"

namespace troupe::ipc {
namespace {

constexpr std::size_t kFirstBytes = 4;  // tell HTTP from frames

// What has come, without taking it; less than kFirstBytes: more may come.
std::string first_bytes(int connection) {
  std::string bytes(kFirstBytes, '\0');
  const ssize_t size = ::recv(connection, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  bytes.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return bytes;
}

struct Waiting {
  Waiting(asio::io_context& io, FileDescriptor connection, std::shared_ptr<const LastWords> what)
      : socket(connected_socket(io, AF_UNIX, std::move(connection))), timer(io, kRefusedWait), words(std::move(what)) {}
  Socket socket;
  asio::steady_timer timer;
  std::shared_ptr<const LastWords> words;
};

}  // namespace

LastWords::LastWords(const Refusal& refusal)
    : frame(to_bytes(to_frame(0, refusal, /*closing=*/true))), http(http::refusal_bytes(refusal)) {}

const std::string& LastWords::in_protocol_of(int connection, std::string_view begun) const {
  return begins_http(std::string(begun) + first_bytes(connection)) ? http : frame;
}

void RefusedCallers::refuse_now(int connection, const LastWords& words) {
  const std::string& answer = words.in_protocol_of(connection);
  // A new connection's socket buffer has room for it, so this neither blocks nor fails; if it fails, the client only
  // sees the connection close.
  static_cast<void>(::send(connection, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

void RefusedCallers::refuse(FileDescriptor connection, std::shared_ptr<const LastWords> words) {
  if (num_waiting_ >= kMaxWaitingRefused || first_bytes(connection.get()).size() == kFirstBytes)
    return refuse_now(connection.get(), *words);
  const auto waiting = std::make_shared<Waiting>(io_, std::move(connection), std::move(words));
  ++num_waiting_;
  waiting->timer.async_wait([waiting](asio::error_code error) {
    asio::error_code ignored;
    if (!error) waiting->socket.cancel(ignored);
  });
  waiting->socket.async_wait(Socket::wait_read, [this, waiting](asio::error_code) {
    --num_waiting_;
    waiting->timer.cancel();
    refuse_now(waiting->socket.native_handle(), *waiting->words);
  });
}

}  // namespace troupe::ipc
