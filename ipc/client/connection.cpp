#include "ipc/client/connection.h"

#include <fmt/format.h>
#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "config/system_error.h"
#include "ipc/client/conversions.h"
#include "ipc/frames/framing.h"
#include "ipc/frames/unserved.h"
#include "ipc/sockets/strict_modes.h"

namespace troupe::client {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Deadline = SteadyClock::time_point;

constexpr std::uint32_t kProtocol = 1;
constexpr std::size_t kReadBytes = 64u << 10;
// A server that reads nothing for this long is considered stuck.
constexpr std::chrono::seconds kSendTimeout{30};
// A server that has sent a part of a frame and then nothing for this long, too.
constexpr std::chrono::seconds kFrameTimeout{60};

std::string reason(int error) { return std::string(": ") + std::strerror(error); }

// Waits until `fd` can be read or written; false when the deadline has passed.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    int timeout = -1;
    if (deadline != Deadline::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
      if (left <= 0) return false;
      timeout = static_cast<int>(std::min<long long>(left, 1 << 30));
    }
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&entry, 1, timeout);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // an error is reported by the next call
  }
}

// The name of the group that may use what `path` names, and others may not; empty: none.
std::string group_let_in(const std::string& path, mode_t bits_of_group, mode_t bits_of_others) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || (info.st_mode & bits_of_others) != 0) return "";
  if ((info.st_mode & bits_of_group) != bits_of_group || info.st_gid == 0) return "";
  std::vector<char> buffer(1u << 16);
  group record{};
  group* found = nullptr;
  if (::getgrgid_r(info.st_gid, &record, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->gr_name;
  return fmt::format("{}", info.st_gid);
}

// The socket's file, or a folder above it, lets us not in.
Error closed(const std::string& path) {
  std::string group = group_let_in(path, S_IWGRP, S_IWOTH);
  if (group.empty()) group = group_let_in(path.substr(0, path.rfind('/')), S_IXGRP, S_IXOTH);
  Error error = system_error("cannot connect to " + path, EACCES);
  if (!group.empty())
    error.message += fmt::format(
        "; its users are in the group {0} (root adds one: usermod -aG {0} NAME; then log in "
        "again)",
        group);
  error.message += "; a server of your own: troupe serve";
  return error;
}

Result<int> connect_socket(const std::string& path, Deadline deadline) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return system_error("cannot make a socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  for (;;) {
    // If the server's queue of connections is full, connect() waits, for at most this timeout. All other calls on this
    // descriptor use MSG_DONTWAIT.
    const auto left = std::max<SteadyClock::duration>(deadline - SteadyClock::now(), std::chrono::milliseconds(1));
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
    const timeval wait{.tv_sec = static_cast<time_t>(us / 1'000'000),
                       .tv_usec = static_cast<suseconds_t>(us % 1'000'000)};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
    const int error = errno;
    if (error == EINTR && SteadyClock::now() < deadline) continue;
    ::close(fd);
    if (error == ENOENT) return Error{ErrorCode::io, "no server at " + path + " (there is no such socket)"};
    if (error == ECONNREFUSED) return Error{ErrorCode::io, "no server at " + path + " (the socket is dead)"};
    if (error == EAGAIN) return Error{ErrorCode::busy, "the server at " + path + " does not accept connections"};
    if (error == EACCES) return closed(path);
    return system_error("cannot connect to " + path, error);
  }
}

Error closing_error(const v1::Refused& refused) {
  const v1::Outcome why = refused.code();
  ErrorCode code = ErrorCode::protocol;
  if (why == v1::OUTCOME_PERMISSION) code = ErrorCode::permission;
  if (why == v1::OUTCOME_UNSUPPORTED) code = ErrorCode::unsupported;
  if (why == v1::OUTCOME_QUEUE_FULL || why == v1::OUTCOME_QUOTA || why == v1::OUTCOME_DRAINING) code = ErrorCode::busy;
  return Error{code, "the server ended the connection: " + printable(refused.message())};
}

}  // namespace

Result<std::shared_ptr<Connection>> Connection::open(const std::string& path, const ConnectOptions& options) {
  const Deadline deadline = SteadyClock::now() + options.connect_timeout;
  const Result<int> fd = connect_socket(path, deadline);
  if (!fd) return fd.error();
  const std::shared_ptr<Connection> connection(new Connection(*fd, path));
  if (const Status expected = ipc::check_server(*fd, path); !expected) {
    if (options.strict_modes) return expected.error();
    connection->distrust_ = expected.error().message;
  }
  if (Status greeted = connection->greet(options, deadline); !greeted) return greeted.error();
  connection->reader_ = std::thread([connection] { connection->read(); });
  return connection;
}

Connection::Connection(int fd, std::string path) : fd_(fd), path_(std::move(path)), scratch_(kReadBytes, '\0') {}

Connection::~Connection() {
  // The last reference may be held by the reader thread itself, at its end.
  if (reader_.joinable()) reader_.detach();
  ::close(fd_);
}

void Connection::close() {
  {
    const std::lock_guard lock(mutex_);
    if (!farewell_) farewell_ = Error{ErrorCode::io, "the connection was closed by this client"};
    if (!lost_) lost_ = farewell_;
    lost_changed_.notify_all();
  }
  ::shutdown(fd_, SHUT_RDWR);  // wakes the reader, which calls on_lost() of the receivers
  if (on_reader()) return;
  const std::lock_guard lock(close_mutex_);
  if (reader_.joinable()) reader_.join();
}

Status Connection::greet(const ConnectOptions& options, Deadline deadline) {
  v1::ClientFrame frame;
  frame.mutable_hello()->set_protocol(kProtocol);
  frame.mutable_hello()->set_client(options.name);
  frame.mutable_hello()->set_tenant(options.tenant);
  // A server that refuses us may have closed already: its refusal can still be read.
  const Status sent = send(frame);
  const Result<std::string_view> body = receive(deadline);
  if (!body) return sent ? Status(body.error()) : sent;
  v1::ServerFrame answer;
  const bool is_frame = answer.ParseFromArray(body->data(), static_cast<int>(body->size()));
  if (is_frame && answer.has_refused()) return closing_error(answer.refused());
  if (!is_frame || !answer.has_welcome())
    return Error{ErrorCode::protocol, "what listens on " + path_ + " is not a troupe server"};
  welcome_ = answer.welcome();
  // A server from before tenants passes over what it does not know in Hello.
  if (!options.tenant.empty() && welcome_.tenant().empty())
    return Error{ErrorCode::unsupported, "the server at " + path_ + " knows no tenants to act for"};
  if (welcome_.protocol() == kProtocol) return Ok{};
  return Error{
      ErrorCode::unsupported,
      fmt::format("the server wants to speak protocol version {}; this library speaks version 1", welcome_.protocol())};
}

Result<std::string_view> Connection::receive(Deadline deadline) {
  for (;;) {
    const auto body = decoder_.next();
    if (!body) return body.error();
    if (*body) return **body;
    const Deadline until = decoder_.mid_frame() ? std::min(deadline, SteadyClock::now() + kFrameTimeout) : deadline;
    if (!wait_for(fd_, POLLIN, until))
      return Error{ErrorCode::io, "the server at " + path_ + " did not answer in time"};
    const ssize_t size = ::recv(fd_, scratch_.data(), scratch_.size(), MSG_DONTWAIT);
    if (size == 0) return Error{ErrorCode::io, "the server at " + path_ + " closed the connection"};
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size < 0) return Error{ErrorCode::io, "the connection to " + path_ + " broke" + reason(errno)};
    read_at_ = SteadyClock::now();
    decoder_.append(std::string_view(scratch_).substr(0, static_cast<std::size_t>(size)));
  }
}

Status Connection::send(const v1::ClientFrame& frame) {
  std::string bytes;
  const std::size_t size = frame.ByteSizeLong();
  const std::uint32_t limit = welcome_.has_limits() ? welcome_.limits().max_frame_bytes() : ipc::kMaxFrameBytesCeiling;
  if (size > limit)
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("the request has {} bytes, above the server's limit of {} (max_frame_bytes)", size, limit)};
  bytes.reserve(ipc::kFrameHeaderBytes + size);
  ipc::append_frame_header(bytes, static_cast<std::uint32_t>(size));
  frame.AppendToString(&bytes);
  const Deadline deadline = SteadyClock::now() + kSendTimeout;
  const std::lock_guard lock(write_mutex_);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN && wait_for(fd_, POLLOUT, deadline)) continue;
    const int error = errno;
    if (sent > 0) ::shutdown(fd_, SHUT_RDWR);  // part of a frame was sent: the server could not find the next one
    return Error{ErrorCode::io, "cannot send to the server at " + path_ + reason(error)};
  }
  return Ok{};
}

Status Connection::request(std::uint64_t stream, const v1::ClientFrame& frame, std::shared_ptr<Receiver> receiver) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    receivers_.emplace(stream, std::move(receiver));  // before the frame is sent: the answer may arrive at once
  }
  Status sent = send(frame);
  if (sent) return sent;
  const std::lock_guard lock(mutex_);
  // The reader may have called the receiver's on_lost() already; then no error is returned.
  if (receivers_.erase(stream) == 0) return Ok{};
  return sent;
}

void Connection::tell(const v1::ClientFrame& frame) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return;
  }
  if (!send(frame)) ::shutdown(fd_, SHUT_RDWR);  // wakes the reader, which calls on_lost() of the receivers
}

std::optional<Error> Connection::wait_lost(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  lost_changed_.wait_for(lock, time, [&] { return lost_.has_value(); });
  return lost_;
}

void Connection::read() {
  reader_id_ = std::this_thread::get_id();
  const Error error = read_frames();
  ::shutdown(fd_, SHUT_RDWR);
  std::unordered_map<std::uint64_t, std::shared_ptr<Receiver>> orphans;
  std::unique_lock lock(mutex_);
  const Error why = farewell_.value_or(error);
  if (!lost_) lost_ = why;
  lost_changed_.notify_all();
  orphans.swap(receivers_);
  lock.unlock();  // on_lost() may call this connection
  for (const auto& [stream, receiver] : orphans) receiver->on_lost(why);
}

Error Connection::read_frames() {
  for (;;) {
    const Result<std::string_view> body = receive(Deadline::max());
    if (!body) return body.error();
    v1::ServerFrame frame;
    if (!frame.ParseFromArray(body->data(), static_cast<int>(body->size())))
      return Error{ErrorCode::protocol, "the server at " + path_ + " sent a damaged frame"};
    dispatch(frame);
    const std::lock_guard lock(mutex_);
    if (farewell_) return *farewell_;
  }
}

void Connection::break_off(const Error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!farewell_) farewell_ = why;
  }
  ::shutdown(fd_, SHUT_RDWR);
}

void Connection::dispatch(v1::ServerFrame& frame) {
  if (frame.has_draining()) {
    draining_ = true;
    return;
  }
  const std::uint64_t stream = ipc::stream_of(frame);
  // About the connection itself: this library sends no frame of which a refusal without a stream could tell less.
  if (frame.has_refused() && (frame.refused().closing() || stream == 0))
    return break_off(closing_error(frame.refused()));
  std::shared_ptr<Receiver> receiver;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = receivers_.find(stream); found != receivers_.end()) receiver = found->second;
  }
  if (!receiver) {
    if (stream != 0) ++stray_frames_;
    const std::string which = stream == 0 ? "of no request" : fmt::format("of stream {}, which is not open", stream);
    return break_off({ErrorCode::protocol, "the server breaks the protocol: it sends a frame " + which});
  }
  // Not under the lock: on_frame() may send.
  if (!receiver->on_frame(frame)) return;
  const std::lock_guard lock(mutex_);
  receivers_.erase(stream);
}

}  // namespace troupe::client
