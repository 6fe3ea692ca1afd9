#include "tests/kernels/kernel_support.h"
#include "tests/support/sanitized.h"

namespace troupe::kernels::test {
namespace {

constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::i8};
constexpr float kScale = 0.125f;

// The cache of one sequence in one layer, written position by position; slots that were never written
// hold NaN (int8 codes of -1 under scales that are NaN).
struct Cache {
  Cache(const KernelTable& table, const KvShape& kv_shape, std::size_t num_positions, std::uint32_t seed)
      : shape(kv_shape), block_bytes(shape.layer_bytes()), memory((num_positions + 31) / 32 * block_bytes) {
    std::memset(memory.data(), 0xff, memory.size());  // NaN in all types
    const std::size_t dim = shape.num_kv_heads * shape.head_dim;
    for (std::size_t b = 0; b * 32 < num_positions; ++b) blocks.push_back(memory.data() + b * block_bytes);
    const std::vector<float> k = random_floats(num_positions * dim, seed),
                             v = random_floats(num_positions * dim, seed + 1);
    for (std::size_t p = 0; p < num_positions; ++p)
      table.store_kv(shape, memory.data() + p / 32 * block_bytes, static_cast<std::uint32_t>(p % 32),
                     k.data() + p * dim, v.data() + p * dim);
  }

  struct Position {
    std::vector<float> k, v;  // [num_kv_heads * head_dim]
  };
  Position at(std::size_t position) const {
    const std::size_t dim = shape.num_kv_heads * shape.head_dim;
    Position out{std::vector<float>(dim), std::vector<float>(dim)};
    load_kv(shape, blocks[position / 32], static_cast<std::uint32_t>(position % 32), out.k.data(), out.v.data());
    return out;
  }

  KvShape shape;
  std::size_t block_bytes;
  AlignedBytes memory;
  std::vector<const std::byte*> blocks;
};

struct Query {
  const float* q = nullptr;
  std::uint32_t num_positions = 0;  // it sees the last `window` of so many
  std::uint32_t window = 1u << 30;
  const float* offsets = nullptr;  // of all positions, in whole splits
  std::uint32_t first() const { return num_positions - std::min(window, num_positions); }
};

// Row by row [head_dim]: all rows together, split by split. Blocks that no query attends to are null.
std::vector<float> attend(const KernelTable& table, const Cache& cache, std::uint32_t kv_head,
                          const std::vector<Query>& queries, float soft_cap = 0.0f) {
  const std::size_t dim = cache.shape.head_dim, floats = partial_floats(dim);
  AlignedBytes scratch(attention_scratch_bytes(dim));
  std::vector<const std::byte*> blocks = cache.blocks;
  std::uint32_t first = queries[0].first();
  for (const Query& query : queries) first = std::min(first, query.first());
  for (std::uint32_t block = 0; block < first / kBlockPositions; ++block) blocks[block] = nullptr;
  std::vector<bool> has_total(queries.size());
  AlignedBytes totals(queries.size() * floats * 4), partials(queries.size() * floats * 4);
  std::memset(totals.data(), 0xff, totals.size());
  for (std::uint32_t split = 0; split * kSplitBlocks < cache.blocks.size(); ++split) {
    std::memset(scratch.data(), 0xff, scratch.size());
    std::memset(partials.data(), 0xff, partials.size());
    const std::uint32_t begin = split * kSplitPositions, end = begin + kSplitPositions;
    std::vector<AttentionRow> rows;
    std::vector<float*> merged;
    for (std::size_t i = 0; i < queries.size(); ++i) {
      if (queries[i].num_positions <= begin || queries[i].first() >= end) continue;
      const std::uint32_t seen = std::min(queries[i].num_positions - begin, kSplitPositions);
      float* const total = totals.as<float>() + i * floats;
      rows.push_back({.q = queries[i].q,
                      .partial = has_total[i] ? partials.as<float>() + i * floats : total,
                      .offsets = queries[i].offsets ? queries[i].offsets + begin : nullptr,
                      .num_seen = seen,
                      .first_seen = std::max(queries[i].first(), begin) - begin});
      merged.push_back(has_total[i] ? total : nullptr);
      has_total[i] = true;
    }
    if (rows.empty()) continue;
    table.attend_split({.shape = cache.shape,
                        .kv_head = kv_head,
                        .blocks = blocks.data() + split * kSplitBlocks,
                        .rows = rows,
                        .scale = kScale,
                        .soft_cap = soft_cap,
                        .scratch = scratch.data()});
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (merged[i]) table.merge_partial(rows[i].partial, dim, merged[i]);
  }
  std::vector<float> out(queries.size() * dim, std::nanf(""));
  for (std::size_t i = 0; i < queries.size(); ++i)
    table.finish_attention(totals.as<float>() + i * floats, dim, out.data() + i * dim);
  return out;
}

// Softmax in double over the cached values.
std::vector<double> exact_row(const Cache& cache, std::size_t head, const Query& query, double soft_cap = 0) {
  const std::size_t dim = cache.shape.head_dim;
  std::vector<double> scores(query.num_positions), out(dim);
  double max = -1e300, sum = 0;
  for (std::size_t p = query.first(); p < query.num_positions; ++p) {
    const auto k = cache.at(p).k;
    for (std::size_t d = 0; d < dim; ++d) scores[p] += query.q[d] * static_cast<double>(k[head * dim + d]);
    if (query.offsets) scores[p] += query.offsets[p];
    scores[p] *= kScale;
    if (soft_cap != 0) scores[p] = soft_cap * std::tanh(scores[p] / soft_cap);
    max = std::max(max, scores[p]);
  }
  for (std::size_t p = query.first(); p < query.num_positions; ++p) {
    const auto v = cache.at(p).v;
    const double weight = std::exp(scores[p] - max);
    sum += weight;
    for (std::size_t d = 0; d < dim; ++d) out[d] += weight * v[head * dim + d];
  }
  for (double& x : out) x /= sum;
  return out;
}

// `group` rows for each of the last num_tokens of so many positions.
std::vector<Query> last_tokens(const std::vector<float>& q, std::size_t head_dim, std::uint32_t group,
                               std::uint32_t num_tokens, std::uint32_t num_positions, std::uint32_t window = 1u << 30) {
  std::vector<Query> queries;
  for (std::uint32_t t = 0; t < num_tokens; ++t)
    for (std::uint32_t g = 0; g < group; ++g)
      queries.push_back({q.data() + queries.size() * head_dim, num_positions - num_tokens + t + 1, window});
  return queries;
}

TEST_CASE(
    "attention is the softmax-weighted sum, across block and split borders, with any contents of unwritten slots") {
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes)
      for (const std::uint32_t head_dim : {8u, 16u, 40u, 48u, 64u, 100u, 128u})
        for (const std::uint32_t positions : {1u, 2u, 17u, 31u, 32u, 33u, 255u, 256u, 257u, 530u}) {
          const Cache cache(*table, {.type = type, .num_kv_heads = 2, .head_dim = head_dim}, positions, 1);
          const std::uint32_t num_tokens = std::min(positions, 5u);
          const std::vector<float> q = random_floats(num_tokens * 3 * head_dim, 77, 3.0f);
          const auto queries = last_tokens(q, head_dim, 3, num_tokens, positions);
          const std::vector<float> out = attend(*table, cache, 1, queries);
          INFO(table->name << " " << name(type) << " head_dim " << head_dim << " positions " << positions);
          for (std::size_t i = 0; i < queries.size(); ++i) {
            const std::vector<double> expected = exact_row(cache, 1, queries[i]);
            // Scores reach 20; their float32 sums over head_dim are off by some 1e-6 of that, those of two bfloat16
            // each by some 1e-5.
            const double allowed = table->name == "amx" && type != KvType::f32 ? 1e-4 : 1e-5;
            for (std::size_t d = 0; d < head_dim; ++d)
              REQUIRE(std::fabs(out[i * head_dim + d] - expected[d]) <= allowed);
          }
        }
}

TEST_CASE("a query row's attention has the same bits alone, in a group, in a chunk and with many others") {
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes)
      for (const std::uint32_t group : {1u, 3u, 8u}) {
        // Position 256 begins a split: with these, tiles of rows lie across it, and 8 x 21 rows are several groups.
        const std::uint32_t head_dim = 48, num_tokens = 21, positions = 264;
        const Cache cache(*table, {.type = type, .num_kv_heads = 1, .head_dim = head_dim}, positions, 5);
        const std::vector<float> q = random_floats(num_tokens * group * head_dim, 78, 3.0f);
        auto queries = last_tokens(q, head_dim, group, num_tokens, positions);
        const std::vector<float> together = attend(*table, cache, 0, queries);
        std::reverse(queries.begin(), queries.end());
        const std::vector<float> reversed = attend(*table, cache, 0, queries);
        std::reverse(queries.begin(), queries.end());
        INFO(table->name << " " << name(type) << " group " << group);
        for (std::size_t i = 0; i < queries.size(); ++i) {
          const std::vector<float> alone = attend(*table, cache, 0, {queries[i]});
          REQUIRE(std::memcmp(alone.data(), together.data() + i * head_dim, head_dim * sizeof(float)) == 0);
          const std::size_t back = queries.size() - 1 - i;
          REQUIRE(std::memcmp(alone.data(), reversed.data() + back * head_dim, head_dim * sizeof(float)) == 0);
        }
      }
}

TEST_CASE("with a window a row attends to its last positions only, and blocks before them are not read") {
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes)
      for (const std::uint32_t head_dim : {32u, 48u, 96u})
        for (const std::uint32_t window : {1u, 16u, 31u, 32u, 33u, 100u, 257u})
          for (const std::uint32_t positions : {1u, 17u, 40u, 256u, 257u, 300u, 530u}) {
            if (troupe::test::kSanitized && head_dim != 48) continue;
            const Cache cache(*table, {.type = type, .num_kv_heads = 2, .head_dim = head_dim}, positions, 1);
            const std::uint32_t num_tokens = std::min(positions, 20u);
            const std::vector<float> q = random_floats(num_tokens * 2 * head_dim, 79, 3.0f);
            const auto queries = last_tokens(q, head_dim, 2, num_tokens, positions, window);
            const std::vector<float> out = attend(*table, cache, 1, queries);
            INFO(table->name << " " << name(type) << " head_dim " << head_dim << " window " << window << " positions "
                             << positions);
            for (std::size_t i = 0; i < queries.size(); ++i) {
              const std::vector<double> expected = exact_row(cache, 1, queries[i]);
              // Of few positions none hides behind the others.
              const double allowed = table->name == "amx" && type != KvType::f32 ? 3e-4 : 1e-5;
              for (std::size_t d = 0; d < head_dim; ++d)
                REQUIRE(std::fabs(out[i * head_dim + d] - expected[d]) <= allowed);
              const std::vector<float> alone = attend(*table, cache, 1, {queries[i]});
              REQUIRE(std::memcmp(alone.data(), out.data() + i * head_dim, head_dim * sizeof(float)) == 0);
            }
          }
}

TEST_CASE("a window as long as the sequence changes no bit") {
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes) {
      const Cache cache(*table, {.type = type, .num_kv_heads = 1, .head_dim = 64}, 300, 3);
      const std::vector<float> q = random_floats(40 * 64, 81, 3.0f);
      INFO(table->name << " " << name(type));
      REQUIRE(same_bits(attend(*table, cache, 0, last_tokens(q, 64, 2, 20, 300)),
                        attend(*table, cache, 0, last_tokens(q, 64, 2, 20, 300, 300))));
    }
}

TEST_CASE("a soft cap bends every score before the softmax") {
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes)
      for (const float cap : {0.5f, 5.0f, 50.0f})
        for (const std::uint32_t window : {20u, 1000u}) {
          const std::uint32_t head_dim = 64, positions = 290, num_tokens = 12;
          const Cache cache(*table, {.type = type, .num_kv_heads = 1, .head_dim = head_dim}, positions, 1);
          const std::vector<float> q = random_floats(num_tokens * 3 * head_dim, 80, 3.0f);
          const auto queries = last_tokens(q, head_dim, 3, num_tokens, positions, window);
          const std::vector<float> out = attend(*table, cache, 0, queries, cap);
          INFO(table->name << " " << name(type) << " cap " << cap << " window " << window);
          for (std::size_t i = 0; i < queries.size(); ++i) {
            const std::vector<double> expected = exact_row(cache, 0, queries[i], cap);
            const double allowed = table->name == "amx" && type != KvType::f32 ? 1e-4 : 1e-5;
            for (std::size_t d = 0; d < head_dim; ++d)
              REQUIRE(std::fabs(out[i * head_dim + d] - expected[d]) <= allowed);
            const std::vector<float> alone = attend(*table, cache, 0, {queries[i]}, cap);
            REQUIRE(std::memcmp(alone.data(), out.data() + i * head_dim, head_dim * sizeof(float)) == 0);
          }
        }
}

TEST_CASE("offsets are added to the scores of an int8 cache, and those of unseen positions are not read") {
  for (const KernelTable* table : variants_here())
    for (const float cap : {0.0f, 5.0f})
      for (const std::uint32_t window : {40u, 1000u})
        for (const std::uint32_t positions : {17u, 290u}) {
          const std::uint32_t head_dim = 48, num_tokens = 12;
          const Cache cache(*table, {.type = KvType::i8, .num_kv_heads = 2, .head_dim = head_dim}, positions, 1);
          const std::vector<float> q = random_floats(num_tokens * 3 * head_dim, 82, 3.0f);
          auto queries = last_tokens(q, head_dim, 3, num_tokens, positions, window);
          std::vector<std::vector<float>> offsets;
          for (std::size_t i = 0; i < queries.size(); ++i) {
            offsets.push_back(random_floats(2 * kSplitPositions, static_cast<std::uint32_t>(90 + i), 20.0f));
            for (std::size_t p = 0; p < offsets[i].size(); ++p)
              if (p < queries[i].first() || p >= queries[i].num_positions) offsets[i][p] = std::nanf("");
          }
          for (std::size_t i = 0; i < queries.size(); ++i)
            if (i % 4 != 3) queries[i].offsets = offsets[i].data();
          const std::vector<float> out = attend(*table, cache, 1, queries, cap);
          INFO(table->name << " cap " << cap << " window " << window << " positions " << positions);
          for (std::size_t i = 0; i < queries.size(); ++i) {
            const std::vector<double> expected = exact_row(cache, 1, queries[i], cap);
            const double allowed = table->name == "amx" ? 3e-4 : 1e-5;
            for (std::size_t d = 0; d < head_dim; ++d)
              REQUIRE(std::fabs(out[i * head_dim + d] - expected[d]) <= allowed);
            const std::vector<float> alone = attend(*table, cache, 1, {queries[i]}, cap);
            REQUIRE(std::memcmp(alone.data(), out.data() + i * head_dim, head_dim * sizeof(float)) == 0);
          }
        }
}

TEST_CASE("score_offsets: each block's products, with the same bits for any number of blocks") {
  for (const KernelTable* table : variants_here())
    for (const std::size_t dim : {1u, 8u, 48u, 100u, 128u}) {
      const std::vector<float> q = random_floats(kSplitBlocks * dim, 83, 3.0f);
      const std::vector<float> part = random_floats(dim * kBlockPositions, 84, 100.0f);
      INFO(table->name << " dim " << dim);
      std::vector<float> alone(kSplitPositions);
      for (std::size_t block = 0; block < kSplitBlocks; ++block) {
        table->score_offsets(q.data() + block * dim, part.data(), dim, 1, alone.data() + block * kBlockPositions);
        for (std::size_t slot = 0; slot < kBlockPositions; ++slot) {
          double expected = 0, size = 0;
          for (std::size_t d = 0; d < dim; ++d) {
            const double product = static_cast<double>(q[block * dim + d]) * part[d * kBlockPositions + slot];
            expected += product;
            size += std::fabs(product);
          }
          // Each of at most 128 additions rounds by 2^-24 of the sum so far.
          REQUIRE(std::fabs(alone[block * kBlockPositions + slot] - expected) <= size * 1e-5);
        }
      }
      for (std::size_t count = 0; count <= kSplitBlocks; ++count) {
        std::vector<float> out(kSplitPositions, 7.0f);
        table->score_offsets(q.data(), part.data(), dim, count, out.data());
        const std::size_t written = count * kBlockPositions;
        REQUIRE(std::memcmp(out.data(), alone.data(), written * sizeof(float)) == 0);
        REQUIRE(std::count(out.begin() + static_cast<std::ptrdiff_t>(written), out.end(), 7.0f) ==
                static_cast<std::ptrdiff_t>(kSplitPositions - written));
      }
    }
}

TEST_CASE("store_kv rounds to the KV type like every other variant and touches only its slot") {
  const KernelTable& scalar = *find_table("scalar");
  for (const KernelTable* table : variants_here())
    for (const KvType type : kKvTypes)
      for (const std::uint32_t head_dim : {8u, 40u, 64u, 100u}) {
        const KvShape shape{.type = type, .num_kv_heads = 3, .head_dim = head_dim};
        AlignedBytes expected(shape.layer_bytes()), got(shape.layer_bytes());
        std::vector<float> k = random_floats(3 * head_dim, 1), v = random_floats(3 * head_dim, 2);
        k[0] = 1e-7f;
        k[1] = 70000.0f;
        k[2] = -std::numeric_limits<float>::infinity();
        k[head_dim] = std::nanf("");
        v[0] = -65519.0f;
        v[1] = 1.00048828125f;  // halfway between two: the even one, below
        v[2] = 1.00146484375f;  // and above
        for (std::size_t i = head_dim; i < 2 * head_dim; ++i) v[i] = 0.0f;
        for (std::size_t i = 0; i < 8; ++i) v[2 * head_dim + i] = static_cast<float>(i) - 3.5f;
        v[2 * head_dim + 5] = 127.0f;  // a scale of 1: codes halfway between two
        scalar.store_kv(shape, expected.data(), 13, k.data(), v.data());
        table->store_kv(shape, got.data(), 13, k.data(), v.data());
        INFO(table->name << " " << name(type) << " head_dim " << head_dim);
        REQUIRE(std::memcmp(expected.data(), got.data(), got.size()) == 0);
      }
}

TEST_CASE("stored values are read back within the rounding of their KV type, and only f32 has infinities") {
  constexpr std::uint32_t kDim = 64;
  const std::vector<float> k = random_floats(2 * kDim, 1), v = random_floats(2 * kDim, 2);
  for (const KvType type : kKvTypes) {
    const KvShape shape{.type = type, .num_kv_heads = 2, .head_dim = kDim};
    AlignedBytes block(shape.layer_bytes());
    std::memset(block.data(), 0xff, block.size());
    for (std::uint32_t slot = 0; slot < 32; ++slot)
      best_table().store_kv(shape, block.data(), slot, k.data(), v.data());
    std::vector<float> k_back(2 * kDim), v_back(2 * kDim);
    load_kv(shape, block.data(), 31, k_back.data(), v_back.data());
    for (std::size_t head = 0; head < 2; ++head)
      for (const auto& [x, back] : {std::pair(&k, &k_back), std::pair(&v, &v_back)}) {
        float max = 0;
        for (std::size_t d = head * kDim; d < (head + 1) * kDim; ++d) max = std::max(max, std::fabs((*x)[d]));
        const float most = type == KvType::f32 ? 0.0f : type == KvType::f16 ? max / 2048 : max / 254 * 1.0001f;
        for (std::size_t d = head * kDim; d < (head + 1) * kDim; ++d) REQUIRE(std::fabs((*x)[d] - (*back)[d]) <= most);
      }
    clear_kv(shape, block.data(), 1);
    load_kv(shape, block.data(), 0, k_back.data(), v_back.data());
    CHECK(k_back[5] != 0.0f);
    load_kv(shape, block.data(), 1, k_back.data(), v_back.data());
    CHECK(k_back == std::vector<float>(2 * kDim));
    CHECK(v_back == std::vector<float>(2 * kDim));
    if (type == KvType::f32) continue;
    const std::vector<float> large(2 * kDim, std::numeric_limits<float>::infinity());
    best_table().store_kv(shape, block.data(), 3, large.data(), large.data());
    load_kv(shape, block.data(), 3, k_back.data(), v_back.data());
    CHECK(std::isfinite(k_back[0]));
    CHECK(k_back[0] > 1e4f);
  }
}

TEST_CASE("int8 KV has at most 0.55 of f16's bytes") {
  for (const std::uint32_t head_dim : {64u, 80u, 96u, 128u, 256u}) {
    const KvShape f16{.type = KvType::f16, .num_kv_heads = 4, .head_dim = head_dim};
    const KvShape i8{.type = KvType::i8, .num_kv_heads = 4, .head_dim = head_dim};
    CHECK(static_cast<double>(i8.layer_bytes()) <= 0.55 * static_cast<double>(f16.layer_bytes()));
  }
}

}  // namespace
}  // namespace troupe::kernels::test
