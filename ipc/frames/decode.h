// Decodes the bytes of one frame to a request, or to a refusal. Plain: any thread may do it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ipc/frames/wire.h"
#include "ipc/request_kinds.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// Frames up to this size are decoded on the io thread. A larger frame can hold tens of thousands of messages (two bytes
// each), and one of 4 MiB blocked the io thread, which serves all connections, for 0.1 s and more: larger ones are
// decoded on a separate thread, one frame of each connection at a time.
inline constexpr std::size_t kMaxInlineFrameBytes = 16u << 10;

struct Decoded {
  v1::ClientFrame frame;     // cheap to process and to free: counts are within their limits
  bool damaged = false;      // not a ClientFrame, or text in it is not UTF-8; the other members are empty then
  std::uint64_t stream = 0;  // of the request, also of a refused one
  RequestKind kind = RequestKind::other;
  std::uint64_t count = 1;         // of requests, as RequestCounts counts them
  std::optional<Refusal> refusal;  // counts above their limits, or an unserved field; `frame` is empty then
};

// Parses a body and does the checks whose time grows with its size. O(body.size()).
[[nodiscard]] Decoded decode(std::string_view body);

}  // namespace troupe::ipc
