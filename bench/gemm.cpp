#include "bench/gemm.h"

namespace troupe::kernels {

std::span<const GemmLibrary> gemm_libraries() {
  static constexpr GemmLibrary kLibraries[] = {
#if defined(TROUPE_EIGEN)
    {"eigen", "libeigen3-dev", &gemm_eigen, &eigen_kernels},
#else
    {"eigen", "libeigen3-dev", nullptr, nullptr},
#endif
#if defined(TROUPE_OPENBLAS)
    {"openblas", "libopenblas-dev", &gemm_openblas, &openblas_kernels},
#else
    {"openblas", "libopenblas-dev", nullptr, nullptr},
#endif
  };
  return kLibraries;
}

}  // namespace troupe::kernels
