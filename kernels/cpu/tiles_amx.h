// Shared by all files with tile instructions. Included only by files compiled for AMX.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define TROUPE_INLINE [[gnu::always_inline]] inline

// GCC 12's tile intrinsics do not declare that they read and write memory.
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

// Eight tiles of 16 lines of 64 bytes. Pass a TileConfig on the stack only to `asm`: with _tile_loadconfig the compiler
// may drop its initialisation.
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
