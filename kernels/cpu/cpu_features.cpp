#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
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

}  // namespace troupe::kernels
