// The instruction sets of this CPU with registers that the operating system saves, in the combinations that variants
// are compiled for (CMakeLists.txt).
#pragma once

#include <string>

namespace troupe::kernels {

[[nodiscard]] bool has_avx2();        // with FMA and F16C
[[nodiscard]] bool has_avxvnni();     // has_avx2, and VPDPBUSD on 32 bytes without AVX-512
[[nodiscard]] bool has_avx512();      // has_avx2, and AVX-512 F, BW, DQ, VL
[[nodiscard]] bool has_avx512vnni();  // has_avx512, and VPDPBUSD on 64 bytes
// has_avx512vnni, and VBMI, VBMI2, BF16, which CPUs with AMX have.
[[nodiscard]] bool has_avx512amx();

// ---- AMX -------------------------------------------------------------------------------------------------------
//
// Having the instructions is not enough: the tiles are 8 KiB of state per thread, and Linux lets a process touch them
// only after one request (arch_prctl(ARCH_REQ_XCOMP_PERM), Linux 5.16). The permission then holds for all threads of
// the process, existing and new ones. It is refused if a hypervisor or a system call filter forbids it, or while a
// thread has an alternate signal stack too small for the larger frame.
//
// Tiles are configured per thread: every thread that multiplies loads its own configuration (_tile_loadconfig) and
// releases it (_tile_release) before it sleeps, so that switching threads need not save 8 KiB. The configuration is
// best a static constant: GCC 12's _tile_loadconfig does not declare that it reads all 64 bytes, so the initialisation
// of one on the stack can be optimised away, which gives an illegal instruction at the first tile load.

// The CPU has tiles (palette 1: eight of 16 rows x 64 bytes), the operating system saves them, and this process may use
// them. The first call requests the permission, later ones return the same result; from any thread.
[[nodiscard]] bool amx_allowed();

// amx_allowed(), and the CPU multiplies int8 (TDPBSSD and its variants) or bf16 (TDPBF16PS).
[[nodiscard]] bool has_amx_int8();
[[nodiscard]] bool has_amx_bf16();

// If this CPU has everything that the variant `amx` needs, but this process may not use the tiles: the reason and a
// remedy, for a log line or an error. Else empty.
[[nodiscard]] std::string amx_refusal();

}  // namespace troupe::kernels
