// RWKV-6 (Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence", 2024): layers of time
// mixing, with decay and token shift that depend on the data, and channel mixing.
#include "engine/families/rwkv.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

constexpr std::size_t kMixes = 5;  // of decay, key, value, receptance and gate, in this order

struct Layer6 : RwkvLayer {
  std::vector<float> mix_all;             // for the input of mix_down
  std::vector<float> mix[kMixes];         // the constant part of each mix
  PackedMatrix mix_down, mix_up[kMixes];  // low-rank
  std::vector<float> decay, first;
  PackedMatrix decay_down, decay_up;
  PackedMatrix g;
  std::vector<float> channel_mix_r;
  PackedMatrix channel_receptance;

  void visit(WeightVisitor& visitor) const {
    RwkvLayer::visit(visitor);
    for (std::size_t i = 0; i < kMixes; ++i) visitor.all(mix[i], mix_up[i]);
    visitor.all(mix_all, mix_down, decay, first, decay_down, decay_up, g, channel_mix_r, channel_receptance);
  }
};

struct Weights6 : RwkvWeights<Layer6> {
  std::uint32_t mix_rank = 0, decay_rank = 0;
  std::uint32_t rescale_every = 0;  // layers after which the residual is halved; 0: never
};

class Rwkv6 : public RwkvFamily<Weights6> {
 public:
  static constexpr const char* kName = "rwkv6";
  static void read_shape(Metadata& meta, Weights6& w) {
    read_rwkv_shape(meta, w);
    w.mix_rank = meta.count("time_mix_extra_dim", kMaxRank);
    w.decay_rank = meta.count("time_decay_extra_dim", kMaxRank);
    // 0 means never.
    const bool never = !meta.has("rescale_every_n_layers") || meta.integer("rescale_every_n_layers") == 0;
    w.rescale_every = never ? 0 : meta.count("rescale_every_n_layers", 1 << 16);
  }

  static Layer6 read_layer(TensorReader& in, const std::string& prefix, std::uint32_t, const Weights6& w) {
    const std::uint32_t dim = w.shape.dim;
    const std::uint64_t rank = w.mix_rank;
    Layer6 layer;
    read_norms(in, prefix, dim, layer);
    layer.mix_all = in.vector(prefix + "time_mix_lerp_x.weight", dim, {dim, 1, 1});
    if (in.has(prefix + "time_mix_lerp_fused.weight")) {
      const auto mixes = in.vector(prefix + "time_mix_lerp_fused.weight", kMixes * dim, {dim, 1, 1, kMixes});
      for (std::size_t i = 0; i < kMixes && !mixes.empty(); ++i)
        layer.mix[i].assign(mixes.data() + i * dim, mixes.data() + (i + 1) * dim);
    } else {  // files of older converters
      constexpr char kNames[] = {'w', 'k', 'v', 'r', 'g'};
      for (std::size_t i = 0; i < kMixes; ++i)
        layer.mix[i] = in.vector(prefix + "time_mix_lerp_" + kNames[i] + ".weight", dim, {dim, 1, 1});
    }
    layer.mix_down = in.matrix(prefix + "time_mix_w1.weight", kMixes * rank, dim);
    for (std::size_t i = 0; i < kMixes; ++i)
      layer.mix_up[i] =
          in.matrix(prefix + "time_mix_w2.weight", dim, rank,
                    {.part = TensorPart{.first = i * dim, .of = kMixes * std::uint64_t{dim}, .num_experts = kMixes}});
    layer.decay = in.vector(prefix + "time_mix_decay.weight", dim);
    layer.decay_down = in.matrix(prefix + "time_mix_decay_w1.weight", w.decay_rank, dim);
    layer.decay_up = in.matrix(prefix + "time_mix_decay_w2.weight", dim, w.decay_rank);
    layer.first = in.vector(prefix + "time_mix_first.weight", dim, {w.shape.head_size, w.shape.num_heads()});
    layer.r = read_square(in, prefix, "receptance", dim);
    layer.k = read_square(in, prefix, "key", dim);
    layer.v = read_square(in, prefix, "value", dim);
    layer.g = read_square(in, prefix, "gate", dim);
    layer.o = read_square(in, prefix, "output", dim);
    layer.head_norm = read_layer_norm(in, prefix + "time_mix_ln", dim);
    layer.channel_mix_k = in.vector(prefix + "channel_mix_lerp_k.weight", dim, {dim, 1, 1});
    layer.channel_mix_r = in.vector(prefix + "channel_mix_lerp_r.weight", dim, {dim, 1, 1});
    layer.channel_key = in.matrix(prefix + "channel_mix_key.weight", w.info.ffn_dim, dim);
    layer.channel_value = in.matrix(prefix + "channel_mix_value.weight", dim, w.info.ffn_dim);
    layer.channel_receptance = in.matrix(prefix + "channel_mix_receptance.weight", dim, dim);
    return layer;
  }
  template <class Add>
  static void add_matrices(const Layer6& l, const Add& add) {
    for (const PackedMatrix* matrix : {&l.mix_down, &l.decay_down, &l.decay_up, &l.r, &l.k, &l.v, &l.g, &l.o})
      add(*matrix);
    for (const PackedMatrix* matrix : {&l.channel_key, &l.channel_value, &l.channel_receptance}) add(*matrix, true);
    for (const PackedMatrix& matrix : l.mix_up) add(matrix);
  }

  explicit Rwkv6(const Weights6& weights) : RwkvFamily(weights) {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    mix_time(pass, index);
    if (!mix_channels(pass, index)) return false;
    if (weights_.rescale_every != 0 && (index + 1) % weights_.rescale_every == 0)
      pass.for_residuals([&](std::size_t, float* x) {
        for (std::size_t j = 0; j < weights_.shape.dim; ++j) x[j] *= 0.5f;
      });
    return true;
  }

 private:
  // x += W_o wkv6(...) of x' = norm(x), each input mixed with the row before by a factor that depends on the data
  void mix_time(RecurrentPass& pass, std::uint32_t index) const {
    const Layer6& layer = weights_.layers[index];
    const std::size_t dim = weights_.shape.dim, rank = weights_.mix_rank;
    float* w = pass.take(Slot::decays, dim).data();
    float* k = pass.take(Slot::keys, dim).data();
    float* v = pass.take(Slot::values, dim).data();
    float* r = pass.take(Slot::mixer, dim).data();
    float* g = pass.take(Slot::mixer_gate, dim).data();
    {
      const OperationScope scope(pass.team(), Operation::mixer_in, index);
      ShiftedRows x = shifted_rows(pass, layer.time_norm, index, Shift::time_mix);
      float* mixed = pass.take(Slot::mixed, dim).data();
      float* low = pass.take(Slot::time_steps, kMixes * rank).data();
      x.multiply(layer.mix_all, {{&layer.mix_down, low, kMixes * rank}});
      pass.map(kernels::Function::tanh, low, kMixes * rank);
      // products with x + (before - x) (mix + mix_up low)
      const auto multiply = [&](std::size_t which, const Product& product) {
        pass.multiply(low + which * rank, kMixes * rank, {{&layer.mix_up[which], mixed, dim}});
        pass.multiply_made(
            [&](std::size_t row, float* out) {
              float* at = mixed + row * dim;
              weights_.kernels->add(at, layer.mix[which].data(), dim);
              kernels_.mix(x.row(row), x.before(row), at, out, dim);
            },
            {product});
      };
      float* thin = pass.take(Slot::low_rank, weights_.decay_rank).data();
      multiply(0, {&layer.decay_down, thin, weights_.decay_rank});
      pass.multiply_mapped(kernels::Function::tanh, thin, weights_.decay_rank, {{&layer.decay_up, w, dim}});
      multiply(1, {&layer.k, k, dim});
      multiply(2, {&layer.v, v, dim});
      multiply(3, {&layer.r, r, dim});
      multiply(4, {&layer.g, g, dim});
      x.keep_last();
    }
    // The result overwrites r.
    scan_heads(pass, index, [&](std::size_t at, std::size_t own, float* state, std::size_t tokens) {
      kernels_.wkv6({.r = r + at,
                     .k = k + at,
                     .v = v + at,
                     .w = w + at,
                     .gate = g + at,
                     .stride = dim,
                     .decay = layer.decay.data() + own,
                     .first = layer.first.data() + own,
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

  // x += sigmoid(W_r mixed) * (W_v max(W_k mixed, 0)^2); false if no row is left after the last layer's states.
  bool mix_channels(RecurrentPass& pass, std::uint32_t index) const {
    const Layer6& layer = weights_.layers[index];
    const OperationScope scope(pass.team(), Operation::channel_mix, index);
    const std::size_t dim = weights_.shape.dim;
    float* mixed_k = pass.take(Slot::mixed, dim).data();
    float* mixed_r = pass.take(Slot::values, dim).data();
    {
      ShiftedRows x = shifted_rows(pass, layer.channel_norm, index, Shift::channel_mix);
      x.mix(layer.channel_mix_k, mixed_k);
      x.mix(layer.channel_mix_r, mixed_r);
      x.keep_last();
    }
    if (is_last(index) && !pass.drop_rows_without_output({{mixed_k, dim, dim}, {mixed_r, dim, dim}})) return false;
    float* r = pass.take(Slot::mixer, dim).data();
    pass.multiply(mixed_r, dim, {{&layer.channel_receptance, r, dim}});
    pass.map(kernels::Function::sigmoid, r, dim);
    multiply_channels(pass, layer, mixed_k);
    pass.for_each_row([&](std::size_t row) {
      for (std::size_t i = 0; i < dim; ++i) pass.delta(row)[i] *= r[row * dim + i];
    });
    return true;
  }
};

}  // namespace

Family rwkv6_family() { return recurrent_family<Rwkv6>(); }

}  // namespace troupe::engine
