// The recurrent families: one way to load them, and one pass over their layers, token loops being in for_units
// (recurrent_pass.h).
//
// A family is a class F:
//   kName         its architecture in GGUF
//   Layer, Weights  of one layer; of the model, derived from RecurrentWeights<Layer>
//   read_shape(Metadata&, Weights&)  sizes, and the layout of states
//   read_layer(TensorReader&, prefix, index, const Weights&)
//   read_rest(TensorReader&, Weights&)  all tensors outside of layers but embedding, output norm and head
//   add_matrices(layer, add)  the matrices that a step multiplies with; add(matrix, true) for those after the layer's
//                 states: in the last layer only output rows are multiplied with them
//   F(const Weights&)
//   begin(pass)   between embedding and first layer
//   run_layer(pass, index)  false if no row is left after the last layer's states
//   norm_output(x, out)  the final norm of one row
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/formats/metadata.h"
#include "engine/layers/recurrent/recurrent_pass.h"
#include "engine/weights/language_model.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

template <class Layer>
struct RecurrentWeights : ModelWeights {
  StateLayout states;
  std::vector<Layer> layers;

  void visit(WeightVisitor& visitor) const {
    ModelWeights::visit(visitor);
    visitor.all(layers);
  }
};

template <class F>
class RecurrentModel final : public LanguageModel {
 public:
  explicit RecurrentModel(typename F::Weights weights) : weights_(std::move(weights)), family_(weights_) {}

  PassCounts forward(Team& team, std::span<const SequenceRows> batch, const KvArenas&, Workspace& workspace,
                     float* hidden) const override {
    RecurrentPass pass(weights_, team, batch, workspace);
    pass.embed();
    family_.begin(pass);
    for (std::uint32_t i = 0; i < weights_.layers.size(); ++i)
      if (!family_.run_layer(pass, i)) return {};
    const OperationScope scope(team, Operation::output_norm);
    pass.for_residuals(
        [&](std::size_t row, const float* x) { family_.norm_output(x, hidden + row * weights_.info.dim); });
    return {};
  }
  void visit_weights(WeightVisitor& visitor) const override { weights_.visit(visitor); }

 private:
  const ModelWeights& shared() const override { return weights_; }

  const typename F::Weights weights_;
  const F family_;  // refers to weights_
};

template <class F>
typename F::Weights read_recurrent_shape(Metadata& meta, const ModelFile& file, const LoadOptions& options) {
  typename F::Weights weights;
  weights.info = read_model_info(file, F::kName, meta, options);
  F::read_shape(meta, weights);
  weights.cache = state_cache_spec(weights.states, options);
  return weights;
}

// The outline from metadata only.
template <class F>
Result<ModelOutline> outline_recurrent(const ModelFile& file, const LoadOptions& options) {
  Metadata meta(file, F::kName);
  auto weights = read_recurrent_shape<F>(meta, file, options);
  if (meta.failed()) return meta.error();
  return ModelOutline{.info = std::move(weights.info), .cache = std::move(weights.cache)};
}

template <class F>
Result<typename F::Weights> read_recurrent(const ModelFile& file, const LoadOptions& options, kernels::Layout ternary,
                                           WeightsCache& cache) {
  Metadata meta(file, F::kName);
  typename F::Weights weights = read_recurrent_shape<F>(meta, file, options);
  weights.kernels = &kernels_of(options);
  if (meta.failed()) return meta.error();
  const auto vocab_size = vocabulary_size(file);
  if (!vocab_size) return vocab_size.error();
  weights.info.vocab_size = *vocab_size;
  weights.content_hash = file.content_hash();
  TensorReader in(file, F::kName, false, options, ternary, cache, weights);
  in.read_embedding_and_head(weights.info.vocab_size, weights.info.dim);
  F::read_rest(in, weights);
  for (std::uint32_t i = 0; i < weights.info.num_layers && !in.failed(); ++i)
    weights.layers.push_back(F::read_layer(in, fmt::format("blk.{}.", i), i, weights));
  in.refuse_unknown_tensors();
  if (in.failed()) return in.error();
  if (options.names_only) return weights;
  for (const auto& each : weights.layers) {
    const bool last = &each == &weights.layers.back();
    F::add_matrices(each, [&](const PackedMatrix& matrix, bool behind_states = false) {
      add_matrix_work(weights.info.matrices, matrix, last && behind_states);
    });
  }
  add_matrix_work(weights.info.matrices, weights.head_matrix(), true);
  in.finish();
  return weights;
}

// Errors as load_decoder.
template <class F>
Result<std::unique_ptr<Model>> load_recurrent(const ModelFile& file, const LoadOptions& options) {
  auto loaded = read_with_cache(file, options, [&](kernels::Layout ternary, WeightsCache& cache) {
    return read_recurrent<F>(file, options, ternary, cache);
  });
  if (!loaded) return loaded.error();
  return std::unique_ptr<Model>(std::make_unique<RecurrentModel<F>>(std::move(*loaded)));
}

template <class F>
Status check_recurrent(const ModelFile& file, const LoadOptions& options) {
  return check_tensors(file, options, [&](const LoadOptions& names, WeightsCache& cache) {
    return read_recurrent<F>(file, names, kernels::Layout::panels, cache);
  });
}

template <class F>
Family recurrent_family() {
  return {.name = F::kName,
          .accepts = [](const ModelFile& file) { return architecture_is(file, F::kName); },
          .outline = outline_recurrent<F>,
          .load = load_recurrent<F>,
          .check = check_recurrent<F>};
}

}  // namespace troupe::engine
