// The recurrence of Qwen3-Next and Qwen3.5: gated delta nets (Yang et al., "Gated Delta Networks: Improving Mamba2 with
// Delta Rule", 2024), behind a convolution over q, k and v.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent/recurrent_pass.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

struct DeltaNetShape {
  std::uint32_t conv_width = 0;
  std::uint32_t head_size = 0;      // of keys and of values
  std::uint32_t num_key_heads = 0;  // of q and k
  std::uint32_t num_heads = 0;      // of v
  bool has_tiled_keys = false;      // value heads take turns at key heads; else neighbours share one

  std::uint32_t key_dim() const { return num_key_heads * head_size; }
  std::uint32_t value_dim() const { return num_heads * head_size; }
  std::uint32_t num_convolved() const { return 2 * key_dim() + value_dim(); }
  std::uint32_t key_head(std::uint32_t head) const {
    return has_tiled_keys ? head % num_key_heads : head / (num_heads / num_key_heads);
  }
  // Exact: the last inputs of the convolution.
  StateLayout state_layout(std::uint32_t num_layers) const {
    return {.exact_per_layer = std::uint64_t{conv_width - 1} * num_convolved(),
            .large_per_layer = std::uint64_t{value_dim()} * head_size,
            .num_layers = num_layers};
  }
};
// Reads `PREFIX.ssm.*`.
[[nodiscard]] DeltaNetShape read_delta_net_shape(Metadata& meta, bool has_tiled_keys);

struct DeltaNetLayer {
  PackedMatrix qkv, gate;
  // One number for each value head; or both in one matrix: the betas of the heads that share a key head, their alphas,
  // and so on.
  PackedMatrix beta, alpha, both;
  std::vector<float> conv, conv_bias;  // [width][q, k, v]; zeros
  std::vector<float> a, dt_bias;       // [heads]
  std::vector<float> norm;             // [head_size]
  PackedMatrix out;

  void visit(WeightVisitor& visitor) const {
    visitor.all(qkv, gate, beta, alpha, both, conv, conv_bias, a, dt_bias, norm, out);
  }
};

class GatedDeltaNet {
 public:
  static DeltaNetLayer read(TensorReader& in, const std::string& prefix, const DeltaNetShape& shape, std::uint32_t dim);

  // The numbers of a row that run() reads: the products with the layer's matrices, in this order.
  struct Row {
    std::size_t gate, qkv, beta, alpha, width;  // where each begins; with `both`, that has the place of beta and alpha
  };
  static Row row_of(const DeltaNetShape& shape) {
    const std::size_t qkv = shape.value_dim(), beta = qkv + shape.num_convolved();
    return {.gate = 0,
            .qkv = qkv,
            .beta = beta,
            .alpha = beta + shape.num_heads,
            .width = beta + 2 * std::size_t{shape.num_heads}};
  }

  GatedDeltaNet(const DeltaNetShape& shape, const StateLayout& states, const kernels::KernelTable& kernels,
                float epsilon)
      : shape_(shape), states_(states), kernels_(kernels), epsilon_(epsilon) {}
  // `projected`: rows as row_of() says; overwritten. The input of `layer.out` is then the first value_dim() numbers of
  // each row. `index` and `state_index`: the layer's, and its state's.
  void run(Team& team, Workspace& workspace, const RecurrentRows& rows, const DeltaNetLayer& layer, std::uint32_t index,
           std::uint32_t state_index, float* projected) const;

 private:
  const DeltaNetShape& shape_;
  const StateLayout& states_;
  const kernels::KernelTable& kernels_;
  float epsilon_;
};

}  // namespace troupe::engine
