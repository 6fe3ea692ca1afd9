// Shared by the loaders of the recurrent families.
#pragma once

#include <string>

#include "engine/formats/metadata.h"
#include "engine/weights/language_model.h"
#include "engine/weights/model_info.h"
#include "engine/weights/tensor_reader.h"

namespace troupe::engine {

// The outline from metadata only. `shape`: as for load_recurrent.
template <class W, class Shape>
Result<ModelOutline> outline_recurrent(const ModelFile& file, const std::string& family, const ModelOptions& options,
                                       const Shape& shape) {
  Metadata meta(file, family);
  W weights;
  weights.info = read_model_info(file, family, meta, options);
  shape(meta, options, weights);
  if (meta.failed()) return meta.error();
  return ModelOutline{.info = std::move(weights.info), .cache = std::move(weights.cache)};
}

// Loads the weights W (with a member `layers`) of a family: `shape(Metadata&, options, W&)` reads sizes and the cache
// spec, `layer(TensorReader&, prefix, index, W&)` one layer, `rest(TensorReader&, W&)` all other tensors,
// `matrices(layer, add)` lists the matrices that a step multiplies with; add(matrix, true) for those after a layer's
// last state: in the last layer only output rows are multiplied with them. Errors as load_decoder.
template <class W, class Shape, class Layer, class Rest, class Matrices>
Result<W> load_recurrent(const ModelFile& file, const std::string& family, const ModelOptions& options,
                         const Shape& shape, const Layer& layer, const Rest& rest, const Matrices& matrices) {
  return read_with_cache(file, options, [&](kernels::Layout ternary, WeightsCache& cache) -> Result<W> {
    Metadata meta(file, family);
    W weights;
    weights.kernels = options.kernels;
    weights.info = read_model_info(file, family, meta, options);
    shape(meta, options, weights);
    if (meta.failed()) return meta.error();
    const auto vocab_size = vocabulary_size(file);
    if (!vocab_size) return vocab_size.error();
    weights.info.vocab_size = *vocab_size;
    weights.content_hash = file.content_hash();
    TensorReader in(file, family, false, options, ternary, cache, weights);
    in.read_embedding_and_head(weights.info.vocab_size, weights.info.dim);
    rest(in, weights);
    for (std::uint32_t i = 0; i < weights.info.num_layers && !in.failed(); ++i)
      weights.layers.push_back(layer(in, "blk." + std::to_string(i) + ".", i, weights));
    in.refuse_unknown_tensors();
    if (in.failed()) return in.error();
    for (const auto& each : weights.layers) {
      const bool last = &each == &weights.layers.back();
      matrices(each, [&](const PackedMatrix& matrix, bool behind_states = false) {
        add_matrix_work(weights.info.matrices, matrix, last && behind_states);
      });
    }
    add_matrix_work(weights.info.matrices, weights.head_matrix(), true);
    in.finish();
    return weights;
  });
}

}  // namespace troupe::engine
