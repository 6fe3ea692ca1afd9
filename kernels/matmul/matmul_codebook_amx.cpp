// Products on AMX: types with short codes, which are converted by table lookup.
#include "kernels/matmul/matmul_amx.h"

namespace troupe::kernels::amx {

Matmul* matmul_codebook_tiles(WeightType type) { return matmul_of<true>(type); }
GatedMatmul* gated_codebook_tiles(WeightType type) { return gated_of<true>(type); }

}  // namespace troupe::kernels::amx
