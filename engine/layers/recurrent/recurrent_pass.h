// The operations of a recurrent layer over one ragged batch. Families call them in their order; decoder_pass.h has
// those of transformers.
//
// Projections run over all rows of a step at once. Scans, which go token by token, are divided among threads by
// sequences and units: blocks of channels, or heads. A row's bits depend only on its own sequence.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "engine/layers/layer_pass.h"

namespace troupe::engine {

// The layers' offsets in a sequence's state: the exact parts of all layers, then the large parts.
struct StateLayout {
  std::uint64_t exact_per_layer = 0;
  std::uint64_t large_per_layer = 0;
  std::uint32_t num_layers = 0;

  StateShape shape() const {
    return {.exact_floats = num_layers * exact_per_layer, .large_floats = num_layers * large_per_layer};
  }
  float* exact(float* state, std::uint32_t layer) const { return state + layer * exact_per_layer; }
  float* large(float* state, std::uint32_t layer) const {
    return state + num_layers * exact_per_layer + layer * large_per_layer;
  }
};

// The rows of a step, as scans use them.
struct RecurrentRows {
  std::span<const SequencePlace> places;
  std::span<const SequenceRows> batch;
  std::size_t num_rows = 0;
  std::uint32_t round_every = 0;  // the large part is rounded to float16 at multiples of this many positions; 0: never
};

// Rounds `count` numbers of a state to float16; numbers beyond its range become its largest, never infinite. NaN stays.
void round_state(float* state, std::size_t count);
// RecurrentRows::round_every for a model's cache.
[[nodiscard]] std::uint32_t round_every(const CacheSpec& cache);

// How a scan is divided: a unit is a block of channels, or a head.
struct Units {
  std::size_t count = 0;
  std::size_t at_once = 1;          // units per call
  std::size_t min_per_chunk = 1;    // units times tokens that make waking a thread pay
  std::size_t floats_per_unit = 0;  // in a run of the part of a state that the scan updates
  std::size_t num_runs = 1;         // runs of that part; each has floats_per_unit of every unit
  std::size_t run_stride = 0;       // floats from one run to the next
};

// Calls fn(sequence, first_row, num_tokens, first_unit, num_units) for all rows and units, a unit's tokens in order, at
// most kTokensAtOnce per call so that they stay in a cache. part(state) is the part of a sequence's state that the
// scan of this layer updates: rounded according to round_every, and copied where SequenceRows::kept_after says.
template <class Part, class Fn>
void for_units(Team& team, const RecurrentRows& rows, const Units& units, const Part& part, const Fn& fn) {
  constexpr std::uint32_t kTokensAtOnce = 32;
  constexpr std::size_t kChunksPerThread = 4;
  const std::size_t total = units.count * rows.num_rows;
  const std::size_t num_chunks =
      std::clamp<std::size_t>(std::min(team.num_threads() * kChunksPerThread, total / units.min_per_chunk), 1,
                              units.count * rows.places.size());
  // A piece is at_once units of one sequence. Chunk i has the pieces from i * pieces / num_chunks on.
  const std::size_t per_sequence = divide_up(units.count, units.at_once);
  const std::size_t pieces = per_sequence * rows.places.size();
  const auto run_piece = [&](std::size_t piece) {
    const std::size_t sequence = piece / per_sequence, unit = piece % per_sequence * units.at_once;
    const std::size_t count = std::min(units.at_once, units.count - unit);
    const SequencePlace& place = rows.places[sequence];
    const SequenceRows& of = rows.batch[sequence];
    const std::uint32_t keep_after = of.kept_state ? of.kept_after : 0;
    const std::size_t offset = unit * units.floats_per_unit, num_floats = count * units.floats_per_unit;
    for (std::uint32_t token = 0; token < place.num_rows;) {
      std::uint32_t next = std::min(place.num_rows, token + kTokensAtOnce);
      if (token < keep_after) next = std::min(next, keep_after);
      if (rows.round_every != 0)
        next = std::min(next, token + rows.round_every - (place.first_position + token) % rows.round_every);
      fn(sequence, std::size_t{place.first_row} + token, std::size_t{next - token}, unit, count);
      token = next;
      if (rows.round_every != 0 && (place.first_position + token) % rows.round_every == 0)
        round_state(part(of.state) + offset, num_floats);
      if (token != keep_after) continue;
      for (std::size_t run = 0; run < units.num_runs; ++run)
        std::copy_n(part(of.state) + run * units.run_stride + offset, num_floats,
                    part(of.kept_state) + run * units.run_stride + offset);
    }
  };
  team.parallel_for(num_chunks, [&](std::size_t chunk, std::uint32_t) {
    for (std::size_t i = chunk * pieces / num_chunks; i < (chunk + 1) * pieces / num_chunks; ++i) run_piece(i);
  });
}

class RecurrentPass : public LayerPass {
 public:
  RecurrentPass(const ModelWeights& weights, Team& team, std::span<const SequenceRows> batch, Workspace& workspace);

  RecurrentRows rows() const {
    return {.places = places_, .batch = batch_, .num_rows = num_rows_, .round_every = round_every_};
  }
  Team& team() const { return team_; }
  Workspace& workspace() const { return workspace_; }
  std::span<float> take(Workspace::Slot slot, std::size_t width) {
    return workspace_.take<float>(slot, num_rows_ * width);
  }

  using LayerPass::for_each_row;
  // Adds a pending projection to the residual, then calls fn(row, residual of the row).
  template <class Fn>
  void for_residuals(const Fn& fn) {
    for_each_row([&](std::size_t row) {
      float* x = residual_.data() + row * dim_;
      if (delta_pending_) kernels_.add(x, delta(row), dim_);
      fn(row, x);
    });
    delta_pending_ = false;
  }
  // Multiplies rows of k numbers computed by make(row, out), rounding them at once for the matrices: the unrounded rows
  // are never written to memory.
  template <class Make>
  void multiply_made(const Make& make, std::initializer_list<Product> products);
  // Rounds the rows of x for the matrices, and multiplies.
  void multiply(const float* x, std::size_t stride, std::initializer_list<Product> products);
  // x = function(x), all rows.
  void map(kernels::Function function, float* x, std::size_t width);
  // multiply() with function(x) as input.
  void multiply_mapped(kernels::Function function, const float* x, std::size_t stride,
                       std::initializer_list<Product> products);
  // residual += matrix times x; the next for_residuals() does the addition.
  void add_projection(const PackedMatrix& matrix, const float* x, std::size_t stride);
  using LayerPass::delta;
  // The output of add_projection, for callers that multiply with another function.
  Product to_delta(const PackedMatrix& matrix) {
    delta_pending_ = true;
    return {&matrix, delta_.data(), dim_};
  }

  // May be called once no state needs the other rows.
  using LayerPass::drop_rows_without_output;

 private:
  void reset_input(std::initializer_list<Product> products);

  const std::uint32_t round_every_;
};

template <class Make>
void RecurrentPass::multiply_made(const Make& make, std::initializer_list<Product> products) {
  reset_input(products);
  const std::size_t stride = odd_lines(products.begin()->matrix->k());
  const std::size_t per_thread = kernels::kRowsPerTile * stride;
  float* scratch = workspace_.take<float>(Workspace::Slot::thread_scratch, team_.num_threads() * per_thread).data();
  for_rows(input_.rows_at_once(), [&](std::size_t first, std::size_t count, std::uint32_t thread) {
    float* made = scratch + thread * per_thread;
    for (std::size_t i = 0; i < count; ++i) make(first + i, made + i * stride);
    input_.set_rows(first, count, made, stride);
  });
  input_.multiply(products);
}

// A cache spec with states only: the blocks of group 0 have no bytes.
[[nodiscard]] CacheSpec state_cache_spec(const StateLayout& layout, const LoadOptions& options);

}  // namespace troupe::engine
