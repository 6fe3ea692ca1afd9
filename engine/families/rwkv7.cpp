// RWKV-7 (Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", 2025): layers of time mixing, with a
// matrix per head as state, updated by a generalised delta rule, and channel mixing.
#include "engine/layers/token_shift.h"
#include "engine/model/recurrent_weights.h"
#include "engine/weights/model_info.h"
#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

constexpr std::int64_t kMaxRank = 1 << 16;

// A low-rank product W2 f(W1 x) + offset.
struct LowRank {
  PackedMatrix down, up;
  std::vector<float> offset;
};

struct Layer {
  LayerNormWeights time_norm, channel_norm;
  std::vector<float> mix_r, mix_w, mix_k, mix_v, mix_a, mix_g;
  PackedMatrix r, k, v, o;
  LowRank w, a, v_mix, g;
  std::vector<float> k_k, k_a, r_k;
  LayerNormWeights head_norm;
  std::vector<float> channel_mix;
  PackedMatrix channel_key, channel_value;
};

struct Weights : ModelWeights {
  RwkvShape shape;
  StateLayout states;
  std::uint32_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
  LayerNormWeights embedding_norm, final_norm;
  std::vector<Layer> layers;
};

class Rwkv7Model final : public LanguageModel {
 public:
  explicit Rwkv7Model(Weights weights) : weights_(std::move(weights)) {}

  PassCounts forward(Team& team, std::span<const SequenceRows> batch, const CacheMemory&, Workspace& workspace,
                     float* hidden) const override {
    const kernels::RecurrentKernels& kernels = *weights_.kernels->recurrent;
    const std::size_t dim = weights_.shape.dim;
    const float epsilon = weights_.shape.epsilon;
    RecurrentPass pass(weights_, team, batch, workspace);
    pass.embed();
    pass.for_residuals([&](std::size_t, float* x) {
      const LayerNormWeights& norm = weights_.embedding_norm;
      kernels.layer_norm(x, norm.weight.data(), norm.bias.data(), x, dim, epsilon);
    });
    for (std::uint32_t i = 0; i < weights_.layers.size(); ++i) {
      mix_time(pass, i);
      if (!mix_channels(pass, i)) return {};
    }
    const OperationScope scope(team, Operation::output_norm);
    pass.for_residuals([&](std::size_t row, const float* x) {
      const LayerNormWeights& norm = weights_.final_norm;
      kernels.layer_norm(x, norm.weight.data(), norm.bias.data(), hidden + row * dim, dim, epsilon);
    });
    return {};
  }

 private:
  const ModelWeights& shared() const override { return weights_; }

  // x += W_o wkv7(...) of x' = norm(x), each input mixed with the row before
  void mix_time(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    const std::size_t dim = weights_.shape.dim;
    float* r = pass.take(Slot::mixer, dim).data();
    float* w = pass.take(Slot::decays, dim).data();
    float* k = pass.take(Slot::keys, dim).data();
    float* v = pass.take(index == 0 ? Slot::first_values : Slot::values, dim).data();
    float* a = pass.take(Slot::rates, dim).data();
    float* g = layer.g.up ? pass.take(Slot::mixer_gate, dim).data() : nullptr;
    float* v_mix = index != 0 ? pass.take(Slot::value_mix, dim).data() : nullptr;
    const float* v_first = pass.take(Slot::first_values, dim).data();
    {
      const OperationScope scope(pass.team(), Operation::mixer_in, index);
      ShiftedRows x(pass, *weights_.kernels, weights_.shape, layer.time_norm, weights_.states, index, Shift::time_mix);
      x.multiply(layer.mix_r, {{&layer.r, r, dim}});
      x.multiply(layer.mix_k, {{&layer.k, k, dim}});
      multiply_thin(pass, x, layer.mix_w, layer.w, kernels::Function::tanh, w);
      multiply_thin(pass, x, layer.mix_a, layer.a, std::nullopt, a);
      if (g) multiply_thin(pass, x, layer.mix_g, layer.g, kernels::Function::sigmoid, g);
      if (v_mix) {
        const std::size_t rank = layer.v_mix.down.rows();
        float* low = pass.take(Slot::low_rank, rank).data();
        x.multiply(layer.mix_v, {{&layer.v, v, dim}, {&layer.v_mix.down, low, rank}});
        pass.multiply(low, rank, {{&layer.v_mix.up, v_mix, dim}});
      } else {
        x.multiply(layer.mix_v, {{&layer.v, v, dim}});
      }
      x.keep_last();
    }
    scan(pass, layer, index, r, w, k, v, a, g, v_mix, v_first);
    const OperationScope scope(pass.team(), Operation::mixer_out, index);
    pass.add_projection(layer.o, r, dim);
  }

  // out = W_up function(W_down mixed)
  void multiply_thin(RecurrentPass& pass, const ShiftedRows& x, const std::vector<float>& mix, const LowRank& thin,
                     std::optional<kernels::Function> function, float* out) const {
    const std::size_t rank = thin.down.rows();
    float* low = pass.take(Slot::low_rank, rank).data();
    x.multiply(mix, {{&thin.down, low, rank}});
    const Product up{&thin.up, out, weights_.shape.dim};
    if (function)
      pass.multiply_mapped(*function, low, rank, {up});
    else
      pass.multiply(low, rank, {up});
  }

  // The result overwrites r.
  void scan(RecurrentPass& pass, const Layer& layer, std::uint32_t index, float* r, const float* w, const float* k,
            const float* v, const float* a, const float* g, const float* v_mix, const float* v_first) const {
    const OperationScope scope(pass.team(), Operation::scan, index);
    const std::size_t dim = weights_.shape.dim, size = weights_.shape.head_size;
    const RecurrentRows rows = pass.rows();
    const auto large = [&](std::size_t sequence) { return weights_.states.large(rows.batch[sequence].state, index); };
    for_units(pass.team(), rows,
              {.count = weights_.shape.num_heads(), .min_per_chunk = 4, .floats_per_unit = size * size}, large,
              [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t head, std::size_t) {
                const std::size_t at = row * dim + head * size, own = head * size;
                weights_.kernels->recurrent->wkv7({.r = r + at,
                                                   .w = w + at,
                                                   .k = k + at,
                                                   .v = v + at,
                                                   .a = a + at,
                                                   .stride = dim,
                                                   .gate = g ? g + at : nullptr,
                                                   .v_mix = v_mix ? v_mix + at : nullptr,
                                                   .v_first = v_first + at,
                                                   .w0 = layer.w.offset.data() + own,
                                                   .a0 = layer.a.offset.data() + own,
                                                   .v0 = v_mix ? layer.v_mix.offset.data() + own : nullptr,
                                                   .k_k = layer.k_k.data() + own,
                                                   .k_a = layer.k_a.data() + own,
                                                   .r_k = layer.r_k.data() + own,
                                                   .norm_weight = layer.head_norm.weight.data() + own,
                                                   .norm_bias = layer.head_norm.bias.data() + own,
                                                   .out = r + at,
                                                   .state = large(sequence) + head * size * size,
                                                   .head_size = size,
                                                   .num_tokens = tokens});
              });
  }

  // x += W_v max(W_k mixed norm(x), 0)^2; false if no row is left after the last layer's states.
  bool mix_channels(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    const OperationScope scope(pass.team(), Operation::channel_mix, index);
    const std::size_t dim = weights_.shape.dim, wide = layer.channel_key.rows();
    float* mixed = pass.take(Slot::mixed, dim).data();
    {
      ShiftedRows x(pass, *weights_.kernels, weights_.shape, layer.channel_norm, weights_.states, index,
                    Shift::channel_mix);
      x.mix(layer.channel_mix, mixed);
      x.keep_last();
    }
    if (index + 1 == weights_.layers.size() && !pass.drop_rows_without_output({{mixed, dim, dim}})) return false;
    float* k = pass.take(Slot::gate, wide).data();
    pass.multiply(mixed, dim, {{&layer.channel_key, k, wide}});
    pass.multiply_mapped(kernels::Function::relu_squared, k, wide, {pass.to_delta(layer.channel_value)});
    return true;
  }

  Weights weights_;
};

LowRank read_thin(TensorReader& in, const std::string& name, std::uint32_t rank, std::uint32_t dim, bool offset) {
  LowRank thin;
  thin.down = in.matrix(name + "1.weight", rank, dim);
  thin.up = in.matrix(name + "2.weight", dim, rank);
  if (offset) thin.offset = in.vector(name + "0.weight", dim);
  return thin;
}

Layer read_layer(TensorReader& in, const std::string& prefix, std::uint32_t index, const Weights& w) {
  const std::uint32_t dim = w.shape.dim;
  Layer layer;
  layer.time_norm = read_layer_norm(in, prefix + "attn_norm", dim);
  layer.channel_norm = read_layer_norm(in, prefix + "attn_norm_2", dim);
  const bool has_gate = in.has(prefix + "time_mix_g1.weight");
  const std::uint64_t num_mixes = has_gate ? 6 : 5;
  const std::vector<float> mixes =
      in.vector(prefix + "time_mix_lerp_fused.weight", num_mixes * dim, {dim, 1, 1, num_mixes});
  std::vector<float>* const parts[] = {&layer.mix_r, &layer.mix_w, &layer.mix_k,
                                       &layer.mix_v, &layer.mix_a, &layer.mix_g};
  for (std::size_t i = 0; i < num_mixes && !mixes.empty(); ++i)
    parts[i]->assign(mixes.data() + i * dim, mixes.data() + (i + 1) * dim);
  layer.w = read_thin(in, prefix + "time_mix_w", w.decay_rank, dim, true);
  layer.a = read_thin(in, prefix + "time_mix_a", w.rate_rank, dim, true);
  if (index == 0) {  // the first layer's values are not mixed
    for (const char* name : {"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"}) in.skip(prefix + name);
  } else {
    layer.v_mix = read_thin(in, prefix + "time_mix_v", w.value_rank, dim, true);
  }
  if (has_gate) layer.g = read_thin(in, prefix + "time_mix_g", w.gate_rank, dim, false);
  layer.k_k = in.vector(prefix + "time_mix_k_k.weight", dim);
  layer.k_a = in.vector(prefix + "time_mix_k_a.weight", dim);
  layer.r_k = in.vector(prefix + "time_mix_r_k.weight", dim);
  layer.r = in.matrix(prefix + "time_mix_receptance.weight", dim, dim);
  layer.k = in.matrix(prefix + "time_mix_key.weight", dim, dim);
  layer.v = in.matrix(prefix + "time_mix_value.weight", dim, dim);
  layer.o = in.matrix(prefix + "time_mix_output.weight", dim, dim);
  layer.head_norm = read_layer_norm(in, prefix + "time_mix_ln", dim);
  layer.channel_mix = in.vector(prefix + "channel_mix_lerp_k.weight", dim, {dim, 1, 1});
  layer.channel_key = in.matrix(prefix + "channel_mix_key.weight", w.info.ffn_dim, dim);
  layer.channel_value = in.matrix(prefix + "channel_mix_value.weight", dim, w.info.ffn_dim);
  return layer;
}

void read_shape(Metadata& meta, const ModelOptions& options, Weights& w) {
  w.info.ffn_dim = meta.count("feed_forward_length", 1 << 20);
  w.shape = read_rwkv_shape(meta, w.info);
  w.decay_rank = meta.count("attention.decay_lora_rank", kMaxRank);
  w.rate_rank = meta.count("attention.iclr_lora_rank", kMaxRank);
  w.value_rank = meta.count("attention.value_residual_mix_lora_rank", kMaxRank);
  w.gate_rank = meta.has("attention.gate_lora_rank") ? meta.count("attention.gate_lora_rank", kMaxRank) : 0;
  w.states = rwkv_state_layout(w.shape, w.info.num_layers);
  w.cache = state_cache_spec(w.states, options);
}

Result<ModelOutline> outline(const ModelFile& file, const ModelOptions& options) {
  return outline_recurrent<Weights>(file, "rwkv7", options, read_shape);
}

Result<std::unique_ptr<Model>> load(const ModelFile& file, const ModelOptions& options) {
  auto weights = load_recurrent<Weights>(
      file, "rwkv7", options, read_shape,
      [](TensorReader& in, const std::string& prefix, std::uint32_t index, Weights& w) {
        return read_layer(in, prefix, index, w);
      },
      [](TensorReader& in, Weights& w) {
        w.embedding_norm = read_layer_norm(in, "token_embd_norm", w.info.dim);
        w.final_norm = {w.output_norm, in.vector("output_norm.bias", w.info.dim)};
      },
      [](const Layer& l, const auto& add) {
        for (const PackedMatrix* matrix : {&l.r, &l.k, &l.v, &l.o, &l.w.down, &l.w.up, &l.a.down, &l.a.up,
                                           &l.v_mix.down, &l.v_mix.up, &l.g.down, &l.g.up})
          add(*matrix);
        for (const PackedMatrix* matrix : {&l.channel_key, &l.channel_value}) add(*matrix, true);
      });
  if (!weights) return weights.error();
  return std::unique_ptr<Model>(std::make_unique<Rwkv7Model>(std::move(*weights)));
}

}  // namespace

Family rwkv7_family() {
  return {.name = "rwkv7",
          .accepts = [](const ModelFile& file) { return architecture_is(file, "rwkv7"); },
          .outline = outline,
          .load = load};
}

}  // namespace troupe::engine
