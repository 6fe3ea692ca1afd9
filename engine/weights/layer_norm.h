// The weights of a layer norm, and how they are read from a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/weights/tensor_reader.h"
#include "engine/weights/weight_visitor.h"

namespace troupe::engine {

struct LayerNormWeights {
  std::vector<float> weight, bias;  // [dim]

  void visit(WeightVisitor& visitor) const { visitor.all(weight, bias); }
};

[[nodiscard]] inline LayerNormWeights read_layer_norm(TensorReader& in, const std::string& name, std::uint64_t dim) {
  LayerNormWeights norm;
  norm.weight = in.vector(name + ".weight", dim);
  norm.bias = in.vector(name + ".bias", dim);
  return norm;
}

}  // namespace troupe::engine
