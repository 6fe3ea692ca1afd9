// The weights of a decoder-only transformer with llama.cpp's tensor names, and how they are read and checked. A family
// lists the tensors it expects; a file with any other tensor is refused, with its name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/result.h"
#include "engine/layers/attention_plan.h"
#include "engine/layers/recurrent/convolution.h"
#include "engine/layers/recurrent/gated_delta_net.h"
#include "engine/layers/recurrent/mamba_mixer.h"
#include "engine/layers/rope_table.h"
#include "engine/weights/language_model.h"
#include "engine/weights/packed_matrix.h"

namespace troupe::engine {

// The gate function of a feed-forward layer: gate(W_gate n) * W_up n. clamped: with g = min(W_gate n, 7) and u = W_up n
// within [-7, 7] it is g sigmoid(1.702 g) (u + 1) (gpt-oss).
enum class Gate : std::uint8_t { silu, gelu, squared_relu, clamped };

enum class QkNorm : std::uint8_t {
  none,
  heads,      // q and k of each head are normed separately, with the same weights
  own_heads,  // the same with weights of its own for each head; only if the file has them (StableLM 2, Command R+)
  rows,       // q of all heads is normed as one row, and k of all heads
};

// What the feed-forward part of a layer reads.
enum class FfnInput : std::uint8_t {
  normed,       // the residual, normed by ffn_norm
  post_normed,  // the same; the file calls the norm post_attention_norm (Seed-OSS)
  attn_normed,  // what attention reads: both halves are parallel (Command R, Phi-2)
  optional,     // attn_normed if the file has no ffn_norm (StableLM 2)
};

// What a file's logit_scale does to the logits.
enum class LogitScale : std::uint8_t { none, multiplies, divides };

enum class Experts : std::uint8_t { none, some, all };  // whether the family's models are mixtures of experts

// Of the router's scores: the weights of a token's experts before they are normalised.
enum class ExpertGate : std::uint8_t { softmax, sigmoid };

// What layers with heads but without K/V heads have in the place of attention.
enum class WithoutKv : std::uint8_t {
  refused,
  linear,             // W_o norm(x) (Nemotron)
  short_convolution,  // convolution.h (LFM2)
};

// Which layers have a gated delta net in the place of attention: all but every n-th, or those that the file lists.
enum class DeltaNets : std::uint8_t {
  none,
  grouped,  // neighbouring heads of values share one of keys (Qwen3-Next)
  tiled,    // they take turns (Qwen3.5)
};

// The differences between the families with this shape.
struct DecoderTraits {
  std::string family;         // prefix of its metadata keys
  bool sub_norms = false;     // norms before both output projections (BitNet b1.58)
  bool post_norms = false;    // norms after both halves of a layer (Gemma 2)
  bool no_pre_norms = false;  // none before them (OLMo 2)
  bool layer_norms = false;   // LayerNorm instead of RMSNorm
  bool norm_biases = false;   // of layer norms: they must have biases; else they have none
  FfnInput ffn_input = FfnInput::normed;
  QkNorm qk_norm = QkNorm::none;
  bool norms_rotated = false;  // q and k are normed after the rotation (Hunyuan)
  bool qkv_biases = false;     // q, k and v must have biases; else they are optional
  bool biases = false;         // the output projection and the feed-forward matrices may have biases, too
  bool half_rope = false;      // rotates (i, i + rotated/2) instead of (2i, 2i+1)
  bool scale_tensors = false;  // optional "NAME.scale" of one element per matrix
  bool fused = false;          // attn_qkv holds q, k and v, ffn_up the gate and then up (Phi-3)
  Gate gate = Gate::silu;
  bool ungated = false;  // gelu(W_up n), without a gate
  WithoutKv without_kv = WithoutKv::refused;
  Experts experts = Experts::none;
  ExpertGate expert_gate = ExpertGate::softmax;
  bool biased_choice = false;       // experts are chosen by weights plus exp_probs_b
  bool normalised_experts = false;  // the weights of a token's experts add up to 1
  bool divided_experts = false;     // if the file has no expert length, experts divide that of a dense layer
  bool shared_expert = false;       // one more expert for all tokens, with its own gate
  bool scaled_embedding = false;    // times sqrt(dim)
  // The file may have embedding_scale, residual_scale (of what each half of a layer adds) and attention.scale.
  bool scales = false;
  LogitScale logit_scale = LogitScale::none;
  bool minicpm_scales = false;     // those of MiniCPM 1B and 2B if the file has none
  bool mrope = false;              // rope.dimension_sections: alike for text, where all sections have one position
  bool query_temperature = false;  // queries grow with their position if the file has attention.temperature_scale
  bool sinks = false;  // each head has a score without a value, which takes its share of the softmax (gpt-oss)
  bool gated_attention = false;  // attn_q has the rows of each head, and then those of its gate: o = W_o (sigmoid(g) a)
  DeltaNets delta_nets = DeltaNets::none;
  bool further_layers = false;  // nextn_predict_layers of block_count predict further tokens: they are not read
  bool mamba2 = false;          // each layer has a Mamba-2 mixer beside its attention (Falcon-H1)
  std::string output_norm = "output_norm.weight";
  float attention_cap = 0;  // default if the metadata have none; 0: none
  float logit_cap = 0;
  // Local (sliding-window) layers. No value: none; 0: all; n: all but every n-th. `window` is the default if the
  // metadata have none.
  std::optional<std::uint32_t> full_every{};
  std::uint32_t window = 0;
  double local_rope_base = 0;     // of local layers; 0: as in the other layers
  bool exact_yarn = false;        // RopeParams::Yarn::is_exact (gpt-oss; llama.cpp rounds for it, too)
  bool plain_local_rope = false;  // in local layers the base is the same, but positions are not scaled (OLMo 3)
  // Layers without RoPE: every n-th (SmolLM3); where some layers are local, all others (Command R7B, EXAONE 4).
  std::uint32_t no_rope_every = 0;
  bool rope_in_local_only = false;
  bool rope_switch = false;  // where rope.scaling.finetuned is false, all of them (Granite 4)
  // Models with this number of layers scale scores by dim / num_heads instead of head_dim.
  std::uint32_t layers_of_wide_heads = 0;
};

// The recurrence that a layer has beside its attention, or in its place.
enum class Recurrence : std::uint8_t { none, mamba2, short_convolution, delta_net };

// The sizes of attention. A step plans it once for all layers that have the same ones.
struct AttentionShape {
  std::uint32_t num_heads = 0;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;  // of keys and of values
  GroupId group = 0;           // of K and V

  bool operator==(const AttentionShape&) const = default;
  std::uint32_t q_dim() const { return num_heads * head_dim; }
  std::uint32_t kv_dim() const { return num_kv_heads * head_dim; }
  kernels::KvShape kv(kernels::KvType type) const {
    return {.type = type, .num_kv_heads = num_kv_heads, .head_dim = head_dim};
  }
};

// The most different ones in a model.
inline constexpr std::size_t kMaxPlans = Workspace::kMaxOfOneSlot;

// What one layer consists of, and its sizes.
struct LayerShape {
  AttentionShape attention{};   // without heads there is none
  bool is_linear = false;       // `o` alone stands in the place of attention
  bool is_local = false;        // a sliding-window layer by architecture, also if the window masks nothing
  std::uint32_t kv_layer = 0;   // whose K and V it attends to: its own, or an earlier one's of the same sizes
  std::uint64_t kv_offset = 0;  // of these in a block of the group
  std::uint32_t rope = 0;       // of DecoderShape::ropes
  std::uint32_t plan = 0;       // of DecoderShape::plans
  Recurrence recurrence = Recurrence::none;
  std::uint32_t state = 0;           // the layer's place among those with a recurrence
  std::uint32_t ffn_dim = 0;         // of the dense feed-forward part; 0: none
  std::uint32_t expert_ffn_dim = 0;  // of an expert; 0: no experts

  bool has_attention() const { return attention.num_heads != 0; }
  bool has_feed_forward() const { return ffn_dim != 0 || expert_ffn_dim != 0; }
  // Whether anything stands before the feed-forward part.
  bool mixes() const { return has_attention() || is_linear || recurrence != Recurrence::none; }
};

struct FeedForward {
  PackedMatrix gate, up, down;                             // gate: empty if the family has none
  std::vector<float> gate_bias{}, up_bias{}, down_bias{};  // empty: none

  void visit(WeightVisitor& visitor) const { visitor.all(gate, up, down, gate_bias, up_bias, down_bias); }
};

// Experts (Shazeer et al., 2017): a router chooses some for each token.
struct ExpertWeights {
  PackedMatrix router;             // [num_experts, dim]; empty: the layer is dense
  std::vector<float> router_bias;  // [num_experts]; empty: none
  std::vector<float> choice_bias;  // [num_experts]; empty: none
  std::vector<FeedForward> experts;
  PackedMatrix shared_gate;  // [1, dim]; empty: no shared expert
  FeedForward shared;

  void visit(WeightVisitor& visitor) const {
    visitor.all(router, router_bias, choice_bias, experts, shared_gate, shared);
  }
};

// Norms: [dim], or empty for none; of layer norms the weights, then the biases (zeros if there are none).
struct DecoderLayer {
  LayerShape shape;
  bool is_parallel = false;      // the feed-forward part reads attn_norm's output
  std::vector<float> attn_norm;  // [dim]
  PackedMatrix q, k, v, o;
  PackedMatrix attention_gate;  // [num_heads * head_dim]; empty: none
  std::vector<float> o_bias;    // empty: none
  // What is added to q, k and v: [(num_heads + 2 * num_kv_heads) * head_dim], or empty; with an int8 cache only to q,
  // [num_heads * head_dim], as the others are in KvBiases' form then.
  std::vector<float> qkv_bias;
  std::vector<float> key_bias, value_bias;  // KvBiases::keys and values, of its own K and V; empty: none
  // Sizes as in QkNorm, or empty; with own_heads head_dim zeros follow, the biases of a layer norm.
  std::vector<float> q_norm, k_norm;
  std::vector<float> sinks;           // [num_heads], as scaled scores; empty: none
  std::vector<float> attn_sub_norm;   // [num_heads * head_dim], or empty
  std::vector<float> attn_post_norm;  // [dim], or empty
  std::vector<float> ffn_norm;        // [dim], or empty if is_parallel
  FeedForward ffn;
  std::vector<float> ffn_sub_norm;   // [ffn_dim], or empty
  std::vector<float> ffn_post_norm;  // [dim], or empty
  ExpertWeights moe;
  Mamba2Layer mixer;  // empty: none
  ShortConvolutionLayer convolution;
  DeltaNetLayer delta_net;

  void visit(WeightVisitor& visitor) const {
    visitor.all(attn_norm, q, k, v, o, attention_gate, o_bias, qkv_bias, key_bias, value_bias, q_norm, k_norm, sinks,
                attn_sub_norm, attn_post_norm, ffn_norm, ffn, ffn_sub_norm, ffn_post_norm, moe, mixer, convolution,
                delta_net);
  }
};

struct DecoderWeights : ModelWeights {
  DecoderTraits traits;
  std::vector<DecoderLayer> layers;
  std::vector<AttentionShape> plans;  // those of all layers
  std::vector<RopeTable> ropes;
  std::vector<RopeTable> turns;  // KvBiases::turns for each of `ropes`; none if no layer has a key_bias
  MambaShape mamba;              // of mixers; `states` has the offsets of their states
  ShortConvolutionShape convolution;
  DeltaNetShape delta_net;
  StateLayout states;
  // What queries at positions from i * temperature_step on are multiplied with; empty: nothing.
  std::vector<float> query_scales;
  std::uint32_t temperature_step = 0;
  float embedding_scale = 1;
  float attention_scale = 1;
  float attention_cap = 0;

  void visit(WeightVisitor& visitor) const {
    ModelWeights::visit(visitor);
    visitor.all(layers, ropes, turns, query_scales);
  }
  KvBiases biases_of(const DecoderLayer& layer) const {
    const DecoderLayer& own = layers[layer.shape.kv_layer];
    return {.keys = own.key_bias.empty() ? nullptr : own.key_bias.data(),
            .turns = turns.empty() ? nullptr : &turns[own.shape.rope],
            .values = own.value_bias.empty() ? nullptr : own.value_bias.data()};
  }
};

// Reads, checks and packs. The file's pages are dropped tensor by tensor. Errors: bad_model, unsupported (with the
// feature's name), out_of_memory, invalid_argument (context).
[[nodiscard]] Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits,
                                                  const LoadOptions& options);

// As Family::check.
[[nodiscard]] Status check_decoder(const ModelFile& file, const DecoderTraits& traits, const LoadOptions& options);

// The outline from metadata only.
[[nodiscard]] Result<ModelOutline> outline_decoder(const ModelFile& file, const DecoderTraits& traits,
                                                   const LoadOptions& options);

// Sizes from the metadata, checked against each other but not yet against tensors.
struct DecoderShape {
  ModelInfo info;
  std::vector<LayerShape> layers;
  std::vector<AttentionShape> plans;   // those of all layers
  std::vector<RopeParams> ropes;       // the first is the model's, without factors
  std::uint32_t original_context = 0;  // for longer contexts LongRoPE has other factors
  std::uint32_t shared_ffn_dim = 0;
  float attention_scale = 1;
  float attention_cap = 0;
  float logit_cap = 0;
  float embedding_scale = 1;
  float residual_scale = 1;
  float logit_scale = 1;
  double temperature = 0;  // queries are multiplied with 1 + temperature * ln(1 + floor(position / original_context))
  MambaShape mamba;
  ShortConvolutionShape convolution;
  DeltaNetShape delta_net;
  std::uint64_t num_key_biases = 0;  // of layers whose KvBiases are apart

  // Bytes of the RoPE tables, of queries' factors, and of K's biases where these are apart.
  std::uint64_t table_bytes() const {
    return rope_bytes(info.context) + (num_key_biases != 0 ? rope_bytes(blocks_for(info.context)) : 0) +
           (num_query_scales() + num_key_biases * kBlockSize) * sizeof(float);
  }
  std::uint64_t rope_bytes(std::uint32_t num_positions) const {
    std::uint64_t bytes = 0;
    for (const RopeParams& rope : ropes) bytes += RopeTable::bytes_for(rope, num_positions);
    return bytes;
  }
  bool has_local() const {
    return std::any_of(layers.begin(), layers.end(), [](const LayerShape& layer) { return layer.is_local; });
  }
  // The number of layers with a recurrent state.
  std::uint32_t num_states() const {
    return static_cast<std::uint32_t>(std::count_if(
        layers.begin(), layers.end(), [](const LayerShape& layer) { return layer.recurrence != Recurrence::none; }));
  }
  // DecoderWeights::query_scales.
  std::vector<float> query_scales() const;
  std::uint64_t num_query_scales() const {
    return temperature == 0 ? 0 : (std::uint64_t{info.context} + original_context - 1) / original_context;
  }
};
[[nodiscard]] Result<DecoderShape> read_decoder_shape(const ModelFile& file, const DecoderTraits& traits,
                                                      const LoadOptions& options);

}  // namespace troupe::engine
