// Chooses among the loops of peaks_*.cpp by the CPU's features.
#include "kernels/peaks/peaks.h"

#include <array>

#include "kernels/cpu/cpu_features.h"
#include "kernels/peaks/peaks_variants.h"

namespace troupe::kernels {
namespace {

struct KnownLoop {
  PeakLoop loop;
  bool (*is_allowed)();
};
constexpr KnownLoop kLoops[] = {
    {{Unit::f32_avx2, 2.0 * 4 * 12 * 8, peaks::f32_avx2}, has_avx2},
    {{Unit::f32_avx512, 2.0 * 4 * 12 * 16, peaks::f32_avx512}, has_avx512},
    {{Unit::int8_avx2, 2.0 * 4 * 8 * 32, peaks::int8_avx2}, has_avx2},
    {{Unit::int8_avxvnni, 2.0 * 4 * 12 * 32, peaks::int8_avxvnni}, has_avxvnni},
    {{Unit::int8_avx512, 2.0 * 4 * 8 * 64, peaks::int8_avx512}, has_avx512},
    {{Unit::int8_avx512vnni, 2.0 * 4 * 12 * 64, peaks::int8_avx512vnni}, has_avx512vnni},
    {{Unit::int8_amx, 2.0 * 6 * 16 * 16 * 64, peaks::int8_amx}, has_amx_int8},
    {{Unit::bf16_amx, 2.0 * 6 * 16 * 16 * 32, peaks::bf16_amx}, has_amx_bf16},
};

struct Supported {
  std::array<PeakLoop, std::size(kLoops)> loops{};
  std::size_t count = 0;
};

std::uint64_t read_plain(const std::byte* data, std::size_t bytes) {
  std::uint64_t bits[4] = {};
  for (std::size_t at = 0; at < bytes; at += 256)
    for (std::size_t i = 0; i < 32; ++i) {
      std::uint64_t word = 0;
      __builtin_memcpy(&word, data + at + 8 * i, sizeof word);
      bits[i % 4] |= word;
    }
  return bits[0] | bits[1] | bits[2] | bits[3];
}

peaks::ReadAll* choose_read() {
#if defined(__x86_64__)
  if (has_avx512()) return peaks::read_avx512;
  if (has_avx2()) return peaks::read_avx2;
#endif
  return read_plain;
}

}  // namespace

std::span<const PeakLoop> peak_loops() {
  static const Supported result = [] {
    Supported s;
    for (const auto& [loop, is_allowed] : kLoops)
      if (is_allowed()) s.loops[s.count++] = loop;
    return s;
  }();
  return {result.loops.data(), result.count};
}

// Adds a register: CPUs from Alder Lake on add constants for free during register renaming.
std::uint64_t dependent_adds(std::uint64_t rounds) {
  std::uint64_t sum = 1;
  for (std::uint64_t round = 0; round < rounds; ++round) {
#if defined(__x86_64__)
    static_assert(kAddsPerRound == 128);
    __asm__ volatile(".rept 128\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(round) : "cc");
#else
    for (std::uint64_t i = 0; i < kAddsPerRound; ++i) {
      sum += round;
      __asm__ volatile("" : "+r"(sum));
    }
#endif
  }
  return sum;
}

Loop* dependent_adds_beside_amx() { return has_amx_int8() ? peaks::adds_beside_int8_amx : nullptr; }

std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  static peaks::ReadAll* const read = choose_read();
  return read(data, bytes);
}

}  // namespace troupe::kernels
