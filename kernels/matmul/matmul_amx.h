// Matrix products on AMX: bfloat16 tiles, and int8 tiles for ternary weights.
//
// Weights are the left operand: 16 outputs x 32 k (64 k of bytes) to a tile, expanded from their packed form one stage
// (64 k) of two panels at a time into a buffer in the first-level cache. Rows of activations are the right operand, 16
// to a tile, in the layout written by rows_amx.cpp. So a tile of sums is 16 outputs x 16 rows, and a product of tiles
// takes 16 cycles for one row as for sixteen.
//
// Few rows are multiplied 32 at a time, or up to 16 with four panels: the sums stay in tiles for all of k, and the next
// stage is expanded between the tile instructions of this one, so that one row takes only the time of streaming and
// expanding the weights. Many rows: blocks of 512 k are expanded once and multiplied with all rows, 32 at a time; the
// other sums are kept in a buffer.
//
// One output's sum goes through the same tile products in ascending k either way, and moving float32 sums in and out of
// tiles does not change them: the bits do not depend on the number of rows. TDPBF16PS itself adds in a fixed order
// (Intel's manual: even and odd k of a tile in two fused chains, their sum to the accumulator; denormals are zero,
// rounding to nearest even, independent of MXCSR).
//
// Everything has internal linkage: each file that includes this has its own copy. Two files do, because GCC 12 takes
// minutes for all types in one.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/tiles_amx.h"
#include "kernels/cpu/transpose_avx512.h"
#include "kernels/formats/packed_layout.h"
#include "kernels/matmul/tile_types_amx.h"
#include "kernels/rows/exp_avx512.h"
#include "kernels/variants.h"

// A tile product of `Type`. A macro, because the intrinsics take tile numbers as constants.
#define TROUPE_TILE_MULTIPLY(sums, weights, rows) \
  do {                                            \
    if constexpr (Type::kIntegers)                \
      _tile_dpbusd(sums, weights, rows);          \
    else                                          \
      _tile_dpbf16ps(sums, weights, rows);        \
  } while (false)

namespace troupe::kernels::amx {
namespace {

using namespace layout;

constexpr std::size_t kMaxRowsAtOnce = 512;  // of activations: their sums take 128 bytes per row and pair of panels
// Up to this many rows it is faster to expand the weights again for every 32.
constexpr std::size_t kFewRows = 96;
constexpr std::size_t kPrefetchBytes = 3072;  // prefetch distance ahead of the expansion
constexpr std::size_t kMaxPairs = 8;          // pairs of panels that share one pass over the rows
constexpr std::size_t kBlockStages = 8;       // 512 k of two panels: 32 KiB of bfloat16

// At most this many rows are first copied to shorter lines: each row uses only 4 bytes of a tile's line, and the full
// lines of all k, read again for every few panels, would evict weights from the first-level cache.
constexpr std::size_t kMaxPackedRows = 8;
constexpr std::size_t kMaxPackedBytes = 128 * 1024;

// ---- The tile instructions of a stage -----------------------------------------------------------------

// The operands of a stage: expanded weights of two panels, and 16 or 32 rows; or of four panels, and 16 rows.
struct Stage {
  const std::byte* weights;  // of the first panel
  std::size_t next_panel;    // offset to the next panel's
  const std::byte* rows;     // the stage's first tile of the first 16 rows
  std::size_t line_bytes;    // of that tile
  std::size_t next_rows;     // offset to the tile of the next 16 rows
  std::size_t low_plane;     // offset to the low parts (kSplit)
};

// The shape of a tile product: kPanels x kRowTiles is 2 or 4. Tiles 0..3 hold sums: of two panels with the first 16
// rows, then with the next 16, or of four panels.
template <class Type, int kPanels, int kRowTiles>
struct Shape {
  static constexpr int kProductOps = 2 * kPanels + (kRowTiles == 1 ? 1 : 4);
  // The products of split values, in order: high x high, high x low (of the rows), low (of the weights) x high.
  static constexpr int kStepOps = (Type::kSplit ? 3 : 1) * kProductOps;
  static constexpr int kStageOps = static_cast<int>(Type::kStageSteps) * kStepOps;
};

// Runs instruction `op` of a stage. `op` is a constant in all callers.
template <class Type, int kPanels, int kRowTiles>
TROUPE_INLINE void run_op(int op, const Stage& stage) {
  using S = Shape<Type, kPanels, kRowTiles>;
  const auto step = static_cast<std::size_t>(op / S::kStepOps);
  const int product = op % S::kStepOps / S::kProductOps;
  const std::byte* weights = stage.weights + step * kTile + (product == 2 ? 2 * kTile : 0);
  const std::byte* rows = stage.rows + step * 16 * stage.line_bytes + (product == 1 ? stage.low_plane : 0);
  switch (op % S::kProductOps) {
    case 0:
      TROUPE_TILE_LOAD(4, weights, kLine);
      break;
    case 1:
      TROUPE_TILE_LOAD(6, rows, stage.line_bytes);
      break;
    case 2:
      TROUPE_TILE_MULTIPLY(0, 4, 6);
      break;
    case 3:
      TROUPE_TILE_LOAD(5, weights + stage.next_panel, kLine);
      break;
    case 4:
      TROUPE_TILE_MULTIPLY(1, 5, 6);
      break;
    case 5:
      if constexpr (kRowTiles == 1)
        TROUPE_TILE_LOAD(4, weights + 2 * stage.next_panel, kLine);
      else
        TROUPE_TILE_LOAD(7, rows + stage.next_rows, stage.line_bytes);
      break;
    case 6:
      if constexpr (kRowTiles == 1)
        TROUPE_TILE_MULTIPLY(2, 4, 6);
      else
        TROUPE_TILE_MULTIPLY(2, 4, 7);
      break;
    case 7:
      if constexpr (kRowTiles == 1)
        TROUPE_TILE_LOAD(5, weights + 3 * stage.next_panel, kLine);
      else
        TROUPE_TILE_MULTIPLY(3, 5, 7);
      break;
    case 8:
      TROUPE_TILE_MULTIPLY(3, 5, 6);
      break;
  }
}

template <class Type, int kPanels, int kRowTiles>
TROUPE_INLINE void run_stage(const Stage& stage) {
#pragma GCC unroll 64
  for (int op = 0; op < Shape<Type, kPanels, kRowTiles>::kStageOps; ++op) run_op<Type, kPanels, kRowTiles>(op, stage);
}

TROUPE_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// ---- From sums to outputs -----------------------------------------------------------------------------

// The prepared rows of a call.
struct Rows {
  const std::byte* prepared;
  std::size_t tile_bytes;  // of 16 rows
  std::size_t count;
  // The source of tile loads: `prepared`, or a copy with shorter lines.
  const std::byte* lines;
  std::size_t line_bytes;
  std::size_t low_plane;  // offset from a tile to its low parts (kSplit)

  Rows(const std::byte* from, std::size_t bytes_of_tile, std::size_t num_rows)
      : prepared(from),
        tile_bytes(bytes_of_tile),
        count(num_rows),
        lines(from),
        line_bytes(kLine),
        low_plane(bytes_of_tile / 2) {}
  TROUPE_INLINE std::size_t tiles() const { return (count + kRowsPerTile - 1) / kRowsPerTile; }
  TROUPE_INLINE std::size_t in_tile(std::size_t row_tile) const {
    const std::size_t left = count - row_tile * kRowsPerTile;
    return left < kRowsPerTile ? left : kRowsPerTile;
  }
};

// Two panels that are multiplied together: the sums of the first are in tiles 0 and 2, of the second in 1 and 3.
struct Pair {
  const std::byte* a;
  const std::byte* b;
};

// The matrices of a product, and the processing of its sums: outputs as float32, or for two matrices (`up` is not null)
// silu(gate)
// * up, rounded as the next product's rows. One class for both, so that the loops below are compiled once for a type.
template <class Type>
struct Job {
  const MatrixView& matrix;  // or the gate
  const MatrixView* up = nullptr;
  float* out = nullptr;  // of matrix
  std::size_t stride = 0;
  std::byte* gated_out = nullptr;  // bf16_tiles of k = matrix.rows
  std::size_t panel_begin, panel_end;
  std::size_t panel_bytes;

  // A pair is two neighbouring panels, a last single one paired with itself; or the same panel of both matrices.
  std::size_t num_pairs() const { return up ? panel_end - panel_begin : (panel_end - panel_begin + 1) / 2; }
  // pair_bytes(): from a panel to that of the next pair.
  std::size_t pair_bytes() const { return up ? panel_bytes : 2 * panel_bytes; }
  TROUPE_INLINE Pair pair(std::size_t i) const {
    const std::size_t offset = panel_begin * panel_bytes + i * pair_bytes();
    const std::byte* a = matrix.body + offset;
    return {a, up ? up->body + offset : has_second(i) ? a + panel_bytes : a};
  }
  TROUPE_INLINE bool has_second(std::size_t i) const { return panel_begin + 2 * i + 1 < panel_end; }

  TROUPE_INLINE void expect(const Rows& rows, std::size_t i, std::size_t row_tile) const {
    if (up) return;
    for (std::size_t t = row_tile; t < row_tile + 2 && t < rows.tiles(); ++t)
      for (std::size_t r = 0; r < rows.in_tile(t); ++r) {
        const float* line = out + (t * kRowsPerTile + r) * stride + (panel_begin + 2 * i) * kPanelRows;
        __builtin_prefetch(line, 1);
        __builtin_prefetch(line + kPanelRows, 1);
      }
  }

  // Processes the sums of pair i with 16 rows, first those of its first panel, then those of its second, in two parts
  // (0 and 1).
  TROUPE_INLINE void write(const Rows& rows, std::size_t i, std::size_t row_tile, int part,
                           const std::byte* sums) const {
    if (up) {
      if (part % 2 == 0) write_gated(sums, sums + kTile, panel_begin + i, row_tile);
    } else if (part % 2 == 0) {
      write_outputs(rows, sums, panel_begin + 2 * i, row_tile);
    } else if (has_second(i)) {
      write_outputs(rows, sums + kTile, panel_begin + 2 * i + 1, row_tile);
    }
  }

 private:
  // `sums`: 16 lines of one output each.
  [[gnu::noinline]] void write_outputs(const Rows& rows, const std::byte* sums, std::size_t panel,
                                       std::size_t row_tile) const {
    const std::size_t n = panel * kPanelRows, width = matrix.rows - n;
    const auto mask = static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
    __m512i x[16];
    for (std::size_t j = 0; j < 16; ++j) x[j] = load_line(sums + j * kLine);
    transpose_avx512(x);
    const __m512 scale = _mm512_set1_ps(matrix.scale);
    float* to = out + row_tile * kRowsPerTile * stride + n;
    const std::size_t count = rows.in_tile(row_tile);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < kRowsPerTile; ++r) {
      if (r == count) break;
      __m512 value;
      if constexpr (Type::kIntegers) {
        const std::byte* ends = rows.prepared + (row_tile + 1) * rows.tile_bytes - 2 * kLine;
        const __m512 d = _mm512_loadu_ps(matrix.body + panel * panel_bytes);
        const __m512 row_scale = _mm512_set1_ps(reinterpret_cast<const float*>(ends)[r]);
        const __m512i sum_a = _mm512_set1_epi32(reinterpret_cast<const int*>(ends + kLine)[r]);
        value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(x[r], sum_a)),
                              _mm512_mul_ps(d, _mm512_mul_ps(row_scale, scale)));
      } else {
        value = _mm512_mul_ps(_mm512_castsi512_ps(x[r]), scale);
      }
      _mm512_mask_storeu_ps(to + r * stride, mask, value);
    }
  }

  // A tile of sums has the same order as prepared rows, so nothing is transposed and no float32 is written.
  [[gnu::noinline]] void write_gated(const std::byte* gates, const std::byte* ups, std::size_t panel,
                                     std::size_t row_tile) const {
    const __m512 gate_scale = _mm512_set1_ps(matrix.scale), up_scale = _mm512_set1_ps(up->scale);
    const __m512 one = _mm512_set1_ps(1.0f);
    std::byte* tile = gated_out + row_tile * bf16_tiles_bytes(matrix.rows) + panel / 2 * kTile;
    const std::size_t width = matrix.rows - panel * kPanelRows;  // outputs from `width` on are padding
    for (std::size_t j = 0; j < 16; ++j) {
      const __m512 g = _mm512_mul_ps(_mm512_castsi512_ps(load_line(gates + j * kLine)), gate_scale);
      const __m512 u = _mm512_mul_ps(_mm512_castsi512_ps(load_line(ups + j * kLine)), up_scale);
      const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp_avx512(_mm512_sub_ps(_mm512_setzero_ps(), g))));
      __m512i words = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_mul_ps(silu, u))));
      if (j >= width) words = _mm512_setzero_si512();
      // Even panels are the first 16 k of a run of 32, the low words; odd ones the high words.
      if (panel % 2 == 0)
        _mm512_mask_storeu_epi16(tile + j * kLine, 0x55555555u, words);
      else
        _mm512_mask_storeu_epi16(tile + j * kLine, 0xaaaaaaaau, _mm512_slli_epi32(words, 16));
    }
  }
};

// Load and store two or four tiles of sums.
template <int kTiles>
TROUPE_INLINE void load_sums(const std::byte* waiting) {
  TROUPE_TILE_LOAD(0, waiting, kLine);
  TROUPE_TILE_LOAD(1, waiting + kTile, kLine);
  if constexpr (kTiles == 4) {
    TROUPE_TILE_LOAD(2, waiting + 2 * kTile, kLine);
    TROUPE_TILE_LOAD(3, waiting + 3 * kTile, kLine);
  }
}
template <int kTiles>
TROUPE_INLINE void store_sums(std::byte* waiting) {
  TROUPE_TILE_STORE(0, waiting, kLine);
  TROUPE_TILE_STORE(1, waiting + kTile, kLine);
  if constexpr (kTiles == 4) {
    TROUPE_TILE_STORE(2, waiting + 2 * kTile, kLine);
    TROUPE_TILE_STORE(3, waiting + 3 * kTile, kLine);
  }
}

// ---- Few rows ------------------------------------------------------------------------------------------

// Pairs from `i` on, two of them for kPanels = 4, with the rows from `row_tile` on.
template <class Type, int kPanels, int kRowTiles>
void multiply_few(const Job<Type>& job, const Rows& rows, std::size_t stages, std::size_t i, std::size_t row_tile) {
  constexpr std::size_t kPanelBytes = Type::kStageTiles * kTile;
  const std::byte* panels[kPanels];
  for (std::size_t p = 0; p < kPanels; p += 2) {
    const Pair pair = job.pair(i + p / 2);
    panels[p] = pair.a;
    panels[p + 1] = pair.b;
  }
  alignas(64) std::byte tiles[2][kPanels * kPanelBytes];
  zero_sums();
  for (std::size_t p = 0; p < kPanels; ++p)
    Type::expand(panels[p], 0, tiles[0] + p * kPanelBytes, panels[p] + kPrefetchBytes, no_hook);
  // After the end of a panel, prefetch the beginning of the panel that replaces it in the next call.
  const std::size_t to_next = kPanels / 2 * job.pair_bytes() - job.panel_bytes;
  Stage stage{.weights = nullptr,
              .next_panel = kPanelBytes,
              .rows = rows.lines + row_tile * rows.tile_bytes,
              .line_bytes = rows.line_bytes,
              .next_rows = rows.tile_bytes,
              .low_plane = rows.low_plane};
  for (std::size_t s = 0; s < stages; ++s, stage.rows += Type::kStageSteps * 16 * rows.line_bytes) {
    stage.weights = tiles[s % 2];
    if (s + 1 == stages) {
      run_stage<Type, kPanels, kRowTiles>(stage);
      break;
    }
    std::size_t ahead = (s + 1) * Type::kStageBytes + kPrefetchBytes;
    if (ahead >= job.panel_bytes) ahead += to_next;
      // Expands 16 rows of every panel, with the stage's tile instructions spread between them.
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p)
      Type::expand(
          panels[p], s + 1, tiles[(s + 1) % 2] + static_cast<std::size_t>(p) * kPanelBytes,
          panels[p] + ahead, [&](int r) __attribute__((always_inline)) {
            constexpr int kOps = Shape<Type, kPanels, kRowTiles>::kStageOps, kSlots = 16 * kPanels;
            const int slot = 16 * p + r;
#pragma GCC unroll 4
            for (int op = slot * kOps / kSlots; op < (slot + 1) * kOps / kSlots; ++op)
              run_op<Type, kPanels, kRowTiles>(op, stage);
          });
  }
  alignas(64) std::byte sums[4 * kTile] = {};  // zeroed: with fewer than 16 rows only parts of lines are stored
  store_sums<kPanels * kRowTiles>(sums);
  for (int part = 0; part < kPanels * kRowTiles; ++part)
    job.write(rows, i + static_cast<std::size_t>(kRowTiles == 1 ? part / 2 : 0),
              row_tile + static_cast<std::size_t>(kRowTiles == 1 ? 0 : part / 2), part % 2,
              sums + part / 2 * 2 * kTile);
}

// ---- Many rows -----------------------------------------------------------------------------------------

// One block of k of a pair of panels: expanded into one buffer and multiplied with all rows.
struct Unit {
  Pair pair;
  std::size_t first_stage, num_stages;
};

// Expands a unit step by step: each call expands one stage of one panel.
template <class Type>
struct Expansion {
  Unit unit;
  std::byte* tiles;  // [2][kBlockStages][kStageTiles]
  std::size_t next = 0;

  std::size_t left() const { return 2 * unit.num_stages - next; }
  template <class Hook>
  TROUPE_INLINE void run(Hook hook) {
    const std::size_t panel = next % 2, stage = next / 2;
    const std::byte* from = panel == 0 ? unit.pair.a : unit.pair.b;
    Type::expand(from, unit.first_stage + stage, tiles + (panel * kBlockStages + stage) * Type::kStageTiles * kTile,
                 from + (unit.first_stage + stage) * Type::kStageBytes + kPrefetchBytes, hook);
    ++next;
  }
};

// Multiplies a unit with 16 or 32 rows, interleaved with the expansion of `num_expansions` stages of the next one, so
// that AMX does not wait for the expansion, nor the expansion for memory. Calls after_stage() after every stage.
template <class Type, int kRowTiles, class After>
TROUPE_INLINE void multiply_unit(const Stage& first, std::size_t num_stages, Expansion<Type>& expansion,
                                 std::size_t num_expansions, After after_stage) {
  Stage stage = first;
  std::size_t stages_left = num_stages;
  const auto multiply_stage = [&]() __attribute__((always_inline)) {
    run_stage<Type, 2, kRowTiles>(stage);
    stage.weights += Type::kStageTiles * kTile;
    stage.rows += Type::kStageSteps * kTile;
    --stages_left;
    after_stage();
  };
  // Each expansion.run() expands 16 rows; a stage is multiplied after every `share` of these rows.
  const std::size_t share = (16 * num_expansions + num_stages - 1) / num_stages;
  std::size_t due = 0;
  for (; num_expansions != 0; --num_expansions)
    expansion.run([&](int) __attribute__((always_inline)) {
      if (due == 0 && stages_left != 0) {
        multiply_stage();
        due = share;
      }
      --due;
    });
  while (stages_left != 0) multiply_stage();
}

// Complete sums that are still to be written, between the stages of the next pass.
template <class Type>
struct Unwritten {
  const Job<Type>& job;
  const Rows& rows;
  const std::byte* sums = nullptr;
  std::size_t pair = 0, row_tile = 0;
  int next = 0, end = 0;  // parts, two for every 16 rows

  void write_one() {
    if (next == end) return;
    job.write(rows, pair, row_tile + static_cast<std::size_t>(next / 2), next % 2, sums + next / 2 * 2 * kTile);
    ++next;
  }
  void write_all() {
    while (next != end) write_one();
  }
};

template <class Type>
void multiply_many(const Job<Type>& job, const Rows& rows, std::size_t stages, std::size_t first_pair,
                   std::size_t num_pairs) {
  constexpr std::size_t kPanelTileBytes = kBlockStages * Type::kStageTiles * kTile;
  alignas(64) std::byte tiles[2][2 * kPanelTileBytes];
  alignas(64) std::byte sums[kMaxPairs][kMaxRowsAtOnce / 32][4 * kTile];
  const std::size_t row_tiles = rows.tiles(), passes = (row_tiles + 1) / 2;
  const std::size_t num_units = num_pairs * ((stages + kBlockStages - 1) / kBlockStages);
  const auto unit_at = [&](std::size_t u) {
    const std::size_t block = u / num_pairs * kBlockStages;
    return Unit{job.pair(first_pair + u % num_pairs), block,
                stages - block < kBlockStages ? stages - block : kBlockStages};
  };
  Unwritten<Type> unwritten{.job = job, .rows = rows};
  Expansion<Type> expansion{unit_at(0), tiles[0]};
  while (expansion.left() != 0) expansion.run(no_hook);
  for (std::size_t u = 0; u < num_units; ++u) {
    const Unit unit = unit_at(u);
    const std::byte* weights = tiles[u % 2];
    expansion = {u + 1 < num_units ? unit_at(u + 1) : Unit{{nullptr, nullptr}, 0, 0}, tiles[(u + 1) % 2]};
    const std::size_t per_pass = (expansion.left() + passes - 1) / passes;
    const std::size_t pair = first_pair + u % num_pairs;
    const bool begin = unit.first_stage == 0, end = unit.first_stage + unit.num_stages == stages;
    for (std::size_t row_tile = 0; row_tile < row_tiles; row_tile += 2) {
      const Stage stage{.weights = weights,
                        .next_panel = kPanelTileBytes,
                        .rows = rows.lines + row_tile * rows.tile_bytes + unit.first_stage * Type::kStageSteps * kTile,
                        .line_bytes = kLine,
                        .next_rows = rows.tile_bytes,
                        .low_plane = rows.low_plane};
      std::byte* waiting = sums[u % num_pairs][row_tile / 2];
      const std::size_t expansions = expansion.left() < per_pass ? expansion.left() : per_pass;
      const bool two = row_tile + 1 < row_tiles;
      const auto write_some = [&] { unwritten.write_one(); };
      if (end) job.expect(rows, pair, row_tile);
      if (begin) zero_sums();
      if (two) {
        if (!begin) load_sums<4>(waiting);
        multiply_unit<Type, 2>(stage, unit.num_stages, expansion, expansions, write_some);
        store_sums<4>(waiting);
      } else {
        if (!begin) load_sums<2>(waiting);
        multiply_unit<Type, 1>(stage, unit.num_stages, expansion, expansions, write_some);
        store_sums<2>(waiting);
      }
      unwritten.write_all();
      if (!end) continue;
      unwritten.sums = waiting;
      unwritten.pair = pair;
      unwritten.row_tile = row_tile;
      unwritten.next = 0;
      unwritten.end = two ? 4 : 2;
    }
  }
  unwritten.write_all();
}

// Copies the rows to tile lines of only kRows rows, and points `rows` to the copy.
template <std::size_t kRows>
void pack_lines(Rows& rows, std::size_t num_lines, std::byte* packed) {
  for (std::size_t i = 0; i < num_lines; ++i)
    __builtin_memcpy(packed + i * 4 * kRows, rows.prepared + i * kLine, 4 * kRows);
  rows.lines = packed;
  rows.line_bytes = 4 * kRows;
}

// All pairs of a job, for at most kMaxRowsAtOnce rows.
template <class Type>
void multiply_job(const Job<Type>& job, Rows rows, std::size_t k) {
  const std::size_t stages = Type::stages(k), num_pairs = job.num_pairs();
  // Tiles 0..3 hold sums, 4 and 5 weights, 6 and 7 rows.
  TileConfig config;
  alignas(64) std::byte packed[kMaxPackedBytes];
  const std::size_t planes = Type::kSplit ? 2 : 1, plane_lines = tiles_k(k) / (Type::kIntegers ? 4 : 2);
  const std::size_t packed_rows = rows.count <= 2 ? rows.count : rows.count <= 4 ? 4 : kMaxPackedRows;
  if (rows.count <= kMaxPackedRows && planes * plane_lines * 4 * packed_rows <= kMaxPackedBytes) {
    const std::size_t num_lines = planes * plane_lines;
    packed_rows == 1   ? pack_lines<1>(rows, num_lines, packed)
    : packed_rows == 2 ? pack_lines<2>(rows, num_lines, packed)
    : packed_rows == 4 ? pack_lines<4>(rows, num_lines, packed)
                       : pack_lines<8>(rows, num_lines, packed);
    rows.low_plane = plane_lines * rows.line_bytes;
    for (const std::size_t tile : {0, 1, 2, 3, 6}) config.row_bytes[tile] = static_cast<std::uint16_t>(rows.line_bytes);
  }
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  if (rows.count <= kFewRows) {
    std::size_t i = 0;
    if (rows.tiles() == 1)
      for (; i + 1 < num_pairs; i += 2) multiply_few<Type, 4, 1>(job, rows, stages, i, 0);
    for (; i < num_pairs; ++i)  // a pair's weights stay in the second-level cache
      for (std::size_t row_tile = 0; row_tile < rows.tiles(); row_tile += 2) {
        if (row_tile + 1 < rows.tiles())
          multiply_few<Type, 2, 2>(job, rows, stages, i, row_tile);
        else
          multiply_few<Type, 2, 1>(job, rows, stages, i, row_tile);
      }
  } else {
    for (std::size_t i = 0; i < num_pairs; i += kMaxPairs)
      multiply_many<Type>(job, rows, stages, i, num_pairs - i < kMaxPairs ? num_pairs - i : kMaxPairs);
  }
  _tile_release();
}

template <class Type>
std::size_t row_tile_bytes(std::size_t k) {
  return Type::kIntegers ? i8_tiles_bytes(k) : (Type::kSplit ? 2 : 1) * bf16_tiles_bytes(k);
}

template <class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  const std::size_t tile_bytes = row_tile_bytes<Type>(matrix.k);
  for (std::size_t begin = 0; begin < num_rows; begin += kMaxRowsAtOnce) {
    const std::size_t count = num_rows - begin < kMaxRowsAtOnce ? num_rows - begin : kMaxRowsAtOnce;
    const Job<Type> job{.matrix = matrix,
                        .out = out + begin * out_stride,
                        .stride = out_stride,
                        .panel_begin = panel_begin,
                        .panel_end = panel_end,
                        .panel_bytes = Type::panel_bytes(matrix.k)};
    multiply_job<Type>(job, Rows(prepared + begin / kRowsPerTile * tile_bytes, tile_bytes, count), matrix.k);
  }
}

template <class Type>
void multiply_gated(const MatrixView& gate, const MatrixView& up, const std::byte* prepared, std::size_t num_rows,
                    std::byte* out, std::size_t panel_begin, std::size_t panel_end) {
  const std::size_t tile_bytes = row_tile_bytes<Type>(gate.k), out_tile_bytes = bf16_tiles_bytes(gate.rows);
  for (std::size_t begin = 0; begin < num_rows; begin += kMaxRowsAtOnce) {
    const std::size_t count = num_rows - begin < kMaxRowsAtOnce ? num_rows - begin : kMaxRowsAtOnce;
    const Rows rows(prepared + begin / kRowsPerTile * tile_bytes, tile_bytes, count);
    std::byte* to = out + begin / kRowsPerTile * out_tile_bytes;
    const Job<Type> job{.matrix = gate,
                        .up = &up,
                        .gated_out = to,
                        .panel_begin = panel_begin,
                        .panel_end = panel_end,
                        .panel_bytes = Type::panel_bytes(gate.k)};
    multiply_job<Type>(job, rows, gate.k);
    if (panel_end != gate.num_panels()) continue;
    // The rest after the last panel is padding, set to zero.
    const std::size_t first_word = panel_end % 2;
    for (std::size_t t = 0; t < rows.tiles(); ++t) {
      std::byte* tile = to + t * out_tile_bytes + panel_end / 2 * kTile;
      const std::byte* tiles_end = to + (t + 1) * out_tile_bytes;
      if (first_word == 1) {
        for (std::size_t j = 0; j < 16; ++j)
          _mm512_mask_storeu_epi16(tile + j * kLine, 0xaaaaaaaau, _mm512_setzero_si512());
        tile += kTile;
      }
      for (; tile < tiles_end; tile += kLine) store_line(tile, _mm512_setzero_si512());
    }
  }
}

// Codes that are looked up in a table of values.
template <class Packing>
constexpr bool short_codes() {
  if constexpr (kIsNumbers<Packing> || kIsTernary<Packing>)
    return false;
  else
    return Packing::kBits <= 5;
}

// The products of the types with or without short codes; nullptr for others, and for types without tiles.
template <bool of_short_codes>
Matmul* matmul_of(WeightType type) {
  return visit_type(type, [](auto format) -> Matmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (kHasTiles<Packing> && short_codes<Packing>() == of_short_codes)
      return multiply<TileType<Packing>>;
    else
      return nullptr;
  });
}
template <bool of_short_codes>
GatedMatmul* gated_of(WeightType type) {
  return visit_type(type, [](auto format) -> GatedMatmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (Packing::kAmxActivation == Activation::bf16_tiles && short_codes<Packing>() == of_short_codes)
      return multiply_gated<TileType<Packing>>;
    else
      return nullptr;
  });
}

}  // namespace
}  // namespace troupe::kernels::amx
