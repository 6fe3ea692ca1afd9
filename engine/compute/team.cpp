#include "engine/compute/team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "config/assert.h"
#include "kernels/kernels.h"

namespace troupe::engine {
namespace {

// How long a thread waits awake before it sleeps. Longer than the serial work between two regions of a step (some
// microseconds), short enough not to slow down another process on the same core.
constexpr std::chrono::microseconds kSpin{25};
constexpr int kPausesPerClockRead = 32;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Polls `ready` for kSpin; whether it became true.
template <class Ready>
bool spin_until(Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (ready()) return true;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

void pin_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  CPU_SET(cpu, &set);
  // A CPU that has gone offline or out of the mask leaves the thread unpinned: slower, not wrong.
  ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
}

}  // namespace

// A region begins with a range of adjacent chunks for each thread, so that a thread reads memory in one ascending
// stream over all of its chunks. A thread takes chunks from the front of its own range and then, one by one, from the
// back of the others': a late thread costs one chunk.
//
// A chunk is taken by a compare-and-swap of a range. The region cannot end before that chunk is done, and the next one
// is published after that; so once a thread holds a chunk, it may read `call`, `fn` and `num_chunks` without a lock. A
// thread that comes late finds no chunk and touches nothing.
struct Team::Shared {
  struct alignas(64) Range {
    std::atomic<std::uint64_t> chunks{0};  // (begin << 32) | end: those not yet taken
  };
  std::vector<Range> ranges;                       // by thread
  alignas(64) std::atomic<std::uint32_t> wake{0};  // counts regions; sleepers wait on it
  alignas(64) std::atomic<std::uint32_t> done{0};  // chunks of this region that are done
  alignas(64) std::uint32_t num_chunks = 0;
  Call call = nullptr;
  void* fn = nullptr;
  std::atomic_flag failed;
  std::exception_ptr failure;  // of this region; written by the setter of `failed`, read when all chunks are done
  // A profiler measures what each thread does in this region. A thread writes its times before it reports its chunks as
  // done, so the caller may read them once all are; the epoch tells them from an older region's.
  bool timed = false;
  std::uint32_t epoch = 0;
  struct alignas(64) Times {
    std::uint32_t epoch = 0;
    ThreadSpan span;

    // A thread may come to one region twice: while its ranges are still being published, the thread can finish those
    // that are there and leave, and return for the rest.
    void add(std::uint32_t region, const ThreadSpan& more) {
      if (epoch != region) {
        *this = {region, more};
        return;
      }
      span.end = more.end;
      span.num_chunks += more.num_chunks;
    }
  };
  std::vector<Times> times;
  std::vector<ThreadSpan> spans;     // of the reported region
  std::atomic<bool> stopped{false};  // set by Team::stop(); on the cache line of members written only between regions
  std::atomic<bool> ending{false};   // the threads return
  std::vector<std::thread> threads;

  ~Shared() {
    ending.store(true, std::memory_order_release);
    wake.fetch_add(1, std::memory_order_acq_rel);
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // Takes a chunk from the front or the back of a range, if it has one. O(1), lock-free.
  static bool take_from(Range& range, bool front, std::uint32_t& chunk) {
    std::uint64_t chunks = range.chunks.load(std::memory_order_acquire);
    while (true) {
      const auto begin = static_cast<std::uint32_t>(chunks >> 32), end = static_cast<std::uint32_t>(chunks);
      if (begin == end) return false;
      chunk = front ? begin : end - 1;
      const std::uint64_t rest = front ? chunks + (std::uint64_t{1} << 32) : chunks - 1;
      if (range.chunks.compare_exchange_weak(chunks, rest, std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
    }
  }

  // A chunk of the current region, or nothing. O(threads), lock-free.
  bool take(std::uint32_t thread, std::uint32_t& chunk) {
    if (take_from(ranges[thread], true, chunk)) return true;
    for (std::size_t i = 1; i < ranges.size(); ++i)
      if (take_from(ranges[(thread + i) % ranges.size()], false, chunk)) return true;
    return false;
  }

  void publish_chunks() {
    const std::uint64_t count = num_chunks, threads = ranges.size();
    // Rounded up: the caller's range is never empty.
    const auto first_of = [&](std::uint64_t thread) { return (thread * count + threads - 1) / threads; };
    for (std::uint64_t i = 0; i < threads; ++i)
      ranges[i].chunks.store(first_of(i) << 32 | first_of(i + 1), std::memory_order_release);
  }

  void work(std::uint32_t thread) {
    std::uint32_t chunk = 0;
    std::uint32_t num_done = 0;
    std::uint32_t total = 0;
    ThreadSpan span;
    while (take(thread, chunk)) {
      if (num_done == 0) {
        total = num_chunks;
        if (timed) span.begin = ProfileClock::now();
      }
      try {
        if (!stopped.load(std::memory_order_relaxed)) call(fn, chunk, thread);
      } catch (...) {
        if (!failed.test_and_set()) failure = std::current_exception();
      }
      ++num_done;
    }
    if (num_done == 0) return;
    if (timed) {
      span.end = ProfileClock::now();
      span.num_chunks = num_done;
      times[thread].add(epoch, span);
    }
    // The thread that finishes the last chunk wakes the caller. The region cannot end before this addition.
    if (done.fetch_add(num_done, std::memory_order_acq_rel) + num_done == total) done.notify_one();
  }

  void run_thread(std::uint32_t thread) {
    kernels::set_flush_denormals();
    while (true) {
      const std::uint32_t seen = wake.load(std::memory_order_acquire);
      if (ending.load(std::memory_order_acquire)) return;
      work(thread);
      if (!spin_until([&] { return wake.load(std::memory_order_relaxed) != seen; })) wake.wait(seen);
    }
  }
};

Team::Team(std::uint32_t num_threads, std::vector<int> cpus)
    : num_threads_(num_threads == 0 ? 1 : num_threads), shared_(std::make_unique<Shared>()) {
  shared_->ranges = std::vector<Shared::Range>(num_threads_);
  shared_->times.resize(num_threads_);
  shared_->spans.resize(num_threads_);
  // Team threads block all signals, because other threads wait for them: all but the one by which a mapped model file
  // that was cut off is noticed (formats/mapped_file.h), which goes to the thread that reads it or ends the process.
  sigset_t all, before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  for (std::uint32_t i = 1; i < num_threads_; ++i) {
    shared_->threads.emplace_back([shared = shared_.get(), i] { shared->run_thread(i); });
    if (!cpus.empty()) pin_to(shared_->threads.back(), cpus[i % cpus.size()]);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Team::~Team() = default;

void Team::stop() { shared_->stopped.store(true, std::memory_order_relaxed); }
bool Team::is_stopped() const { return shared_->stopped.load(std::memory_order_relaxed); }

void Team::run(std::size_t num_chunks, Call call, void* fn) {
  if (num_chunks == 0) return;
  kernels::set_flush_denormals();
  if (num_chunks == 1 || num_threads_ == 1) {
    for (std::size_t chunk = 0; chunk < num_chunks; ++chunk) {
      throw_if_stopped();
      call(fn, chunk, 0);
    }
    return;
  }
  TROUPE_ASSERT(num_chunks < 0xffffffffu);
  Shared& shared = *shared_;
  ProfileClock::time_point begin;
  shared.timed = operation_ != nullptr;
  if (shared.timed) begin = ProfileClock::now();
  shared.call = call;
  shared.fn = fn;
  shared.num_chunks = static_cast<std::uint32_t>(num_chunks);
  shared.done.store(0, std::memory_order_relaxed);
  ++shared.epoch;
  shared.publish_chunks();
  shared.wake.fetch_add(1, std::memory_order_acq_rel);
  shared.wake.notify_all();
  shared.work(0);
  const auto finished = [&] { return shared.done.load(std::memory_order_acquire) == num_chunks; };
  while (!spin_until(finished)) {
    const std::uint32_t seen = shared.done.load(std::memory_order_acquire);
    if (seen != num_chunks) shared.done.wait(seen);
  }
  if (shared.timed) report_join(begin);
  if (shared.failed.test()) {
    shared.failed.clear();
    std::rethrow_exception(std::exchange(shared.failure, nullptr));
  }
  throw_if_stopped();
}

void Team::report_join(ProfileClock::time_point begin) {
  Shared& shared = *shared_;
  const auto end = ProfileClock::now();
  for (std::size_t i = 0; i < shared.times.size(); ++i)
    shared.spans[i] = shared.times[i].epoch == shared.epoch ? shared.times[i].span : ThreadSpan{};
  listener_->on_join({.operation = operation_, .begin = begin, .end = end, .threads = shared.spans});
}

}  // namespace troupe::engine
