// The Mamba families: no attention, no feed-forward part; each layer is an RMSNorm and a mixer.
//
//   x += W_out mixer(norm(x))
#include "engine/layers/recurrent/mamba_mixer.h"
#include "engine/model/recurrent_model.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

// The parts that do not depend on the mixer.
template <class Mixer>
class MambaFamily {
 public:
  struct Layer {
    std::vector<float> norm;
    typename Mixer::Layer mixer;

    void visit(WeightVisitor& visitor) const { visitor.all(norm, mixer); }
  };
  struct Weights : RecurrentWeights<Layer> {
    MambaShape shape;
  };

  static void read_shape(Metadata& meta, Weights& w) {
    w.info.rms_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
    w.shape = read_mamba_shape(meta, Mixer::kHasHeads);
    w.states = w.shape.state_layout(w.info.num_layers);
  }
  static Layer read_layer(TensorReader& in, const std::string& prefix, std::uint32_t, const Weights& w) {
    return {.norm = in.vector(prefix + "attn_norm.weight", w.info.dim),
            .mixer = Mixer::read(in, prefix, w.shape, w.info.dim)};
  }
  static void read_rest(TensorReader&, Weights&) {}

  void begin(RecurrentPass&) const {}
  void norm_output(const float* x, float* out) const { norm(x, weights_.output_norm, out); }

 protected:
  MambaFamily(const Weights& weights, Mixer mixer) : weights_(weights), mixer_(std::move(mixer)) {}

  // The normed residual rows, [rows, dim].
  const float* normed(RecurrentPass& pass, const Layer& layer) const {
    const std::size_t dim = weights_.info.dim;
    float* out = pass.take(Slot::normed, dim).data();
    pass.for_residuals([&](std::size_t row, const float* x) { norm(x, layer.norm, out + row * dim); });
    return out;
  }
  // x += W_out y; false if no row is left after the last layer's states.
  bool add_output(RecurrentPass& pass, std::uint32_t index, float* y, std::size_t stride) const {
    if (index + 1 == weights_.layers.size() && !pass.drop_rows_without_output({{y, stride, weights_.shape.inner}}))
      return false;
    const OperationScope scope(pass.team(), Operation::mixer_out, index);
    pass.add_projection(weights_.layers[index].mixer.out, y, stride);
    return true;
  }

  const Weights& weights_;
  const Mixer mixer_;

 private:
  void norm(const float* x, const std::vector<float>& weight, float* out) const {
    weights_.kernels->rms_norm(x, weight.data(), out, weights_.info.dim, weights_.info.rms_epsilon);
  }
};

// Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023): the mixer is a gated
// convolution and a selective scan.
class Mamba : public MambaFamily<MambaMixer> {
 public:
  static constexpr const char* kName = "mamba";
  template <class Add>
  static void add_matrices(const Layer& layer, const Add& add) {
    for (const PackedMatrix* matrix : {&layer.mixer.in, &layer.mixer.x, &layer.mixer.dt}) add(*matrix);
    add(layer.mixer.out, true);
  }

  explicit Mamba(const Weights& weights)
      : MambaFamily(weights, MambaMixer(weights.shape, weights.states, *weights.kernels)) {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    float* y = mixer_.run(pass, layer.mixer, index, normed(pass, layer));
    return add_output(pass, index, y, weights_.shape.inner);
  }
};

// Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024): as Mamba, with one decay for each head, and a norm before the
// output projection.
class Mamba2 : public MambaFamily<Mamba2Mixer> {
 public:
  static constexpr const char* kName = "mamba2";
  template <class Add>
  static void add_matrices(const Layer& layer, const Add& add) {
    add(layer.mixer.in);
    add(layer.mixer.out, true);
  }

  explicit Mamba2(const Weights& weights)
      : MambaFamily(weights, Mamba2Mixer(weights.shape, weights.states, *weights.kernels, weights.info.rms_epsilon)) {}
  bool run_layer(RecurrentPass& pass, std::uint32_t index) const {
    const Layer& layer = weights_.layers[index];
    const std::size_t stride = layer.mixer.in.rows();
    float* projected = pass.take(Slot::mixer, stride).data();
    {
      const OperationScope scope(pass.team(), Operation::mixer_in, index);
      pass.multiply(normed(pass, layer), weights_.info.dim, {{&layer.mixer.in, projected, stride}});
    }
    mixer_.run(pass.team(), pass.workspace(), pass.rows(), layer.mixer, index, index, projected);
    return add_output(pass, index, projected, stride);
  }
};

}  // namespace

Family mamba_family() { return recurrent_family<Mamba>(); }
Family mamba2_family() { return recurrent_family<Mamba2>(); }

}  // namespace troupe::engine
