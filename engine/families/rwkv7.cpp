// RWKV-7 (Peng et al., "RWKV-7 Goose with Expressive Dynamic State Evolution", 2025): layers of time mixing, with a
// matrix per head as state, updated by a generalised delta rule, and channel mixing.
#include "engine/families/rwkv.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// A low-rank product W2 f(W1 x) + offset.
struct LowRank {
  PackedMatrix down, up;
  std::vector<float> offset;

  void visit(WeightVisitor& visitor) const { visitor.all(down, up, offset); }
};

struct Layer7 : RwkvLayer {
  std::vector<float> mix_r, mix_w, mix_k, mix_v, mix_a, mix_g;
  LowRank w, a, v_mix, g;
  std::vector<float> k_k, k_a, r_k;

  void visit(WeightVisitor& visitor) const {
    RwkvLayer::visit(visitor);
    visitor.all(mix_r, mix_w, mix_k, mix_v, mix_a, mix_g, w, a, v_mix, g, k_k, k_a, r_k);
  }
};

struct Weights7 : RwkvWeights<Layer7> {
  std::uint32_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;
};

LowRank read_thin(TensorReader& in, const std::string& name, std::uint32_t rank, std::uint32_t dim, bool offset) {
  LowRank thin;
  thin.down = in.matrix(name + "1.weight", rank, dim);
  thin.up = in.matrix(name + "2.weight", dim, rank);
  if (offset) thin.offset = in.vector(name + "0.weight", dim);
  return thin;
}

class Rwkv7 : public RwkvFamily<Weights7> {
 public:
  static constexpr const char* kName = "rwkv7";
  static void read_shape(Metadata& meta, Weights7& w) {
    read_rwkv_shape(meta, w);
    w.decay_rank = meta.count("attention.decay_lora_rank", kMaxRank);
    w.rate_rank = meta.count("attention.iclr_lora_rank", kMaxRank);
    w.value_rank = meta.count("attention.value_residual_mix_lora_rank", kMaxRank);
    w.gate_rank = meta.has("attention.gate_lora_rank") ? meta.count("attention.gate_lora_rank", kMaxRank) : 0;
  }

  static Layer7 read_layer(TensorReader& in, const std::string& prefix, std::uint32_t index, const Weights7& w) {
    const std::uint32_t dim = w.shape.dim;
    Layer7 layer;
    read_norms(in, prefix, dim, layer);
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
      for (const char* name : {"time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight"})
        in.skip(prefix + name);
    } else {
      layer.v_mix = read_thin(in, prefix + "time_mix_v", w.value_rank, dim, true);
    }
    if (has_gate) layer.g = read_thin(in, prefix + "time_mix_g", w.gate_rank, dim, false);
    layer.k_k = in.vector(prefix + "time_mix_k_k.weight", dim);
    layer.k_a = in.vector(prefix + "time_mix_k_a.weight", dim);
    layer.r_k = in.vector(prefix + "time_mix_r_k.weight", dim);
    layer.r = read_square(in, prefix, "receptance", dim);
    layer.k = read_square(in, prefix, "key", dim);
    layer.v = read_square(in, prefix, "value", dim);
    layer.o = read_square(in, prefix, "output", dim);
    layer.head_norm = read_layer_norm(in, prefix + "time_mix_ln", dim);
    layer.channel_mix_k = in.vector(prefix + "channel_mix_lerp_k.weight", dim, {dim, 1, 1});
    layer.channel_key = in.matrix(prefix + "channel_mix_key.weight", w.info.ffn_dim, dim);
    layer.channel_value = in.matrix(prefix + "channel_mix_value.weight", dim, w.info.ffn_dim);
    return layer;
  }
  template <class Add>
  static void add_matrices(const Layer7& l, const Add& add) {
    for (const PackedMatrix* matrix : {&l.r, &l.k, &l.v, &l.o, &l.w.down, &l.w.up, &l.a.down, &l.a.up, &l.v_mix.down,
                                       &l.v_mix.up, &l.g.down, &l.g.up})
      add(*matrix);
    for (const PackedMatrix* matrix : {&l.channel_key, &l.channel_value}) add(*matrix, true);
  }

  explicit Rwkv7(const Weights7& weights) : RwkvFamily(weights) {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    mix_time(pass, index);
    return mix_channels(pass, index);
  }

 private:
  // x += W_o wkv7(...) of x' = norm(x), each input mixed with the row before
  void mix_time(RecurrentPass& pass, std::uint32_t index) const {
    const Layer7& layer = weights_.layers[index];
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
      ShiftedRows x = shifted_rows(pass, layer.time_norm, index, Shift::time_mix);
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
    // The result overwrites r.
    scan_heads(pass, index, [&](std::size_t at, std::size_t own, float* state, std::size_t tokens) {
      kernels_.wkv7({.r = r + at,
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
                     .state = state,
                     .head_size = weights_.shape.head_size,
                     .num_tokens = tokens});
    });
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

  // x += W_v max(W_k mixed norm(x), 0)^2; false if no row is left after the last layer's states.
  bool mix_channels(RecurrentPass& pass, std::uint32_t index) const {
    const Layer7& layer = weights_.layers[index];
    const OperationScope scope(pass.team(), Operation::channel_mix, index);
    const std::size_t dim = weights_.shape.dim;
    float* mixed = pass.take(Slot::mixed, dim).data();
    {
      ShiftedRows x = shifted_rows(pass, layer.channel_norm, index, Shift::channel_mix);
      x.mix(layer.channel_mix_k, mixed);
      x.keep_last();
    }
    if (is_last(index) && !pass.drop_rows_without_output({{mixed, dim, dim}})) return false;
    multiply_channels(pass, layer, mixed);
    return true;
  }
};

}  // namespace

Family rwkv7_family() { return recurrent_family<Rwkv7>(); }

}  // namespace troupe::engine
