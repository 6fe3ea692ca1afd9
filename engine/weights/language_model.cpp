#include "engine/weights/language_model.h"

#include <algorithm>
#include <limits>

#include "engine/compute/team.h"
#include "engine/memory/workspace.h"
#include "engine/sampling/sampler.h"
#include "engine/weights/prepared_activations.h"

namespace troupe::engine {
namespace {

// Makes logits of the products of one row with the rows of the head from `column` on.
void finish_logits(const ModelWeights& weights, float* row, std::size_t column, std::size_t count) {
  if (weights.logit_scale != 1)
    for (std::size_t i = 0; i < count; ++i) row[i] *= weights.logit_scale;
  if (!weights.head_bias.empty()) weights.kernels->add(row, weights.head_bias.data() + column, count);
  if (weights.logit_cap != 0) weights.kernels->soft_cap(row, weights.logit_cap, count);
}

}  // namespace

void LanguageModel::head(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                         float* logits) const {
  const OperationScope scope(team, Operation::head);
  const PackedMatrix& matrix = shared().head_matrix();
  PreparedActivations input(*shared().kernels, team, workspace);
  input.reset(num_rows, {&matrix});
  input.set_rows(0, num_rows, hidden, matrix.k());
  const Product product{&matrix, logits, matrix.rows()};
  input.for_panels(matrix.view().num_panels(), 1, [&](const PanelChunk& chunk) {
    input.multiply_panels(product, chunk);
    const std::size_t column = chunk.panel_begin * kernels::kPanelRows;
    const std::size_t count = std::min<std::size_t>(chunk.panel_end * kernels::kPanelRows, matrix.rows()) - column;
    for (std::size_t row = chunk.first_row; row < chunk.first_row + chunk.num_rows; ++row)
      finish_logits(shared(), logits + row * matrix.rows() + column, column, count);
  });
}

void LanguageModel::head_greedy(Team& team, const float* hidden, std::size_t num_rows, Workspace& workspace,
                                kernels::MaxAt* best) const {
  using Slot = Workspace::Slot;
  const OperationScope scope(team, Operation::head);
  const kernels::KernelTable& kernels = *shared().kernels;
  const PackedMatrix& matrix = shared().head_matrix();
  PreparedActivations input(kernels, team, workspace);
  input.reset(num_rows, {&matrix});
  input.set_rows(0, num_rows, hidden, matrix.k());
  const std::size_t num_panels = matrix.view().num_panels();
  const std::size_t chunk_floats = input.largest_chunk(num_panels);
  float* chunks = workspace.take<float>(Slot::logits, team.num_threads() * chunk_floats).data();
  // One maximum per thread: the chunks that a thread gets vary, but the maximum of all threads does not.
  const std::span<kernels::MaxAt> largest =
      workspace.take<kernels::MaxAt>(Slot::largest, team.num_threads() * num_rows);
  std::fill(largest.begin(), largest.end(),
            kernels::MaxAt{-std::numeric_limits<float>::infinity(), std::numeric_limits<std::uint32_t>::max()});
  const auto improve = [](kernels::MaxAt& so_far, kernels::MaxAt other) {
    if (other.value > so_far.value || (other.value == so_far.value && other.index < so_far.index)) so_far = other;
  };
  input.for_panels(num_panels, 1, [&](const PanelChunk& chunk) {
    float* logits = chunks + chunk.thread * chunk_floats;
    const std::size_t column = chunk.panel_begin * kernels::kPanelRows;
    const std::size_t count = std::min<std::size_t>(chunk.panel_end * kernels::kPanelRows, matrix.rows()) - column;
    input.multiply_chunk(matrix, chunk, logits, count);
    for (std::size_t i = 0; i < chunk.num_rows; ++i) {
      float* row = logits + i * count;
      finish_logits(shared(), row, column, count);
      kernels.clamp(row, kMaxLogit, count);
      kernels::MaxAt max = kernels.arg_max(row, count);
      max.index += static_cast<std::uint32_t>(column);
      improve(largest[chunk.thread * num_rows + chunk.first_row + i], max);
    }
  });
  for (std::size_t row = 0; row < num_rows; ++row) {
    best[row] = largest[row];
    for (std::size_t thread = 1; thread < team.num_threads(); ++thread)
      improve(best[row], largest[thread * num_rows + row]);
  }
}

void add_matrix_work(std::vector<MatrixWork>& all, const PackedMatrix& matrix, bool outputs_only,
                     std::uint32_t num_experts, std::uint32_t num_experts_used) {
  if (!matrix) return;
  const kernels::MatrixView& view = matrix.view();
  auto found = std::find_if(all.begin(), all.end(), [&](const MatrixWork& work) {
    return work.type == view.type && work.layout == view.layout && work.outputs_only == outputs_only &&
           work.num_experts == num_experts;
  });
  if (found == all.end())
    found = all.insert(found, {.type = view.type,
                               .layout = view.layout,
                               .outputs_only = outputs_only,
                               .num_experts = num_experts,
                               .num_experts_used = num_experts_used});
  found->multiply_adds += view.rows * view.k;
  found->bytes += kernels::packed_bytes(view.type, view.layout, view.rows, view.k);
}

}  // namespace troupe::engine
