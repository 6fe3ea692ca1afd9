// The operations of recurrent families with double arithmetic and libm; what is kept between tokens is float32.
#include <cmath>

namespace troupe::kernels {
namespace {

using Number = double;
inline Number exp_of(Number x) { return std::exp(x); }
inline Number tanh_of(Number x) { return std::tanh(x); }
inline Number exp2_of(Number x) { return std::exp2(x); }

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent_plain.h"
#include "kernels/variants.h"

namespace troupe::kernels::reference {
const RecurrentKernels recurrent = kRecurrentKernels;
void silu_mul(const float* gate, const float* up, float* out, std::size_t count) {
  gate_rows<Function::silu>(gate, up, out, count);
}
void gelu_mul(const float* gate, const float* up, float* out, std::size_t count) {
  gate_rows<Function::gelu>(gate, up, out, count);
}
void relu2_mul(const float* gate, const float* up, float* out, std::size_t count) {
  gate_rows<Function::relu_squared>(gate, up, out, count);
}
}  // namespace troupe::kernels::reference
