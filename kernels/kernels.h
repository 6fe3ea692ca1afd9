// Every operation of a step, as plain functions over the caller's memory, in several variants.
//
// A KernelTable lists one variant's functions; dispatch.cpp has the tables and chooses one at start. All
// functions allocate nothing, start no thread and cannot fail. One row's result never depends on
// the number of other rows in a call, on how rows or panels are split into calls, or on the thread:
// so answers do not depend on batching (docs/numerics.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/unit.h"
#include "kernels/formats/weight_type.h"
#include "kernels/recurrent/recurrent.h"

namespace troupe::kernels {

// ---- Matrices ----------------------------------------------------------------------------------

// How activations are rounded before a product. Part of a recipe.
enum class Activation : std::uint8_t {
  f32,          // not at all
  i8_group32,   // int8 per 32: scale = max|x| / 127 as float32, round to nearest even
  i8_group256,  // int8 per 256 (a last group may be shorter, a multiple of 32)
  // The forms of the tile layout, 16 rows side by side:
  bf16_tiles,        // bfloat16, round to nearest even
  bf16_split_tiles,  // two bfloat16; their sum is the value to 16 bits or more
  i8_tiles,          // int8 for a whole row: scale = max|x| / 127, as BitNet defines it
  // For panels on AMX, 16 rows side by side too:
  i8_group256_tiles,  // as i8_group256; k is a multiple of 256
  // For the lookup layout:
  i8_group256_tables,  // as i8_group256, and tables of sums for the first kLookupRows rows
};
inline constexpr std::size_t kNumActivations = 8;

// A matrix in the order its kernels read, stored as one position-independent 64-byte aligned body.
//
// Packed layout ("panels"): rows in panels of kPanelRows, the last panel padded with zero weights; inside a panel, k
// advances in quads so that one 64-byte line holds 16 rows x 4 k of 8-bit codes. packed_layout.h documents the body of
// each type, also of the tile layout, which has panels of 16 rows too. The reference variant keeps file order instead.
inline constexpr std::size_t kPanelRows = 16;

enum class Layout : std::uint8_t {
  file,    // as in the file
  panels,  // for vector instructions: lines of 16 rows x 4 k
  tiles,   // for AMX: lines of one row (ternary types only with one scale per row; not for F32, nor for
           // Q4_K and Q5_K, for which AMX reads panels)
  // Ternary types with one scale per row (packed_layout.h):
  lookup,  // 1.75 bits per weight, for table lookup of sums
  trits,   // 1.625 bits per weight, for vector instructions
};
inline constexpr Layout kLastLayout = Layout::trits;
// Up to this many rows use lookup tables; more rows are multiplied. Both give the same bits.
inline constexpr std::size_t kLookupRows = 4;

struct MatrixView {
  WeightType type = WeightType::f32;
  Layout layout = Layout::panels;
  std::size_t rows = 0;  // outputs
  std::size_t k = 0;     // inputs; a multiple of the type's group size
  const std::byte* body = nullptr;
  float scale = 1.0f;  // multiplied with every output (bitnet's `.scale` tensors)

  [[gnu::always_inline]] std::size_t num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// Bytes of the body of a rows x k matrix; a multiple of 64.
[[nodiscard]] std::size_t packed_bytes(WeightType type, Layout layout, std::size_t rows, std::size_t k);

// Panels [panel_begin, panel_end) as a matrix of their own: its output 0 is output panel_begin * kPanelRows.
[[nodiscard]] MatrixView panel_range(const MatrixView& matrix, std::size_t panel_begin, std::size_t panel_end);

// Packs panels [panel_begin, panel_end) from `file_rows` (all rows in file format, row-major) into
// `body`. Panels are independent: threads may pack different ones at once.
void pack_panels(WeightType type, Layout layout, const std::byte* file_rows, std::size_t rows, std::size_t k,
                 std::size_t panel_begin, std::size_t panel_end, std::byte* body);

// out[0..k) = row `row` of the matrix times its scale: exactly the file's values (embeddings).
void unpack_row(const MatrixView& matrix, std::size_t row, float* out);

// Rounds rows [first_row, first_row + num_rows) of the input of a product: x[r * stride + i] is element i < k of row
// first_row + r. `prepared` is where row 0 begins, 64-byte aligned. Different rows may be written at the same time, but
// those of a tile (kRowsPerTile from a multiple of it on) share cache lines: whole tiles in one call are best, and many
// times faster than row by row. k is a multiple of 32 for the i8 forms.
using PrepareRows = void(const float* x, std::size_t stride, std::size_t k, std::size_t first_row, std::size_t num_rows,
                         std::byte* prepared);
inline constexpr std::size_t kRowsPerTile = 16;
[[nodiscard]] constexpr bool is_tiled(Activation activation) {
  return activation >= Activation::bf16_tiles && activation <= Activation::i8_group256_tiles;
}
// Bytes of the first num_rows rows; a multiple of 64 (with tables: of 32). Row r, for the tile forms r a multiple of
// 16, begins prepared_bytes(activation, k, r) bytes after row 0.
[[nodiscard]] std::size_t prepared_bytes(Activation activation, std::size_t k, std::size_t num_rows);

// out[r * out_stride + n] = scale * sum over k of activation[r][k] * weight[n][k]
// for rows r in [0, num_rows) and outputs n of panels [panel_begin, panel_end), n < matrix.rows.
//   prepared   row 0 as written by PrepareRows of the matrix's activation, or a later row by its prepared_bytes()
// Order (tiles have their own, in docs/numerics.md): inside a group the sum is exact in int32; groups are added in
// ascending order in one float32 chain per output (f32: one fused chain in ascending k).
//
// Rows are blocked inside: callers pass all rows they have. Panels are multiplied in pairs, so an even number of them
// is best, and a row of activations is read once per pair: for many rows, pass a range of rows whose prepared bytes
// stay in the second-level cache (max_prepared_bytes) with as many panels as balance allows.
using Matmul = void(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
                    std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end);

// The gated half of a feed-forward layer in one call: silu(gate row) * (up row), rounded for the next product, for
// panels [panel_begin, panel_end) of two matrices of one shape, type and layout.
//   prepared   rows as for a Matmul with `gate`
//   out        row 0 of rows prepared as Activation::bf16_tiles of k = gate.rows; the call with the last panel also
//              writes the zeros after it
// Values equal those of Matmul, SiluMul and PrepareRows called in turn, up to the last bit of silu.
using GatedMatmul = void(const MatrixView& gate, const MatrixView& up, const std::byte* prepared, std::size_t num_rows,
                         std::byte* out, std::size_t panel_begin, std::size_t panel_end);

// ---- Rows --------------------------------------------------------------------------------------

// out[i] = x[i] * weight[i] / sqrt(mean(x * x) + eps), over one row. `out` may be `x`.
using RmsNorm = void(const float* x, const float* weight, float* out, std::size_t dim, float eps);

// Rotates the pairs of one head in place: neighbouring pairs (2i, 2i+1), the order of llama files.
//   x [head_dim]; cos, sin [rotated / 2]; elements from `rotated` on stay as they are.
using Rope = void(float* x, const float* cos, const float* sin, std::size_t rotated);

// out[i] = silu(gate[i]) * up[i]. `out` may be either input.
using SiluMul = void(const float* gate, const float* up, float* out, std::size_t count);

// out[i] = gelu(gate[i]) * up[i], in the tanh form: gelu(x) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
// (Hendrycks and Gimpel, 2016). `out` may be either input.
using GeluMul = void(const float* gate, const float* up, float* out, std::size_t count);

// out[i] = max(gate[i], 0)^2 * up[i]. `out` may be either input.
using Relu2Mul = void(const float* gate, const float* up, float* out, std::size_t count);

// x[i] = cap * tanh(x[i] / cap), with cap > 0.
using SoftCap = void(float* x, float cap, std::size_t count);

// x[i] += y[i].
using Add = void(float* x, const float* y, std::size_t count);

// ---- Attention ---------------------------------------------------------------------------------

enum class KvType : std::uint8_t {
  f32,
  f16,
  i8,  // int8 codes with one float32 scale for each position and head: scale = max|x| / 127, round to nearest even
};
[[nodiscard]] std::string_view name(KvType type);  // "f32", "f16", "int8"
[[nodiscard]] std::size_t element_bytes(KvType type);

// One layer's part of a block: the K parts of all kv heads, then their V parts. A K part is [head_dim][32 positions]
// (transposed: a score is a sum over vertical vectors of 32 positions, with no horizontal additions), a V part
// [32 positions][head_dim], both of elements of the KV type. i8: the float32 scales of the 32 positions follow the
// codes.
inline constexpr std::uint32_t kBlockPositions = 32;
struct KvShape {
  KvType type = KvType::f16;
  std::uint32_t num_kv_heads = 0;
  std::uint32_t head_dim = 0;

  // elements_bytes(): one head's K (or V) without scales; head_bytes(): with scales.
  [[gnu::always_inline]] std::size_t elements_bytes() const {
    return std::size_t{head_dim} * kBlockPositions * element_bytes(type);
  }
  [[gnu::always_inline]] std::size_t head_bytes() const {
    return elements_bytes() + (type == KvType::i8 ? kBlockPositions * sizeof(float) : 0);
  }
  [[gnu::always_inline]] std::size_t v_offset() const { return num_kv_heads * head_bytes(); }
  [[gnu::always_inline]] std::size_t layer_bytes() const { return 2 * v_offset(); }
};

// Rounds one token's k and v rows [num_kv_heads * head_dim] to the KV type and stores them at `slot` (0..31) of
// `layer_block`, one layer's part of a block. All variants store the same bits. f16 and i8 never hold an infinity or
// NaN: larger values become the largest finite one, so that a weight of zero times any value is zero.
using StoreKv = void(const KvShape& shape, std::byte* layer_block, std::uint32_t slot, const float* k, const float* v);

// Reads the exact values of `slot`: k and v [num_kv_heads * head_dim]. For inspection, not for a step.
void load_kv(const KvShape& shape, const std::byte* layer_block, std::uint32_t slot, float* k, float* v);
// Writes zeros to all slots from `first_slot` on.
void clear_kv(const KvShape& shape, std::byte* layer_block, std::uint32_t first_slot);

// Attention is computed split by split: a split is 8 blocks aligned to position 0. For each split it sees, a query row
// gets a partial, the softmax over that split in a form that can be merged: the largest score, the sum of exp(score -
// largest), and V weighted with exp(score - largest). A row's partials are merged one by one, ascending (Dao et al.,
// Flash-Decoding, 2023). A partial depends only on its row and on the positions of the split that the row sees, never
// on the other rows of a call: so splits may be spread over threads, and rows of all sequences that share a split's
// blocks may be in one call.
inline constexpr std::uint32_t kSplitBlocks = 8;
inline constexpr std::uint32_t kSplitPositions = kSplitBlocks * kBlockPositions;
// In floats: [0] the largest score, [1] the sum, from [kPartialValues] on head_dim values, padded to 64 bytes with
// zeros.
inline constexpr std::size_t kPartialValues = 16;
[[nodiscard]] std::size_t partial_floats(std::size_t head_dim);

struct AttentionRow {
  const float* q = nullptr;  // [head_dim]
  float* partial = nullptr;  // [partial_floats(head_dim)], 64-byte aligned
  // [kSplitPositions], added to the products of q and k before these are scaled: the part of K that is kept apart from
  // the blocks (ScoreOffsets). Only with i8; null: none. Values of positions that the row does not see do not matter.
  const float* offsets = nullptr;
  // The row sees positions [first_seen, num_seen) of the split, at least one.
  std::uint32_t num_seen = 0;
  std::uint32_t first_seen = 0;
};

// Some query rows over one kv head of one split.
//   blocks      layer parts of the split's blocks; blocks that no row sees are not read
//   next_block  a layer part that will be read soon, to prefetch; may be null
//   scratch     attention_scratch_bytes(head_dim), 64-byte aligned
// The positions seen by any of the rows are contiguous. Order: scores in ascending d; the largest; weights exp(score -
// largest), their sum per lane of the variant's vectors, the lanes last; the weighted sum in ascending position.
// Positions that a row does not see get a weight of exactly zero.
struct AttentionSplit {
  KvShape shape;
  std::uint32_t kv_head = 0;
  const std::byte* const* blocks = nullptr;
  const std::byte* next_block = nullptr;
  std::span<const AttentionRow> rows;
  float scale = 1.0f;     // of the scores, mostly 1 / sqrt(head_dim)
  float soft_cap = 0.0f;  // of the scaled scores: cap * tanh(score / cap); 0: none
  std::byte* scratch = nullptr;
};
using AttendSplit = void(const AttentionSplit& split);
[[nodiscard]] std::size_t attention_scratch_bytes(std::size_t head_dim);

// The products of one query row with a part of K that is not in the blocks: for each of `num_blocks` blocks
// out[block * 32 + slot] = sum over d of q[block * head_dim + d] * part[d * 32 + slot], in ascending d.
//
//   q     [num_blocks][head_dim]: the row, made ready for each block
//   part  [head_dim][32 positions]: the same for all blocks
//   out   [num_blocks][32 positions]; any alignment, as the others
using ScoreOffsets = void(const float* q, const float* part, std::size_t head_dim, std::size_t num_blocks, float* out);

// Merges the next partial into `total`.
using MergePartial = void(const float* partial, std::size_t head_dim, float* total);
// out[0..head_dim) = values / sum.
using FinishAttention = void(const float* total, std::size_t head_dim, float* out);

// ---- Sampling ----------------------------------------------------------------------------------

// Largest value of x[0..count), and the lowest index with that value. NaN counts as less than any number.
struct MaxAt {
  float value;
  std::uint32_t index;
};
using ArgMax = MaxAt(const float* x, std::size_t count);

// Clamps x[i] to [-limit, limit]; NaN becomes -limit.
using Clamp = void(float* x, float limit, std::size_t count);

// Appends every x[i] >= least to `values` and its first_id + i to `ids`, ascending, and returns their number. Both have
// room for `count`; `values` may be `x`.
using Collect = std::size_t(const float* x, std::size_t count, float least, std::int32_t first_id, std::int32_t* ids,
                            float* values);

// sums[j] = sum of the x[i] >= least[j]. count <= kSoftmaxTile. In the variant's own order: for bounds, not for
// results.
inline constexpr std::size_t kNumBounds = 4;
using SumsAbove = void(const float* x, std::size_t count, const float (&least)[kNumBounds], float (&sums)[kNumBounds]);

// out[i] = exp((x[i] - max) * inv_temperature); returns the sum of out. count <= kSoftmaxTile.
// `out` may be `x`. Callers add the tiles of a vocabulary in ascending order.
inline constexpr std::size_t kSoftmaxTile = 1024;
using ExpTile = float(const float* x, float max, float inv_temperature, float* out, std::size_t count);

// Natural logarithm of a positive normal float, without libm; within 2 ulp. The same code in all variants.
[[nodiscard]] float log_positive(float x);

// ---- Variants ----------------------------------------------------------------------------------

// The functions of rows, attention and sampling: X(owner, type, name) for each. Members of KernelTable, and functions
// in the namespace of each variant (variants.h).
#define TROUPE_ROW_FUNCTIONS(X, owner)        \
  X(owner, RmsNorm, rms_norm)                 \
  X(owner, Rope, rope)                        \
  X(owner, SiluMul, silu_mul)                 \
  X(owner, GeluMul, gelu_mul)                 \
  X(owner, Relu2Mul, relu2_mul)               \
  X(owner, SoftCap, soft_cap)                 \
  X(owner, Add, add)                          \
  X(owner, StoreKv, store_kv)                 \
  X(owner, AttendSplit, attend_split)         \
  X(owner, ScoreOffsets, score_offsets)       \
  X(owner, MergePartial, merge_partial)       \
  X(owner, FinishAttention, finish_attention) \
  X(owner, ArgMax, arg_max)                   \
  X(owner, ExpTile, exp_tile)                 \
  X(owner, Clamp, clamp)                      \
  X(owner, Collect, collect)                  \
  X(owner, SumsAbove, sums_above)

struct KernelTable {
  std::string_view name;              // "reference", "scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"
  Layout (*layout)(WeightType type);  // the preferred layout of its products of this type
  // The recipe: how rows are rounded, and the functions that multiply them, for a type in a layout that the table uses.
  Activation (*activation)(WeightType type, Layout layout);
  Unit (*unit)(WeightType type, Layout layout);       // the unit that limits products of many rows
  PrepareRows* prepare[kNumActivations];              // by Activation
  Matmul* (*matmul)(WeightType type, Layout layout);  // null: not for this type and layout
  // Returns null for types and layouts without such a product.
  GatedMatmul* (*gated_matmul)(WeightType type, Layout layout);
  // Rows per call: as many as fit into max_prepared_bytes, at most max_rows.
  std::size_t max_prepared_bytes;
  std::size_t max_rows;
#define TROUPE_MEMBER(_, Type, name) Type* name;
  TROUPE_ROW_FUNCTIONS(TROUPE_MEMBER, KernelTable)
#undef TROUPE_MEMBER
  const RecurrentKernels* recurrent;
};

// Raised whenever any recipe changes its bits; part of numerics_id.
inline constexpr std::uint32_t kRecipeVersion = 8;

// Every built-in table, best last, and those that this CPU (and operating system) can run; then registered ones
// (register_table.h). A span stays valid, without later additions.
[[nodiscard]] std::span<const KernelTable* const> all_tables();
[[nodiscard]] std::span<const KernelTable* const> supported_tables();
// nullptr if there is no such name. is_supported() distinguishes a known table that this CPU cannot run.
[[nodiscard]] const KernelTable* find_table(std::string_view name);
[[nodiscard]] bool is_supported(const KernelTable& table);
[[nodiscard]] const KernelTable& best_table();  // of the built-in tables

// The layout in which `table` multiplies with these weights (all rows in file format): table.layout(type), but panels
// for ternary weights with more than one scale in a row. O(rows * k) for ternary types, else O(1).
[[nodiscard]] Layout layout_for(const KernelTable& table, WeightType type, const std::byte* file_rows, std::size_t rows,
                                std::size_t k);

// Whether `table` has products of ternary weights in `layout`, lookup or trits, beside those in panels, with the same
// bits.
[[nodiscard]] bool has_ternary_layout(const KernelTable& table, Layout layout);
// The layout to use for these weights if `asked` (panels, lookup or trits) is requested: `asked`, but panels if the
// type is not ternary, a row has several scales, or has_layout() is false. Only for tables that have it. O(rows * k)
// for ternary types, else O(1).
[[nodiscard]] Layout ternary_layout_for(Layout asked, WeightType type, const std::byte* file_rows, std::size_t rows,
                                        std::size_t k);
[[nodiscard]] bool is_ternary(WeightType type);
// Whether packed_bytes and pack_panels support this combination.
[[nodiscard]] bool has_layout(WeightType type, Layout layout, std::size_t k);

// Sets flush-to-zero and denormals-are-zero for the calling thread.
void set_flush_denormals();

// Evicts the bytes from the caches of all cores, so that the next measurement reads memory. Does nothing on CPUs other
// than x86.
void leave_caches(const std::byte* bytes, std::size_t count);

}  // namespace troupe::kernels
