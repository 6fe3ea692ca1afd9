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

// Cuts a stream of bytes into frames. Holds at most one unfinished frame and what was appended last, so memory follows
// what the peer really sent, not what a header claims; a buffer that grows byte by byte takes up to twice of that, one
// that was reserved just the frame. Not thread-safe.
class FrameDecoder {
 public:
  // max_frame_bytes: of a body; at least 1, at most kMaxFrameBytesCeiling (asserted).
  explicit FrameDecoder(std::uint32_t max_frame_bytes);

  void append(std::string_view bytes);
  // Takes memory for the whole next frame, whose header is there: it is touched as bytes come.
  void reserve_next_frame() { buffer_.reserve(begin_ + next_frame_bytes()); }
  // Bytes that the next frame lacks; 0: unknown, or none.
  [[nodiscard]] std::size_t missing_bytes() const {
    const std::size_t all = next_frame_bytes(), here = buffer_.size() - begin_;
    return all > here ? all - here : 0;
  }
  // Frees what was handed out; views of it end here. A buffer without an unfinished frame shrinks to 64 KiB.
  void drop_taken();

  // The body of the next whole frame, or nothing when more bytes are needed. The view holds until the
  // next call of append() or drop_taken(). A body may be empty.
  // Error: protocol, for a length above the limit; the stream cannot be followed any further, so every
  // later call gives the same error. O(1).
  [[nodiscard]] Result<std::optional<std::string_view>> next();

  // Bytes that the next frame has in all, with its header; 0: the header is not there, or says more than the limit.
  [[nodiscard]] std::size_t next_frame_bytes() const;

  // Whether a frame has begun and not ended: an end of the stream here is a truncated frame.
  [[nodiscard]] bool mid_frame() const { return begin_ < buffer_.size(); }

 private:
  std::uint32_t max_frame_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the first byte not yet handed out
};

}  // namespace troupe::ipc
