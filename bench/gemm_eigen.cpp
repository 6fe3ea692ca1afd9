// Compiled for the machine that builds it, because Eigen chooses its instructions at compile time.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "bench/gemm.h"

namespace troupe::kernels {

const char* eigen_kernels() { return Eigen::SimdInstructionSetsInUse(); }

void gemm_eigen(const float* x, const float* w, float* out, std::size_t m, std::size_t rows, std::size_t k) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Vector = Eigen::Matrix<float, Eigen::Dynamic, 1>;
  const auto size = [](std::size_t n) { return static_cast<Eigen::Index>(n); };
  const Eigen::Map<const Matrix> weights(w, size(rows), size(k));
  if (m == 1) {  // Eigen has a separate product of a matrix and a vector
    const Eigen::Map<const Vector> in(x, size(k));
    Eigen::Map<Vector>(out, size(rows)).noalias() = weights * in;
  } else {
    const Eigen::Map<const Matrix> in(x, size(m), size(k));
    Eigen::Map<Matrix>(out, size(m), size(rows)).noalias() = in * weights.transpose();
  }
}

}  // namespace troupe::kernels
