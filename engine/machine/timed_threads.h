// What pinned threads do at the same time, and how fast: the stopwatch of machine_probe.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

namespace troupe::engine {

// Amounts per second, of all threads together: the median of the rounds.
struct Rate {
  double per_second = 0;
  double spread_percent = 0;  // half the range of the rounds, of the median
  double steal_percent = 0;   // of the CPUs' time, that the hypervisor took while it was measured
  double others_percent = 0;  // of the threads' time, that other processes took

  // Whether either took over kQuietPercent: then more would have been possible.
  [[nodiscard]] bool disturbed() const;
};
inline constexpr double kQuietPercent = 1.0;

// Seconds of what: of the clock, or of each thread's own time, which stands still while others have its CPU. Own time
// is right for what threads do not share; threads that seldom run at once would read faster than memory can.
enum class Time : std::uint8_t { wall, own };

struct Rounds {
  std::chrono::microseconds length{40'000};
  int count = 5;
  // A round is repeated, up to as many times again, where others took more than kQuietPercent of it; not after this.
  std::chrono::steady_clock::time_point patience = std::chrono::steady_clock::time_point::max();
};

// Does a little work, far less than a round takes, and says how much it was.
using Portion = std::function<double(std::uint32_t thread)>;

// Calls `portion` from one thread on each of `cpus` for as long as a round lasts; a CPU that is named twice has two.
// Where enough rounds were quiet, only they count.
[[nodiscard]] Rate measure_rate(std::span<const int> cpus, const Rounds& rounds, const Portion& portion, Time time);

// Runs fn(thread) once on each of `cpus`, and waits for all.
void run_on(std::span<const int> cpus, const std::function<void(std::uint32_t thread)>& fn);

// Seconds from the wake-up of a thread that sleeps on a futex of CPU `sleeper` until it runs: median.
[[nodiscard]] double wake_latency(int sleeper, int waker, int num_samples);

// Seconds for a cache line from one CPU to another, one way: median of batches of round trips. Nothing if the two
// never ran at the same time for long enough.
[[nodiscard]] std::optional<double> ping_pong_latency(int first, int second, int num_batches);

}  // namespace troupe::engine
