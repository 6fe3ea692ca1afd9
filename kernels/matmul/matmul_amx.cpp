// Products on AMX: types without codes, with 6- and 8-bit codes, and ternary types.
#include "kernels/matmul/matmul_amx.h"

namespace troupe::kernels::amx {

TROUPE_MATMUL(matmul_f16, F16)
TROUPE_MATMUL(matmul_bf16, Bf16)
TROUPE_MATMUL(matmul_q8_0, Q8_0)
TROUPE_MATMUL(matmul_q6_k, Q6_K)
TROUPE_MATMUL(matmul_tq, TQ)

TROUPE_GATED_MATMUL(gated_bf16, Bf16)
TROUPE_GATED_MATMUL(gated_q8_0, Q8_0)
TROUPE_GATED_MATMUL(gated_q6_k, Q6_K)

}  // namespace troupe::kernels::amx
