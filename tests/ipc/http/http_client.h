// A client of HTTP that sends any bytes and reads whole responses, over the Unix socket or TCP.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/sockets/listen_address.h"
#include "tests/ipc/support.h"

namespace troupe::ipc::http::test {

struct HttpResponse {
  int status = 0;
  std::string head;
  std::string body;
  bool ended = true;  // false: the connection ended before the body did

  std::string field(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A blocking socket, connected over IPv4.
inline int connect_to(const TcpAddress& to) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(to.port);
  std::memcpy(&address.sin_addr, to.bytes.data(), 4);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  return fd;
}

class HttpClient {
 public:
  explicit HttpClient(const std::string& socket) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket.data(), socket.size());
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  }
  explicit HttpClient(const TcpAddress& to) : fd_(connect_to(to)) {}
  ~HttpClient() { hang_up(); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void hang_up() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void finish() { ::shutdown(fd_, SHUT_WR); }

  // False: the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool get(const std::string& path, const std::string& fields = {}, const std::string& method = "GET") {
    return send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + fields + "\r\n");
  }
  bool post(const std::string& path, const std::string& body, const std::string& fields = {}) {
    return send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
                "\r\n" + fields + "\r\n" + body);
  }

  // The next response; nullopt: the connection has ended. has_body: false after HEAD.
  std::optional<HttpResponse> receive(bool has_body = true) {
    std::size_t end = 0;
    while ((end = bytes_.find("\r\n\r\n")) == std::string::npos)
      if (!more()) return std::nullopt;
    HttpResponse response;
    response.head = bytes_.substr(0, end + 2);
    bytes_.erase(0, end + 4);
    REQUIRE(response.head.starts_with("HTTP/1.1 "));
    response.status = std::stoi(response.head.substr(9, 3));
    if (response.status < 200 || response.status == 204) return response;
    if (response.field("Transfer-Encoding") == "chunked") {
      while (const auto chunk = receive_chunk()) {
        response.body += *chunk;
        if (chunk->empty()) return response;
      }
      response.ended = false;
    } else if (const std::string length = response.field("Content-Length"); !length.empty()) {
      const std::size_t size = has_body ? std::stoul(length) : 0;
      while (bytes_.size() < size)
        if (!more()) response.ended = false, bytes_.resize(size);
      response.body = bytes_.substr(0, size);
      bytes_.erase(0, size);
    } else {
      while (more()) {
      }
      response.body = std::exchange(bytes_, {});
    }
    return response;
  }
  HttpResponse expect(bool has_body = true) {
    auto response = receive(has_body);
    REQUIRE(response);
    return *std::move(response);
  }
  // The head of a response, whose body is read by receive_chunk().
  HttpResponse expect_head() {
    std::size_t end = 0;
    while ((end = bytes_.find("\r\n\r\n")) == std::string::npos) REQUIRE(more());
    HttpResponse response;
    response.head = bytes_.substr(0, end + 2);
    bytes_.erase(0, end + 4);
    response.status = std::stoi(response.head.substr(9, 3));
    return response;
  }
  // One chunk; the last one is empty; nullopt: the connection has ended.
  std::optional<std::string> receive_chunk() {
    std::size_t line = 0;
    while ((line = bytes_.find("\r\n")) == std::string::npos)
      if (!more()) return std::nullopt;
    std::size_t size = 0;
    std::from_chars(bytes_.data(), bytes_.data() + line, size, 16);
    while (bytes_.size() < line + 2 + size + 2)
      if (!more()) return std::nullopt;
    std::string chunk = bytes_.substr(line + 2, size);
    REQUIRE(bytes_.compare(line + 2 + size, 2, "\r\n") == 0);
    bytes_.erase(0, line + 2 + size + 2);
    return chunk;
  }
  // All bytes until the end of the connection.
  std::string rest() {
    while (more()) {
    }
    return std::exchange(bytes_, {});
  }

 private:
  bool more() {
    pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(ipc::test::kPatience).count())) > 0);
    char bytes[16384];
    const ssize_t size = ::recv(fd_, bytes, sizeof(bytes), 0);
    if (size <= 0) return false;
    bytes_.append(bytes, static_cast<std::size_t>(size));
    return true;
  }

  int fd_;
  std::string bytes_;
};

}  // namespace troupe::ipc::http::test
