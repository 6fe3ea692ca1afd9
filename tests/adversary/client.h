// One connection of a well-behaved client: sends a frame and waits for answers, with a timeout.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/adversary/frames.h"

namespace troupe::adversary {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

inline double to_ms(Clock::duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

// A stream socket connected to `path`, or over TCP to "tcp:PORT" of this machine, waiting at most that long;
// receive_buffer: SO_RCVBUF, 0: the kernel's. Closed on failure, errno says why.
Descriptor connect_to(const std::string& path, std::chrono::milliseconds patience, int receive_buffer = 0);

// The result of a Generate.
struct Generated {
  std::vector<std::int32_t> ids{};
  std::optional<Answer> end{};  // nothing: the connection or the patience was at its end
  double first_token_ms = 0;    // from sending to the first Tokens
};

class Client {
 public:
  // Connects and greets. Check is_open(): a server that refuses or is gone leaves a closed client with error().
  Client(const std::string& path, std::chrono::milliseconds patience);

  bool is_open() const { return socket_.is_open(); }
  const std::string& error() const { return error_; }
  void close() { socket_.close(); }

  // False: the connection is gone.
  bool send(std::string_view bytes);
  // The next frame; nothing when the patience or the connection ended, and error() says which.
  std::optional<Answer> receive();
  // The next frame of this stream or of the connection; those of others are dropped.
  std::optional<Answer> receive(std::uint64_t stream);
  // Sends and receives the one answer.
  std::optional<Answer> ask(std::uint64_t stream, std::string_view frame);
  // A number that was not used on this connection.
  std::uint64_t new_stream() { return ++last_stream_; }

  Generated generate(Asked asked);
  std::optional<Figures> status();

 private:
  bool fail(std::string why);

  std::chrono::milliseconds patience_;
  Descriptor socket_;
  FrameCutter cutter_;
  std::uint64_t last_stream_ = 0;
  std::string error_;
};

}  // namespace troupe::adversary
