// Base of all language models: embedding, output norm, and the head.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model.h"
#include "engine/weights/packed_matrix.h"
#include "engine/weights/weight_visitor.h"

namespace troupe::engine {

// The weights that every family has, and totals over all weights. The weights of a family derive from it.
struct ModelWeights {
  ModelInfo info;
  CacheSpec cache;
  const kernels::KernelTable* kernels = nullptr;
  PackedMatrix embedding;          // [vocab, dim]; also the head if `head` is empty
  std::vector<float> output_norm;  // [dim]; of a layer norm its biases follow
  PackedMatrix head;
  std::vector<float> head_bias;    // [vocab], or empty
  float logit_scale = 1;           // of the products with the head, before the bias and the cap
  float logit_cap = 0;             // cap * tanh(logit / cap); 0: none
  std::uint64_t bytes = 0;         // of all weights and tables
  std::uint64_t matrix_bytes = 0;  // of the matrices only
  std::uint64_t content_hash = 0;  // over the weights as packed

  const PackedMatrix& head_matrix() const { return head ? head : embedding; }
  void visit(WeightVisitor& visitor) const { visitor.all(embedding, output_norm, head, head_bias); }
};

class LanguageModel : public Model {
 public:
  const ModelInfo& info() const override { return shared().info; }
  const CacheSpec& cache_spec() const override { return shared().cache; }
  std::uint64_t weight_bytes() const override { return shared().bytes; }
  std::uint64_t matrix_bytes() const override { return shared().matrix_bytes; }
  std::uint64_t content_hash() const override { return shared().content_hash; }
  void head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace, float* logits) const override;
  void head_greedy(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                   kernels::MaxAt* best) const override;

 private:
  virtual const ModelWeights& shared() const = 0;
};

// Adds a matrix that a step multiplies with to ModelInfo::matrices. `outputs_only`: only output rows are multiplied
// with it. Called for the matrices of each expert; a row uses num_experts_used of them.
void add_matrix_work(std::vector<MatrixWork>& all, const PackedMatrix& matrix, bool outputs_only,
                     std::uint32_t num_experts = 1, std::uint32_t num_experts_used = 1);

}  // namespace troupe::engine
