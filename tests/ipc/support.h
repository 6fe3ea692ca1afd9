// Helpers for the tests of ipc: a private folder, and a client that can misbehave.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "ipc/frames/framing.h"
#include "ipc/troupe.pb.h"
#include "tests/support/temp_folder.h"

namespace troupe::ipc::test {

// The time after which a test fails; a test that passes does not wait for it.
inline constexpr std::chrono::seconds kPatience{60};

// A private folder (0700), removed at the end.
class TempDir : public troupe::test::TempFolder {
 public:
  std::string operator/(const std::string& name) const { return path(name); }
};

// A client that sends raw bytes, also such as no well-behaved library sends.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~RawClient() { hang_up(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  int fd() const { return fd_; }

  void hang_up() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  // Closes the sending side; the server takes that as the end.
  void finish() { ::shutdown(fd_, SHUT_WR); }

  // False when the server has closed.
  bool send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  // Sends all bytes or none; false: the socket has no room.
  bool try_send(std::string_view bytes) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return false;
    REQUIRE(static_cast<std::size_t>(sent) == bytes.size());
    return true;
  }

  static std::string frame_bytes(const google::protobuf::MessageLite& message) {
    std::string bytes;
    const std::string body = message.SerializeAsString();
    append_frame_header(bytes, static_cast<std::uint32_t>(body.size()));
    return bytes + body;
  }

  bool send(const v1::ClientFrame& frame) { return send_bytes(frame_bytes(frame)); }

  // The next frame, or nothing at the end of the stream.
  std::optional<v1::ServerFrame> receive() {
    for (;;) {
      auto body = decoder_.next();
      REQUIRE(body);
      if (*body) {
        v1::ServerFrame frame;
        REQUIRE(frame.ParseFromArray((*body)->data(), static_cast<int>((*body)->size())));
        return frame;
      }
      pollfd entry{.fd = fd_, .events = POLLIN, .revents = 0};
      REQUIRE(::poll(&entry, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) > 0);
      char bytes[4096];
      const ssize_t size = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (size <= 0) return std::nullopt;
      decoder_.append({bytes, static_cast<std::size_t>(size)});
    }
  }

  v1::ServerFrame expect() {
    auto frame = receive();
    REQUIRE(frame);
    return *std::move(frame);
  }

  v1::Welcome hello() {
    v1::ClientFrame frame;
    frame.mutable_hello()->set_protocol(1);
    frame.mutable_hello()->set_client("raw");
    REQUIRE(send(frame));
    const v1::ServerFrame answer = expect();
    REQUIRE(answer.has_welcome());
    return answer.welcome();
  }

  // All frames until the end of the stream; the last one has the reason of the end.
  v1::Refused last_words() {
    std::optional<v1::ServerFrame> last;
    while (auto frame = receive()) last = std::move(frame);
    REQUIRE(last);
    REQUIRE(last->has_refused());
    REQUIRE(last->refused().closing());
    REQUIRE(last->refused().stream() == 0);
    return last->refused();
  }

 private:
  int fd_;
  FrameDecoder decoder_{kMaxFrameBytesCeiling};
};

inline v1::ClientFrame generate_frame(std::uint64_t stream, const std::string& text = "Once upon a time") {
  v1::ClientFrame frame;
  frame.mutable_generate()->set_stream(stream);
  frame.mutable_generate()->set_text(text);
  return frame;
}

}  // namespace troupe::ipc::test
