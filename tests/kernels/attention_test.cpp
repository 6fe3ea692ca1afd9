#include "tests/kernels/kernel_support.h"

namespace troupe::kernels::test {
namespace {

// The cache of one sequence in one layer, written position by position; slots that were never written
// hold NaN.
struct Cache {
  Cache(const KernelTable& table, const KvShape& kv_shape, std::size_t num_positions, std::uint32_t seed)
      : shape(kv_shape), block_bytes(shape.layer_bytes()), memory((num_positions + 31) / 32 * block_bytes) {
    std::memset(memory.data(), 0xff, memory.size());  // NaN in both types
    const std::size_t dim = shape.num_kv_heads * shape.head_dim;
    for (std::size_t b = 0; b * 32 < num_positions; ++b) blocks.push_back(memory.data() + b * block_bytes);
    const std::vector<float> k = random_floats(num_positions * dim, seed),
                             v = random_floats(num_positions * dim, seed + 1);
    for (std::size_t p = 0; p < num_positions; ++p)
      table.store_kv(shape, memory.data() + p / 32 * block_bytes, static_cast<std::uint32_t>(p % 32),
                     k.data() + p * dim, v.data() + p * dim);
  }

  double at(std::size_t offset) const {
    return shape.type == KvType::f16 ? load_half(memory.data() + offset) : load<float>(memory.data() + offset);
  }
  double k(std::size_t position, std::size_t head, std::size_t d) const {
    return at(position / 32 * block_bytes + head * shape.k_head_bytes() +
              (d * 32 + position % 32) * element_bytes(shape.type));
  }
  double v(std::size_t position, std::size_t head, std::size_t d) const {
    return at(position / 32 * block_bytes + shape.v_offset() + head * shape.k_head_bytes() +
              (position % 32 * shape.head_dim + d) * element_bytes(shape.type));
  }

  KvShape shape;
  std::size_t block_bytes;
  AlignedBytes memory;
  std::vector<const std::byte*> blocks;
};

struct Query {
  std::uint32_t kv_head = 0, group = 1, num_tokens = 1, first_position = 0;
  std::size_t token_stride = 0;
};

std::vector<float> attend(const KernelTable& table, const Cache& cache, const Query& query, const std::vector<float>& q,
                          std::size_t offset = 0) {
  std::vector<float> out(q.size() - offset, std::nanf(""));
  AlignedBytes scratch(4 * attention_scratch_floats(query.group * query.num_tokens, cache.shape.head_dim));
  std::memset(scratch.data(), 0xff, scratch.size());
  table.attention({.shape = cache.shape,
                   .kv_head = query.kv_head,
                   .group = query.group,
                   .num_tokens = query.num_tokens,
                   .first_position = query.first_position,
                   .q = q.data() + offset,
                   .token_stride = query.token_stride,
                   .blocks = cache.blocks.data(),
                   .scale = 0.125f,
                   .out = out.data(),
                   .scratch = scratch.as<float>()});
  return out;
}

// Softmax in double over what the cache holds.
std::vector<double> exact_row(const Cache& cache, std::size_t head, const float* q, std::size_t num_positions) {
  const std::size_t dim = cache.shape.head_dim;
  std::vector<double> scores(num_positions), out(dim);
  double max = -1e300, sum = 0;
  for (std::size_t p = 0; p < num_positions; ++p) {
    for (std::size_t d = 0; d < dim; ++d) scores[p] += q[d] * cache.k(p, head, d);
    scores[p] *= 0.125;
    max = std::max(max, scores[p]);
  }
  for (std::size_t p = 0; p < num_positions; ++p) {
    const double weight = std::exp(scores[p] - max);
    sum += weight;
    for (std::size_t d = 0; d < dim; ++d) out[d] += weight * cache.v(p, head, d);
  }
  for (double& x : out) x /= sum;
  return out;
}

TEST_CASE("attention is the softmax-weighted sum, across block and split borders, whatever unwritten slots hold") {
  for (const KernelTable* table : supported_tables())
    for (const KvType type : {KvType::f32, KvType::f16})
      for (const std::uint32_t head_dim : {8u, 16u, 40u, 48u, 64u, 100u, 128u})
        for (const std::uint32_t positions : {1u, 2u, 17u, 31u, 32u, 33u, 255u, 256u, 257u, 530u}) {
          const Cache cache(*table, {.type = type, .num_kv_heads = 2, .head_dim = head_dim}, positions, 1);
          const std::size_t stride = 3 * head_dim + 5;
          const std::uint32_t num_tokens = positions < 5 ? positions : 5;
          const Query query{.kv_head = 1,
                            .group = 3,
                            .num_tokens = num_tokens,
                            .first_position = positions - num_tokens,
                            .token_stride = stride};
          const std::vector<float> q = random_floats(num_tokens * stride, 77, 3.0f);
          const std::vector<float> out = attend(*table, cache, query, q);
          INFO(table->name << " " << name(type) << " head_dim " << head_dim << " positions " << positions);
          for (std::uint32_t t = 0; t < num_tokens; ++t)
            for (std::size_t i = 0; i < stride; ++i) {
              const std::size_t g = i / head_dim, at = t * stride + i;
              if (g >= 3) {
                REQUIRE(std::isnan(out[at]));
                continue;
              }
              if (i % head_dim != 0) continue;
              const std::vector<double> expected = exact_row(cache, 1, q.data() + at, query.first_position + t + 1);
              // Scores reach 20; their float32 sums over head_dim are off by some 1e-6 of that.
              for (std::size_t d = 0; d < head_dim; ++d) REQUIRE(std::fabs(out[at + d] - expected[d]) <= 2e-5);
            }
        }
}

TEST_CASE("a query row's attention has the same bits alone, in a group and in a chunk") {
  for (const KernelTable* table : supported_tables())
    for (const KvType type : {KvType::f32, KvType::f16})
      for (const std::uint32_t group : {1u, 3u, 8u}) {
        // Position 256 begins a split: with these, tiles of 4 and 8 rows lie across it.
        const std::uint32_t head_dim = 48, num_tokens = 21, first = 243;
        const Cache cache(*table, {.type = type, .num_kv_heads = 1, .head_dim = head_dim}, first + num_tokens, 5);
        const std::size_t stride = group * head_dim;
        const std::vector<float> q = random_floats(num_tokens * stride, 78, 3.0f);
        const std::vector<float> together =
            attend(*table, cache,
                   {.group = group, .num_tokens = num_tokens, .first_position = first, .token_stride = stride}, q);
        INFO(table->name << " " << name(type) << " group " << group);
        for (std::uint32_t t = 0; t < num_tokens; ++t)
          for (std::uint32_t g = 0; g < group; ++g) {
            const std::size_t at = t * stride + g * head_dim;
            const std::vector<float> alone =
                attend(*table, cache, {.first_position = first + t, .token_stride = stride}, q, at);
            REQUIRE(std::memcmp(alone.data(), together.data() + at, head_dim * sizeof(float)) == 0);
          }
      }
}

TEST_CASE("store_kv rounds to the KV type like every other variant and touches only its slot") {
  const KernelTable& scalar = *find_table("scalar");
  for (const KernelTable* table : supported_tables())
    for (const KvType type : {KvType::f32, KvType::f16})
      for (const std::uint32_t head_dim : {8u, 40u, 64u}) {
        const KvShape shape{.type = type, .num_kv_heads = 3, .head_dim = head_dim};
        AlignedBytes expected(shape.layer_bytes()), got(shape.layer_bytes());
        std::vector<float> k = random_floats(3 * head_dim, 1), v = random_floats(3 * head_dim, 2);
        k[0] = 1e-7f;
        k[1] = 70000.0f;
        v[0] = -65519.0f;
        v[1] = 1.00048828125f;  // halfway between two: the even one, below
        v[2] = 1.00146484375f;  // and above
        scalar.store_kv(shape, expected.data(), 13, k.data(), v.data());
        table->store_kv(shape, got.data(), 13, k.data(), v.data());
        INFO(table->name << " " << name(type) << " head_dim " << head_dim);
        REQUIRE(std::memcmp(expected.data(), got.data(), got.size()) == 0);
      }
}

}  // namespace
}  // namespace troupe::kernels::test
