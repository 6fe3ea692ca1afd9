// The operations of recurrent families with double arithmetic and libm; the state between tokens is float32.
#include <cmath>

namespace troupe::kernels {
namespace {

using Number = double;
inline Number exp_of(Number x) { return std::exp(x); }
inline Number tanh_of(Number x) { return std::tanh(x); }
inline Number exp2_of(Number x) { return std::exp2(x); }

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent/recurrent_plain.h"
#include "kernels/variants.h"

namespace troupe::kernels::reference {
TROUPE_RECURRENT_KERNELS
}  // namespace troupe::kernels::reference
