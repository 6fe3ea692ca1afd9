// Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023): no attention, no
// feed-forward part; layers of RMSNorm, a gated convolution and a selective scan.
#include "engine/layers/mamba_mixer.h"
#include "engine/model/recurrent_weights.h"
#include "engine/weights/model_info.h"

namespace troupe::engine {
namespace {

using Slot = Workspace::Slot;

struct Layer {
  std::vector<float> norm;
  MambaLayer mixer;
};

struct Weights : ModelWeights {
  MambaShape shape;
  StateLayout states;
  std::vector<Layer> layers;
};

class MambaModel final : public LanguageModel {
 public:
  explicit MambaModel(Weights weights) : weights_(std::move(weights)), mixer_(weights_.shape, *weights_.kernels) {}

  PassCounts forward(Team& team, std::span<const SequenceRows> batch, const CacheMemory&, Workspace& workspace,
                     float* hidden) const override {
    const kernels::KernelTable& kernels = *weights_.kernels;
    const std::size_t dim = weights_.info.dim;
    RecurrentPass pass(weights_, team, batch, workspace);
    pass.embed();
    for (std::uint32_t i = 0; i < weights_.layers.size(); ++i) {
      const Layer& layer = weights_.layers[i];
      // x += W_out mixer(norm(x))
      float* normed = pass.take(Slot::normed, dim).data();
      pass.for_residuals([&](std::size_t row, const float* x) {
        kernels.rms_norm(x, layer.norm.data(), normed + row * dim, dim, weights_.info.rms_epsilon);
      });
      float* y = mixer_.run(pass, layer.mixer, i, weights_.states, normed, dim);
      if (i + 1 == weights_.layers.size() &&
          !pass.drop_rows_without_output({{y, weights_.shape.inner, weights_.shape.inner}}))
        return {};
      const OperationScope scope(team, Operation::mixer_out, i);
      pass.add_projection(layer.mixer.out, y, weights_.shape.inner);
    }
    const OperationScope scope(team, Operation::output_norm);
    pass.for_residuals([&](std::size_t row, const float* x) {
      kernels.rms_norm(x, weights_.output_norm.data(), hidden + row * dim, dim, weights_.info.rms_epsilon);
    });
    return {};
  }

 private:
  const ModelWeights& shared() const override { return weights_; }
  Weights weights_;
  MambaMixer mixer_;
};

void read_shape(Metadata& meta, const ModelOptions& options, Weights& w) {
  w.info.rms_epsilon = static_cast<float>(meta.positive("attention.layer_norm_rms_epsilon"));
  w.shape = read_mamba_shape(meta, false);
  w.states = MambaMixer::state_layout(w.shape, w.info.num_layers);
  w.cache = state_cache_spec(w.states, options);
}

Result<ModelOutline> outline(const ModelFile& file, const ModelOptions& options) {
  return outline_recurrent<Weights>(file, "mamba", options, read_shape);
}

Result<std::unique_ptr<Model>> load(const ModelFile& file, const ModelOptions& options) {
  auto weights = load_recurrent<Weights>(
      file, "mamba", options, read_shape,
      [](TensorReader& in, const std::string& prefix, std::uint32_t, Weights& w) {
        Layer layer;
        layer.norm = in.vector(prefix + "attn_norm.weight", w.info.dim);
        layer.mixer = MambaMixer::read(in, prefix, w.shape, w.info.dim);
        return layer;
      },
      [](TensorReader&, Weights&) {},
      [](const Layer& layer, const auto& add) {
        for (const PackedMatrix* matrix : {&layer.mixer.in, &layer.mixer.x, &layer.mixer.dt}) add(*matrix);
        add(layer.mixer.out, true);
      });
  if (!weights) return weights.error();
  return std::unique_ptr<Model>(std::make_unique<MambaModel>(std::move(*weights)));
}

}  // namespace

Family mamba_family() {
  return {.name = "mamba",
          .accepts = [](const ModelFile& file) { return architecture_is(file, "mamba"); },
          .outline = outline,
          .load = load};
}

}  // namespace troupe::engine
