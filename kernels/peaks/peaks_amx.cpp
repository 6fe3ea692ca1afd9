// Peak loops for AMX.
#include <immintrin.h>

#include "kernels/cpu/tiles_amx.h"
#include "kernels/peaks/peaks_variants.h"

namespace troupe::kernels::peaks {
namespace {

constexpr amx::TileConfig kFullTiles;

struct alignas(64) Tile {
  std::uint8_t bytes[16][64];
};

// Tiles 0 to 5 are sums, 6 and 7 the factors: six chains, because an instruction takes 52 cycles and one can start
// every 16. The asm tells the compiler that the bytes are read; GCC 12's tile loads do not.
void load_tiles(std::uint8_t first) {
  Tile tile;
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 64; ++column)
      tile.bytes[row][column] = static_cast<std::uint8_t>(first + (row * 7 + column) % 32);
  _tile_loadconfig(&kFullTiles);
  __asm__ volatile("" : : "r"(&tile) : "memory");
  _tile_loadd(6, &tile, 64);
  _tile_loadd(7, &tile, 64);
  _tile_zero(0);
  _tile_loadd(1, &tile, 64);
  _tile_zero(2);
  _tile_loadd(3, &tile, 64);
  _tile_zero(4);
  _tile_loadd(5, &tile, 64);
}

// Stores the sums, releases the tiles, and returns bits of all sums.
std::uint64_t take_tiles() {
  Tile tiles[6];
  _tile_stored(0, &tiles[0], 64);
  _tile_stored(1, &tiles[1], 64);
  _tile_stored(2, &tiles[2], 64);
  _tile_stored(3, &tiles[3], 64);
  _tile_stored(4, &tiles[4], 64);
  _tile_stored(5, &tiles[5], 64);
  _tile_release();
  __asm__ volatile("" : : "r"(&tiles) : "memory");
  std::uint64_t bits = 0;
  for (const Tile& tile : tiles) {
    std::uint32_t last = 0;
    __builtin_memcpy(&last, &tile.bytes[15][60], sizeof last);
    bits = bits * 31 + last;
  }
  return bits;
}

}  // namespace

std::uint64_t int8_amx(std::uint64_t rounds) {
  load_tiles(1);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 6, 7);
    _tile_dpbssd(1, 6, 7);
    _tile_dpbssd(2, 6, 7);
    _tile_dpbssd(3, 6, 7);
    _tile_dpbssd(4, 6, 7);
    _tile_dpbssd(5, 6, 7);
  }
  return take_tiles();
}

std::uint64_t bf16_amx(std::uint64_t rounds) {
  load_tiles(0x20);  // pairs of bytes from 0x2020 to 0x3f3f: numbers from 1e-19 to 0.7
  for (std::uint64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  return take_tiles();
}

// Six products take at least 96 cycles, the additions 128: the additions determine the time.
std::uint64_t adds_beside_int8_amx(std::uint64_t rounds) {
  static_assert(kAddsPerRound == 128);
  load_tiles(1);
  std::uint64_t sum = 1;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 6, 7);
    _tile_dpbssd(1, 6, 7);
    _tile_dpbssd(2, 6, 7);
    __asm__ volatile(".rept 64\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(round) : "cc");
    _tile_dpbssd(3, 6, 7);
    _tile_dpbssd(4, 6, 7);
    _tile_dpbssd(5, 6, 7);
    __asm__ volatile(".rept 64\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(round) : "cc");
  }
  return sum + take_tiles();
}

}  // namespace troupe::kernels::peaks
