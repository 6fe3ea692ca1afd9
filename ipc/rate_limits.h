// How often a client may send, be read and be logged. Plain: time is an argument. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "scheduler/shares/token_bucket.h"

namespace troupe::ipc {

// As scheduler::TokenBucket counts time.
inline double seconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// A rate limit: `rate` per second, with bursts of up to a tenth of that (at least 1).
class TokenBucket {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // rate: above 0. The bucket is full at first.
  explicit TokenBucket(std::uint32_t rate) : bucket_(burst_of(rate), rate) {}

  // Changes the rate; the tokens in the bucket stay, up to the new burst.
  void set_rate(std::uint32_t rate) { bucket_.resize(burst_of(rate), rate); }

  // Takes a token if there is one at `now`. O(1).
  [[nodiscard]] bool take(TimePoint now) {
    if (bucket_.wait_for(1, seconds(now)) > 0) return false;
    bucket_.take(1, seconds(now));
    return true;
  }

  // In how many seconds after `now` there will be a token.
  [[nodiscard]] double seconds_to_next(TimePoint now) const { return bucket_.wait_for(1, seconds(now)); }

 private:
  static double burst_of(std::uint32_t rate) { return std::max(1.0, rate / 10.0); }

  scheduler::TokenBucket bucket_;
};

// Delays the requests of a tenant that are refused again and again: each refusal costs the io thread and the batcher
// some 100 us, for which the answers of other tenants wait, and a client that asks again at once pays nothing.
class RefusalPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // Refusals of so many seconds delay nothing.
  static constexpr double kFreeSeconds = 5;
  // However many requests were under way when they were refused: the next one waits no longer than this for them.
  static constexpr double kLongestWait = 1;  // seconds

  // rate: refusals in a second, once there were kFreeSeconds times as many in a row; at least 1.
  explicit RefusalPace(std::uint32_t rate) : bucket_(kFreeSeconds * rate, rate) {}

  void set_rate(std::uint32_t rate) { bucket_.resize(kFreeSeconds * rate, rate); }
  // Counts a refusal. O(1).
  void refused(TimePoint now) {
    if (wait_seconds(now) < kLongestWait) bucket_.take(1, seconds(now));
  }
  // How long the tenant's next request is to wait at `now`; usually 0. O(1).
  [[nodiscard]] std::chrono::milliseconds wait(TimePoint now) const {
    return std::chrono::round<std::chrono::milliseconds>(std::chrono::duration<double>(wait_seconds(now)));
  }

 private:
  double wait_seconds(TimePoint now) const { return bucket_.wait_for(0, seconds(now)); }

  scheduler::TokenBucket bucket_;
};

// Delays the next read of a connection that sends a frame in many tiny pieces: each read costs the io thread as much as
// a read of 64 KiB, and other connections wait for it. During the delay bytes collect in the socket.
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

// How long one message of a client, a frame or the body of an HTTP request, may take to arrive.
class MessageArrival {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // A message may take body_timeout, and a second more for each so many of its bytes that have come: a client that
  // sends this fast is never cut off (as MinRate of Apache's RequestReadTimeout).
  static constexpr std::uint64_t kMinBodyRate = 16u << 10;

  void begin(TimePoint now) { since_ = now; }
  // For so long the server itself did not read.
  void excuse(TimePoint::duration time) { since_ += time; }
  // Whether a message of which `bytes` have come is late at `now`.
  [[nodiscard]] bool is_late(TimePoint now, std::uint64_t bytes, std::chrono::milliseconds body_timeout) const {
    return now - since_ >= body_timeout + std::chrono::milliseconds(bytes * 1000 / kMinBodyRate);
  }

 private:
  TimePoint since_{};
};

inline constexpr int kMaxLogLinesPerSecond = 5;

// Bounds log lines per second, so that a client that is refused again and again cannot fill the log. One per kind of
// line.
class LogQuota {
 public:
  // nullopt: no line may be written at `now`. Else the number of lines left out since the last one. O(1).
  [[nodiscard]] std::optional<std::uint64_t> take(std::chrono::steady_clock::time_point now) {
    if (now - second_begin_ >= std::chrono::seconds(1)) {
      second_begin_ = now;
      lines_ = 0;
    }
    if (lines_ == kMaxLogLinesPerSecond) {
      ++left_out_;
      return std::nullopt;
    }
    ++lines_;
    return std::exchange(left_out_, 0);
  }

 private:
  std::chrono::steady_clock::time_point second_begin_{};
  int lines_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace troupe::ipc
