// What instructions this CPU has, and the operating system saves the registers of; in the sets that variants are
// compiled for (CMakeLists.txt).
#pragma once

namespace troupe::kernels {

[[nodiscard]] bool has_avx2();        // with FMA and F16C
[[nodiscard]] bool has_avxvnni();     // has_avx2, and VPDPBUSD on 32 bytes without AVX-512
[[nodiscard]] bool has_avx512();      // has_avx2, and AVX-512 F, BW, DQ, VL
[[nodiscard]] bool has_avx512vnni();  // has_avx512, and VPDPBUSD on 64 bytes
// has_avx512vnni, and VBMI, VBMI2, BF16, which CPUs with a matrix unit have; the unit itself: amx_permission.h.
[[nodiscard]] bool has_avx512amx();

}  // namespace troupe::kernels
