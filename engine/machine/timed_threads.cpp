#include "engine/machine/timed_threads.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "engine/machine/machine.h"

namespace troupe::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

void pin_this_thread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  CPU_SET(cpu, &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);  // may fail if the CPU is offline: slower, not wrong
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

struct Round {
  double per_second = 0;
  double others_percent = 0;
};

Round run_round(std::span<const int> cpus, std::chrono::microseconds length, const Portion& portion, Time time) {
  struct alignas(128) Part {
    double amount = 0, wall = 0, cpu = 0;
  };
  std::vector<Part> parts(cpus.size());
  std::barrier line(static_cast<std::ptrdiff_t>(cpus.size()));
  run_on(cpus, [&](std::uint32_t thread) {
    portion(thread);  // warms the caches
    line.arrive_and_wait();
    const double cpu_before = thread_cpu_seconds();
    const Clock::time_point start = Clock::now(), end = start + length;
    double amount = 0;
    Clock::time_point now = start;
    do {
      amount += portion(thread);
      now = Clock::now();
    } while (now < end);
    parts[thread] = {amount, seconds(now - start), thread_cpu_seconds() - cpu_before};
  });
  Round round;
  double wall = 0, cpu = 0;
  for (const Part& part : parts) {
    round.per_second += part.amount / (time == Time::own && part.cpu > 0 ? part.cpu : part.wall);
    wall += part.wall;
    cpu += part.cpu;
  }
  round.others_percent = std::clamp(100.0 * (1.0 - cpu / wall), 0.0, 100.0);
  return round;
}

}  // namespace

bool Rate::disturbed() const { return steal_percent > kQuietPercent || others_percent > kQuietPercent; }

void run_on(std::span<const int> cpus, const std::function<void(std::uint32_t thread)>& fn) {
  std::vector<std::thread> threads;
  threads.reserve(cpus.size());
  for (std::size_t i = 0; i < cpus.size(); ++i)
    threads.emplace_back([&fn, cpu = cpus[i], thread = static_cast<std::uint32_t>(i)] {
      pin_this_thread(cpu);
      fn(thread);
    });
  for (std::thread& thread : threads) thread.join();
}

Rate measure_rate(std::span<const int> cpus, const Rounds& rounds, const Portion& portion, Time time) {
  const CpuTicks before = cpu_ticks(cpus);
  const auto wanted = static_cast<std::size_t>(std::max(rounds.count, 1));
  std::vector<Round> all, quiet;
  while (all.size() < wanted || (quiet.size() < wanted && all.size() < 2 * wanted && Clock::now() < rounds.patience)) {
    all.push_back(run_round(cpus, rounds.length, portion, time));
    if (all.back().others_percent <= kQuietPercent) quiet.push_back(all.back());
    if (Clock::now() >= rounds.patience) break;
  }
  const double steal_percent = cpu_ticks(cpus).stolen_percent_since(before);

  // Two quiet rounds of five are more reliable than five disturbed ones.
  const std::vector<Round>& used = 2 * quiet.size() >= wanted - 1 && !quiet.empty() ? quiet : all;
  std::vector<double> values;
  Rate rate{.steal_percent = steal_percent};
  for (const Round& round : used) {
    values.push_back(round.per_second);
    rate.others_percent += round.others_percent / static_cast<double>(used.size());
  }
  rate.per_second = median_of(values);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  rate.spread_percent = rate.per_second > 0 ? 50.0 * (*high - *low) / rate.per_second : 0;
  return rate;
}

double wake_latency(int sleeper, int waker, int num_samples) {
  constexpr std::chrono::microseconds kFallAsleep{100};  // longer than libstdc++ polls before it calls the kernel
  alignas(128) std::atomic<std::uint32_t> bell{0};
  alignas(128) std::atomic<std::uint32_t> heard{0};
  std::atomic<Clock::time_point> rung{Clock::time_point{}};
  std::vector<double> samples;
  const auto last = static_cast<std::uint32_t>(std::max(num_samples, 1));
  const int cpus[] = {sleeper, waker};
  run_on(cpus, [&](std::uint32_t thread) {
    for (std::uint32_t i = 1; i <= last; ++i) {
      if (thread == 0) {
        bell.wait(i - 1, std::memory_order_acquire);
        samples.push_back(seconds(Clock::now() - rung.load(std::memory_order_relaxed)));
        heard.store(i, std::memory_order_release);
        continue;
      }
      while (heard.load(std::memory_order_acquire) != i - 1) std::this_thread::yield();
      for (const auto end = Clock::now() + kFallAsleep; Clock::now() < end;) pause_core();
      rung.store(Clock::now(), std::memory_order_relaxed);
      bell.store(i, std::memory_order_release);
      bell.notify_one();
    }
  });
  return median_of(samples);
}

std::optional<double> ping_pong_latency(int first, int second, int num_batches) {
  constexpr std::uint32_t kTrips = 50;               // per batch: reading the clock costs about as much as one trip
  constexpr std::chrono::milliseconds kEnough{300};  // time limit: a descheduled partner answers late
  constexpr int kSpinsPerYield = 10'000;
  alignas(128) std::atomic<std::uint32_t> ball{0};  // odd: served, even: returned
  std::atomic<bool> over{false};
  std::vector<double> batches;
  const auto wait_for = [&](std::uint32_t value) {
    for (int spins = 0; ball.load(std::memory_order_acquire) != value; ++spins) {
      if (over.load(std::memory_order_relaxed)) return false;
      pause_core();
      if (spins % kSpinsPerYield == kSpinsPerYield - 1) std::this_thread::yield();
    }
    return true;
  };
  const int cpus[] = {first, second};
  run_on(cpus, [&](std::uint32_t thread) {
    if (thread == 1) {
      for (std::uint32_t i = 0; wait_for(2 * i + 1); ++i) ball.store(2 * i + 2, std::memory_order_release);
      return;
    }
    const Clock::time_point end = Clock::now() + kEnough;
    std::uint32_t i = 0;
    for (int batch = 0; batch < num_batches && Clock::now() < end; ++batch) {
      const Clock::time_point start = Clock::now();
      for (std::uint32_t trip = 0; trip < kTrips; ++trip, ++i) {
        ball.store(2 * i + 1, std::memory_order_release);
        wait_for(2 * i + 2);
      }
      batches.push_back(seconds(Clock::now() - start) / (2 * kTrips));
    }
    over.store(true);
  });
  // The first batch is dropped: the other thread may still be starting.
  if (batches.size() < 2) return std::nullopt;
  return median_of({batches.begin() + 1, batches.end()});
}

}  // namespace troupe::engine
