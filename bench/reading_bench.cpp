// How memory is read fastest: bytes per second by prefetch hint and distance, by the number and length of the streams
// that a thread reads, and by kind of page; each for one thread and for all, for a loop that only reads and for one
// that computes as much per line as the product of one row with 4-bit weights.
//
//   reading_bench [THREADS=all] [MIB=512]
//
// The layout of packed weights and the loops of the products for a few rows follow from it (docs/measuring.md).
#include <fmt/format.h>
#include <sys/mman.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/compute/team.h"
#include "engine/machine/timed_threads.h"

namespace {

using namespace troupe;

constexpr std::size_t kLine = 64, kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::size_t kStep = 4 * kLine;  // that a stream is read at a time
constexpr engine::Rounds kRounds{.length = std::chrono::microseconds(20'000), .count = 3};

using Vector [[gnu::vector_size(16)]] = std::uint64_t;

enum class Hint : std::uint8_t { none, l1, l2, once };
constexpr std::array kHints = {Hint::none, Hint::l1, Hint::l2, Hint::once};
constexpr const char* name(Hint hint) {
  switch (hint) {
    case Hint::none:
      return "none";
    case Hint::l1:
      return "to L1";
    case Hint::l2:
      return "to L2";
    case Hint::once:
      return "once (NTA)";
  }
  return "";
}

template <Hint hint>
inline void prefetch(const std::byte* at) {
  const char* p = reinterpret_cast<const char*>(at);
  if constexpr (hint == Hint::l1) _mm_prefetch(p, _MM_HINT_T0);
  if constexpr (hint == Hint::l2) _mm_prefetch(p, _MM_HINT_T1);
  if constexpr (hint == Hint::once) _mm_prefetch(p, _MM_HINT_NTA);
}

// Reads `bytes` from `data` on as `streams` adjacent parts of the same length, all at once, prefetching `ahead` bytes
// before they are read. `work` operations per 16 bytes come on top. Returns bits that depend on all that was read.
using Read = std::uint64_t(const std::byte* data, std::size_t bytes, std::size_t ahead);

template <Hint hint, std::size_t streams, int work>
std::uint64_t read(const std::byte* data, std::size_t bytes, std::size_t ahead) {
  Vector sums[4] = {};
  const std::size_t part = bytes / streams;
  for (std::size_t at = 0; at < part; at += kStep)
    for (std::size_t stream = 0; stream < streams; ++stream)
      for (std::size_t i = 0; i < kStep / kLine; ++i) {
        const std::byte* line = data + stream * part + at + i * kLine;
        prefetch<hint>(line + ahead);
        for (std::size_t v = 0; v < 4; ++v) {
          Vector x;
          std::memcpy(&x, line + 16 * v, sizeof x);
          for (int w = 0; w < work; ++w) x = (x >> 1) ^ sums[(v + 1) % 4];
          sums[v] ^= x;
        }
      }
  const Vector all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  return all[0] ^ all[1];
}

constexpr int kWork = 2;
constexpr std::array<std::size_t, 4> kStreams = {1, 2, 4, 8};

// By [hint][streams][whether it computes].
template <std::size_t... i>
constexpr auto make_reads(std::index_sequence<i...>) {
  return std::array<Read*, sizeof...(i)>{&read < kHints[i / 8], kStreams[i / 2 % 4], i % 2 == 0 ? 0 : kWork > ...};
}
Read* read_of(Hint hint, std::size_t streams, bool computes) {
  static constexpr auto kReads = make_reads(std::make_index_sequence<32>());
  const auto index = static_cast<std::size_t>(std::find(kStreams.begin(), kStreams.end(), streams) - kStreams.begin());
  return kReads[static_cast<std::size_t>(hint) * 8 + index * 2 + (computes ? 1 : 0)];
}

enum class Pages : std::uint8_t { huge, small, shared };
constexpr const char* name(Pages pages) {
  switch (pages) {
    case Pages::huge:
      return "2 MiB";
    case Pages::small:
      return "4 KiB";
    case Pages::shared:
      return "shared memory";
  }
  return "";
}

// Memory that was written, so that each page is there.
class Buffer {
 public:
  Buffer(std::size_t bytes, Pages pages) : bytes_(bytes) {
    const int flags = (pages == Pages::shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS;
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data_ == MAP_FAILED) {
      fmt::print(stderr, "no memory for {} MiB; give a smaller MIB\n", bytes / kMiB);
      std::exit(1);
    }
    // Where the system has no huge pages, this fails, and the row shows small ones.
    if (pages != Pages::shared) ::madvise(data_, bytes, pages == Pages::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~Buffer() { ::munmap(data_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), bytes_}; }

 private:
  void* data_;
  std::size_t bytes_;
};

struct Pattern {
  Hint hint = Hint::none;
  std::size_t ahead = 0, streams = 1;
  std::size_t unit = kMiB;  // that all streams of a thread together read before it goes on behind it
};

// Reads the buffer again and again, each thread its part.
double gb_per_second(const Buffer& buffer, std::size_t num_threads, const Pattern& pattern, bool computes) {
  struct alignas(128) Position {
    std::size_t at = 0;
  };
  const std::vector<int> cpus = engine::allowed_cpus();
  std::vector<int> used;
  for (std::size_t i = 0; i < num_threads; ++i) used.push_back(cpus[i % cpus.size()]);
  std::vector<Position> positions(num_threads);
  Read* const read = read_of(pattern.hint, pattern.streams, computes);
  const std::size_t part = buffer.bytes().size() / num_threads / pattern.unit * pattern.unit;
  const auto portion = [&](std::uint32_t thread) {
    std::size_t& at = positions[thread].at;
    const std::uint64_t bits = read(buffer.bytes().data() + thread * part + at, pattern.unit, pattern.ahead);
    __asm__ volatile("" : : "r"(bits));
    at = (at + pattern.unit) % part;
    return static_cast<double>(pattern.unit);
  };
  return 1e-9 * engine::measure_rate(used, kRounds, portion, engine::Time::wall).per_second;
}

// One row: one thread and all, reading and computing.
void print_row(const std::string& label, const Buffer& buffer, std::size_t num_threads, const Pattern& pattern) {
  std::string row = fmt::format("{:<28}", label);
  for (const bool computes : {false, true})
    for (const std::size_t threads : {std::size_t{1}, num_threads})
      row += fmt::format("{:>12.1f}", gb_per_second(buffer, threads, pattern, computes));
  fmt::print("{}\n", row);
  std::fflush(stdout);
}

void print_head(const char* title, std::size_t num_threads) {
  const std::string all = fmt::format("{} threads", num_threads);
  fmt::print("\n{:<28}{:>12}{:>12}{:>12}{:>12}\n", fmt::format("GB/s {}", title), "1 thread", all, "computing", all);
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::size_t otherwise) -> std::size_t {
    return i < argc ? std::strtoul(argv[i], nullptr, 10) : otherwise;
  };
  const std::size_t num_threads = number(1, engine::allowed_cpus().size()), bytes = number(2, 512) * kMiB;
  if (num_threads == 0 || bytes < num_threads * 4 * kMiB) {
    fmt::print(stderr, "usage: reading_bench [THREADS=all] [MIB=512], at least 4 MiB per thread\n");
    return 2;
  }
  const Buffer buffer(bytes, Pages::huge);
  print_head("by prefetches", num_threads);
  print_row("none", buffer, num_threads, {});
  for (const Hint hint : {Hint::l1, Hint::l2, Hint::once})
    for (const std::size_t ahead : {512u, 2048u, 4096u, 16384u})
      print_row(fmt::format("{}, {} bytes ahead", name(hint), ahead), buffer, num_threads,
                {.hint = hint, .ahead = ahead});
  print_head("by streams", num_threads);
  for (const std::size_t unit : {32 * kKiB, 128 * kKiB, kMiB})
    for (const std::size_t streams : kStreams)
      print_row(fmt::format("{} of {} KiB", streams, unit / streams / kKiB), buffer, num_threads,
                {.streams = streams, .unit = unit});
  print_head("by pages", num_threads);
  for (const Pages pages : {Pages::huge, Pages::small, Pages::shared})
    print_row(name(pages), Buffer(bytes, pages), num_threads, {});
  print_head("from a cache", num_threads);
  print_row("64 KiB a thread", Buffer(num_threads * 64 * kKiB, Pages::small), num_threads, {.unit = 32 * kKiB});
}
