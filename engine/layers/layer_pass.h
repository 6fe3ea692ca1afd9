// Base of the passes over a ragged batch, for transformers and recurrent families: the list of rows, the residual
// stream of every row (one row per token of the batch), and the division of rows among threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "engine/compute/team.h"
#include "engine/layers/attention_plan.h"
#include "engine/memory/workspace.h"
#include "engine/weights/language_model.h"
#include "engine/weights/prepared_activations.h"

namespace troupe::engine {

class LayerPass {
 public:
  // residual = the tokens' embeddings, each times `scale`.
  void embed(float scale = 1.0f);

 protected:
  LayerPass(const ModelWeights& weights, Team& team, std::span<const SequenceRows> batch, Workspace& workspace);

  // Calls fn(first_row, num_rows, thread) over all rows, at most kRowsAtOnce at a time and split at multiples of
  // `multiple`; few rows stay on the calling thread, without a join.
  template <class Fn>
  void for_rows(std::size_t multiple, Fn&& fn) {
    for_range(num_rows_, multiple, std::forward<Fn>(fn));
  }
  // Calls fn(row) for all rows.
  template <class Fn>
  void for_each_row(const Fn& fn) {
    for_rows(1, [&](std::size_t first, std::size_t count, std::uint32_t) {
      for (std::size_t row = first; row < first + count; ++row) fn(row);
    });
  }
  // As for_rows, over [0, num_rows).
  static constexpr std::size_t kRowsAtOnce = kernels::kRowsPerTile;
  template <class Fn>
  void for_range(std::size_t num_rows, std::size_t multiple, Fn&& fn) {
    // Rows per thread before another thread helps: a row costs about a microsecond, a join two.
    constexpr std::size_t kMinRowsPerChunk = 4, kChunksPerThread = 8;
    const std::size_t fair = divide_up(num_rows, team_.num_threads() * kChunksPerThread);
    const std::size_t per_chunk = divide_up(std::max(kMinRowsPerChunk, fair), multiple) * multiple;
    team_.parallel_for(divide_up(num_rows, per_chunk), [&](std::size_t chunk, std::uint32_t thread) {
      const std::size_t end = std::min(num_rows, (chunk + 1) * per_chunk);
      for (std::size_t row = chunk * per_chunk; row < end; row += kRowsAtOnce)
        fn(row, std::min(kRowsAtOnce, end - row), thread);
    });
  }

  // The stride of scratch rows of `width` numbers: an odd number of cache lines, so that the same column of 16 rows
  // does not map to one cache set.
  static constexpr std::size_t odd_lines(std::size_t width) { return (divide_up(width, 16) | 1) * 16; }

  float* delta(std::size_t row) { return delta_.data() + row * dim_; }

  // A buffer of rows to compact; none if its width is 0.
  struct Kept {
    float* x;
    std::size_t stride;
    std::size_t width;
  };
  // Keeps only the output rows of the residual, of a pending addition to it and of `buffers`; false if there are none.
  [[nodiscard]] bool drop_rows_without_output(std::initializer_list<Kept> buffers);

  const kernels::KernelTable& kernels_;
  const std::size_t dim_;
  Team& team_;
  Workspace& workspace_;
  std::span<const SequenceRows> batch_;
  std::span<SequencePlace> places_;  // of the batch's sequences, in order; their blocks are not set here
  std::size_t num_rows_ = 0;
  std::span<float> residual_, delta_;  // delta: to be added to the residual, if delta_pending_
  bool delta_pending_ = false;
  PreparedActivations input_;

 private:
  const ModelWeights& shared_;
};

}  // namespace troupe::engine
