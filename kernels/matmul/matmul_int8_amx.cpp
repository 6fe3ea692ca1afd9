// Products of Q4_K and Q5_K on CPUs with AMX, with int8 operands.
//
// A weight is d * scale * code - dmin * min: scales and mins have 6 bits and hold for 32 k (a *run*), d and dmin for
// 256 k (a *group*), and activations have one scale per group, too. code * scale is rounded to 8 bits, a multiple of 4
// (Q5_K: of 8): the error is a tenth of the format's own quantization error. So all sums over a group are integers, and
// there is one float step per group, the same for all instruction sets:
//
//   acc += d_a * (4 * d * sum(a * round(code * scale / 4)) - dmin * sum over runs(min * sum of the run's a))
//
// Few rows are multiplied with vector instructions (VNNI), more with tiles: rows of activations are the left operand,
// 16 rows x 64 k to a tile, and weights the right one. The lines of Layout::panels, 16 outputs x 4 k, form a tile of 64
// k x 16 outputs once nibbles are expanded to bytes.
//
// A group of two panels (a *unit*) is expanded to tiles once, while the one before it is multiplied, and multiplied
// with all rows, 32 at a time (a *pass*); the float step of a pass is done during the next. Few rows: weights are read
// from memory in ascending order. Many rows: several pairs of panels are multiplied with a group of the activations
// while it is cached. The order of one output's additions is the same either way.
#include <immintrin.h>

#include "kernels/cpu/tiles_amx.h"
#include "kernels/formats/weight_formats.h"
#include "kernels/variants.h"

namespace troupe::kernels::amx {
namespace {

using namespace layout;

constexpr std::size_t kMaxRowsAtOnce = 512;  // of activations: their sums take 128 bytes per row and pair of panels
constexpr std::size_t kMaxPasses = kMaxRowsAtOnce / 32;
constexpr std::size_t kMaxDotRows = 4;        // few rows: vector instructions
constexpr std::size_t kFewRows = 96;          // up to this many, a pair of panels is done for all k before the next
constexpr std::size_t kPairsPerBlock = 4;     // for more rows
constexpr std::size_t kPrefetchBytes = 3072;  // prefetch distance of the vector code
constexpr std::size_t kRunsPerGroup = 8;
constexpr std::size_t kStages = 4;              // of 64 k in a group
constexpr std::size_t kStageLines = 16;         // of nibbles: two panels x two runs x 4
constexpr std::size_t kStageTiles = 2 * kTile;  // expanded: one of each panel

TROUPE_INLINE __m512i load_line(const std::byte* p) { return _mm512_loadu_si512(p); }
TROUPE_INLINE void store_line(std::byte* p, __m512i line) { _mm512_store_si512(p, line); }
TROUPE_INLINE __m512 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TROUPE_INLINE __m512i unsigned_bytes(const std::byte* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TROUPE_INLINE __m512i words(int value) { return _mm512_set1_epi16(static_cast<short>(value)); }
TROUPE_INLINE void prefetch(const std::byte* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0); }

// ---- Weights ---------------------------------------------------------------------------------

// A run of a panel. codes(j, low, high): the codes of nibble line j, quads j and j + 4. Products of a code and a scale
// are rounded by kShift bits.
template <int bits>
struct KType {
  static constexpr PanelUnit kUnit = Codes<scales::RunsAndMins, bits, Minus<0>>::kPanelUnit;
  static constexpr std::size_t kUnitBytes = unit_bytes(kUnit), kRunBytes = run_bytes(kUnit), kHighLines = bits - 4;
  static constexpr int kShift = bits - 2;
};
struct Q4_K : KType<4> {
  struct Run {
    const std::byte* lines;
    TROUPE_INLINE void open(const std::byte* from) { lines = from; }
    TROUPE_INLINE void codes(std::size_t j, __m512i& low, __m512i& high) const {
      const __m512i nibbles = load_line(lines + j * kLine);
      low = _mm512_and_si512(nibbles, words(0x0f0f));
      high = _mm512_and_si512(_mm512_srli_epi16(nibbles, 4), words(0x0f0f));
    }
  };
};
struct Q5_K : KType<5> {
  struct Run {
    const std::byte* lines;
    __m512i fifths;
    TROUPE_INLINE void open(const std::byte* from) {
      lines = from + kLine;
      fifths = load_line(from);
    }
    TROUPE_INLINE void codes(std::size_t j, __m512i& low, __m512i& high) const {
      const __m512i nibbles = load_line(lines + j * kLine);
      const auto shift = static_cast<unsigned>(j);
      // Bits j and j + 4 of a byte of `fifths` move to bit 4. 0xf8: a | (b & c).
      const __m512i mask = words(0x0f0f), place = words(0x1010);
      low =
          _mm512_ternarylogic_epi32(_mm512_and_si512(nibbles, mask), _mm512_slli_epi16(fifths, 4 - shift), place, 0xf8);
      high = _mm512_ternarylogic_epi32(_mm512_and_si512(_mm512_srli_epi16(nibbles, 4), mask),
                                       _mm512_srli_epi16(fifths, shift), place, 0xf8);
    }
  };
};

// round(code * scale / 2^kShift) for the codes of a run: the code times the upper bits of its scale, plus the part of
// the lower kShift bits. No product of bytes exceeds a byte, so words can be multiplied.
template <class Type>
class TimesScale {
 public:
  TROUPE_INLINE TimesScale() = default;
  // For run `run` of a panel's group.
  TROUPE_INLINE TimesScale(const std::byte* unit, std::size_t run) {
    // Scale r of 16 becomes both words of dword r.
    const __m512i spread = _mm512_set_epi8(-1, 15, -1, 15, -1, 14, -1, 14, -1, 13, -1, 13, -1, 12, -1, 12,  //
                                           -1, 11, -1, 11, -1, 10, -1, 10, -1, 9, -1, 9, -1, 8, -1, 8,      //
                                           -1, 7, -1, 7, -1, 6, -1, 6, -1, 5, -1, 5, -1, 4, -1, 4,          //
                                           -1, 3, -1, 3, -1, 2, -1, 2, -1, 1, -1, 1, -1, 0, -1, 0);
    const auto* scales = reinterpret_cast<const __m128i*>(unit + kRunScales + 16 * run);
    const __m512i both = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(scales)), spread);
    upper_ = _mm512_srli_epi16(both, Type::kShift);
    lower_ = _mm512_and_si512(both, words((1 << Type::kShift) - 1));
  }
  TROUPE_INLINE __m512i operator()(__m512i codes) const {
    constexpr int kHalf = 1 << (Type::kShift - 1), kMask = 0xff >> Type::kShift;
    const __m512i rest = _mm512_add_epi16(_mm512_mullo_epi16(codes, lower_), words(kHalf * 0x0101));
    return _mm512_add_epi16(_mm512_mullo_epi16(codes, upper_),
                            _mm512_and_si512(_mm512_srli_epi16(rest, Type::kShift), words(kMask * 0x0101)));
  }

 private:
  __m512i upper_, lower_;
};

// The scales of 16 outputs for the float step of a group.
struct UnitScales {
  __m512 d, dmin;
  __m512i mins[4];  // of two runs: the words of dword r

  template <class Type>
  TROUPE_INLINE void set(const std::byte* unit, float matrix_scale) {
    const __m512 scale = _mm512_set1_ps(matrix_scale);
    d = _mm512_mul_ps(_mm512_mul_ps(load_halves(unit), scale), _mm512_set1_ps(1 << Type::kShift));
    dmin = _mm512_mul_ps(load_halves(unit + kMinOffset), scale);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i)
      mins[i] = _mm512_or_si512(unsigned_bytes(unit + kRunMins + 32 * i),
                                _mm512_slli_epi32(unsigned_bytes(unit + kRunMins + 32 * i + 16), 16));
  }
};

// The activations of a row in a group: row `r` of the 16 rows at `group`.
struct GroupRow {
  const std::byte* group;
  std::size_t r;

  TROUPE_INLINE const std::int32_t* sums() const {  // of two runs each
    return reinterpret_cast<const std::int32_t*>(group + kI8GroupSums) + 4 * r;
  }
  TROUPE_INLINE float scale() const { return reinterpret_cast<const float*>(group + kI8GroupScales)[r]; }
  TROUPE_INLINE const std::int32_t* quads(std::size_t stage) const {
    return reinterpret_cast<const std::int32_t*>(group + stage * kTile + r * kLine);
  }
};

// The float step: adds a group to acc; `sum` is the sum of a * round(code * scale / 2^kShift).
TROUPE_INLINE __m512 add_group(__m512 acc, __m512i sum, const GroupRow& row, const UnitScales& scales) {
  const std::int32_t* run_sums = row.sums();
  __m512i products = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i)  // asm, because GCC would use a separate broadcast instruction
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(products) : "v"(scales.mins[i]), "m"(run_sums[i]));
  const __m512 minimum = _mm512_cvtepi32_ps(products);
  const __m512 value = _mm512_fnmadd_ps(minimum, scales.dmin, _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scales.d));
  return _mm512_fmadd_ps(value, _mm512_set1_ps(row.scale()), acc);
}

// The outputs of a call.
struct Target {
  const MatrixView& matrix;
  float* out;
  std::size_t stride;
  std::size_t panel_begin, panel_end;

  template <class Type>
  const std::byte* panel(std::size_t p) const {
    return matrix.body + p * groups() * Type::kUnitBytes;
  }
  std::size_t groups() const { return matrix.k / 256; }
  __mmask16 mask(std::size_t p) const {
    if (p >= panel_end) return 0;
    const std::size_t width = matrix.rows - p * kPanelRows;
    return static_cast<__mmask16>(width >= 16 ? 0xffff : (1u << width) - 1);
  }
};

// ---- Few rows: vector instructions ---------------------------------------------------------------------

template <class Type, int kRows>
void dot_rows(const Target& target, const std::byte* rows) {
  const std::size_t groups = target.groups();
  for (std::size_t p = target.panel_begin; p < target.panel_end; ++p) {
    const std::byte* unit = target.panel<Type>(p);
    __m512 acc[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
    for (std::size_t g = 0; g < groups; ++g, unit += Type::kUnitBytes) {
      const std::byte* group = rows + g * kI8GroupBytes;
      for (std::size_t line = 0; line < kRuns; line += kLine) prefetch(unit + kPrefetchBytes + line);
      __m512i sum[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_si512();
      for (std::size_t run = 0; run < kRunsPerGroup; ++run) {
        const std::byte* from = unit + kRuns + run * Type::kRunBytes;
        typename Type::Run source;
        source.open(from);
        const TimesScale<Type> times_scale(unit, run);
        if (Type::kHighLines != 0) prefetch(from + kPrefetchBytes);
#pragma GCC unroll 4
        for (std::size_t j = 0; j < 4; ++j) {
          prefetch(from + kPrefetchBytes + (Type::kHighLines + j) * kLine);
          __m512i low, high;
          source.codes(j, low, high);
          low = times_scale(low);
          high = times_scale(high);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const std::int32_t* quads = GroupRow{group, static_cast<std::size_t>(r)}.quads(run / 2) + run % 2 * 8;
            sum[r] = _mm512_dpbusd_epi32(sum[r], low, _mm512_set1_epi32(quads[j]));
            sum[r] = _mm512_dpbusd_epi32(sum[r], high, _mm512_set1_epi32(quads[j + 4]));
          }
        }
      }
      UnitScales scales;
      scales.set<Type>(unit, target.matrix.scale);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        acc[r] = add_group(acc[r], sum[r], GroupRow{group, static_cast<std::size_t>(r)}, scales);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
      _mm512_mask_storeu_ps(target.out + static_cast<std::size_t>(r) * target.stride + p * kPanelRows, target.mask(p),
                            acc[r]);
  }
}

template <class Type>
void dot_rows(const Target& target, const std::byte* rows, std::size_t num_rows) {
  switch (num_rows) {
    case 1:
      return dot_rows<Type, 1>(target, rows);
    case 2:
      return dot_rows<Type, 2>(target, rows);
    case 3:
      return dot_rows<Type, 3>(target, rows);
    default:
      return dot_rows<Type, 4>(target, rows);
  }
}

// ---- Weights to tiles ----------------------------------------------------------------------------------

// A group of two panels.
struct Unit {
  const std::byte* panels[2];
};

// Expands a unit to tiles [kStages][2 panels], nibble line by nibble line, and prefetches a later unit. Lines are
// numbered stage by stage, in a stage panel by panel.
template <class Type>
class Expansion {
 public:
  TROUPE_INLINE Expansion(const Unit& from, const Unit& ahead) : from_(from), ahead_(ahead) {}

  // Expands line `first` + i to its stage's tiles. Lines are expanded in order, from a multiple of four on; i is a
  // constant.
  TROUPE_INLINE void expand(std::size_t first, std::size_t i, std::byte* stage_tiles) {
    const std::size_t j = i % 4;
    if (j == 0) open(first + i, stage_tiles);
    prefetch(later_ + (Type::kHighLines + j) * kLine);
    __m512i low, high;
    run_.codes(j, low, high);
    store_line(tile_ + j * kLine, times_scale_(low));
    store_line(tile_ + (j + 4) * kLine, times_scale_(high));
  }
  void expand_stage(std::size_t stage, std::byte* stage_tiles) {
    for (std::size_t i = 0; i < kStageLines; ++i) expand(stage * kStageLines, i, stage_tiles);
  }

 private:
  TROUPE_INLINE void open(std::size_t line, std::byte* stage_tiles) {
    const std::size_t panel = line / 8 % 2, in_stage = line / 4 % 2, run = line / kStageLines * 2 + in_stage;
    const std::size_t at = kRuns + run * Type::kRunBytes;
    run_.open(from_.panels[panel] + at);
    times_scale_ = TimesScale<Type>(from_.panels[panel], run);
    later_ = ahead_.panels[panel] + at;
    prefetch(ahead_.panels[panel] + run % (kRuns / kLine) * kLine);
    if (Type::kHighLines != 0) prefetch(later_);
    tile_ = stage_tiles + panel * kTile + in_stage * 8 * kLine;
  }

  Unit from_, ahead_;
  typename Type::Run run_;
  TimesScale<Type> times_scale_;
  const std::byte* later_ = nullptr;
  std::byte* tile_ = nullptr;
};

// ---- From tiles to outputs -----------------------------------------------------------------------------

// Integer sums of a unit and the rows of a pass, and the arguments of their float step.
struct Unfinished {
  const std::byte* sums;     // [2 x 16 rows][2 panels] tiles
  const UnitScales* scales;  // of both panels
  const std::byte* rows;     // the first 16 rows' group of activations
  std::size_t next_rows;     // offset to that of the next 16 rows
  std::size_t count = 0;     // rows
  float* acc;                // as `sums`
  __mmask16 earlier = 0;     // mask of valid `acc`: all ones, but zero for the first group of k
  // At the end of k row r of panel p is written to out + r * stride + p * kPanelRows, under masks[p]. Before the end
  // null: results go back to `acc`.
  float* out = nullptr;
  std::size_t stride = 0;
  __mmask16 masks[2] = {};
};

// The float step of one panel with 16 rows, row by row.
template <bool kLast>
class Finishing {
 public:
  TROUPE_INLINE Finishing(const Unfinished& from, std::size_t row_tile, std::size_t panel)
      : sums_(from.sums + (2 * row_tile + panel) * kTile),
        group_(from.rows + row_tile * from.next_rows),
        left_(from.count < row_tile * kRowsPerTile ? 0 : from.count - row_tile * kRowsPerTile),
        acc_(from.acc + (2 * row_tile + panel) * kTile / sizeof(float)),
        earlier_(from.earlier),
        scales_(from.scales[panel]) {
    if constexpr (kLast) {
      out_ = from.out + row_tile * kRowsPerTile * from.stride + panel * kPanelRows;
      stride_ = from.stride;
      mask_ = from.masks[panel];
    }
  }
  // Finishes row i; called with ascending constants.
  TROUPE_INLINE void finish(std::size_t i) {
    if (i >= left_) return;
    const __m512 before = _mm512_maskz_load_ps(earlier_, acc_ + i * kPanelRows);
    const __m512 after = add_group(before, load_line(sums_ + i * kLine), GroupRow{group_, i}, scales_);
    if constexpr (kLast) {
      _mm512_mask_storeu_ps(out_, mask_, after);
      out_ += stride_;
    } else {
      _mm512_store_ps(acc_ + i * kPanelRows, after);
    }
  }

 private:
  const std::byte* sums_;
  const std::byte* group_;
  std::size_t left_;
  float* acc_;
  __mmask16 earlier_, mask_ = 0;
  float* out_ = nullptr;
  std::size_t stride_ = 0;
  UnitScales scales_;
};

// ---- Products with tiles -------------------------------------------------------------------------------

// The expansion that runs during a stage: from nibble line `first_line` of `unit` on, to a stage's tiles.
struct Meanwhile {
  Unit unit, ahead;
  std::size_t first_line;
  std::byte* tiles;
};

// Multiplies one stage of a unit (two tiles at `weights`) with 16 or 32 rows (tiles at `rows`). Interleaved, kLines
// nibble lines are expanded, and a quarter of `unfinished` is finished.
template <class Type, int kRowTiles, int kLines, bool kLast>
TROUPE_INLINE void multiply_stage(const std::byte* weights, const std::byte* rows, std::size_t next_rows,
                                  std::size_t stage, const Meanwhile& meanwhile, const Unfinished& unfinished) {
  Finishing<kLast> finishing(unfinished, stage / 2, stage % 2);  // of up to two row tiles, as in the pass before
  Expansion<Type> expansion(meanwhile.unit, meanwhile.ahead);
  TROUPE_TILE_LOAD(4, rows, kLine);
  TROUPE_TILE_LOAD(5, weights, kLine);
  _tile_dpbsud(0, 4, 5);
  TROUPE_TILE_LOAD(6, weights + kTile, kLine);
  _tile_dpbsud(1, 4, 6);
  if constexpr (kRowTiles == 2) {
    TROUPE_TILE_LOAD(7, rows + next_rows, kLine);
    _tile_dpbsud(2, 7, 5);
    _tile_dpbsud(3, 7, 6);
  }
#pragma GCC unroll 16
  for (std::size_t slot = 0; slot < 16; ++slot) {
    if constexpr (kLines != 0) {
      constexpr std::size_t kSlots = 16 / kLines;  // per line
      if (slot % kSlots == kSlots - 1) expansion.expand(meanwhile.first_line, slot / kSlots, meanwhile.tiles);
    }
    finishing.finish(slot);
  }
}

// The product of an expanded unit with the rows of a pass.
struct Pass {
  const std::byte* weights;  // [kStages] stages' tiles
  const std::byte* rows;
  std::size_t next_rows;
  std::byte* sums;
  // next_unit is expanded during the pass, from nibble line first_line on. `expanded` may be `weights`: a stage is
  // written after it was read.
  Unit next_unit, later_unit;
  std::size_t first_line;
  std::byte* expanded;
};

template <class Type, int kRowTiles, int kLines, bool kLast>
TROUPE_INLINE void multiply_pass(const Pass& pass, const Unfinished& unfinished) {
  const Unfinished from = unfinished;
  const std::byte* rows = pass.rows;
  const std::size_t next_rows = pass.next_rows;
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kRowTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::size_t stage = 0; stage < kStages; ++stage, rows += kTile) {
    const std::byte* weights = pass.weights + stage * kStageTiles;
    const std::size_t line = pass.first_line + stage * static_cast<std::size_t>(kLines);
    const Meanwhile meanwhile{pass.next_unit, pass.later_unit, line, pass.expanded + line / kStageLines * kStageTiles};
    multiply_stage<Type, kRowTiles, kLines, kLast>(weights, rows, next_rows, stage, meanwhile, from);
  }
  TROUPE_TILE_STORE(0, pass.sums, kLine);
  TROUPE_TILE_STORE(1, pass.sums + kTile, kLine);
  if constexpr (kRowTiles == 2) {
    TROUPE_TILE_STORE(2, pass.sums + 2 * kTile, kLine);
    TROUPE_TILE_STORE(3, pass.sums + 3 * kTile, kLine);
  }
}

template <class Type, int kLines>
TROUPE_INLINE void multiply_pass(bool two_row_tiles, const Pass& pass, const Unfinished& unfinished) {
  if (unfinished.out)
    two_row_tiles ? multiply_pass<Type, 2, kLines, true>(pass, unfinished)
                  : multiply_pass<Type, 1, kLines, true>(pass, unfinished);
  else
    two_row_tiles ? multiply_pass<Type, 2, kLines, false>(pass, unfinished)
                  : multiply_pass<Type, 1, kLines, false>(pass, unfinished);
}

// The units of a call in the order of multiplication: block by block of pairs of panels, group by group of k, pair by
// pair.
template <class Type>
class Units {
 public:
  Units(const Target& target, std::size_t pairs_per_block)
      : target_(target),
        groups_(target.groups()),
        pairs_((target.panel_end - target.panel_begin + 1) / 2),
        per_block_(pairs_per_block) {}

  struct Place {
    std::size_t first_pair = 0, pairs, group = 0, pair = 0;  // `pair` of the block's
    bool end = false;
  };
  Place begin() const { return {.pairs = pairs_ < per_block_ ? pairs_ : per_block_}; }
  void advance(Place& place) const {
    if (place.end || ++place.pair < place.pairs) return;
    place.pair = 0;
    if (++place.group < groups_) return;
    place.group = 0;
    place.first_pair += place.pairs;
    const std::size_t left = pairs_ - place.first_pair;
    place.pairs = left < per_block_ ? left : per_block_;
    place.end = left == 0;
  }
  std::size_t first_panel(const Place& place) const {
    return target_.panel_begin + 2 * (place.first_pair + place.pair);
  }
  // A last single panel is paired with itself. After the end: any unit.
  Unit at(const Place& place) const {
    const std::size_t first = place.end ? target_.panel_begin : first_panel(place);
    const std::size_t second = first + 1 < target_.panel_end ? first + 1 : first;
    const std::size_t group = place.group * Type::kUnitBytes;
    return {target_.panel<Type>(first) + group, target_.panel<Type>(second) + group};
  }
  bool last_group(const Place& place) const { return place.group + 1 == groups_; }

 private:
  const Target& target_;
  std::size_t groups_, pairs_, per_block_;
};

template <class Type>
void multiply_rows(const Target& target, const std::byte* prepared, std::size_t num_rows) {
  alignas(64) std::byte tiles[2][kStages * kStageTiles];
  alignas(64) std::byte sums[2][4 * kTile];
  alignas(64) float acc[kPairsPerBlock * kMaxPasses][4 * kTile / sizeof(float)];
  UnitScales scales[2][2];

  const std::size_t tile_bytes = i8_group256_tiles_bytes(target.matrix.k);
  const std::size_t passes = (num_rows + 31) / 32;
  // Tiles 0..3 hold sums (of the first 16 rows with both panels, then of the next), 4 and 7 rows of activations, 5 and
  // 6 weights.
  TileConfig config;
  if (num_rows < kRowsPerTile)
    for (const std::size_t tile : {0, 1, 4}) config.rows[tile] = static_cast<std::uint8_t>(num_rows);
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");

  const Units<Type> units(target, num_rows <= kFewRows ? 1 : kPairsPerBlock);
  auto place = units.begin(), next = place, later = place;
  units.advance(next);
  units.advance(later);
  units.advance(later);
  Expansion<Type> expansion(units.at(place), units.at(next));
  for (std::size_t stage = 0; stage < kStages; ++stage) expansion.expand_stage(stage, tiles[0] + stage * kStageTiles);
  // No rows yet, but its pointers must be valid.
  Unfinished unfinished{.sums = sums[0], .scales = scales[0], .rows = prepared, .next_rows = 0, .acc = acc[0]};
  std::size_t number_of_passes = 0;
  for (std::size_t number = 0; !place.end; place = next, next = later, units.advance(later), ++number) {
    const Unit unit = units.at(place);
    UnitScales(&unit_scales)[2] = scales[number % 2];
    for (std::size_t p = 0; p < 2; ++p) unit_scales[p].set<Type>(unit.panels[p], target.matrix.scale);
    for (std::size_t pass = 0; pass < passes; ++pass, ++number_of_passes) {
      const std::size_t left = num_rows - pass * 32, count = left < 32 ? left : 32, panel = units.first_panel(place);
      float* const out = target.out + pass * 32 * target.stride + panel * kPanelRows;
      std::byte* to = sums[number_of_passes % 2];
      // The next unit is expanded in the first four passes (with two or three passes: in two; with one: in that one).
      const std::size_t lines = passes == 1 ? kStageLines : passes < 4 ? kStageLines / 2 : kStageLines / 4;
      const Pass what{.weights = passes == 1 ? tiles[0] : tiles[number % 2],
                      .rows = prepared + 2 * pass * tile_bytes + place.group * kI8GroupBytes,
                      .next_rows = tile_bytes,
                      .sums = to,
                      .next_unit = units.at(next),
                      .later_unit = units.at(later),
                      .first_line = pass * kStages * lines,
                      .expanded = passes == 1 ? tiles[0] : tiles[(number + 1) % 2]};
      const bool two = left > kRowsPerTile;
      if (passes == 1)
        multiply_pass<Type, kStageLines>(two, what, unfinished);
      else if (pass * lines >= kStageLines)
        multiply_pass<Type, 0>(two, what, unfinished);
      else if (passes < 4)
        multiply_pass<Type, kStageLines / 2>(two, what, unfinished);
      else
        multiply_pass<Type, kStageLines / 4>(two, what, unfinished);
      unfinished = {.sums = to,
                    .scales = unit_scales,
                    .rows = what.rows,
                    .next_rows = tile_bytes,
                    .count = count,
                    .acc = acc[place.pair * kMaxPasses + pass],
                    .earlier = static_cast<__mmask16>(place.group == 0 ? 0 : 0xffff)};
      if (!units.last_group(place)) continue;
      unfinished.out = out;
      unfinished.stride = target.stride;
      unfinished.masks[0] = target.mask(panel);
      unfinished.masks[1] = target.mask(panel + 1);
    }
  }
  for (const std::size_t row_tile : {0, 1})
    for (const std::size_t p : {0, 1}) {
      Finishing<true> finishing(unfinished, row_tile, p);
      for (std::size_t r = 0; r < kRowsPerTile; ++r) finishing.finish(r);
    }
  _tile_release();
}

template <class Type>
void multiply(const MatrixView& matrix, const std::byte* prepared, std::size_t num_rows, float* out,
              std::size_t out_stride, std::size_t panel_begin, std::size_t panel_end) {
  if (panel_begin == panel_end) return;
  const std::size_t tile_bytes = i8_group256_tiles_bytes(matrix.k);
  for (std::size_t begin = 0; begin < num_rows; begin += kMaxRowsAtOnce) {
    const std::size_t count = num_rows - begin < kMaxRowsAtOnce ? num_rows - begin : kMaxRowsAtOnce;
    const Target target{matrix, out + begin * out_stride, out_stride, panel_begin, panel_end};
    const std::byte* rows = prepared + begin / kRowsPerTile * tile_bytes;
    if (count <= kMaxDotRows)
      dot_rows<Type>(target, rows, count);
    else
      multiply_rows<Type>(target, rows, count);
  }
}

}  // namespace

Matmul* matmul_int8(WeightType type) {
  return visit_type(type, [](auto format) -> Matmul* {
    using Packing = typename decltype(format)::Packing;
    if constexpr (Packing::kAmxActivation != Activation::i8_group256_tiles)
      return nullptr;
    else
      return multiply<std::conditional_t<Packing::kBits == 4, Q4_K, Q5_K>>;
  });
}

}  // namespace troupe::kernels::amx
