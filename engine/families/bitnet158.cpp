// BitNet b1.58 2B4T (Ma et al., 2025), Microsoft's model: as `bitnet`, but with squared ReLU as gate. Its architecture
// is `bitnet-b1.58` in GGUF, `bitnet-25` in files from before its publication.
//
//   x += W_o norm(attention(rope(W_q n), rope(W_k n), W_v n)), n = norm(x)
//   x += W_down norm(max(W_gate n, 0)^2 * W_up n), n = norm(x)
#include "engine/model/decoder_model.h"

namespace troupe::engine {
namespace {

DecoderTraits traits_of(const char* name) {
  return {.family = name, .sub_norms = true, .half_rope = true, .scale_tensors = true, .gate = Gate::squared_relu};
}
DecoderTraits bitnet158() { return traits_of("bitnet-b1.58"); }
DecoderTraits bitnet25() { return traits_of("bitnet-25"); }

}  // namespace

Family bitnet158_family() { return decoder_family<bitnet158>(); }
Family bitnet25_family() { return decoder_family<bitnet25>(); }

}  // namespace troupe::engine
