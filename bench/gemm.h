// Float matrix products of other libraries, to compare ours with. Single thread.
#pragma once

#include <cstddef>
#include <span>

namespace troupe::kernels {

// out[m, rows] = x[m, k] times w[rows, k] transposed, all row by row.
using Gemm = void(const float* x, const float* w, float* out, std::size_t m, std::size_t rows, std::size_t k);

struct GemmLibrary {
  const char* name;
  const char* package;       // Debian's
  Gemm* multiply;            // null: not found when this was configured
  const char* (*kernels)();  // name of the kernels that the library uses
};

[[nodiscard]] std::span<const GemmLibrary> gemm_libraries();

Gemm gemm_eigen;  // gemm_eigen.cpp
const char* eigen_kernels();
const char* openblas_kernels();
Gemm gemm_openblas;  // gemm_openblas.cpp

// OpenBLAS chooses kernels without AVX on a CPU that is newer than the library. Executes this program again with the
// newest kernels that this CPU can run (OPENBLAS_CORETYPE), unless the variable is set or they are in use.
void choose_openblas_kernels(char** argv);

}  // namespace troupe::kernels
