// Rows of activations, rounded once for all matrices that read them, and the products with these matrices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "engine/compute/team.h"
#include "engine/memory/workspace.h"
#include "engine/weights/packed_matrix.h"
#include "kernels/kernels.h"

namespace troupe::engine {

// out[r * stride + n] = input row r times row n of the matrix.
struct Product {
  const PackedMatrix* matrix;
  float* out;
  std::size_t stride;
};

// Rows [first_row, first_row + num_rows) with matrices of their own, such as an expert's: first_row is a multiple of
// kRowsPerTile.
struct RowRun {
  std::size_t first_row, num_rows;
  std::size_t first_chunk;  // set by for_runs
};

// The rows and panels of one chunk of a parallel product.
struct PanelChunk {
  std::size_t first_row, num_rows;
  std::size_t panel_begin, panel_end;
  std::uint32_t thread;
};

// The input of a set of matrices. Each row is prepared once per activation kind that one of them reads (Q4_K and Q6_K
// read the same). A row's products do not depend on the other rows.
class PreparedActivations {
 public:
  PreparedActivations(const kernels::KernelTable& kernels, Team& team, Workspace& workspace)
      : kernels_(kernels), team_(team), workspace_(workspace) {}

  // Allocates `num_rows` rows of the activation kinds that `consumers` read (all of the same k). All but the first may
  // be empty; multiply() skips an empty matrix, too.
  void reset(std::size_t num_rows, std::span<const PackedMatrix* const> consumers);
  void reset(std::size_t num_rows, std::initializer_list<const PackedMatrix*> consumers) {
    reset(num_rows, std::span(consumers.begin(), consumers.size()));
  }
  // Rounds rows [first_row, first_row + num_rows): x[r * stride + i], i < k, is row first_row + r. Different rows may
  // be set by different threads, best rows_at_once() rows from a multiple of it on.
  void set_rows(std::size_t first_row, std::size_t num_rows, const float* x, std::size_t stride);
  std::size_t rows_at_once() const { return rows_at_once_; }

  // All products are one parallel region: their panels are numbered one after another.
  void multiply(std::initializer_list<Product> products);

  // Replaces the input by silu(gate) * up, prepared for `consumer`, in one parallel region without writing floats.
  // False, and nothing done, if the kernels have no such product for these matrices.
  [[nodiscard]] bool advance_gated(const PackedMatrix& gate, const PackedMatrix& up, const PackedMatrix& consumer);

  // The loop of multiply(), for callers that process each chunk's results at once: calls fn(PanelChunk) over all rows
  // and `num_panels` panels, split so that threads balance and a chunk's rows stay in the second-level cache. fn
  // multiplies with `products_per_panel` matrices.
  template <class Fn>
  void for_panels(std::size_t num_panels, std::size_t products_per_panel, Fn&& fn) {
    const Split split = plan(num_panels, products_per_panel);
    team_.parallel_for(split.num_tiles * split.chunks_per_tile, [&](std::size_t chunk, std::uint32_t thread) {
      const std::size_t first_row = chunk / split.chunks_per_tile * split.rows_per_tile;
      const std::size_t panel = chunk % split.chunks_per_tile * split.panels_per_chunk;
      fn(PanelChunk{first_row, std::min(split.rows_per_tile, num_rows_ - first_row), panel,
                    std::min(panel + split.panels_per_chunk, num_panels), thread});
    });
  }
  // The same for ranges of rows with matrices of their own, all of one shape: fn(index into runs, PanelChunk), in one
  // parallel region.
  template <class Fn>
  void for_runs(std::span<RowRun> runs, std::size_t num_panels, std::size_t products_per_panel, Fn&& fn) {
    const std::size_t max_rows = rows_per_call();
    const std::size_t panels_per_chunk = plan_runs(runs, num_panels, products_per_panel);
    const std::size_t chunks_per_tile = (num_panels + panels_per_chunk - 1) / panels_per_chunk;
    if (runs.empty()) return;
    const RowRun& last = runs.back();
    const std::size_t num_chunks = last.first_chunk + (last.num_rows + max_rows - 1) / max_rows * chunks_per_tile;
    team_.parallel_for(num_chunks, [&](std::size_t chunk, std::uint32_t thread) {
      const auto run = std::upper_bound(runs.begin(), runs.end(), chunk,
                                        [](std::size_t at, const RowRun& r) { return at < r.first_chunk; }) -
                       1;
      const std::size_t inside = chunk - run->first_chunk;
      const std::size_t first = inside / chunks_per_tile * max_rows;
      const std::size_t panel = inside % chunks_per_tile * panels_per_chunk;
      fn(static_cast<std::size_t>(run - runs.begin()),
         PanelChunk{run->first_row + first, std::min(max_rows, run->num_rows - first), panel,
                    std::min(panel + panels_per_chunk, num_panels), thread});
    });
  }
  // Computes the chunk's rows and panels of a product, into their positions in its `out`.
  void multiply_panels(const Product& product, const PanelChunk& chunk) const;
  // Computes the chunk into a buffer: out[i * stride + j] is the chunk's row i and output j.
  void multiply_chunk(const PackedMatrix& matrix, const PanelChunk& chunk, float* out, std::size_t stride) const;
  // The number of values of the largest chunk of one product.
  std::size_t largest_chunk(std::size_t num_panels) const;

 private:
  struct Split {
    std::size_t num_tiles, rows_per_tile, panels_per_chunk, chunks_per_tile;
  };
  Split plan(std::size_t num_panels, std::size_t products_per_panel) const;
  // Sets first_chunk of each range; returns the number of panels per chunk.
  std::size_t plan_runs(std::span<RowRun> runs, std::size_t num_panels, std::size_t products_per_panel) const;
  // The number of rows per call that stay in the second-level cache.
  std::size_t rows_per_call() const;
  const std::byte* prepared(const kernels::MatrixView& matrix, std::size_t first_row) const;

  const kernels::KernelTable& kernels_;
  Team& team_;
  Workspace& workspace_;
  std::size_t num_rows_ = 0;
  std::size_t k_ = 0;
  std::size_t rows_at_once_ = 1;
  std::byte* rows_[kernels::kNumActivations] = {};  // by kernels::Activation; null if no consumer reads it
};

}  // namespace troupe::engine
