#include "ipc/frames/framing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "config/assert.h"

namespace troupe::ipc {
namespace {

// Capacity kept while no frame is unfinished: an idle connection must not keep the megabytes of its largest prompt.
constexpr std::size_t kIdleCapacity = 64u << 10;

std::uint32_t little_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

void append_frame_header(std::string& out, std::uint32_t body_bytes) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(body_bytes >> (8 * i) & 0xffu));
}

FrameDecoder::FrameDecoder(std::uint32_t max_frame_bytes) : max_frame_bytes_(max_frame_bytes) {
  TROUPE_ASSERT(max_frame_bytes >= 1 && max_frame_bytes <= kMaxFrameBytesCeiling);
}

std::size_t FrameDecoder::next_frame_bytes() const {
  if (buffer_.size() - begin_ < kFrameHeaderBytes) return 0;
  const std::uint32_t length = little_endian(buffer_.data() + begin_);
  return length > max_frame_bytes_ ? 0 : kFrameHeaderBytes + length;
}

void FrameDecoder::drop_taken() {
  buffer_.erase(0, std::exchange(begin_, 0));
  if (buffer_.empty() && buffer_.capacity() > kIdleCapacity) buffer_.shrink_to_fit();
}

void FrameDecoder::append(std::string_view bytes) {
  drop_taken();
  buffer_.append(bytes);
}

Result<std::optional<std::string_view>> FrameDecoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<std::string_view>();
  const std::uint32_t length = little_endian(rest.data());
  if (length > max_frame_bytes_) {
    if (begins_http(rest))
      return Error{ErrorCode::protocol, "a connection that speaks frames speaks no HTTP; see docs/protocol.md"};
    constexpr const char* kTooLarge =
        "a frame of {} bytes is above the limit of {} (max_frame_bytes); send less, or raise the server's limit";
    return Error{ErrorCode::protocol, fmt::format(kTooLarge, length, max_frame_bytes_)};
  }
  if (rest.size() - kFrameHeaderBytes < length) return std::optional<std::string_view>();
  begin_ += kFrameHeaderBytes + length;
  return std::optional(rest.substr(kFrameHeaderBytes, length));
}

bool begins_http(std::string_view bytes) {
  constexpr std::array<std::string_view, 9> kMethods = {"GET ", "POST", "PUT ", "HEAD", "OPTI",
                                                        "DELE", "PATC", "CONN", "TRAC"};
  return std::any_of(kMethods.begin(), kMethods.end(),
                     [&](std::string_view method) { return bytes.starts_with(method); });
}

}  // namespace troupe::ipc
