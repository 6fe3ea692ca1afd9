// What a pull says while it runs: a line on a terminal, each tenth elsewhere, events as lines of JSON, or nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "cli/pull/plan.h"

namespace troupe::cli {

// The speed of the last ten seconds. Plain logic: times are given.
class TransferRate {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void add(Time now, std::uint64_t done);
  [[nodiscard]] double bytes_per_second() const;  // 0: not known

 private:
  std::deque<std::pair<Time, std::uint64_t>> points_;
};

// "[####....]  45 %  2.1 of 4.9 GB  34.0 MB/s  1 min 23 s left"
[[nodiscard]] std::string progress_text(std::uint64_t done, std::uint64_t total, double bytes_per_second);
// "40 s", "1 min 23 s", "2 h 5 min"
[[nodiscard]] std::string time_text(std::uint64_t seconds);

class PullReport {
 public:
  enum class Style { line, tenths, json, quiet };
  explicit PullReport(Style style) : style_(style) {}
  ~PullReport() { erase(); }

  void begin(const PullPlan& plan);
  void update(std::uint64_t done, std::uint64_t total);
  void note(const std::string& text);
  void pulled(const StoredModel& model, const std::string& path, bool is_new);
  void erase() const;

 private:
  Style style_;
  std::string name_;
  TransferRate rate_;
  TransferRate::Time shown_{};
  std::uint64_t tenths_ = 0;
  bool told_end_ = false;
};

}  // namespace troupe::cli
