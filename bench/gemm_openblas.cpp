#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "bench/gemm.h"

namespace troupe::kernels {

const char* openblas_kernels() { return ::openblas_get_corename(); }

void choose_openblas_kernels(char** argv) {
  const char* best = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") ? "SkylakeX"
                     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")        ? "Haswell"
                                                                                              : nullptr;
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  const std::string_view now = ::openblas_get_corename();
  if (!best || std::getenv(kVariable) || (now != "Prescott" && now != "Core2" && now != "Nehalem")) return;
  ::setenv(kVariable, best, 1);
  ::execv("/proc/self/exe", argv);  // if it fails, the program goes on with the current kernels; the label names them
}

void gemm_openblas(const float* x, const float* w, float* out, std::size_t m, std::size_t rows, std::size_t k) {
  static const bool single = (::openblas_set_num_threads(1), true);
  static_cast<void>(single);
  const auto size = [](std::size_t n) { return static_cast<blasint>(n); };
  if (m == 1) {
    ::cblas_sgemv(CblasRowMajor, CblasNoTrans, size(rows), size(k), 1.0f, w, size(k), x, 1, 0.0f, out, 1);
  } else {
    ::cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, size(m), size(rows), size(k), 1.0f, x, size(k), w, size(k),
                  0.0f, out, size(rows));
  }
}

}  // namespace troupe::kernels
