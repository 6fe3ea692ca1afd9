// The instruction sets of this CPU with registers that the operating system saves, in the combinations that variants
// are compiled for (CMakeLists.txt).
#pragma once

namespace troupe::kernels {

[[nodiscard]] bool has_avx2();        // with FMA and F16C
[[nodiscard]] bool has_avxvnni();     // has_avx2, and VPDPBUSD on 32 bytes without AVX-512
[[nodiscard]] bool has_avx512();      // has_avx2, and AVX-512 F, BW, DQ, VL
[[nodiscard]] bool has_avx512vnni();  // has_avx512, and VPDPBUSD on 64 bytes
// has_avx512vnni, and VBMI, VBMI2, BF16, which CPUs with AMX have; for AMX itself see amx_permission.h.
[[nodiscard]] bool has_avx512amx();

}  // namespace troupe::kernels
