#include "bench/load/drivers/garbage.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "bench/load/random.h"
#include "ipc/frames/framing.h"

namespace troupe::load {
namespace {

constexpr int kPatience_ms = 10'000;

// A ClientFrame with Hello{protocol: 1}: field 1, two bytes long, of which field 1 is the number 1.
constexpr std::string_view kHello("\x0A\x02\x08\x01", 4);

std::string random_bytes(Random& random, std::size_t count) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  return bytes;
}

std::string frame(std::string_view body, std::uint32_t claimed_bytes) {
  std::string bytes;
  ipc::append_frame_header(bytes, claimed_bytes);
  bytes += body;
  return bytes;
}

std::string frame(std::string_view body) { return frame(body, static_cast<std::uint32_t>(body.size())); }

// Returns a Unix socket connected to `path`; -1: the connection was not accepted.
int connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

// Sends `bytes`, or as many as the server takes before it closes the connection.
void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// Waits until the server closes the connection, ignoring what it sends; returns whether it did in time.
bool wait_for_close(int fd) {
  std::array<char, 4096> scratch;
  for (;;) {
    pollfd file{fd, POLLIN, 0};
    if (::poll(&file, 1, kPatience_ms) <= 0) return false;
    if (::recv(fd, scratch.data(), scratch.size(), MSG_DONTWAIT) <= 0) return true;
  }
}

}  // namespace

std::string garbage_bytes(std::uint64_t seed, std::uint32_t choice) {
  Random random(seed, Purpose::garbage, choice);
  const std::size_t size = 8 + random.below(2048);
  switch (choice % 7) {
    case 0:
      return random_bytes(random, size);
    case 1:
      return frame(random_bytes(random, size), 0xFFFFFFFF);
    case 2:
      return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"
             "\r\n{}";
    case 3:
      return frame(random_bytes(random, size));
    case 4:
      return frame(random_bytes(random, size), static_cast<std::uint32_t>(2 * size));
    case 5:  // a Cancel of stream 1: a valid frame, but without a Hello before it
      return frame(std::string_view("\x1A\x02\x08\x01", 4));
    default:
      return frame(kHello) + frame(random_bytes(random, size));
  }
}

GarbageSender::GarbageSender(std::string socket, std::uint64_t seed, std::optional<User> user)
    : socket_(std::move(socket)), seed_(seed), user_(std::move(user)) {}

GarbageSender::~GarbageSender() { finish(); }

void GarbageSender::send(std::uint32_t choice) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::thread([this] {
      if (!user_ || !act_as(*user_, [this] { work(); })) work();
    });
  waiting_.push(choice);
  changed_.notify_one();
}

GarbageCount GarbageSender::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  return count_;
}

void GarbageSender::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return finished_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::uint32_t choice = waiting_.front();
    waiting_.pop();
    lock.unlock();
    send_one(choice);
    lock.lock();
  }
}

void GarbageSender::send_one(std::uint32_t choice) {
  const int fd = connect_to(socket_);
  ++count_.sent;
  if (fd < 0) {
    ++count_.refused;
    return;
  }
  send_all(fd, garbage_bytes(seed_, choice));
  ::shutdown(fd, SHUT_WR);  // a server that waits for the rest of a frame sees the end of the stream
  ++(wait_for_close(fd) ? count_.closed : count_.ignored);
  ::close(fd);
}

}  // namespace troupe::load
