// From the bytes of one frame to a request that may be looked at, or why not. Plain: any thread may do it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ipc/frames/request_counts.h"
#include "ipc/frames/wire.h"
#include "ipc/troupe.pb.h"

namespace troupe::ipc {

// What is decoded on the io thread. A larger frame can hold tens of thousands of messages (two bytes each), and with
// 4 MiB took the thread that answers everybody for 0.1 s and more: those are decoded on a thread of their own, one
// frame of each connection at a time.
inline constexpr std::size_t kMaxInlineFrameBytes = 16u << 10;

struct Decoded {
  v1::ClientFrame frame;     // what it holds is cheap to look at and to free: counts are within their limits
  bool damaged = false;      // not a ClientFrame, or text in it is not UTF-8; the rest is empty then
  std::uint64_t stream = 0;  // of the request, also of a refused one
  RequestKind kind = RequestKind::other;
  std::uint64_t count = 1;         // of requests, as RequestCounts counts them
  std::optional<Refusal> refusal;  // counts above their limits, or something unserved; `frame` is empty then
};

// Parses a body and checks what costs time to look at. O(body.size()).
[[nodiscard]] Decoded decode(std::string_view body);

}  // namespace troupe::ipc
