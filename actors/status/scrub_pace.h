// When weights are read to check them: so many bytes a second, in pieces, however often it is asked. Plain logic.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "engine/weights/weight_checks.h"

namespace troupe::actors {

class ScrubPace {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kTick{100};  // fast ones read so often, slow ones a piece less often

  explicit ScrubPace(std::uint64_t bytes_per_second) : rate_(bytes_per_second) {}

  // How many bytes may be read now: 0 before due(), or if none are read at all; else a piece at least.
  [[nodiscard]] std::uint64_t allowed(TimePoint now) const {
    if (rate_ == 0 || now < due_) return 0;
    const double share = static_cast<double>(rate_) * std::chrono::duration<double>(kTick).count();
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(share), engine::WeightScan::kPieceBytes);
  }
  // So many were read.
  void read(std::uint64_t bytes, TimePoint now) {
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(rate_));
    due_ = now + std::chrono::duration_cast<TimePoint::duration>(takes);
  }
  [[nodiscard]] TimePoint due() const { return due_; }  // when more may be read

 private:
  const std::uint64_t rate_;
  TimePoint due_{};
};

}  // namespace troupe::actors
