// Delays the next read of a connection that sends a frame in many tiny pieces: each read costs the io thread as much as
// a read of 64 KiB, and other connections wait for it. During the delay bytes collect in the socket.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace troupe::ipc {

class ReadPace {
 public:
  // A read of fewer bytes that does not end a frame is a crumb.
  static constexpr std::size_t kCrumbBytes = 1024;
  // This many crumbs per frame cause no delay: a client may write header and body separately.
  static constexpr int kFreeCrumbs = 2;
  static constexpr std::chrono::milliseconds kLongestWait{16};

  // Call after a read of `bytes`; frame_ended: the end of a frame was among them. Returns the delay before the next
  // read: usually 0, 1 ms after the third crumb of a frame, twice as much after each further one, up to kLongestWait.
  std::chrono::milliseconds after_read(std::size_t bytes, bool frame_ended) {
    if (frame_ended) crumbs_ = 0;
    if (frame_ended || bytes >= kCrumbBytes || ++crumbs_ <= kFreeCrumbs) return std::chrono::milliseconds(0);
    return std::min(kLongestWait, std::chrono::milliseconds(1) * (1 << std::min(crumbs_ - kFreeCrumbs - 1, 10)));
  }

 private:
  int crumbs_ = 0;  // of the unfinished frame
};

}  // namespace troupe::ipc
