// The sizes of a decoder, from the metadata of its file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "config/printable.h"
#include "engine/formats/metadata.h"
#include "engine/layers/decoder/decoder_weights.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {
namespace {

constexpr std::int64_t kMaxExperts = 1024;  // the router's scores fit one ExpTile call (kSoftmaxTile)
static_assert(kMaxExperts <= kernels::kSoftmaxTile);

// Reads YaRN's RoPE parameters. Its attention factor goes into the magnitude of cos and sin: 1 + 0.1 ln of the scaling
// factor, as in the paper. llama.cpp uses the same for these families even if a file has rope.scaling.yarn_attn_factor:
// its converter writes that key for many families, but it reads the key for none of these.
void read_yarn(Metadata& meta, bool is_exact, double factor, std::uint32_t original_context, RopeParams& rope) {
  RopeParams::Yarn yarn;
  yarn.original_context = original_context;
  yarn.is_exact = is_exact;
  yarn.beta_fast = meta.positive("rope.scaling.yarn_beta_fast", yarn.beta_fast);
  yarn.beta_slow = meta.positive("rope.scaling.yarn_beta_slow", yarn.beta_slow);
  yarn.share = meta.not_negative("rope.scaling.yarn_ext_factor", yarn.share);
  if (yarn.share == 0) return;
  rope.yarn = yarn;
  const auto magnitude = [&](double slope) { return factor <= 1 ? 1.0 : 1.0 + 0.1 * slope * std::log(factor); };
  rope.magnitude = magnitude(1);
  if (meta.has("rope.scaling.yarn_log_multiplier"))
    rope.magnitude /= magnitude(meta.not_negative("rope.scaling.yarn_log_multiplier", 0));
}

// Of a list with a value for each layer: that of all local layers, or of all others; `absent` if there are none.
double value_of(Metadata& meta, const std::string& key, const std::vector<double>& values,
                const std::vector<LayerShape>& layers, bool of_local, double absent) {
  std::optional<std::size_t> first;
  for (std::size_t layer = 0; layer < values.size(); ++layer) {
    if (layers[layer].is_local != of_local || !layers[layer].has_attention()) continue;
    if (!first) first = layer;
    if (values[layer] == values[*first]) continue;
    meta.fail_key(ErrorCode::unsupported, key,
                  fmt::format("is {:g} for layer {} and {:g} for layer {}; layers {} a window must be alike",
                              values[*first], *first, values[layer], layer, of_local ? "with" : "without"));
    break;
  }
  return first ? values[*first] : absent;
}

// Gemma 3's local layers use unscaled positions, Gemma 2's the same RoPE as the other layers; a file may give them
// another base.
void read_local_rope(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape,
                     std::optional<double> listed_base) {
  const RopeParams rope = shape.ropes.front();
  meta.refuse_unless("rope.dimension_count_swa", {std::int64_t{rope.rotated}},
                     "local layers rotate as much as the others");
  if (!shape.has_local()) return;
  const std::string key = "rope.freq_base_swa";
  RopeParams local;
  if (traits.local_rope_base != 0 || traits.plain_local_rope) {
    local.rotated = rope.rotated;
    local.base = meta.positive(key, listed_base.value_or(traits.plain_local_rope ? rope.base : traits.local_rope_base));
  } else if (traits.full_every.value_or(0) != 0 && (listed_base || meta.has(key))) {
    local = rope;
    local.base = meta.positive(key, listed_base);
  } else {
    meta.refuse_unless(key, {rope.base}, "all layers of this family rotate alike");
    return;
  }
  for (LayerShape& layer : shape.layers)
    if (layer.is_local) layer.rope = 1;
  shape.ropes.push_back(local);
}

// Layers without RoPE get an empty one.
void leave_out_rope(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  const bool in_none = traits.rope_switch && !meta.boolean("rope.scaling.finetuned", true);
  const bool in_local_only = traits.rope_in_local_only && shape.has_local();
  const auto none = static_cast<std::uint32_t>(shape.ropes.size());
  for (std::uint32_t i = 0; i < shape.layers.size(); ++i) {
    LayerShape& layer = shape.layers[i];
    const bool is_turn = traits.no_rope_every != 0 && (i + 1) % traits.no_rope_every == 0;
    if (in_none || is_turn || (in_local_only && !layer.is_local)) layer.rope = none;
  }
  if (std::any_of(shape.layers.begin(), shape.layers.end(), [&](const LayerShape& each) { return each.rope == none; }))
    shape.ropes.emplace_back();
}

void read_rope(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  const std::uint32_t head_dim = shape.info.head_dim;
  RopeParams& rope = shape.ropes.emplace_back();
  rope.rotated = meta.count("rope.dimension_count", kMaxHeadDim, head_dim);
  if (rope.rotated > head_dim || rope.rotated % 2 != 0) {
    meta.fail(ErrorCode::bad_model, fmt::format("rope.dimension_count is {}; it must be even and at most the head's {}",
                                                rope.rotated, head_dim));
  }
  const std::string base_key = "rope.freq_base";
  std::optional<double> local_base;
  // Only families of both kinds of layers have two bases; for the others a list that differs is none.
  const auto bases = traits.full_every.value_or(0) != 0 && shape.has_local()
                         ? meta.floats_by_layer(base_key, shape.info.num_layers)
                         : std::nullopt;
  if (bases) {
    const auto base_of = [&](bool local) {
      return meta.require_positive(base_key, value_of(meta, base_key, *bases, shape.layers, local, bases->front()));
    };
    rope.base = base_of(false);
    local_base = base_of(true);
  } else {
    rope.base = meta.positive(base_key, 10000.0);
  }
  shape.original_context = meta.count("rope.scaling.original_context_length", kMaxContext, shape.info.trained_context);
  const std::string scaling = meta.string("rope.scaling.type");
  const std::string factor_key = meta.has("rope.scaling.factor")
                                     ? "rope.scaling.factor"
                                     : "rope.scale_linear";  // the key's name before rope.scaling.type existed
  if (scaling != "none") {
    const double factor = meta.positive(factor_key, 1.0);
    rope.position_scale = 1.0 / factor;
    if (scaling == "yarn") {
      read_yarn(meta, traits.exact_yarn, factor, shape.original_context, rope);
    } else if (!scaling.empty() && scaling != "linear" && scaling != "longrope") {
      meta.fail(ErrorCode::unsupported, "rope scaling of type '" + Printable(scaling) +
                                            "' is not supported; 'none', 'linear', 'yarn', 'longrope' and "
                                            "rope_freqs.weight are");
    }
  }
  rope.magnitude *= meta.positive("rope.scaling.attn_factor", 1.0);
  meta.refuse_unless("rope.scaling.alpha", {0}, "a base that grows with the context must be in rope.freq_base");
  read_local_rope(meta, traits, shape, local_base);
  leave_out_rope(meta, traits, shape);
}

// Which layers are local: a flag for each, or a number n for all but every n-th (0: all).
void read_local_layers(Metadata& meta, std::uint32_t full_every, std::vector<LayerShape>& layers) {
  const std::string key = "attention.sliding_window_pattern";
  const auto flags = meta.flags_by_layer(key, static_cast<std::uint32_t>(layers.size()));
  if (!flags && meta.has(key)) full_every = meta.integer(key) == std::int64_t{0} ? 0 : meta.count(key, kMaxLayers);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    layers[layer].is_local =
        layers[layer].has_attention() && (flags ? (*flags)[layer] : full_every == 0 || (layer + 1) % full_every != 0);
}

// The window of a list with one for each layer. Those that see everything have 0 there, or all of the context.
std::uint32_t read_windows(Metadata& meta, const std::string& key, const std::vector<double>& windows,
                           const DecoderShape& shape) {
  const double context = shape.info.trained_context;
  for (std::size_t layer = 0; layer < windows.size(); ++layer)
    if (!shape.layers[layer].is_local && shape.layers[layer].has_attention() && windows[layer] != 0 &&
        windows[layer] < context)
      meta.fail_key(ErrorCode::unsupported, key,
                    fmt::format("is {:g} for layer {}, which sees everything in this family (or by {}_pattern)",
                                windows[layer], layer, key));
  const double window = value_of(meta, key, windows, shape.layers, true, context);
  if (window >= 1 && window <= kMaxContext && window == std::floor(window)) return static_cast<std::uint32_t>(window);
  meta.fail_key(ErrorCode::bad_model, key,
                fmt::format("is {:g} for layers with a window; it must be from 1 to {}", window, kMaxContext));
  return 1;
}

void read_window(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  const std::string key = "attention.sliding_window";
  ModelInfo& info = shape.info;
  if (!traits.full_every) {
    meta.refuse_unless(key, {0}, "layers of this family see everything");
    return;
  }
  const auto windows = meta.by_layer(key, info.num_layers);
  // Files of families with windows have 0 or no key if the model has none.
  const bool says_none = meta.has(key) ? !windows && meta.integer(key) == std::int64_t{0} : traits.window == 0;
  if (says_none && traits.window == 0) return;
  read_local_layers(meta, *traits.full_every, shape.layers);
  const std::uint32_t window =
      windows ? read_windows(meta, key, *windows, shape) : meta.count(key, kMaxContext, traits.window);
  // A window as long as the context masks nothing.
  if (window >= info.context || !shape.has_local()) return;
  info.window = window;
  for (LayerShape& layer : shape.layers) layer.attention.group = layer.is_local ? 1 : 0;
}

void read_experts(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  ModelInfo& info = shape.info;
  const bool has_experts = meta.integer("expert_count").value_or(0) != 0;
  if (traits.experts == Experts::none && has_experts) {
    meta.fail(ErrorCode::unsupported,
              "this is a mixture of experts ('" + traits.family + ".expert_count'), which this family is not");
  }
  if (traits.experts == Experts::none || (traits.experts == Experts::some && !has_experts)) return;
  meta.refuse_unless("expert_group_count", {0, 1}, "a token's experts are the best of all");
  if (traits.expert_gate == ExpertGate::softmax)
    meta.refuse_unless("expert_gating_func", {0, 1}, "experts are weighted by softmax (1)");
  else
    meta.refuse_unless("expert_gating_func", {2}, "experts are weighted by sigmoid (2)");
  meta.refuse_unless("expert_weights_scale", {0, 1}, "experts' weights are not scaled");
  info.num_experts = meta.count("expert_count", kMaxExperts);
  info.num_experts_used = meta.count("expert_used_count", kMaxExperts);
  if (info.num_experts_used > info.num_experts) {
    meta.fail(ErrorCode::bad_model,
              fmt::format("a token uses {} experts, but there are {}", info.num_experts_used, info.num_experts));
  }
  const std::uint32_t share = std::max(1u, info.ffn_dim / info.num_experts_used);
  // Qwen's files have the length of a dense layer, and a separate key for that of an expert.
  const std::uint32_t expert_ffn_dim =
      meta.count("expert_feed_forward_length", kMaxFfnDim,
                 traits.experts == Experts::all && traits.divided_experts ? share : info.ffn_dim);
  const std::int64_t num_dense = meta.integer("leading_dense_block_count").value_or(0);
  if (num_dense < 0 || num_dense > info.num_layers)
    meta.fail_key(ErrorCode::bad_model, "leading_dense_block_count",
                  fmt::format("is {}; it must be from 0 to the {} layers", num_dense, info.num_layers));
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    if (static_cast<std::int64_t>(i) < num_dense) continue;
    shape.layers[i].ffn_dim = 0;
    shape.layers[i].expert_ffn_dim = expert_ffn_dim;
  }
  if (traits.shared_expert) {
    shape.shared_ffn_dim = meta.count("expert_shared_feed_forward_length", kMaxFfnDim, info.ffn_dim);
  }
}

// Which layers have attention, and with how many heads.
void read_head_counts(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  ModelInfo& info = shape.info;
  const std::string kv_key = "attention.head_count_kv";
  const auto heads = meta.counts_by_layer("attention.head_count", info.num_layers, kMaxHeads);
  const auto kv_heads = meta.has(kv_key) ? meta.counts_by_layer(kv_key, info.num_layers, kMaxHeads) : heads;
  for (std::size_t i = 0; i < info.num_layers; ++i) {
    LayerShape& layer = shape.layers[i];
    if (layer.recurrence == Recurrence::delta_net) continue;
    if (heads[i] == 0) continue;  // some files list K/V heads there
    if (kv_heads[i] == 0) {
      layer.is_linear = traits.without_kv == WithoutKv::linear;
      if (traits.without_kv == WithoutKv::short_convolution) layer.recurrence = Recurrence::short_convolution;
      if (traits.without_kv == WithoutKv::refused)
        meta.fail_key(ErrorCode::unsupported, kv_key,
                      fmt::format("is 0 for layer {}, which has {} heads; layers of this family without K and V are "
                                  "those without heads",
                                  i, heads[i]));
      continue;
    }
    if (heads[i] % kv_heads[i] != 0)
      meta.fail(ErrorCode::bad_model,
                fmt::format("{} heads cannot share {} kv heads evenly (layer {})", heads[i], kv_heads[i], i));
    layer.attention.num_heads = heads[i];
    layer.attention.num_kv_heads = kv_heads[i];
    info.num_heads = std::max(info.num_heads, heads[i]);
    info.num_kv_heads = std::max(info.num_kv_heads, kv_heads[i]);
  }
  if (info.num_heads == 0 && !meta.failed()) meta.fail(ErrorCode::unsupported, "no layer has attention");
  info.num_heads = std::max(info.num_heads, 1u);  // after an error
}

// Which layers have a gated delta net: those flagged, or all but every n-th.
void read_delta_nets(Metadata& meta, const DecoderTraits& traits, std::uint32_t num_blocks, DecoderShape& shape) {
  if (traits.delta_nets == DeltaNets::none) return;
  const std::string key = "attention.recurrent_layers";
  const auto flags = meta.integers(key);
  if (flags && flags->size() != num_blocks)
    return meta.fail_key(ErrorCode::bad_model, key,
                         fmt::format("is a list of {} for {} layers", flags->size(), num_blocks));
  if (flags && std::any_of(flags->begin(), flags->end(), [](std::int64_t flag) { return flag != 0 && flag != 1; }))
    return meta.fail_key(ErrorCode::bad_model, key, "has numbers other than 0 and 1");
  const std::uint32_t full_every = meta.count("full_attention_interval", kMaxLayers, 4);
  for (std::size_t i = 0; i < shape.layers.size(); ++i)
    if (flags ? (*flags)[i] == 1 : (i + 1) % full_every != 0) shape.layers[i].recurrence = Recurrence::delta_net;
  if (shape.num_states() != 0) shape.delta_net = read_delta_net_shape(meta, traits.delta_nets == DeltaNets::tiled);
}

// Layers behind the last one, which draft further tokens from its output (multi-token prediction), are not computed.
void leave_out_further_layers(Metadata& meta, const DecoderTraits& traits, ModelInfo& info) {
  const std::string key = "nextn_predict_layers";
  if (!traits.further_layers) return meta.refuse_unless(key, {0}, "a model has no layers that predict further tokens");
  const std::int64_t further = meta.integer(key).value_or(0);
  if (further < 0 || further >= info.num_layers)
    return meta.fail_key(ErrorCode::bad_model, key,
                         fmt::format("is {}; it must be from 0 to less than the {} layers", further, info.num_layers));
  info.num_layers -= static_cast<std::uint32_t>(further);
}

void read_heads(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  ModelInfo& info = shape.info;
  read_head_counts(meta, traits, shape);
  const std::string key = "attention.key_length";
  if (!meta.has(key) && info.dim % info.num_heads != 0) {
    meta.fail(ErrorCode::bad_model,
              fmt::format("the dimension {} is not a multiple of the {} heads", info.dim, info.num_heads));
  }
  info.head_dim = meta.count(key, kMaxHeadDim, info.dim / info.num_heads);
  if (meta.count("attention.value_length", kMaxHeadDim, info.head_dim) != info.head_dim) {
    meta.fail(ErrorCode::unsupported, "keys and values of different length are not supported");
  }
  for (const char* const local : {"attention.key_length_swa", "attention.value_length_swa"})
    meta.refuse_unless(local, {std::int64_t{info.head_dim}}, "heads of all layers are of one length");
  if (info.head_dim % 2 != 0) {
    meta.fail(ErrorCode::bad_model, fmt::format("heads of {} elements cannot be rotated in pairs", info.head_dim));
  }
  for (std::size_t i = 0; i < shape.layers.size(); ++i) {
    LayerShape& layer = shape.layers[i];
    const bool may_be_parallel = traits.ffn_input == FfnInput::attn_normed || traits.ffn_input == FfnInput::optional;
    if (!layer.has_attention() && may_be_parallel)
      meta.fail_key(ErrorCode::unsupported, "attention.head_count",
                    fmt::format("leaves layer {} without attention, whose input its feed-forward part reads, too", i));
    if (!layer.has_attention()) continue;
    if (!meta.has(key) && layer.attention.num_heads != info.num_heads)
      meta.fail_key(ErrorCode::bad_model, key,
                    fmt::format("is missing; layers differ in heads ({} in layer {}, and {} in others)",
                                layer.attention.num_heads, i, info.num_heads));
    layer.attention.head_dim = info.head_dim;
  }
}

// The last layers may attend to the K and V of an earlier one (Gemma 3n): the last one before them of their own kind,
// with or without a window.
void read_shared_kv(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  const std::string key = "attention.shared_kv_layers";
  const std::int64_t num_layers = shape.info.num_layers, num_shared = meta.integer(key).value_or(0);
  for (std::uint32_t i = 0; i < shape.layers.size(); ++i) shape.layers[i].kv_layer = i;
  if (num_shared < 0 || num_shared >= num_layers)
    return meta.fail_key(ErrorCode::bad_model, key,
                         fmt::format("is {}; it must be from 0 to less than the {} layers", num_shared, num_layers));
  if (num_shared != 0 && traits.fused)
    return meta.refuse_unless(key, {0}, "layers of this family have one tensor for q, k and v");
  for (std::size_t i = static_cast<std::size_t>(num_layers - num_shared); i < shape.layers.size(); ++i) {
    LayerShape& layer = shape.layers[i];
    if (!layer.has_attention()) continue;
    std::size_t of = static_cast<std::size_t>(num_layers - num_shared);
    const auto is_like = [&](const LayerShape& other) {
      return other.attention.num_kv_heads == layer.attention.num_kv_heads && other.is_local == layer.is_local;
    };
    while (of > 0 && !is_like(shape.layers[of - 1])) --of;
    if (of == 0)
      return meta.fail_key(
          ErrorCode::bad_model, key,
          fmt::format("is {}, but no layer before those has K and V of layer {}'s kind", num_shared, i));
    layer.kv_layer = static_cast<std::uint32_t>(of - 1);
  }
}

// Gives each layer its place: of its K and V in the blocks of their group, of its state, and in the plans of a step.
void place_layers(Metadata& meta, kernels::KvType kv_type, DecoderShape& shape) {
  std::array<std::uint64_t, cache::kMaxGroups> block_bytes{};
  std::uint32_t num_states = 0;
  for (std::uint32_t i = 0; i < shape.layers.size(); ++i) {
    LayerShape& layer = shape.layers[i];
    if (layer.recurrence != Recurrence::none) layer.state = num_states++;
    if (!layer.has_attention()) continue;
    const AttentionShape& attention = layer.attention;
    if (layer.kv_layer == i) {
      layer.kv_offset = block_bytes[attention.group];
      block_bytes[attention.group] += attention.kv(kv_type).layer_bytes();
    } else {
      layer.kv_offset = shape.layers[layer.kv_layer].kv_offset;
    }
    const auto same = std::find(shape.plans.begin(), shape.plans.end(), attention);
    layer.plan = static_cast<std::uint32_t>(same - shape.plans.begin());
    if (same == shape.plans.end()) shape.plans.push_back(attention);
  }
  if (shape.plans.size() > kMaxPlans)
    meta.fail(ErrorCode::unsupported,
              fmt::format("layers differ in the sizes of attention in {} ways; {} are supported", shape.plans.size(),
                          kMaxPlans));
}

// Factors of embeddings, of what a layer adds, of scores and of logits. Those of other families are refused: they would
// be ignored.
void read_scales(Metadata& meta, const DecoderTraits& traits, DecoderShape& shape) {
  const double dim = shape.info.dim, layers = shape.info.num_layers;
  if (traits.scales) {
    // The first files of MiniCPM 1B and 2B have none of these keys; their configuration is scale_emb 12, scale_depth
    // 1.4 and dim_model_base 256.
    const bool old = traits.minicpm_scales;
    shape.embedding_scale = static_cast<float>(meta.positive("embedding_scale", old ? 12.0 : 1.0));
    shape.residual_scale = static_cast<float>(meta.positive("residual_scale", old ? 1.4 / std::sqrt(layers) : 1.0));
    if (meta.has("attention.scale")) shape.attention_scale = static_cast<float>(meta.positive("attention.scale"));
  } else {
    for (const char* const key : {"embedding_scale", "residual_scale"})
      meta.refuse_unless(key, {0, 1}, "this family has no such factor");
    meta.refuse_unless("attention.scale", {0}, "scores of this family are divided by the root of a head's length");
  }
  if (traits.logit_scale == LogitScale::none) {
    meta.refuse_unless("logit_scale", {0, 1}, "logits of this family are not scaled");
  } else {
    const double scale = meta.positive("logit_scale", traits.minicpm_scales ? std::max(1.0, dim / 256) : 1.0);
    shape.logit_scale = static_cast<float>(traits.logit_scale == LogitScale::divides ? 1 / scale : scale);
  }
  if (traits.query_temperature)
    shape.temperature = meta.not_negative("attention.temperature_scale", 0);
  else
    meta.refuse_unless("attention.temperature_scale", {0}, "queries of this family do not grow with their position");
}

// For text all sections have the same position, so rotation is as without sections. A fourth one would have another.
void read_sections(Metadata& meta, const DecoderTraits& traits) {
  const std::string key = "rope.dimension_sections";
  if (!traits.mrope) return;
  const auto sections = meta.integers(key);
  if (!sections || sections->size() < 3 || sections->size() > 4)
    return meta.fail_key(ErrorCode::bad_model, key, "must be a list of three or four numbers: pairs of each head");
  if (sections->size() == 4 && sections->back() != 0)
    meta.fail_key(ErrorCode::unsupported, key, "has a fourth section, which text has no positions for");
}

}  // namespace

std::vector<float> DecoderShape::query_scales() const {
  std::vector<float> scales;
  for (std::uint64_t i = 0; i < num_query_scales(); ++i)
    scales.push_back(static_cast<float>(1 + temperature * std::log1p(static_cast<double>(i))));
  return scales;
}

Result<DecoderShape> read_decoder_shape(const ModelFile& file, const DecoderTraits& traits,
                                        const LoadOptions& options) {
  Metadata meta(file, traits.family);
  DecoderShape shape;
  shape.info = read_model_info(file, traits.family, meta, options);
  ModelInfo& info = shape.info;
  const std::uint32_t num_blocks = info.num_layers;
  leave_out_further_layers(meta, traits, info);
  shape.layers.resize(info.num_layers);
  // Files of Qwen3.5-MoE have the length of experts alone.
  std::optional<std::int64_t> absent_ffn_dim;
  if (traits.experts == Experts::all && meta.has("expert_feed_forward_length") && !meta.has("feed_forward_length"))
    absent_ffn_dim = meta.count("expert_feed_forward_length", kMaxFfnDim);
  const auto ffn_dims = meta.counts_by_layer("feed_forward_length", info.num_layers, kMaxFfnDim, absent_ffn_dim);
  info.ffn_dim = *std::max_element(ffn_dims.begin(), ffn_dims.end());
  for (std::size_t i = 0; i < info.num_layers; ++i) shape.layers[i].ffn_dim = ffn_dims[i];
  read_delta_nets(meta, traits, num_blocks, shape);
  read_heads(meta, traits, shape);
  info.rms_epsilon = static_cast<float>(
      meta.positive(traits.layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"));
  read_window(meta, traits, shape);
  read_rope(meta, traits, shape);
  info.rope_base = static_cast<float>(shape.ropes.front().base);
  read_experts(meta, traits, shape);
  const std::uint32_t scaled_by =
      info.num_layers == traits.layers_of_wide_heads ? info.dim / info.num_heads : info.head_dim;
  shape.attention_scale = 1.0f / std::sqrt(static_cast<float>(scaled_by));
  read_scales(meta, traits, shape);
  read_sections(meta, traits);
  if (traits.attention_cap != 0)
    shape.attention_cap = static_cast<float>(meta.positive("attn_logit_softcapping", traits.attention_cap));
  else
    meta.refuse_unless("attn_logit_softcapping", {0}, "scores of this family are not capped");
  shape.logit_cap =
      static_cast<float>(traits.logit_cap != 0 ? meta.positive("final_logit_softcapping", traits.logit_cap)
                                               : meta.not_negative("final_logit_softcapping", 0));
  meta.refuse_unless("attention.causal", {true}, "a token sees those before it, as a model that continues texts must");
  if (traits.mamba2) {
    shape.mamba = read_mamba_shape(meta, true);
    for (LayerShape& layer : shape.layers) {
      layer.recurrence = Recurrence::mamba2;
      if (!layer.has_attention()) meta.fail(ErrorCode::unsupported, "layers of this family have attention");
    }
  }
  if (traits.without_kv == WithoutKv::short_convolution && shape.num_states() != 0)
    shape.convolution = read_short_convolution_shape(meta, info.dim);
  read_shared_kv(meta, traits, shape);
  place_layers(meta, options.kv_type, shape);
  if (meta.failed()) return meta.error();
  // Where q and k are normed after their biases, K has none that could be kept apart.
  if (options.kv_type == kernels::KvType::i8 && traits.qk_norm == QkNorm::none) {
    for (std::uint32_t i = 0; i < info.num_layers; ++i)
      if (file.find_tensor(fmt::format("blk.{}.attn_q.bias", i)) ||
          file.find_tensor(fmt::format("blk.{}.attn_qkv.bias", i)))
        shape.num_key_biases += shape.layers[i].attention.kv_dim();
  }
  return shape;
}

}  // namespace troupe::engine
