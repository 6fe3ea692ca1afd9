// Philox4x32-10: random numbers as a function of a key and a counter, with no state in between.
//
// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Because there is no state, a
// draw at position 917 is the same whether or not positions 0 to 916 were ever drawn by this process. So a stream can
// resume after a restart, and a draft can be rejected.
#pragma once

#include <array>
#include <cstdint>

namespace troupe::engine {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

// Four independent uniform 32-bit words.
constexpr PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The purpose of a draw; draws of different purposes at the same position are independent.
enum class DrawPurpose : std::uint32_t {
  token = 0,
};

// Uniform in [0, 1) with 53 random bits.
constexpr double uniform_draw(std::uint64_t seed, std::uint64_t position, std::uint32_t choice, DrawPurpose purpose) {
  const PhiloxCounter words =
      philox4x32_10({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32), choice,
                     static_cast<std::uint32_t>(purpose)},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace troupe::engine
