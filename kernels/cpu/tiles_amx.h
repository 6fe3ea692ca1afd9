// What every file with tile instructions begins with. Included only by files compiled for AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TROUPE_INLINE [[gnu::always_inline]] inline

// GCC 12 does not tell the compiler that tile instructions read and write memory.
#define TROUPE_TILE_LOAD(tile, from, stride) \
  do {                                       \
    asm volatile("" ::: "memory");           \
    _tile_loadd(tile, from, stride);         \
  } while (false)
#define TROUPE_TILE_STORE(tile, to, stride) \
  do {                                      \
    _tile_stored(tile, to, stride);         \
    asm volatile("" ::: "memory");          \
  } while (false)

namespace troupe::kernels::amx {
namespace {

// Eight tiles of 16 lines of 64 bytes. One on the stack is for `asm` alone: of what _tile_loadconfig is given there,
// the compiler may drop the initialisation.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

static_assert(sizeof(TileConfig) == 64);

}  // namespace
}  // namespace troupe::kernels::amx
