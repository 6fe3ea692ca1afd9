#include "engine/layers/decoder/decoder_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/weights/tensor_reader.h"

namespace troupe::engine {
namespace {

// Reads the tensors of one model's layers.
class LayerReader {
 public:
  LayerReader(TensorReader& in, const DecoderShape& shape, const DecoderTraits& traits)
      : in_(in), shape_(shape), info_(shape.info), traits_(traits) {
    scaled_.scale = shape_.residual_scale;
  }

  DecoderLayer read(std::uint32_t index) {
    prefix_ = fmt::format("blk.{}.", index);
    at_ = shape_.layers[index];
    has_kv_ = at_.kv_layer == index;
    q_dim_ = at_.attention.q_dim();
    kv_dim_ = at_.attention.kv_dim();
    rotated_ = traits_.half_rope ? shape_.ropes[at_.rope].rotated : 0;
    DecoderLayer layer;
    layer.shape = at_;
    if (at_.mixes() && !traits_.no_pre_norms) layer.attn_norm = norm("attn_norm", info_.dim);
    if (at_.has_attention()) read_attention(layer);
    if (at_.is_linear) layer.o = in_.matrix(prefix_ + "attn_output.weight", info_.dim, info_.dim, scaled_);
    if (at_.recurrence == Recurrence::mamba2) layer.mixer = Mamba2Mixer::read(in_, prefix_, shape_.mamba, info_.dim);
    if (at_.recurrence == Recurrence::short_convolution)
      layer.convolution = ShortConvolution::read(in_, prefix_, shape_.convolution);
    if (at_.recurrence == Recurrence::delta_net)
      layer.delta_net = GatedDeltaNet::read(in_, prefix_, shape_.delta_net, info_.dim);
    if (at_.has_feed_forward()) read_feed_forward(layer);
    return layer;
  }

 private:
  // A norm's weights and, of a layer norm, its biases.
  std::vector<float> norm(const std::string& name, std::uint64_t dim) {
    std::vector<float> out = in_.vector(prefix_ + name + ".weight", dim);
    if (!traits_.layer_norms) return out;
    const std::vector<float> biases =
        traits_.norm_biases ? in_.vector(prefix_ + name + ".bias", dim) : std::vector<float>(dim);
    out.insert(out.end(), biases.begin(), biases.end());
    return out;
  }

  // A matrix's biases, times `scale`, if the family and the file have any.
  std::vector<float> bias(const std::string& name, std::uint64_t count, float scale = 1) {
    if (!traits_.biases) return {};
    std::vector<float> out = in_.optional_vector(prefix_ + name + ".bias", count);
    for (float& x : out) x *= scale;
    return out;
  }

  void read_attention(DecoderLayer& layer) {
    read_qkv(layer);
    read_qk_norms(layer);
    if (traits_.sinks) layer.sinks = in_.vector(prefix_ + "attn_sinks.weight", at_.attention.num_heads);
    if (traits_.sub_norms) layer.attn_sub_norm = in_.vector(prefix_ + "attn_sub_norm.weight", q_dim_);
    layer.o = in_.matrix(prefix_ + "attn_output.weight", info_.dim, q_dim_, scaled_);
    layer.o_bias = bias("attn_output", info_.dim, shape_.residual_scale);
    if (traits_.post_norms) layer.attn_post_norm = in_.vector(prefix_ + "post_attention_norm.weight", info_.dim);
  }

  void read_ffn_norm(DecoderLayer& layer) {
    // Falcon-H1's converter omits the suffix.
    const bool bare = traits_.mamba2 && in_.has(prefix_ + "ffn_norm");
    const bool has_norm = traits_.ffn_input != FfnInput::optional || in_.has(prefix_ + "ffn_norm.weight");
    layer.is_parallel = traits_.ffn_input == FfnInput::attn_normed || !has_norm;
    if (layer.is_parallel && !at_.has_attention())
      in_.fail_model(prefix_ + " has no attention, whose norm its feed-forward part reads in this family");
    if (bare)
      layer.ffn_norm = in_.vector(prefix_ + "ffn_norm", info_.dim);
    else if (!layer.is_parallel && !traits_.no_pre_norms)
      layer.ffn_norm = norm(traits_.ffn_input == FfnInput::post_normed ? "post_attention_norm" : "ffn_norm", info_.dim);
  }

  void read_feed_forward(DecoderLayer& layer) {
    read_ffn_norm(layer);
    if (at_.expert_ffn_dim != 0) read_experts(layer.moe);
    if (at_.ffn_dim != 0) layer.ffn = read_dense();
    if (traits_.sub_norms) layer.ffn_sub_norm = in_.vector(prefix_ + "ffn_sub_norm.weight", at_.ffn_dim);
    if (traits_.post_norms) layer.ffn_post_norm = in_.vector(prefix_ + "post_ffw_norm.weight", info_.dim);
  }

  void read_qkv(DecoderLayer& layer) {
    MatrixReading rotated{
        .interleave_head = rotated_ != 0 ? at_.attention.head_dim : 0, .interleave_rotated = rotated_, .part = {}};
    const std::string name = prefix_ + "attn_qkv.weight";
    if (traits_.fused || in_.has(name)) {
      const std::uint64_t all = q_dim_ + 2 * kv_dim_;
      rotated.part = TensorPart{.first = 0, .of = all};
      layer.q = in_.matrix(name, q_dim_, info_.dim, rotated);
      rotated.part->first = q_dim_;
      layer.k = in_.matrix(name, kv_dim_, info_.dim, rotated);
      layer.v = in_.matrix(name, kv_dim_, info_.dim, {.part = TensorPart{.first = q_dim_ + kv_dim_, .of = all}});
      layer.qkv_bias = in_.optional_vector(prefix_ + "attn_qkv.bias", all);
      const auto of_v = layer.qkv_bias.end() - static_cast<std::ptrdiff_t>(layer.qkv_bias.empty() ? 0 : kv_dim_);
      const std::vector<float> of_qk = in_order({layer.qkv_bias.begin(), of_v});
      std::copy(of_qk.begin(), of_qk.end(), layer.qkv_bias.begin());
      return;
    }
    if (traits_.gated_attention) {
      rotated.part = TensorPart{.first = 0, .of = 2 * q_dim_, .run = at_.attention.head_dim};
      const TensorPart gates{.first = at_.attention.head_dim, .of = 2 * q_dim_, .run = at_.attention.head_dim};
      layer.attention_gate = in_.matrix(prefix_ + "attn_q.weight", q_dim_, info_.dim, {.part = gates});
    }
    layer.q = in_.matrix(prefix_ + "attn_q.weight", q_dim_, info_.dim, rotated);
    rotated.part.reset();
    if (has_kv_) {
      layer.k = in_.matrix(prefix_ + "attn_k.weight", kv_dim_, info_.dim, rotated);
      layer.v = in_.matrix(prefix_ + "attn_v.weight", kv_dim_, info_.dim);
    }
    if (traits_.qkv_biases || in_.has(prefix_ + "attn_q.bias")) {
      layer.qkv_bias = in_order(in_.vector(prefix_ + "attn_q.bias", q_dim_));
      if (has_kv_)
        for (const auto& more :
             {in_order(in_.vector(prefix_ + "attn_k.bias", kv_dim_)), in_.vector(prefix_ + "attn_v.bias", kv_dim_)})
          layer.qkv_bias.insert(layer.qkv_bias.end(), more.begin(), more.end());
    }
  }

  void read_qk_norms(DecoderLayer& layer) {
    const std::string of_q = prefix_ + "attn_q_norm.weight", of_k = prefix_ + "attn_k_norm.weight";
    const std::uint64_t head_dim = at_.attention.head_dim;
    if (traits_.qk_norm == QkNorm::none || (traits_.qk_norm == QkNorm::own_heads && !in_.has(of_q))) return;
    const bool of_heads = traits_.qk_norm == QkNorm::heads, own = traits_.qk_norm == QkNorm::own_heads;
    const auto read = [&](const std::string& name, std::uint64_t dim) {
      std::vector<std::uint64_t> dims;
      if (own) dims = {head_dim, dim / head_dim};
      std::vector<float> weights = in_order(in_.vector(name, of_heads ? head_dim : dim, dims));
      if (own) weights.resize(dim + head_dim);
      return weights;
    };
    layer.q_norm = read(of_q, q_dim_);
    if (has_kv_) layer.k_norm = read(of_k, kv_dim_);
  }

  // Reorders one value per row of q or k into the order in which these rows are packed.
  std::vector<float> in_order(const std::vector<float>& values) const {
    if (rotated_ == 0) return values;
    std::vector<float> out(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i] = values[interleaved_row(i, at_.attention.head_dim, rotated_)];
    return out;
  }

  FeedForward read_dense() {
    const std::uint64_t ffn_dim = at_.ffn_dim;
    FeedForward out;
    if (traits_.fused) {
      const std::string name = prefix_ + "ffn_up.weight";
      out.gate = in_.matrix(name, ffn_dim, info_.dim, {.part = TensorPart{.first = 0, .of = 2 * ffn_dim}});
      out.up = in_.matrix(name, ffn_dim, info_.dim, {.part = TensorPart{.first = ffn_dim, .of = 2 * ffn_dim}});
    } else {
      if (!traits_.ungated) out.gate = in_.matrix(prefix_ + "ffn_gate.weight", ffn_dim, info_.dim);
      out.up = in_.matrix(prefix_ + "ffn_up.weight", ffn_dim, info_.dim);
    }
    out.down = in_.matrix(prefix_ + "ffn_down.weight", info_.dim, ffn_dim, scaled_);
    if (!traits_.ungated) out.gate_bias = bias("ffn_gate", ffn_dim);
    out.up_bias = bias("ffn_up", ffn_dim);
    out.down_bias = bias("ffn_down", info_.dim, shape_.residual_scale);
    return out;
  }

  // One of a layer's experts: a slice of "ffn_gate_exps.weight", or in older files "ffn_gate.3.weight".
  PackedMatrix read_expert(const std::string& kind, std::uint32_t expert, std::uint64_t rows, std::uint64_t k) {
    const std::string alone = fmt::format("{}{}.{}.weight", prefix_, kind, expert);
    if (in_.has(alone)) return in_.matrix(alone, rows, k);
    const TensorPart part{.first = expert * rows, .of = info_.num_experts * rows, .num_experts = info_.num_experts};
    return in_.matrix(prefix_ + kind + "_exps.weight", rows, k, {.part = part});
  }

  // Of all experts, [num_experts, rows].
  std::vector<float> expert_biases(const std::string& kind, std::uint64_t rows) {
    const std::string name = prefix_ + kind + "_exps.bias";
    if (!traits_.biases || !in_.has(name)) return {};
    return in_.vector(name, info_.num_experts * rows, {rows, info_.num_experts});
  }

  void read_experts(ExpertWeights& moe) {
    const std::uint64_t dim = info_.dim, ffn_dim = at_.expert_ffn_dim;
    moe.router = in_.matrix(prefix_ + "ffn_gate_inp.weight", info_.num_experts, dim);
    moe.router_bias = bias("ffn_gate_inp", info_.num_experts);
    const std::vector<float> gate_biases = expert_biases("ffn_gate", ffn_dim),
                             up_biases = expert_biases("ffn_up", ffn_dim), down_biases = expert_biases("ffn_down", dim);
    const auto of = [](const std::vector<float>& all, std::uint32_t expert, std::uint64_t rows) {
      if (all.empty()) return all;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(expert * rows);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(rows));
    };
    if (traits_.biased_choice) moe.choice_bias = in_.vector(prefix_ + "exp_probs_b.bias", info_.num_experts);
    for (std::uint32_t e = 0; e < info_.num_experts && !in_.failed(); ++e)
      moe.experts.push_back({.gate = read_expert("ffn_gate", e, ffn_dim, dim),
                             .up = read_expert("ffn_up", e, ffn_dim, dim),
                             .down = read_expert("ffn_down", e, dim, ffn_dim),
                             .gate_bias = of(gate_biases, e, ffn_dim),
                             .up_bias = of(up_biases, e, ffn_dim),
                             .down_bias = of(down_biases, e, dim)});
    if (!traits_.shared_expert) return;
    moe.shared_gate = in_.matrix(prefix_ + "ffn_gate_inp_shexp.weight", 1, dim);
    moe.shared.gate = in_.matrix(prefix_ + "ffn_gate_shexp.weight", shape_.shared_ffn_dim, dim);
    moe.shared.up = in_.matrix(prefix_ + "ffn_up_shexp.weight", shape_.shared_ffn_dim, dim);
    moe.shared.down = in_.matrix(prefix_ + "ffn_down_shexp.weight", dim, shape_.shared_ffn_dim);
  }

  TensorReader& in_;
  const DecoderShape& shape_;
  const ModelInfo& info_;
  const DecoderTraits& traits_;
  MatrixReading scaled_;  // of matrices whose products are added to the residual
  std::string prefix_;    // of the layer that is read
  LayerShape at_;
  std::uint64_t q_dim_ = 0, kv_dim_ = 0;
  bool has_kv_ = true;         // whether it has K and V of its own
  std::uint32_t rotated_ = 0;  // of a head whose rows are interleaved; 0: they are not
};

// Lists the matrices of a step. The last layer drops rows without output once their k and v are stored, so its later
// matrices count for output rows only.
std::vector<MatrixWork> matrix_work(const DecoderWeights& weights) {
  const ModelInfo& info = weights.info;
  std::vector<MatrixWork> all;
  for (const DecoderLayer& layer : weights.layers) {
    const bool last = &layer == &weights.layers.back();
    const DeltaNetLayer& net = layer.delta_net;
    for (const PackedMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.attention_gate, &layer.mixer.in,
                                       &layer.convolution.in, &net.qkv, &net.gate, &net.beta, &net.alpha, &net.both})
      add_matrix_work(all, *matrix, false);
    for (const PackedMatrix* matrix : {&layer.o, &layer.mixer.out, &layer.convolution.out, &net.out})
      add_matrix_work(all, *matrix, last);
    for (const FeedForward* ffn : {&layer.ffn, &layer.moe.shared})
      for (const PackedMatrix* matrix : {&ffn->gate, &ffn->up, &ffn->down}) add_matrix_work(all, *matrix, last);
    for (const PackedMatrix* matrix : {&layer.moe.router, &layer.moe.shared_gate}) add_matrix_work(all, *matrix, last);
    for (const FeedForward& expert : layer.moe.experts)
      for (const PackedMatrix* matrix : {&expert.gate, &expert.up, &expert.down})
        add_matrix_work(all, *matrix, last, info.num_experts, info.num_experts_used);
  }
  add_matrix_work(all, weights.head_matrix(), true);
  return all;
}

// Empty if layers have attention only.
StateLayout states_of(const DecoderShape& shape) {
  const std::uint32_t num_states = shape.num_states();
  if (num_states == 0) return {};
  if (shape.delta_net.num_heads != 0) return shape.delta_net.state_layout(num_states);
  return shape.convolution.width != 0 ? shape.convolution.state_layout(num_states)
                                      : shape.mamba.state_layout(num_states);
}

CacheSpec cache_spec_of(const DecoderShape& shape, const StateLayout& states, const LoadOptions& options) {
  CacheSpec spec;
  spec.kv_type = options.kv_type;
  spec.groups.resize(shape.info.window != 0 ? 2 : 1);
  spec.groups.back().window = shape.info.window;
  for (std::uint32_t i = 0; i < shape.layers.size(); ++i) {
    const LayerShape& layer = shape.layers[i];
    if (!layer.has_attention() || layer.kv_layer != i) continue;
    CacheGroup& group = spec.groups[layer.attention.group];
    group.layers.push_back(layer.attention.kv(options.kv_type));
    group.bytes_per_block += group.layers.back().layer_bytes();
  }
  if (states.num_layers != 0) {
    spec.state_type = options.state_type;
    spec.snapshot_every = options.snapshot_every;
    spec.state = states.shape();
  }
  return spec;
}

// Reads a head's frequency factors: rope_freqs.weight (Llama 3), or LongRoPE's short or long factors, depending on the
// context served. The choice changes bits, so it goes into the content hash.
void read_rope_factors(TensorReader& in, const DecoderShape& shape, RopeParams& rope, ModelWeights& weights) {
  const bool is_long = shape.info.context > shape.original_context;
  const std::string chosen = is_long ? "rope_factors_long.weight" : "rope_factors_short.weight";
  for (const std::string name : {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (!in.has(name)) continue;
    const std::vector<float> factors = in.vector(name, rope.rotated / 2);
    if (std::any_of(factors.begin(), factors.end(), [](float f) { return !(f > 0.0f && f < 1e9f); })) {
      in.fail_model(name + " must hold numbers above 0");
    }
    if (name != chosen && name != "rope_freqs.weight") continue;
    rope.factors = factors;
    if (name == chosen) weights.content_hash = combine_hashes(weights.content_hash, is_long);
  }
}

// The weights of the last norm are followed by its biases, if it is a layer norm; the head may have biases, too.
void read_output_biases(TensorReader& in, const DecoderTraits& traits, ModelWeights& weights) {
  const std::uint64_t dim = weights.info.dim;
  if (traits.layer_norms) {
    const std::vector<float> biases = traits.norm_biases ? in.vector("output_norm.bias", dim) : std::vector<float>(dim);
    weights.output_norm.insert(weights.output_norm.end(), biases.begin(), biases.end());
  }
  if (traits.biases) weights.head_bias = in.optional_vector("output.bias", weights.info.vocab_size);
}

// Takes the biases of k and v out of what is added to them: an int8 cache holds K and V without. Biases of zero need no
// second form.
void keep_biases_apart(DecoderLayer& layer, RopeParams rope) {
  const AttentionShape& shape = layer.shape.attention;
  const std::size_t head_dim = shape.head_dim, q_dim = shape.q_dim(), kv_dim = shape.kv_dim();
  const float* const keys = layer.qkv_bias.data() + q_dim;
  const float* const values = keys + kv_dim;
  const auto any = [](const float* begin, const float* end) {
    return std::any_of(begin, end, [](float x) { return x != 0.0f; });
  };
  if (any(values, values + kv_dim)) layer.value_bias.assign(values, values + kv_dim);
  if (any(keys, keys + kv_dim)) {
    rope.magnitude = 1;  // KvBiases::turns has it
    const RopeTable table(rope, kBlockSize);
    layer.key_bias.resize(kv_dim * kBlockSize);
    std::vector<float> row(head_dim);
    for (std::size_t head = 0; head < shape.num_kv_heads; ++head) {
      for (std::uint32_t slot = 0; slot < kBlockSize; ++slot) {
        std::copy_n(keys + head * head_dim, head_dim, row.begin());
        for (std::size_t i = 0; i < table.rotated() / 2; ++i) {
          const double a = row[2 * i], b = row[2 * i + 1], cos = table.cos(slot)[i], sin = table.sin(slot)[i];
          row[2 * i] = static_cast<float>(a * cos - b * sin);
          row[2 * i + 1] = static_cast<float>(a * sin + b * cos);
        }
        for (std::size_t d = 0; d < head_dim; ++d) layer.key_bias[(head * head_dim + d) * kBlockSize + slot] = row[d];
      }
    }
  }
  layer.qkv_bias.resize(q_dim);
}

// Packs the weights, or reads them from the cache if it has the model.
Result<DecoderWeights> read_decoder(const ModelFile& file, const DecoderTraits& traits, const LoadOptions& options,
                                    kernels::Layout ternary, WeightsCache& cache) {
  auto shape = read_decoder_shape(file, traits, options);
  if (!shape) return shape.error();
  const std::uint64_t table_bytes = shape->table_bytes();
  if (const Status fits = check_rope_memory(file, options, shape->info.context, table_bytes); !fits)
    return fits.error();
  DecoderWeights weights;
  weights.kernels = &kernels_of(options);
  weights.info = shape->info;
  weights.traits = traits;
  weights.attention_scale = shape->attention_scale;
  weights.attention_cap = shape->attention_cap;
  weights.logit_cap = shape->logit_cap;
  ModelInfo& info = weights.info;
  weights.embedding_scale = traits.scaled_embedding ? std::sqrt(static_cast<float>(info.dim)) : shape->embedding_scale;
  weights.logit_scale = shape->logit_scale;
  weights.query_scales = shape->query_scales();
  weights.temperature_step = shape->original_context;
  weights.bytes += weights.query_scales.size() * sizeof(float);
  weights.plans = shape->plans;
  weights.mamba = shape->mamba;
  weights.convolution = shape->convolution;
  weights.delta_net = shape->delta_net;
  weights.states = states_of(*shape);
  weights.cache = cache_spec_of(*shape, weights.states, options);
  weights.content_hash = file.content_hash();

  const auto vocab_size = vocabulary_size(file);
  if (!vocab_size) return vocab_size.error();
  info.vocab_size = *vocab_size;

  TensorReader in(file, traits.family, traits.scale_tensors, options, ternary, cache, weights);
  read_rope_factors(in, *shape, shape->ropes.front(), weights);
  in.read_embedding_and_head(info.vocab_size, info.dim, traits.output_norm);
  read_output_biases(in, traits, weights);
  LayerReader layers(in, *shape, traits);
  for (std::uint32_t i = 0; i < info.num_layers && !in.failed(); ++i) weights.layers.push_back(layers.read(i));
  in.refuse_unknown_tensors();
  if (in.failed()) return in.error();
  if (options.names_only) return weights;
  info.matrices = matrix_work(weights);
  in.finish();
  for (const RopeParams& rope : shape->ropes) weights.ropes.emplace_back(rope, info.context);
  if (shape->num_key_biases != 0) {
    for (const RopeParams& rope : shape->ropes)
      weights.turns.emplace_back(rope, blocks_for(info.context), -double{kBlockSize});
    for (DecoderLayer& layer : weights.layers) {
      if (layer.qkv_bias.size() <= layer.shape.attention.q_dim()) continue;
      keep_biases_apart(layer, shape->ropes[layer.shape.rope]);
      weights.bytes += layer.key_bias.size() * sizeof(float);
    }
  }
  for (const std::vector<RopeTable>* tables : {&weights.ropes, &weights.turns})
    for (const RopeTable& table : *tables) weights.bytes += table.bytes();
  return weights;
}

}  // namespace

Result<ModelOutline> outline_decoder(const ModelFile& file, const DecoderTraits& traits, const LoadOptions& options) {
  const auto shape = read_decoder_shape(file, traits, options);
  if (!shape) return shape.error();
  return ModelOutline{.info = shape->info,
                      .cache = cache_spec_of(*shape, states_of(*shape), options),
                      .table_bytes = shape->table_bytes()};
}

Result<DecoderWeights> load_decoder(const ModelFile& file, const DecoderTraits& traits, const LoadOptions& options) {
  return read_with_cache(file, options, [&](kernels::Layout ternary, WeightsCache& cache) {
    return read_decoder(file, traits, options, ternary, cache);
  });
}

Status check_decoder(const ModelFile& file, const DecoderTraits& traits, const LoadOptions& options) {
  return check_tensors(file, options, [&](const LoadOptions& names, WeightsCache& cache) {
    return read_decoder(file, traits, names, kernels::Layout::panels, cache);
  });
}

}  // namespace troupe::engine
