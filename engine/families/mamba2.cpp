// Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024): as Mamba, with one decay for each head, and a norm before the
// output projection.
//
//   x += W_out mixer(W_in norm(x))
#include "engine/layers/mamba_mixer.h"
#include "engine/model/recurrent_model.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

class Mamba2 {
 public:
  static constexpr const char* kName = "mamba2";
  struct Layer {
    std::vector<float> norm;
    Mamba2Layer mixer;
  };
  struct Weights : RecurrentWeights<Layer> {
    MambaShape shape;
  };

  static void read_shape(Metadata& meta, Weights& w) {
    w.info.rms_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
    w.shape = read_mamba_shape(meta, true);
    w.states = Mamba2Mixer::state_layout(w.shape, w.info.num_layers);
  }
  static Layer read_layer(TensorReader& in, const std::string& prefix, std::uint32_t, const Weights& w) {
    return {.norm = in.vector(prefix + "attn_norm.weight", w.info.dim),
            .mixer = Mamba2Mixer::read(in, prefix, w.shape, w.info.dim)};
  }
  static void read_rest(TensorReader&, Weights&) {}
  template <class Add>
  static void add_matrices(const Layer& layer, const Add& add) {
    add(layer.mixer.in);
    add(layer.mixer.out, true);
  }

  explicit Mamba2(const Weights& weights)
      : weights_(weights), mixer_(weights.shape, *weights.kernels, weights.info.rms_epsilon) {}
  void begin(RecurrentPass&) const {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    const std::size_t dim = weights_.info.dim;
    const std::size_t stride = layer.mixer.in.rows();
    float* projected = pass.take(Slot::mixer, stride).data();
    {
      const OperationScope scope(pass.team(), Operation::mixer_in, index);
      float* normed = pass.take(Slot::normed, dim).data();
      pass.for_residuals([&](std::size_t row, const float* x) { norm(x, layer.norm, normed + row * dim); });
      pass.multiply(normed, dim, {{&layer.mixer.in, projected, stride}});
    }
    float* y = mixer_.run(pass.team(), pass.workspace(), pass.rows(), layer.mixer, index, weights_.states, projected);
    if (index + 1 == weights_.layers.size() && !pass.drop_rows_without_output({{y, stride, weights_.shape.inner}}))
      return false;
    const OperationScope scope(pass.team(), Operation::mixer_out, index);
    pass.add_projection(layer.mixer.out, y, stride);
    return true;
  }
  void norm_output(const float* x, float* out) const { norm(x, weights_.output_norm, out); }

 private:
  void norm(const float* x, const std::vector<float>& weight, float* out) const {
    weights_.kernels->rms_norm(x, weight.data(), out, weights_.info.dim, weights_.info.rms_epsilon);
  }

  const Weights& weights_;
  const Mamba2Mixer mixer_;
};

}  // namespace

Family mamba2_family() { return recurrent_family<Mamba2>(); }

}  // namespace troupe::engine
