// The weights of a decoder-only transformer as llama files name them, and how they are read and
// checked. Families say what they expect; everything else in a file is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/layers/mamba_mixer.h"
#include "engine/layers/rope_table.h"
#include "engine/weights/language_model.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

// What makes the gate of a feed-forward layer: gate(W_gate n) * W_up n.
enum class Gate : std::uint8_t { silu, gelu, squared_relu };

enum class QkNorm : std::uint8_t {
  none,
  heads,  // q and k of each head are normed by themselves, all by the same weights
  rows,   // all heads' q together, and all heads' k
};

enum class Experts : std::uint8_t { none, some, all };  // whether the family's models are mixtures of experts

// What distinguishes the families that share this shape.
struct DecoderTraits {
  std::string family;       // what its metadata's keys begin with
  bool sub_norms = false;   // norms in front of both output projections (BitNet b1.58)
  bool post_norms = false;  // norms behind both halves of a layer (Gemma 2)
  QkNorm qk_norm = QkNorm::none;
  bool qkv_biases = false;     // q, k and v have biases; otherwise they may have
  bool half_rope = false;      // rotates (i, i + rotated/2) instead of (2i, 2i+1)
  bool scale_tensors = false;  // optional "NAME.scale" of one element per matrix
  bool fused = false;          // attn_qkv holds q, k and v, ffn_up the gate and then up (Phi-3)
  Gate gate = Gate::silu;
  Experts experts = Experts::none;
  bool normalised_experts = false;  // the weights of a token's experts add up to 1
  bool divided_experts = false;     // without a length of their own, experts share that of a dense layer
  bool shared_expert = false;       // one more for all tokens, with a gate of its own
  bool scaled_embedding = false;    // times sqrt(dim)
  bool mamba2 = false;              // each layer has a Mamba-2 mixer beside its attention (Falcon-H1)
  float attention_cap = 0;          // where the metadata have none; 0: none
  float logit_cap = 0;
  // Local layers, which see a window: none; or all (0), or all but every n-th. The window is `window` where the
  // metadata do not say.
  std::optional<std::uint32_t> full_every{};
  std::uint32_t window = 0;
  double local_rope_base = 0;  // of local layers; 0: as of the others
  // Models of so many layers scale scores by dim / num_heads instead of head_dim.
  std::uint32_t layers_of_wide_heads = 0;
};

struct FeedForward {
  PackedMatrix gate, up, down;
};

// Experts (Shazeer et al., 2017): a router chooses some for each token.
struct ExpertWeights {
  PackedMatrix router;  // [num_experts, dim]; empty: the layer is dense
  std::vector<FeedForward> experts;
  PackedMatrix shared_gate;  // [1, dim]; empty: no shared expert
  FeedForward shared;
};

struct DecoderLayer {
  bool is_local = false;         // one of those that see a window, where the context is longer than that
  bool has_window = false;       // and it is
  std::vector<float> attn_norm;  // [dim]
  PackedMatrix q, k, v, o;
  std::vector<float> qkv_bias;        // [(num_heads + 2 * num_kv_heads) * head_dim], or empty
  std::vector<float> q_norm, k_norm;  // as QkNorm says
  std::vector<float> attn_sub_norm;   // [num_heads * head_dim], or empty
  std::vector<float> attn_post_norm;  // [dim], or empty
  std::vector<float> ffn_norm;        // [dim]
  FeedForward ffn;
  std::vector<float> ffn_sub_norm;   // [ffn_dim], or empty
  std::vector<float> ffn_post_norm;  // [dim], or empty
  ExpertWeights moe;
  Mamba2Layer mixer;  // empty: none
};

struct DecoderWeights : ModelWeights {
  std::vector<DecoderLayer> layers;
  RopeTable rope;
  RopeTable local_rope;  // of local layers; empty: as of the others
  MambaShape mamba;      // of mixers, and where their states lie
  StateLayout states;
  QkNorm qk_norm = QkNorm::none;
  Gate gate = Gate::silu;
  bool normalised_experts = false;
  float embedding_scale = 1;
  float attention_scale = 1;
  float attention_cap = 0;

  const RopeTable& rope_of(const DecoderLayer& layer) const {
    return layer.is_local && local_rope.rotated() != 0 ? local_rope : rope;
  }
};

// Reads, checks and packs. The file's pages are dropped tensor by tensor. Errors: bad_model,
// unsupported (names what), out_of_memory, invalid_argument (context).
[[nodiscard]] Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits,
                                                  const ModelOptions& options);

// What the metadata alone say.
[[nodiscard]] Result<ModelOutline> outline_decoder(const ModelFile& file, const DecoderTraits& traits,
                                                   const ModelOptions& options);

// The metadata part of it: sizes, checked against each other but not yet against tensors.
struct DecoderShape {
  ModelInfo info;
  RopeParams rope;                       // without factors
  std::uint32_t original_context = 0;    // beyond it LongRoPE has other factors
  std::optional<RopeParams> local_rope;  // where local layers have their own
  std::uint32_t expert_ffn_dim = 0;
  std::uint32_t shared_ffn_dim = 0;
  bool has_local = false;  // whether there are local layers: all, but every full_every-th unless that is 0
  std::uint32_t full_every = 0;
  float attention_scale = 1;
  float attention_cap = 0;
  float logit_cap = 0;
  MambaShape mamba;

  // Of the tables of rotations.
  std::uint64_t table_bytes() const {
    return RopeTable::bytes_for(rope, info.context) +
           (local_rope ? RopeTable::bytes_for(*local_rope, info.context) : 0);
  }
  bool is_local(std::uint32_t layer) const { return has_local && (full_every == 0 || (layer + 1) % full_every != 0); }
  bool has_window(std::uint32_t layer) const { return info.window != 0 && is_local(layer); }
};
[[nodiscard]] Result<DecoderShape> read_decoder_shape(const ModelFile& file, const DecoderTraits& traits,
                                                      const ModelOptions& options);

}  // namespace troupe::engine
