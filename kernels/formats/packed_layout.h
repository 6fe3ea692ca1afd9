// The byte layouts of packed matrices and of prepared rows: the contract between packed_matrix.cpp, which writes
// bodies, the prepare functions, and the matmul of every variant. First Layout::panels.
//
// Only constants and static functions: files compiled for one instruction set include this.
//
// A panel is 16 rows; panels follow one another. A *line* is 64 bytes: 16 rows x 4 adjacent k (a *quad*), byte 4 * row
// + i holding k = 4 * quad + i. Codes are unsigned: `vpdpbusd` multiplies unsigned weights with signed activations, and
// the quad of an activation row is a 32-bit broadcast. A line of nibbles holds two quads. Scales and codes are stored
// in the order in which they are read: a thread streams a panel from front to back.
//
//   F32    per k one line: 16 float32
//   F16    per k half a line: 16 float16 (BF16 likewise); a panel is padded to whole lines
//
// All other types are stored in *units* of 64, 128 or 256 k: a header with the scales, then the codes, in *runs* of 32
// k. Headers:
//
//   Q8_0, Q4_0, Q5_0, IQ4_NL  64 k: 1 line: 2 x 16 float16 d
//   Q4_1, Q5_1    64 k: the same, and 1 line: 2 x 16 float16 -m, so that w = d * code - min as in Q4_K
//   MXFP4         128 k: 1 line: 4 x 16 e
//   IQ4_XS        256 k, as all below: 1 line: 16 float16 d (half used); 2 lines: 8 runs x 16 int8 scale
//   Q4_K, Q5_K    1 line: 16 float16 d, 16 float16 dmin; 2 lines: 8 runs x 16 uint8 scale; 2 lines: 8 runs x 16 uint8
//                 min
//   Q3_K, Q6_K    1 line: 16 float16 d (half used); 4 lines: 16 half runs x 16 int8 scale
//   Q2_K          1 line: 16 float16 d, 16 float16 dmin; 4 lines: 16 half runs x 16 bytes, scale in the low and min in
//                 the high nibble
//   TQ1_0, TQ2_0  1 line: 16 float16 d (half used)
//   I2_S          as TQ2_0 with d = 1: the tensor's scale is the matrix's. Codes after an odd last group of 128 are
//                 zero, as are the activations for them.
//
// Codes of b bits take b lines for 32 k:
//
//   8 bits  line q: quad q (Q8_0: code + 128)
//   4 bits  nibbles. Line j: low ones quad j, high ones quad j + 4
//   2 bits  line h, bits 2s..2s+1: quad 4h + s
//   3 bits  1 line of third bits: bit q of a byte is the third bit of quad q; then the lower two as 2 bits
//   5 bits  1 line of fifth bits alike; then nibbles
//   6 bits  the upper two as 2 bits; then nibbles
//
// The part of a unit after an odd last group is zero and not read.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels::layout {

inline constexpr std::size_t kLine = 64;

struct PanelUnit {
  std::size_t k, header, bits;  // weights of each row; bytes; of a code
};
static constexpr std::size_t run_bytes(PanelUnit unit) { return unit.bits * kLine; }
static constexpr std::size_t unit_bytes(PanelUnit unit) { return unit.header + unit.k / 32 * run_bytes(unit); }
static constexpr std::size_t panel_bytes(PanelUnit unit, std::size_t k) {
  return (k + unit.k - 1) / unit.k * unit_bytes(unit);
}

inline constexpr std::size_t kTQUnit = unit_bytes({256, kLine, 2});

// Byte offsets inside the units of the K types and IQ4_XS.
inline constexpr std::size_t kMinOffset = 32;       // dmin
inline constexpr std::size_t kRunScales = kLine;    // of runs or half runs
inline constexpr std::size_t kRunMins = 3 * kLine;  // Q4_K, Q5_K
inline constexpr std::size_t kRuns = 5 * kLine;     // of types with a header of 5 lines

// ---- The tile layout (Layout::tiles) ---------------------------------------------------------------------
//
// For AMX. Weights are its left operand: a tile has 16 lines, one per row of the panel, of 32 k as bfloat16 or 64 k as
// bytes. This layout is expanded to AMX tiles one *stage* (64 k of a panel) at a time.
//
// Inside a run of 32, k is permuted, in the same way for weights and activations: word 2j of a bfloat16 line holds k =
// j, word 2j + 1 holds k = 16 + j (run_word). Then two float vectors of 16 adjacent k become a line by one shift and
// one merge.
//
//   F16, BF16  per 64 k: 2 AMX tiles, ready to multiply
//   Q8_0   per 64 k: 1 line: 2 x 16 float16 d; then line r: the 64 signed codes of row r
//   Q4_0, IQ4_NL  per 128 k (four groups): 2 lines: 4 x 16 float16 d; then 16 lines of nibbles
//   Q4_1   the same with 2 lines of m, 4 x 16 float16, after those of d
//   Q5_0, Q5_1  as Q4_0 and Q4_1, with 4 lines of fifth bits before the nibbles: bit w of dword r of line i is that of
//          word w (in the order above) of run i of row r
//   MXFP4  per 128 k: 1 line: 4 x 16 e; then 16 lines of nibbles
//   IQ4_XS per 256 k: 3 lines of scales as in panels; 2 x 16 lines of nibbles
//   Q2_K   per 256 k: 5 lines of scales as in panels; 16 lines of codes, as Q6_K's high bits
//   Q3_K   the same, with 8 lines of third bits, as Q5_0's fifth bits, before those of codes
//   Q6_K   per 256 k: 5 lines of scales as in panels; 2 x 16 lines of nibbles; 16 lines of high bits: bits 2r, 2r + 1
//          of word w of line i: run r of row i
//   TQ1_0, TQ2_0, I2_S  1 line: 16 float32 scales (I2_S: 1); then per 256 k 16 lines: bits 2s, 2s + 1 of byte b of
//          line r: the code of k = 64s + b in row r
//
// A line of nibbles is 128 k of one row: bits 4r..4r+3 of word w belong to run r. The end of a row is padded with
// zeros.

inline constexpr std::size_t kTile = 16 * kLine;
inline constexpr std::size_t kStageK = 64;

inline constexpr std::size_t kTilesFloatStage = 2 * kTile;  // F16, BF16, per stage
inline constexpr std::size_t kTilesNibbles = 16 * kLine;    // per 128 k
inline constexpr std::size_t kTilesTQUnit = 16 * kLine;
inline constexpr std::size_t kTilesHighBits = kRuns + 2 * kTilesNibbles;  // Q6_K

// ---- The lookup layout (Layout::lookup) ------------------------------------------------------------------
//
// TQ1_0, TQ2_0 and I2_S with one scale per row. Three adjacent weights (a *triple*) are the digits of v = 9 * w0 + 3 *
// w1 + w2, from -13 to 13. The sum of a triple's products with a row of activations is looked up at |v| in a table of
// 16, and subtracted if v is negative: 4 bits and a sign for three weights.
//
//   1 line: 16 float16 d (half used; I2_S: 1); then per 256 k:
//     3 lines of signs: bit 7 - q of a byte of line i is the sign of step 8i + q
//     11 lines of nibbles: line j has step 2j in its low and step 2j + 1 in its high nibbles
//
// A *step* is 64 lookups: byte 16 * lane + row is triple 4 * step + lane of row `row`, and begins at k = 3 * triple. A
// lane is 16 bytes, and has one table: `pshufb` looks 16 rows up at once. Beyond k = 256, and the end of a row, are
// zeros.
//
// The tables of a row of activations, per 256 k and step: a line of low and a line of high parts, sum = kLookupBase *
// high + low, lane by lane. Low parts are within +-15 and high parts within +-12 (activations within +-127): the parts
// of 8 steps add up in bytes.
inline constexpr std::size_t kLookupSteps = 22;
inline constexpr std::size_t kLookupSigns = 3 * kLine;
inline constexpr std::size_t kLookupUnit = 14 * kLine;  // per 256 k
inline constexpr std::size_t kLookupTables = 2 * kLookupSteps * kLine;
inline constexpr int kLookupBase = 31;
// For many rows panels are unpacked on the stack: 68 KiB.
inline constexpr std::size_t kMaxLookupK = 16384;
static constexpr std::size_t lookup_panel_bytes(std::size_t k) { return kLine + (k + 255) / 256 * kLookupUnit; }

// ---- The trits layout (Layout::trits) --------------------------------------------------------------------
//
// TQ1_0, TQ2_0 and I2_S with one scale per row, for multiply-adds: codes (weight + 1) as digits of base 3, ten to 16
// bits. A *word* is a fraction: digits d0..d9 are stored as ceil(2^16 * 0.d0d1..d9). Multiplying by 9^j mod 2^16
// removes the first 2j digits, and the integer part of nine times that fraction is the next two: a `vpmullw` and a
// `vpmulhuw` for 20 digits, exactly, because 3^10 < 2^16.
//
//   1 line: 16 float16 d (half used; I2_S: 1); then per 256 k:
//     6 pairs of lines of words: pair p has the quads 10p..10p + 9, one digit of a word each. Bytes 16 * lane + i of a
//     quad's line (i < 8) are word 8 * lane + i of the first line of the pair, and those with i >= 8 word
//     8 * lane + i - 8 of the second, the order of `vpackuswb`
//     1 line of nibbles, 3 * digit + digit: low ones quads 60 and 61, high ones 62 and 63
//
// Digits after the end of a row are arbitrary: they are multiplied with zeros.
inline constexpr std::size_t kTritsPairs = 6;
inline constexpr std::size_t kTritsQuads = 10;                            // of a pair of lines
inline constexpr std::size_t kTritsUnit = (2 * kTritsPairs + 1) * kLine;  // per 256 k
static constexpr std::size_t trits_panel_bytes(std::size_t k) { return kLine + (k + 255) / 256 * kTritsUnit; }

// The word of k = i of a run of 32 in a bfloat16 line.
static constexpr std::size_t run_word(std::size_t i) { return i < 16 ? 2 * i : 2 * (i - 16) + 1; }

static constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Rows of activations are an odd number of lines apart: with a power of two, the same column of all rows of a tile
// would map to one set of the first-level cache.
static constexpr std::size_t row_bytes(std::size_t n) { return ((n + kLine - 1) / kLine | 1) * kLine; }

// A prepared row of float32.
static constexpr std::size_t float_row_bytes(std::size_t k) { return row_bytes(4 * k); }

// A prepared row of int8 codes with one scale per 32: arrays one after the other.
//   codes       int8 [k], padded to lines
//   scale       float32 [groups]
//   scaled_sum  float32 [groups]: scale * sum of the group's codes (the second term of types with a min)
//   start       int32 [groups]: -128 * sum of codes, the start of a sum over weight codes + 128; codes
//               with a smaller offset start at it divided by a power of two (Q4_0, Q5_0)
//   start16     int32 [2 * groups]: the same per 16 (Q2_K, Q3_K, Q6_K)
inline constexpr std::int32_t kSumOffset = 128;
inline constexpr float kPerStart = -1.0f / kSumOffset;  // times a start: the sum of codes
struct Group32Row {
  std::size_t scale, scaled_sum, start, start16, bytes;
};
static constexpr Group32Row group32_row(std::size_t k) {
  const std::size_t groups = k / 32;
  const std::size_t scale = round_up(k, kLine);
  return {scale, scale + 4 * groups, scale + 8 * groups, scale + 12 * groups, row_bytes(scale + 20 * groups)};
}

// The same with one scale per 256: codes, scale [groups], start [groups], here -1 * sum (TQ's offset is 1).
// The codes are padded with zeros to whole groups, because weights are multiplied by whole groups.
struct Group256Row {
  std::size_t scale, start, bytes;
};
static constexpr Group256Row group256_row(std::size_t k) {
  const std::size_t groups = (k + 255) / 256;
  const std::size_t scale = 256 * groups;
  return {scale, scale + 4 * groups, row_bytes(scale + 8 * groups)};
}

// Rows prepared for lookups: the tables of the first rows, then from `codes` on all rows as in Group256Row, offset by
// half a line. So a pointer to row 0 is line-aligned, and the tables are there; a pointer that is off by half a line is
// to another row, without tables.
struct LookupRow {
  std::size_t tables;  // of one row
  std::size_t codes;   // of row 0
};
static constexpr LookupRow lookup_row(std::size_t k, std::size_t rows_with_tables) {
  const std::size_t tables = (k + 255) / 256 * kLookupTables;
  return {tables, rows_with_tables * tables + kLine / 2};
}

// Rows prepared for AMX tiles are 16 side by side, as the right operand: per stage two tiles of 16 lines (bfloat16),
// each line 16 rows x the pair of k at words 2j, 2j + 1; or one tile (bytes), each line 16 rows x a quad of k. k is
// padded with zeros to a multiple of 256.
//   bf16_tiles        the tiles
//   bf16_split_tiles  all tiles of the high parts, then all of the low parts
//   i8_tiles          the tiles, 16 float32 scales, 16 int32 sums of the codes
// As the left operand, for weights of Layout::panels (k a multiple of 256):
//   i8_group256_tiles  per 256 k: 4 tiles of 16 rows x 64 k; 16 float32 scales; 16 rows x 8 int16 sums of 32 codes
static constexpr std::size_t tiles_k(std::size_t k) { return round_up(k, 256); }
static constexpr std::size_t bf16_tiles_bytes(std::size_t k) { return tiles_k(k) * 32; }
static constexpr std::size_t i8_tiles_bytes(std::size_t k) { return tiles_k(k) * 16 + 2 * kLine; }
inline constexpr std::size_t kI8GroupScales = 4 * kTile;
inline constexpr std::size_t kI8GroupSums = kI8GroupScales + kLine;
inline constexpr std::size_t kI8GroupBytes = kI8GroupSums + 4 * kLine;
static constexpr std::size_t i8_group256_tiles_bytes(std::size_t k) { return k / 256 * kI8GroupBytes; }

// bfloat16 weights made from codes are truncated, not rounded: their scale is first raised by this factor, which makes
// the mean error zero (log-uniform mantissas) and does not change values that bfloat16 represents exactly.
inline constexpr float kCutOffRaise = 1.0027f;

// Largest |x| of a group at or below which all its codes are zero: its reciprocal must stay finite.
inline constexpr float kSmallestMax = 1e-30f;

}  // namespace troupe::kernels::layout
