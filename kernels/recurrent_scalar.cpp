// The operations of recurrent families in plain C++.
#include "kernels/exp_scalar.h"

namespace troupe::kernels {
namespace {

using Number = float;
inline Number exp_of(Number x) { return exp_scalar(x); }

}  // namespace
}  // namespace troupe::kernels

#include "kernels/recurrent_plain.h"
#include "kernels/variants.h"

namespace troupe::kernels::scalar {
const RecurrentKernels recurrent = kRecurrentKernels;
}
