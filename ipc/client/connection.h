// A client's connection: sends frames, and passes received frames to the receivers of their streams. No Asio: one
// thread reads, callers write.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>

#include "config/result.h"
#include "ipc/client/client.h"
#include "ipc/frames/framing.h"
#include "ipc/troupe.pb.h"

namespace troupe::client {

// Handles the frames of one stream. Called by the reader thread, one call at a time.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Returns whether this frame was the last of its stream.
  virtual bool on_frame(v1::ServerFrame& frame) = 0;
  // The connection ended before the stream did. Called instead of a last frame.
  virtual void on_lost(const Error& error) = 0;
};

// Thread-safe. Every receiver gets exactly one end: its last frame or on_lost().
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Connects, exchanges Hello and Welcome, and starts the reader. With strict_modes nothing is sent to a server that
  // fails check_server(). Errors: io, permission, busy, protocol, unsupported.
  static Result<std::shared_ptr<Connection>> open(const std::string& path, const ConnectOptions& options);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const v1::Welcome& welcome() const { return welcome_; }
  // The error of check_server(); empty: none.
  const std::string& distrust() const { return distrust_; }
  std::uint64_t next_stream() { return next_stream_.fetch_add(1); }

  // Sends the frame that opens `stream`; its answers go to `receiver`. On an error the receiver is not called. Errors:
  // io, invalid_argument (above the server's max_frame_bytes).
  Status request(std::uint64_t stream, const v1::ClientFrame& frame, std::shared_ptr<Receiver> receiver);
  // Sends a frame that has no answer. A lost connection is reported to the receivers, not here.
  void tell(const v1::ClientFrame& frame);

  // Ends the connection, and every request on it with `why`, unless it has ended already.
  void break_off(const Error& why);

  // Waits for `time`, or until the connection is lost; then returns the error.
  std::optional<Error> wait_lost(std::chrono::milliseconds time);

  bool draining() const { return draining_; }
  // Frames for streams that had ended or were never opened.
  std::uint64_t stray_frames() const { return stray_frames_; }
  // Whether the calling thread is the one that calls receivers: there, waiting for an answer would never end.
  bool on_reader() const { return std::this_thread::get_id() == reader_id_.load(); }
  // When the read returned that brought the end of the frame that a receiver is called with. Valid only in that call.
  std::chrono::steady_clock::time_point read_at() const { return read_at_; }
  // Ends the connection and waits for the reader, if it is not the caller. Idempotent.
  void close();

 private:
  Connection(int fd, std::string path);

  Status greet(const ConnectOptions& options, std::chrono::steady_clock::time_point deadline);
  Status send(const v1::ClientFrame& frame);
  // The reader thread: reads until the connection is lost, then calls on_lost() of the receivers.
  void read();
  Error read_frames();
  Result<std::string_view> receive(std::chrono::steady_clock::time_point deadline);
  void dispatch(v1::ServerFrame& frame);

  const int fd_;
  const std::string path_;
  v1::Welcome welcome_;
  std::string distrust_;
  ipc::FrameDecoder decoder_{ipc::kMaxFrameBytesCeiling};
  std::string scratch_;                            // used by the reader; before it starts, by greet()
  std::chrono::steady_clock::time_point read_at_;  // as scratch_
  std::thread reader_;
  std::atomic<std::thread::id> reader_id_{};
  std::atomic<std::uint64_t> next_stream_{1};
  std::atomic<bool> draining_{false};
  std::atomic<std::uint64_t> stray_frames_{0};
  std::mutex write_mutex_;  // one frame at a time
  std::mutex close_mutex_;  // for joining the reader once
  std::mutex mutex_;        // protects the members below
  std::unordered_map<std::uint64_t, std::shared_ptr<Receiver>> receivers_;
  std::optional<Error> lost_;
  std::condition_variable lost_changed_;
  // Why the connection is over, where the reader's own error does not say: break_off(), or close() by this client.
  std::optional<Error> farewell_;
};

}  // namespace troupe::client
