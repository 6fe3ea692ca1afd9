#include "engine/weights/prepared_activations.h"

#include "config/assert.h"

namespace troupe::engine {
namespace {

// The size of a product's chunk: enough multiply-adds (some microseconds) to pay for handing it out, few enough that a
// late thread hardly delays the join.
constexpr std::size_t kMinChunkWork = 64 * 1024;
constexpr std::size_t kChunksPerThread = 8;
constexpr std::size_t kTileMultiple = kernels::kRowsPerTile;

constexpr std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

constexpr Workspace::Slot kSlots[] = {Workspace::Slot::rounded_f32,
                                      Workspace::Slot::rounded_i8_group32,
                                      Workspace::Slot::rounded_i8_group256,
                                      Workspace::Slot::rounded_bf16_tiles,
                                      Workspace::Slot::rounded_bf16_split_tiles,
                                      Workspace::Slot::rounded_i8_tiles,
                                      Workspace::Slot::rounded_i8_group256_tiles,
                                      Workspace::Slot::rounded_i8_group256_tables};
static_assert(std::size(kSlots) == kernels::kNumActivations);

}  // namespace

void PreparedActivations::reset(std::size_t num_rows, std::span<const PackedMatrix* const> consumers) {
  num_rows_ = num_rows;
  k_ = consumers.front()->k();
  std::fill(std::begin(rows_), std::end(rows_), nullptr);
  rows_at_once_ = 1;
  for (const PackedMatrix* consumer : consumers) {
    if (!*consumer) continue;
    TROUPE_ASSERT(consumer->k() == k_);
    const kernels::MatrixView& view = consumer->view();
    const kernels::Activation activation = kernels_.activation(view.type, view.layout);
    const auto kind = static_cast<std::size_t>(activation);
    rows_[kind] = workspace_.take<std::byte>(kSlots[kind], kernels::prepared_bytes(activation, k_, num_rows)).data();
    if (kernels::is_tiled(activation)) rows_at_once_ = kernels::kRowsPerTile;
  }
}

void PreparedActivations::set_rows(std::size_t first_row, std::size_t num_rows, const float* x, std::size_t stride) {
  for (std::size_t kind = 0; kind < std::size(rows_); ++kind)
    if (rows_[kind]) kernels_.prepare[kind](x, stride, k_, first_row, num_rows, rows_[kind]);
}

std::size_t PreparedActivations::rows_per_call() const {
  std::size_t largest_row = 1;
  for (std::size_t kind = 0; kind < std::size(rows_); ++kind) {
    if (!rows_[kind]) continue;
    const auto activation = static_cast<kernels::Activation>(kind);
    // Measured on later rows: only the first rows have tables, which are not read in calls with many rows.
    const std::size_t more = kernels::prepared_bytes(activation, k_, 2 * kTileMultiple) -
                             kernels::prepared_bytes(activation, k_, kTileMultiple);
    largest_row = std::max(largest_row, more / kTileMultiple);
  }
  const std::size_t most = std::min(kernels_.max_rows, kernels_.max_prepared_bytes / largest_row);
  return std::max(kTileMultiple, divide_up(most, kTileMultiple) * kTileMultiple);
}

PreparedActivations::Split PreparedActivations::plan(std::size_t num_panels, std::size_t products_per_panel) const {
  const std::size_t max_rows = rows_per_call();
  Split split;
  split.num_tiles = divide_up(num_rows_, max_rows);
  split.rows_per_tile = divide_up(divide_up(num_rows_, split.num_tiles), kTileMultiple) * kTileMultiple;
  split.num_tiles = divide_up(num_rows_, split.rows_per_tile);
  const std::size_t panel_work =
      kernels::kPanelRows * k_ * products_per_panel * std::min(num_rows_, split.rows_per_tile);
  const std::size_t wanted_chunks = divide_up(team_.num_threads() * kChunksPerThread, split.num_tiles);
  split.panels_per_chunk = std::max(divide_up(kMinChunkWork, panel_work), divide_up(num_panels, wanted_chunks));
  split.chunks_per_tile = divide_up(num_panels, split.panels_per_chunk);
  return split;
}

std::size_t PreparedActivations::plan_runs(std::span<RowRun> runs, std::size_t num_panels,
                                           std::size_t products_per_panel) const {
  const std::size_t max_rows = rows_per_call();
  std::size_t num_tiles = 0, fewest_rows = max_rows;
  for (const RowRun& run : runs) {
    num_tiles += divide_up(run.num_rows, max_rows);
    fewest_rows = std::min(fewest_rows, run.num_rows);
  }
  if (num_tiles == 0) return num_panels;
  const std::size_t panel_work = kernels::kPanelRows * k_ * products_per_panel * fewest_rows;
  const std::size_t wanted_chunks = divide_up(team_.num_threads() * kChunksPerThread, num_tiles);
  const std::size_t panels =
      std::min(num_panels, std::max(divide_up(kMinChunkWork, panel_work), divide_up(num_panels, wanted_chunks)));
  std::size_t chunk = 0;
  for (RowRun& run : runs) {
    run.first_chunk = chunk;
    chunk += divide_up(run.num_rows, max_rows) * divide_up(num_panels, panels);
  }
  return panels;
}

const std::byte* PreparedActivations::prepared(const kernels::MatrixView& matrix, std::size_t first_row) const {
  const kernels::Activation activation = kernels_.activation(matrix.type, matrix.layout);
  return rows_[static_cast<std::size_t>(activation)] + kernels::prepared_bytes(activation, k_, first_row);
}

std::size_t PreparedActivations::largest_chunk(std::size_t num_panels) const {
  const Split split = plan(num_panels, 1);
  return std::min(split.rows_per_tile, num_rows_) * split.panels_per_chunk * kernels::kPanelRows;
}

void PreparedActivations::multiply_panels(const Product& product, const PanelChunk& chunk) const {
  const kernels::MatrixView& view = product.matrix->view();
  kernels_.matmul(view.type, view.layout)(view, prepared(view, chunk.first_row), chunk.num_rows,
                                          product.out + chunk.first_row * product.stride, product.stride,
                                          chunk.panel_begin, chunk.panel_end);
}

void PreparedActivations::multiply_chunk(const PackedMatrix& matrix, const PanelChunk& chunk, float* out,
                                         std::size_t stride) const {
  const kernels::MatrixView view = kernels::panel_range(matrix.view(), chunk.panel_begin, chunk.panel_end);
  kernels_.matmul(view.type, view.layout)(view, prepared(view, chunk.first_row), chunk.num_rows, out, stride, 0,
                                          chunk.panel_end - chunk.panel_begin);
}

void PreparedActivations::multiply(std::initializer_list<Product> products) {
  std::size_t num_panels = 0;
  for (const Product& product : products) num_panels += product.matrix->view().num_panels();
  for_panels(num_panels, 1, [&](const PanelChunk& chunk) {
    std::size_t before = 0;  // panels of the products before this one
    for (const Product& product : products) {
      const std::size_t panels = product.matrix->view().num_panels();
      PanelChunk part = chunk;
      part.panel_begin = std::max(chunk.panel_begin, before);
      part.panel_end = std::min(chunk.panel_end, before + panels);
      if (part.panel_begin < part.panel_end) {
        part.panel_begin -= before;
        part.panel_end -= before;
        multiply_panels(product, part);
      }
      before += panels;
    }
  });
}

bool PreparedActivations::advance_gated(const PackedMatrix& gate, const PackedMatrix& up,
                                        const PackedMatrix& consumer) {
  const kernels::MatrixView& view = gate.view();
  const kernels::MatrixView& other = up.view();
  kernels::GatedMatmul* const multiply = kernels_.gated_matmul(view.type, view.layout);
  constexpr auto kOut = kernels::Activation::bf16_tiles;
  if (!multiply || other.type != view.type || other.layout != view.layout ||
      kernels_.activation(consumer.view().type, consumer.view().layout) != kOut)
    return false;
  TROUPE_ASSERT(gate.k() == k_ && up.k() == k_ && gate.rows() == up.rows() && consumer.k() == gate.rows());
  const std::span<std::byte> out = workspace_.take<std::byte>(Workspace::Slot::gated_bf16_tiles,
                                                              kernels::prepared_bytes(kOut, consumer.k(), num_rows_));
  for_panels(view.num_panels(), 2, [&](const PanelChunk& chunk) {
    multiply(view, other, prepared(view, chunk.first_row), chunk.num_rows,
             out.data() + kernels::prepared_bytes(kOut, consumer.k(), chunk.first_row), chunk.panel_begin,
             chunk.panel_end);
  });
  std::fill(std::begin(rows_), std::end(rows_), nullptr);
  rows_[static_cast<std::size_t>(kOut)] = out.data();
  k_ = consumer.k();
  return true;
}

}  // namespace troupe::engine
