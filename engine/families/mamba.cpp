// Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023): no attention, no
// feed-forward part; layers of RMSNorm, a gated convolution and a selective scan.
//
//   x += W_out mixer(norm(x))
#include "engine/layers/mamba_mixer.h"
#include "engine/model/recurrent_model.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

class Mamba {
 public:
  static constexpr const char* kName = "mamba";
  struct Layer {
    std::vector<float> norm;
    MambaLayer mixer;
  };
  struct Weights : RecurrentWeights<Layer> {
    MambaShape shape;
  };

  static void read_shape(Metadata& meta, Weights& w) {
    w.info.rms_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
    w.shape = read_mamba_shape(meta, false);
    w.states = MambaMixer::state_layout(w.shape, w.info.num_layers);
  }
  static Layer read_layer(TensorReader& in, const std::string& prefix, std::uint32_t, const Weights& w) {
    return {.norm = in.vector(prefix + "attn_norm.weight", w.info.dim),
            .mixer = MambaMixer::read(in, prefix, w.shape, w.info.dim)};
  }
  static void read_rest(TensorReader&, Weights&) {}
  template <class Add>
  static void add_matrices(const Layer& layer, const Add& add) {
    for (const PackedMatrix* matrix : {&layer.mixer.in, &layer.mixer.x, &layer.mixer.dt}) add(*matrix);
    add(layer.mixer.out, true);
  }

  explicit Mamba(const Weights& weights) : weights_(weights), mixer_(weights.shape, *weights.kernels) {}
  void begin(RecurrentPass&) const {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    const std::size_t dim = weights_.info.dim;
    const std::size_t stride = weights_.shape.inner;
    float* normed = pass.take(Slot::normed, dim).data();
    pass.for_residuals([&](std::size_t row, const float* x) { norm(x, layer.norm, normed + row * dim); });
    float* y = mixer_.run(pass, layer.mixer, index, weights_.states, normed, dim);
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
  const MambaMixer mixer_;
};

}  // namespace

Family mamba_family() { return recurrent_family<Mamba>(); }

}  // namespace troupe::engine
