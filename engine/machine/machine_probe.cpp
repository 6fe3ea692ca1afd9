#include "engine/machine/machine_probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <utility>

#include "engine/compute/team.h"
#include "engine/memory/aligned_memory.h"
#include "engine/memory/process_memory.h"
#include "kernels/peaks/peaks.h"

namespace troupe::engine {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Unit;

constexpr std::uint64_t kMiB = 1u << 20, kGiB = 1u << 30;
constexpr std::uint64_t kReadPortion = kMiB;  // between two clock reads: some 50 us from memory
constexpr double kPortionOps = 5e7;           // the same for the slowest multiplying loop: 0.5 ms
constexpr std::uint64_t kAddRounds = 2000;    // of dependent additions: about 0.1 ms
constexpr std::size_t kMaxPartners = 15;      // CPUs that the first one is paired with

std::uint64_t reported_l3() {
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : 0;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// Bytes of this process in 2 MiB pages. Nothing before Linux 4.14.
std::optional<std::uint64_t> huge_page_bytes() {
  const auto sizes = read_sizes("/proc/self/smaps_rollup");
  const auto found = sizes.find("AnonHugePages");
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

// Memory first written by the threads of the team, each its part (NUMA first touch).
class Buffer {
 public:
  Buffer(std::uint64_t bytes, bool huge_pages, std::span<const int> cpus) : huge_pages_(huge_pages) {
    const std::uint64_t huge_before = huge_page_bytes().value_or(0);
    memory_ = AlignedMemory::allocate(bytes);
    if (memory_.data() == nullptr) return;
    if (!huge_pages) ::madvise(memory_.data(), bytes, MADV_NOHUGEPAGE);
    const std::uint64_t part = bytes / cpus.size();
    run_on(cpus, [&](std::uint32_t thread) {
      for (std::uint64_t at = thread * part; at < (thread + 1) * part; at += 4096)
        memory_.data()[at] = static_cast<std::byte>(at >> 12);
    });
    if (!huge_pages) return;
    // The system may have no huge pages, or they may be switched off.
    if (const auto now = huge_page_bytes()) huge_pages_ = *now >= huge_before + bytes / 2;
  }
  explicit operator bool() const { return memory_.data() != nullptr; }
  const std::byte* data() const { return memory_.data(); }
  bool huge_pages() const { return huge_pages_; }

 private:
  AlignedMemory memory_;
  bool huge_pages_;
};

// Makes the compiler compute `bits`.
void keep(std::uint64_t bits) { __asm__ volatile("" : : "r"(bits)); }

// Reads the beginning of a buffer repeatedly, each thread its part.
class Reader {
 public:
  Reader(const std::byte* data, std::uint64_t bytes, std::size_t num_threads)
      : data_(data), part_(bytes / num_threads / 4096 * 4096), at_(num_threads) {}
  double read_portion(std::uint32_t thread) {
    std::uint64_t& at = at_[thread].value;
    const std::uint64_t count = std::min(kReadPortion, part_ - at);
    keep(kernels::read_all(data_ + thread * part_ + at, count));
    at = at + count == part_ ? 0 : at + count;
    return static_cast<double>(count);
  }
  // Warms the caches.
  void read_once(std::uint32_t thread) {
    do read_portion(thread);
    while (at_[thread].value != 0);
  }

 private:
  struct alignas(128) Position {
    std::uint64_t value = 0;
  };
  const std::byte* data_;
  std::uint64_t part_;
  std::vector<Position> at_;
};

// A portion of some rounds of a loop.
Portion portion_of(kernels::Loop* run, std::uint64_t rounds, double ops_per_round) {
  return [=](std::uint32_t) {
    keep(run(rounds));
    return static_cast<double>(rounds) * ops_per_round;
  };
}
Portion portion_of(const kernels::PeakLoop& loop) {
  const auto rounds = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(kPortionOps / loop.ops_per_round));
  return portion_of(loop.run, rounds, loop.ops_per_round);
}

// One probe: a list of measurements, in order.
class Prober {
 public:
  explicit Prober(const ProbeOptions& options) : options_(options), all_cpus_(allowed_cpus()) {
    probe_.machine = machine_identity();
    probe_.measured_at = utc_now();
    probe_.quick = options.quick;
    probe_.num_threads = options.num_threads ? options.num_threads : default_num_threads();
    probe_.l3_bytes = reported_l3();
    rounds_ = {.length = options.round, .count = options.num_rounds, .patience = Clock::now() + options.patience};
    choose_sizes();
  }

  MachineProbe run() {
    const Clock::time_point start = Clock::now();
    const CpuTicks before = cpu_ticks(all_cpus_);
    plan();
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (options_.progress) options_.progress(static_cast<double>(i) / static_cast<double>(jobs_.size()));
      jobs_[i]();
    }
    if (options_.progress) options_.progress(1);
    probe_.steal_percent = cpu_ticks(all_cpus_).stolen_percent_since(before);
    average_others();
    probe_.duration_s = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(probe_);
  }

 private:
  // The first `count` CPUs, from the beginning again if there are fewer.
  std::vector<int> cpus(std::uint32_t count) const {
    std::vector<int> list;
    for (std::uint32_t i = 0; i < count; ++i) list.push_back(all_cpus_[i % all_cpus_.size()]);
    return list;
  }

  void choose_sizes() {
    const std::uint64_t cap = options_.max_buffer ? options_.max_buffer : std::min(8 * kGiB, available_memory() / 2);
    const auto fitting = [&](std::uint64_t bytes) {
      return std::max<std::uint64_t>(std::min(bytes, cap) / 4096 * 4096, 4096ull * 64 * probe_.num_threads);
    };
    probe_.model_bytes = options_.model_bytes;
    model_ = fitting(options_.model_bytes);
    // Four times the L3, so that nothing of one pass is still cached in the next.
    beyond_ = fitting(std::max((options_.quick ? 1 : 2) * kGiB, 4 * probe_.l3_bytes));
  }

  void plan() {
    jobs_.push_back([this] { probe_.clock = rate_of_adds(kernels::dependent_adds); });
    if (kernels::Loop* const beside = kernels::dependent_adds_beside_amx())
      jobs_.push_back([this, beside] { probe_.clock_beside_amx = rate_of_adds(beside); });
    for (const kernels::PeakLoop& loop : kernels::peak_loops())
      for (const std::uint32_t count : few_or_all())
        jobs_.push_back([this, loop, count] {
          probe_.peaks.push_back({loop.unit, count, measure_rate(cpus(count), rounds_, portion_of(loop), Time::own)});
        });
    plan_pairs();
    if (all_cpus_.size() > 1) {
      jobs_.push_back([this] { probe_.wake_s = wake_latency(all_cpus_[1], all_cpus_[0], options_.quick ? 100 : 500); });
      jobs_.push_back([this] { probe_.ping_pong_s = ping_pong_latency(all_cpus_[0], all_cpus_[1], 400); });
    }
    plan_reads(true);
    if (!options_.quick) plan_reads(false);
  }

  std::vector<std::uint32_t> few_or_all() const {
    if (probe_.num_threads == 1) return {1};
    return {1, probe_.num_threads};
  }
  // 1, 2, 4, 8, ... and all.
  std::vector<std::uint32_t> some() const {
    std::vector<std::uint32_t> counts;
    for (std::uint32_t count = 1; count < probe_.num_threads; count += count < 4 ? 1 : count) counts.push_back(count);
    counts.push_back(probe_.num_threads);
    return counts;
  }

  Rate rate_of_adds(kernels::Loop* adds) const {
    return measure_rate(cpus(1), rounds_, portion_of(adds, kAddRounds, kernels::kAddsPerRound), Time::own);
  }

  // Pairs the first CPU with each other one: for the widest vectors, and for AMX.
  void plan_pairs() {
    std::optional<kernels::PeakLoop> vectors, tiles;
    for (const kernels::PeakLoop& loop : kernels::peak_loops())
      (loop.unit == Unit::int8_amx || loop.unit == Unit::bf16_amx ? tiles : vectors) = loop;
    for (const auto& loop : {vectors, tiles}) {
      if (!loop) continue;
      for (std::size_t i = 1; i < all_cpus_.size() && i <= kMaxPartners; ++i)
        jobs_.push_back([this, loop, second = all_cpus_[i]] { measure_pair(*loop, all_cpus_[0], second); });
    }
  }

  void measure_pair(const kernels::PeakLoop& loop, int first, int second) {
    Rounds one = rounds_;
    one.count = 1;
    const int alone[] = {first}, both[] = {first, second};
    struct Sample {
      double kept, others_percent;
    };
    std::vector<Sample> samples;
    for (int i = 0; i < std::max(options_.num_rounds, 1); ++i) {  // pairs alternate, because the clock may drift
      const Rate single = measure_rate(alone, one, portion_of(loop), Time::own);
      const Rate shared = measure_rate(both, one, portion_of(loop), Time::own);
      samples.push_back({.kept = shared.per_second / 2 / single.per_second,
                         .others_percent = std::max(single.others_percent, shared.others_percent)});
    }
    const auto is_loud = [](const Sample& sample) { return sample.others_percent > kQuietPercent; };
    if (!std::all_of(samples.begin(), samples.end(), is_loud)) std::erase_if(samples, is_loud);
    const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::nth_element(samples.begin(), middle, samples.end(), [](auto& a, auto& b) { return a.kept < b.kept; });
    const PairFigure figure{loop.unit, first, second, middle->kept, middle->others_percent};
    for (PairFigure& pair : probe_.pairs)
      if (pair.unit == figure.unit) {
        if (figure.kept < pair.kept) pair = figure;
        return;
      }
    probe_.pairs.push_back(figure);
  }

  void plan_reads(bool huge_pages) {
    std::map<std::uint64_t, std::vector<std::uint32_t>> sizes;
    if (huge_pages)
      for (std::uint64_t bytes = 4 * kMiB; 2 * bytes < std::min(model_, beyond_); bytes *= 4)
        sizes[bytes] = few_or_all();
    sizes[model_] = few_or_all();
    sizes[beyond_] = huge_pages ? some() : few_or_all();
    // Allocating the memory is a job too: writing it takes as long as reading it several times.
    jobs_.push_back([this, huge_pages, bytes = sizes.rbegin()->first] {
      buffer_.reset();
      buffer_.emplace(bytes, huge_pages, cpus(probe_.num_threads));
    });
    for (const auto& [bytes, counts] : sizes)
      for (const std::uint32_t count : counts)
        jobs_.push_back([this, bytes = bytes, count] { measure_read(bytes, count); });
    jobs_.push_back([this] { buffer_.reset(); });
  }

  void measure_read(std::uint64_t bytes, std::uint32_t count) {
    if (!*buffer_) return;                         // no address space left: the figure is absent
    for (const ReadFigure& figure : probe_.reads)  // huge pages were requested but not given
      if (figure.bytes == bytes && figure.num_threads == count && figure.huge_pages == buffer_->huge_pages()) return;
    Reader reader(buffer_->data(), bytes, count);
    const std::vector<int> team = cpus(count);
    run_on(team, [&](std::uint32_t thread) { reader.read_once(thread); });
    const Portion portion = [&](std::uint32_t thread) { return reader.read_portion(thread); };
    probe_.reads.push_back({bytes, count, buffer_->huge_pages(), measure_rate(team, rounds_, portion, Time::wall)});
  }

  void average_others() {
    double sum = probe_.clock.others_percent;
    for (const PeakFigure& figure : probe_.peaks) sum += figure.ops.others_percent;
    for (const ReadFigure& figure : probe_.reads) sum += figure.rate.others_percent;
    probe_.others_percent = sum / static_cast<double>(1 + probe_.peaks.size() + probe_.reads.size());
  }

  const ProbeOptions& options_;
  std::vector<int> all_cpus_;
  MachineProbe probe_;
  Rounds rounds_;
  std::uint64_t model_ = 0;   // bytes read at model size, limited by memory
  std::uint64_t beyond_ = 0;  // bytes read beyond the L3
  std::vector<std::function<void()>> jobs_;
  std::optional<Buffer> buffer_;
};

// Linear interpolation between `points`; the nearest end outside them.
double interpolate(const std::map<double, double>& points, double x) {
  const auto above = points.lower_bound(x);
  if (above == points.end()) return points.rbegin()->second;
  if (above == points.begin() || above->first == x) return above->second;
  const auto below = std::prev(above);
  const double part = (x - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace

Pairing pairing(const PairFigure& figure) {
  if (figure.others_percent > 5) return Pairing::unclear;
  // Two threads of one core share its arithmetic units: each keeps half, or a little more if one alone cannot use them
  // fully.
  if (figure.kept >= 0.8) return Pairing::cores;
  return figure.kept <= 0.65 ? Pairing::siblings : Pairing::unclear;
}

bool MachineProbe::disturbed() const { return steal_percent > kQuietPercent || others_percent > kQuietPercent; }

std::optional<double> MachineProbe::ops_per_second(Unit unit, std::uint32_t threads) const {
  std::map<double, double> by_threads;
  for (const PeakFigure& figure : peaks)
    if (figure.unit == unit) by_threads[figure.num_threads] = figure.ops.per_second;
  if (by_threads.empty()) return std::nullopt;
  return interpolate(by_threads, threads);
}

std::optional<double> MachineProbe::read_bytes_per_second(std::uint64_t bytes, std::uint32_t threads) const {
  const bool huge = std::any_of(reads.begin(), reads.end(), [](const ReadFigure& r) { return r.huge_pages; });
  std::map<std::uint64_t, std::map<double, double>> by_size;
  for (const ReadFigure& figure : reads)
    if (figure.huge_pages == huge) by_size[figure.bytes][figure.num_threads] = figure.rate.per_second;
  if (by_size.empty()) return std::nullopt;
  std::map<double, double> by_logarithm;  // interpolates over log(bytes), because the measured sizes differ by factors
  for (const auto& [size, by_threads] : by_size)
    by_logarithm[std::log2(static_cast<double>(size))] = interpolate(by_threads, threads);
  return interpolate(by_logarithm, std::log2(static_cast<double>(std::max<std::uint64_t>(bytes, 1))));
}

MachineProbe probe_machine(const ProbeOptions& options) { return Prober(options).run(); }

}  // namespace troupe::engine
