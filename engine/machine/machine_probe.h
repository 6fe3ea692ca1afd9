// The speed limits of this machine, measured by `troupe probe` and used to judge benchmarks.
//
// Every figure is the median of rounds with pinned threads and reports disturbances. Arithmetic is timed by the
// threads' CPU time, so that other processes on the same CPUs change little; reading by wall-clock time. probe_file.h
// keeps the result; limits.h turns it into the least time that a step can take.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/machine/timed_threads.h"
#include "kernels/cpu/unit.h"

namespace troupe::engine {

// Raised when a measurement changes or is added: older results are measured again.
inline constexpr std::uint32_t kProbeVersion = 2;

struct PeakFigure {
  kernels::Unit unit = kernels::Unit::none;
  std::uint32_t num_threads = 0;
  Rate ops;  // a multiply-add is two
};

struct ReadFigure {
  std::uint64_t bytes = 0;  // read repeatedly, each thread its own part
  std::uint32_t num_threads = 0;
  bool huge_pages = false;  // 2 MiB instead of 4 KiB
  Rate rate;                // bytes
};

// The share of its speed that each of two CPUs keeps when both compute: about 1 for two cores, about 1/2 for
// hyperthreads of one core.
struct PairFigure {
  kernels::Unit unit = kernels::Unit::none;
  int first = 0, second = 0;  // the tested pair with the smallest `kept`
  double kept = 0;
  double others_percent = 0;  // share of the threads' time, as in Rate
};
enum class Pairing : std::uint8_t { cores, siblings, unclear };
// A pair that other processes disturbed by more than 5 % is unclear, with any `kept`.
[[nodiscard]] Pairing pairing(const PairFigure& figure);

struct MachineProbe {
  std::uint32_t version = kProbeVersion;
  MachineIdentity machine;
  std::string measured_at;  // UTC: "2026-11-22T01:30:00Z"
  double duration_s = 0;
  bool quick = false;
  std::uint32_t num_threads = 0;  // of the team that measured the peaks
  std::uint64_t model_bytes = 0;  // as in the options; limited memory may have allowed only less
  std::uint64_t l3_bytes = 0;     // as reported by the CPU; 0: not reported
  double steal_percent = 0;       // of the whole measurement
  double others_percent = 0;      // mean of the figures

  Rate clock;                            // Hz
  std::optional<Rate> clock_beside_amx;  // Hz, while AMX is three quarters busy
  std::vector<PairFigure> pairs;         // empty on one CPU
  std::vector<PeakFigure> peaks;         // units that this CPU lacks, or may not use, are absent
  std::vector<ReadFigure> reads;
  std::optional<double> wake_s;       // time to wake a sleeping thread
  std::optional<double> ping_pong_s;  // time to move a cache line from one CPU to another

  // Whether the hypervisor or other processes took more than 1 % of the time: then the true limits are higher than
  // measured.
  [[nodiscard]] bool disturbed() const;

  // Multiplications and additions per second of `threads` threads: linear interpolation between measured numbers of
  // threads, beyond them the nearest. Nothing if the unit is absent.
  [[nodiscard]] std::optional<double> ops_per_second(kernels::Unit unit, std::uint32_t threads) const;
  // The same for reading `bytes` repeatedly, as weights are read: from 2 MiB pages if these were measured.
  [[nodiscard]] std::optional<double> read_bytes_per_second(std::uint64_t bytes, std::uint32_t threads) const;
};

struct ProbeOptions {
  std::uint32_t num_threads = 0;            // 0: default_num_threads()
  std::uint64_t model_bytes = 1ull << 30;   // one of the sizes to read
  std::uint64_t max_buffer = 0;             // 0: half of the available memory, at most 8 GiB
  bool quick = false;                       // a smaller buffer, and no 4 KiB pages
  std::chrono::microseconds round{40'000};  // length of one of num_rounds rounds
  int num_rounds = 5;
  std::chrono::milliseconds patience{14'000};     // disturbed rounds are not repeated after this much time
  std::function<void(double fraction)> progress;  // may be empty
};

// Measures. Takes some ten seconds, all allowed CPUs of the team and the memory of the largest buffer.
[[nodiscard]] MachineProbe probe_machine(const ProbeOptions& options);

}  // namespace troupe::engine
