#include "kernels/amx_permission.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe::kernels {
namespace {

struct Amx {
  bool allowed = false;
  bool int8 = false;
  bool bf16 = false;
};

#if defined(__x86_64__) && defined(__linux__)

// asm/prctl.h of Linux 5.16 and Intel's manual; the headers of an older kernel do not have them.
constexpr int kRequestPermission = 0x1023;                                         // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;                                                      // the bit of the tiles in XCR0
constexpr unsigned kBf16Bit = 1u << 22, kTileBit = 1u << 24, kInt8Bit = 1u << 25;  // CPUID 7.0, EDX

// Palette 1 as every kernel here assumes it: eight tiles of 16 rows x 64 bytes.
bool has_palette() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) == 0 || a < 1) return false;
  if (__get_cpuid_count(0x1d, 1, &a, &b, &c, &d) == 0) return false;
  const unsigned num_tiles = b >> 16, row_bytes = b & 0xffffu, rows = c & 0xffffu;
  return num_tiles >= 8 && row_bytes >= 64 && rows >= 16;
}

Amx ask() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTileBit) == 0 || !has_palette()) return {};
  // Also fails where the operating system does not save tiles at all.
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return {};
  return {.allowed = true, .int8 = (d & kInt8Bit) != 0, .bf16 = (d & kBf16Bit) != 0};
}

#else

Amx ask() { return {}; }

#endif

const Amx& amx() {
  static const Amx answer = ask();
  return answer;
}

}  // namespace

bool amx_allowed() { return amx().allowed; }
bool has_amx_int8() { return amx().int8; }
bool has_amx_bf16() { return amx().bf16; }

}  // namespace troupe::kernels
