// How soon a connection is read again whose frame comes in crumbs: each read costs the io thread as much as a read of
// 64 KiB, and others wait for it. What comes meanwhile is collected in the socket.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace troupe::ipc {

class ReadPace {
 public:
  // Fewer bytes of a frame that has not ended are a crumb.
  static constexpr std::size_t kCrumbBytes = 1024;
  // A frame may come in so many pieces of any size without a wait: a client may write header and body apart.
  static constexpr int kFreeCrumbs = 2;
  static constexpr std::chrono::milliseconds kLongestWait{16};

  // After a read of `bytes`, with or without the end of a frame among them: the time to wait before the next one. 0 in
  // the usual case, 1 ms after the third crumb of a frame, twice as much after each further one.
  std::chrono::milliseconds after_read(std::size_t bytes, bool frame_ended) {
    if (frame_ended) crumbs_ = 0;
    if (frame_ended || bytes >= kCrumbBytes || ++crumbs_ <= kFreeCrumbs) return std::chrono::milliseconds(0);
    return std::min(kLongestWait, std::chrono::milliseconds(1) * (1 << std::min(crumbs_ - kFreeCrumbs - 1, 10)));
  }

 private:
  int crumbs_ = 0;  // of the frame that is coming
};

}  // namespace troupe::ipc
