// Float matrix products of other libraries, to compare ours with. Single thread.
#pragma once

#include <cstddef>

namespace troupe::kernels {

// out[m, rows] = x[m, k] times w[rows, k] transposed, all row by row.
using Gemm = void(const float* x, const float* w, float* out, std::size_t m, std::size_t rows, std::size_t k);

Gemm gemm_eigen;     // gemm_eigen.cpp, if TROUPE_EIGEN is defined
Gemm gemm_openblas;  // gemm_openblas.cpp, if TROUPE_OPENBLAS is defined
// The names of the kernels that the libraries use.
const char* eigen_kernels();
const char* openblas_kernels();

// OpenBLAS chooses kernels without AVX on a CPU that is newer than the library. Executes this program again with the
// newest kernels that this CPU can run (OPENBLAS_CORETYPE), unless the variable is set or they are in use.
void choose_openblas_kernels(char** argv);

}  // namespace troupe::kernels
