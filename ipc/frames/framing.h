// Frames on a byte stream: a length (4 bytes, little-endian), then that many bytes of one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/result.h"

namespace troupe::ipc {

inline constexpr std::size_t kFrameHeaderBytes = 4;

// No limit may be set above this: read as a length, every HTTP method is larger ("GET " is 542 million),
// so the two can be told apart by their first four bytes.
inline constexpr std::uint32_t kMaxFrameBytesCeiling = 16u << 20;

// Appends the header of a frame whose body has `body_bytes` bytes, which the caller appends next.
void append_frame_header(std::string& out, std::uint32_t body_bytes);

// Splits a stream of bytes into frames. Holds at most one unfinished frame and the bytes appended last, so its memory
// depends on what the peer really sent, not on what a header claims: up to twice the bytes for a buffer that grows as
// they arrive, exactly the frame after reserve_next_frame(). Not thread-safe.
class FrameDecoder {
 public:
  // max_frame_bytes: of a body; at least 1, at most kMaxFrameBytesCeiling (asserted).
  explicit FrameDecoder(std::uint32_t max_frame_bytes);

  void append(std::string_view bytes);
  // Reserves memory for the whole next frame, whose header has arrived; pages are touched only as bytes arrive.
  void reserve_next_frame() { buffer_.reserve(begin_ + next_frame_bytes()); }
  // Bytes of the next frame that have not arrived; 0: none, or its header is incomplete.
  [[nodiscard]] std::size_t missing_bytes() const {
    const std::size_t all = next_frame_bytes(), here = buffer_.size() - begin_;
    return all > here ? all - here : 0;
  }
  // Frees the frames that next() has returned and invalidates their views. A buffer without an unfinished frame shrinks
  // to 64 KiB.
  void drop_taken();

  // Returns the body of the next complete frame, or nullopt if more bytes are needed. The view is valid until the next
  // call of append() or drop_taken(). A body may be empty.
  // Error: protocol, for a length above the limit; the frames after it cannot be found, so every later call returns the
  // same error. O(1).
  [[nodiscard]] Result<std::optional<std::string_view>> next();

  // All bytes that next() has not returned.
  [[nodiscard]] std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }

  // Size of the next frame with its header; 0: the header is incomplete, or the length is above the limit.
  [[nodiscard]] std::size_t next_frame_bytes() const;

  // Whether a frame is incomplete: if the stream ends here, that frame is truncated.
  [[nodiscard]] bool mid_frame() const { return begin_ < buffer_.size(); }

 private:
  std::uint32_t max_frame_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the first byte that next() has not returned
};

// Whether `bytes` begin as an HTTP request does: the first four bytes are those of a method. False while there are
// fewer.
[[nodiscard]] bool begins_http(std::string_view bytes);

}  // namespace troupe::ipc
