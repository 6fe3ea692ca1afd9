#include "kernels/cpu/cpu_features.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe::kernels {

#if defined(__x86_64__) || defined(__i386__)

namespace {

// Clang 14's __builtin_cpu_supports has neither of these. They use AVX registers, so there is no other state to check.
bool has_f16c_bit() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avxvnni_bit() {  // CPUID 7.1, EAX
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
}

}  // namespace

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c_bit();
}

bool has_avxvnni() { return has_avx2() && has_avxvnni_bit(); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool has_avx512vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

bool has_avx512amx() {
  return has_avx512vnni() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
         __builtin_cpu_supports("avx512bf16");
}

#else

bool has_avx2() { return false; }
bool has_avxvnni() { return false; }
bool has_avx512() { return false; }
bool has_avx512vnni() { return false; }
bool has_avx512amx() { return false; }

#endif

namespace {

struct Amx {
  bool allowed = false;
  bool int8 = false;
  bool bf16 = false;
  int refused_with = 0;  // errno; 0 also if the CPU has no tiles
};

#if defined(__x86_64__) && defined(__linux__)

// asm/prctl.h of Linux 5.16 and Intel's manual; the headers of an older kernel do not have them.
constexpr int kRequestPermission = 0x1023;                                         // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;                                                      // the bit of the tiles in XCR0
constexpr unsigned kBf16Bit = 1u << 22, kTileBit = 1u << 24, kInt8Bit = 1u << 25;  // CPUID 7.0, EDX

// Whether palette 1 is as the kernels assume: eight tiles of 16 rows x 64 bytes.
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
  // Also fails if the operating system does not save tiles at all.
  const int refused_with = ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  return {.allowed = refused_with == 0,
          .int8 = (d & kInt8Bit) != 0,
          .bf16 = (d & kBf16Bit) != 0,
          .refused_with = refused_with};
}

#else

Amx ask() { return {}; }

#endif

const Amx& amx() {
  static const Amx answer = ask();
  return answer;
}

// By the errno from Linux (arch/x86/kernel/fpu/xstate.c); others come from a system call filter.
const char* what_to_do(int refused_with) {
  switch (refused_with) {
    case EINVAL:
      return "Linux 5.16 or later is needed";
    case EOPNOTSUPP:
      return "the kernel does not save the state of the unit: look for noxsave or clearcpuid= on its command line, or "
             "for a hypervisor that does not pass it on";
    case ENOSPC:
      return "a thread has an alternate signal stack too small for that state: give it AT_MINSIGSTKSZ bytes";
    default:
      return "let the filter of system calls that the process runs under (seccomp profile of a container, "
             "SystemCallFilter= of a unit) pass arch_prctl, and start it again";
  }
}

}  // namespace

bool amx_allowed() { return amx().allowed; }
bool has_amx_int8() { return amx().allowed && amx().int8; }
bool has_amx_bf16() { return amx().allowed && amx().bf16; }

std::string amx_refusal() {
  const int refused_with = amx().refused_with;
  if (refused_with == 0 || !amx().int8 || !amx().bf16 || !has_avx512amx()) return {};
  return fmt::format(
      "the CPU has a matrix unit, but the operating system refuses its use (arch_prctl ARCH_REQ_XCOMP_PERM: {}); {}",
      std::generic_category().message(refused_with), what_to_do(refused_with));
}

}  // namespace troupe::kernels
