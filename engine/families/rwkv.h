// The parts that RWKV-6 and RWKV-7 share: norms at both ends, scans over heads, and channel mixing.
#pragma once

#include "engine/layers/recurrent/token_shift.h"
#include "engine/model/recurrent_model.h"
#include "kernels/recurrent/recurrent.h"

namespace troupe::engine {

inline constexpr std::int64_t kMaxRank = 1 << 16;  // of low-rank matrices

struct RwkvLayer {
  LayerNormWeights time_norm, channel_norm;
  PackedMatrix r, k, v, o;
  LayerNormWeights head_norm;
  std::vector<float> channel_mix_k;
  PackedMatrix channel_key, channel_value;

  void visit(WeightVisitor& visitor) const {
    visitor.all(time_norm, channel_norm, r, k, v, o, head_norm, channel_mix_k, channel_key, channel_value);
  }
};

template <class Layer>
struct RwkvWeights : RecurrentWeights<Layer> {
  RwkvShape shape;
  LayerNormWeights embedding_norm, final_norm;

  void visit(WeightVisitor& visitor) const {
    RecurrentWeights<Layer>::visit(visitor);
    visitor.all(embedding_norm, final_norm);
  }
};

// The base of a family with weights W (recurrent_model.h).
template <class W>
class RwkvFamily {
 public:
  using Weights = W;

  static void read_rest(TensorReader& in, Weights& w) {
    w.embedding_norm = read_layer_norm(in, "token_embd_norm", w.info.dim);
    w.final_norm = {w.output_norm, in.vector("output_norm.bias", w.info.dim)};
  }
  void begin(RecurrentPass& pass) const {
    pass.for_residuals([&](std::size_t, float* x) { norm(x, weights_.embedding_norm, x); });
  }
  void norm_output(const float* x, float* out) const { norm(x, weights_.final_norm, out); }

 protected:
  static void read_rwkv_shape(Metadata& meta, Weights& w) {
    w.info.ffn_dim = meta.count("feed_forward_length", 1 << 20);
    w.shape = engine::read_rwkv_shape(meta, w.info);
    w.states = w.shape.state_layout(w.info.num_layers);
  }
  static void read_norms(TensorReader& in, const std::string& prefix, std::uint32_t dim, RwkvLayer& layer) {
    layer.time_norm = read_layer_norm(in, prefix + "attn_norm", dim);
    layer.channel_norm = read_layer_norm(in, prefix + "attn_norm_2", dim);
  }
  // Reads a matrix of time mixing, [dim, dim].
  static PackedMatrix read_square(TensorReader& in, const std::string& prefix, const char* name, std::uint32_t dim) {
    return in.matrix(prefix + "time_mix_" + name + ".weight", dim, dim);
  }

  explicit RwkvFamily(const Weights& weights) : weights_(weights), kernels_(*weights.kernels->recurrent) {}

  // Whether rows without output can be dropped: after the last layer's states.
  bool is_last(std::uint32_t layer) const { return layer + 1 == weights_.layers.size(); }
  // Calls fn(at, own, state, num_tokens) for every head of every sequence, tokens in order: `at` is the offset of the
  // first token's head in rows of dim numbers, `own` that of the head in a row, `state` the head's matrix.
  template <class Fn>
  void scan_heads(RecurrentPass& pass, std::uint32_t layer, const Fn& fn) const {
    const OperationScope scope(pass.team(), Operation::scan, layer);
    const std::size_t dim = weights_.shape.dim, size = weights_.shape.head_size;
    const RecurrentRows rows = pass.rows();
    const auto large = [&](float* of) { return weights_.states.large(of, layer); };
    for_units(
        pass.team(), rows, {.count = weights_.shape.num_heads(), .min_per_chunk = 4, .floats_per_unit = size * size},
        large, [&](std::size_t sequence, std::size_t row, std::size_t tokens, std::size_t head, std::size_t) {
          fn(row * dim + head * size, head * size, large(rows.batch[sequence].state) + head * size * size, tokens);
        });
  }
  ShiftedRows shifted_rows(RecurrentPass& pass, const LayerNormWeights& norm, std::uint32_t layer, Shift half) const {
    return {pass, {*weights_.kernels, weights_.shape, weights_.states, layer, half}, norm};
  }
  // W_v max(W_k mixed, 0)^2 becomes the pending addition to the residual; `mixed` is [rows, dim].
  static void multiply_channels(RecurrentPass& pass, const RwkvLayer& layer, const float* mixed) {
    const std::size_t wide = layer.channel_key.rows();
    float* k = pass.take(Workspace::Slot::gate, wide).data();
    pass.multiply(mixed, layer.channel_key.k(), {{&layer.channel_key, k, wide}});
    pass.multiply_mapped(kernels::Function::relu_squared, k, wide, {pass.to_delta(layer.channel_value)});
  }

  const Weights& weights_;
  const kernels::RecurrentKernels& kernels_;

 private:
  void norm(const float* x, const LayerNormWeights& norm, float* out) const {
    kernels_.layer_norm(x, norm.weight.data(), norm.bias.data(), out, weights_.shape.dim, weights_.shape.epsilon);
  }
};

}  // namespace troupe::engine
