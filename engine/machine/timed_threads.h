// Times the work of pinned threads that run at the same time, for machine_probe.h.
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
  double spread_percent = 0;  // half the range of the rounds, relative to the median
  double steal_percent = 0;   // share of the CPUs' time that the hypervisor took
  double others_percent = 0;  // share of the threads' time that other processes took

  // Whether either is above kQuietPercent: then the true rate is higher.
  [[nodiscard]] bool disturbed() const;
};
inline constexpr double kQuietPercent = 1.0;

// Wall-clock time, or each thread's CPU time, which stops while other processes have its CPU. CPU time suits resources
// that threads do not share; for memory it would overstate the rate of threads that seldom run at once.
enum class Time : std::uint8_t { wall, own };

struct Rounds {
  std::chrono::microseconds length{40'000};
  int count = 5;
  // Rounds of which others took more than kQuietPercent are repeated, at most `count` more rounds; none after this.
  std::chrono::steady_clock::time_point patience = std::chrono::steady_clock::time_point::max();
};

// Does a small amount of work, far less than a round takes, and returns the amount.
using Portion = std::function<double(std::uint32_t thread)>;

// Calls `portion` from one thread on each of `cpus` for the length of each round; a CPU that is listed twice gets two
// threads. If enough rounds were quiet, only they count.
[[nodiscard]] Rate measure_rate(std::span<const int> cpus, const Rounds& rounds, const Portion& portion, Time time);

// Runs fn(thread) once on each of `cpus`, and waits for all.
void run_on(std::span<const int> cpus, const std::function<void(std::uint32_t thread)>& fn);

// Seconds from the wake-up of a thread that sleeps on a futex of CPU `sleeper` until it runs: median.
[[nodiscard]] double wake_latency(int sleeper, int waker, int num_samples);

// Seconds for a cache line from one CPU to another, one way: median of batches of round trips. Nothing if the two
// never ran at the same time for long enough.
[[nodiscard]] std::optional<double> ping_pong_latency(int first, int second, int num_batches);

}  // namespace troupe::engine
