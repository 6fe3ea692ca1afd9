// Products on AMX: types with short codes, which are converted by table lookup.
#include "kernels/matmul/matmul_amx.h"

namespace troupe::kernels::amx {

TROUPE_MATMUL(matmul_q4_0, Q4_0)
TROUPE_MATMUL(matmul_q4_1, Q4_1)
TROUPE_MATMUL(matmul_q5_0, Q5_0)
TROUPE_MATMUL(matmul_q5_1, Q5_1)
TROUPE_MATMUL(matmul_iq4_nl, IQ4_NL)
TROUPE_MATMUL(matmul_iq4_xs, IQ4_XS)
TROUPE_MATMUL(matmul_mxfp4, MXFP4)
TROUPE_MATMUL(matmul_q2_k, Q2_K)
TROUPE_MATMUL(matmul_q3_k, Q3_K)

TROUPE_GATED_MATMUL(gated_q4_0, Q4_0)
TROUPE_GATED_MATMUL(gated_q4_1, Q4_1)
TROUPE_GATED_MATMUL(gated_q5_0, Q5_0)
TROUPE_GATED_MATMUL(gated_q5_1, Q5_1)
TROUPE_GATED_MATMUL(gated_iq4_nl, IQ4_NL)
TROUPE_GATED_MATMUL(gated_iq4_xs, IQ4_XS)
TROUPE_GATED_MATMUL(gated_mxfp4, MXFP4)
TROUPE_GATED_MATMUL(gated_q2_k, Q2_K)
TROUPE_GATED_MATMUL(gated_q3_k, Q3_K)

}  // namespace troupe::kernels::amx
