// Products on AMX: types without codes, with 6- and 8-bit codes, and ternary types.
#include "kernels/matmul/matmul_amx.h"

namespace troupe::kernels::amx {

Matmul* matmul_tiles(WeightType type) { return matmul_of<false>(type); }
GatedMatmul* gated_tiles(WeightType type) { return gated_of<false>(type); }

}  // namespace troupe::kernels::amx
