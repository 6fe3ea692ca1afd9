#include "tests/adversary/client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace troupe::adversary {

void Descriptor::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Descriptor connect_to(const std::string& path, std::chrono::milliseconds patience, int receive_buffer) {
  constexpr std::string_view kTcp = "tcp:";
  const bool is_tcp = path.starts_with(kTcp);
  Descriptor socket(::socket(is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return socket;
  // connect() of a Unix socket waits for a place in the backlog as long as a send may take.
  const timeval limit{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (receive_buffer > 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  path.copy(local.sun_path, sizeof local.sun_path - 1);
  sockaddr_in tcp{};
  tcp.sin_family = AF_INET;
  tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (is_tcp) tcp.sin_port = htons(static_cast<std::uint16_t>(std::stoul(path.substr(kTcp.size()))));
  const auto* address = is_tcp ? reinterpret_cast<const sockaddr*>(&tcp) : reinterpret_cast<const sockaddr*>(&local);
  if (::connect(socket.get(), address, is_tcp ? sizeof tcp : sizeof local) != 0) {
    const int reason = errno;
    socket.close();
    errno = reason;
  }
  return socket;
}

Client::Client(const std::string& path, std::chrono::milliseconds patience)
    : patience_(patience), socket_(connect_to(path, patience)) {
  if (!socket_.is_open()) {
    error_ = std::string("connect: ") + std::strerror(errno);
    return;
  }
  if (!send(hello_frame())) return;
  const auto answer = receive();
  if (answer && answer->reply != Reply::welcome) fail("instead of a Welcome: " + to_string(*answer));
}

bool Client::fail(std::string why) {
  error_ = std::move(why);
  socket_.close();
  return false;
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!socket_.is_open()) return false;
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return fail(std::string("send: ") + std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::optional<Answer> Client::receive() {
  const auto until = Clock::now() + patience_;
  std::array<char, 64 << 10> buffer;
  while (socket_.is_open()) {
    if (const auto body = cutter_.next()) {
      auto answer = read_answer(*body);
      if (!answer) fail("a frame that is no ServerFrame");
      return answer;
    }
    if (Clock::now() >= until) {
      fail("no answer within " + std::to_string(patience_.count()) + " ms");
      break;
    }
    const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size > 0) cutter_.append({buffer.data(), static_cast<std::size_t>(size)});
    if (size == 0) fail("the server closed the connection");
    if (size < 0 && errno != EINTR && errno != EAGAIN) fail(std::string("recv: ") + std::strerror(errno));
  }
  return std::nullopt;
}

std::optional<Answer> Client::receive(std::uint64_t stream) {
  while (auto answer = receive())
    if (answer->stream == stream || answer->closing) return answer;
  return std::nullopt;
}

std::optional<Answer> Client::ask(std::uint64_t stream, std::string_view frame) {
  if (!send(frame)) return std::nullopt;
  return receive(stream);
}

Generated Client::generate(Asked asked) {
  asked.stream = new_stream();
  Generated result;
  const auto begin = Clock::now();
  if (!send(generate_frame(asked))) return result;
  while (auto answer = receive(asked.stream)) {
    if (answer->reply != Reply::tokens) {
      result.end = std::move(answer);
      break;
    }
    if (result.ids.empty()) result.first_token_ms = to_ms(Clock::now() - begin);
    result.ids.insert(result.ids.end(), answer->ids.begin(), answer->ids.end());
  }
  return result;
}

std::optional<Figures> Client::status() {
  const std::uint64_t stream = new_stream();
  const auto answer = ask(stream, status_frame(stream, false));
  if (!answer || answer->reply != Reply::status) return std::nullopt;
  return read_figures(answer->body);
}

}  // namespace troupe::adversary
