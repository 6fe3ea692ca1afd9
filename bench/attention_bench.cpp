// Micro-benchmarks of attention over one kv head of TinyLlama-1.1B's geometry (8 query heads share it, 64 dimensions),
// every variant and KV type. The KV cache is larger than the second-level cache and cycled through, so decode reads it
// from memory. Times are the thread's CPU time.
//
//   attention_bench --benchmark_filter='attention/amx/int8/decode/.*'
//
// decode/N: one token after N positions. prefill/N: the last 16 tokens (128 rows) of N positions. shared/S: one token
// of each of S sequences over the same split.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/random_floats.h"
#include "kernels/kernels.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kHeads = 4, kGroup = 8, kDim = 64;
constexpr std::size_t kCacheBytes = std::size_t{256} << 20;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
// In huge pages if the system has them, like the arena.
Bytes allocate(std::size_t size) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  size = (size + kHugePage - 1) / kHugePage * kHugePage;
  Bytes bytes(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)));
  ::madvise(bytes.get(), size, MADV_HUGEPAGE);
  std::memset(bytes.get(), 0, size);
  return bytes;
}

// The last `tokens` tokens of `positions` positions, for each of `sequences`: attention split by split, merged as in a
// step.
void attention(benchmark::State& state, const KernelTable* table, KvType type, std::uint32_t positions,
               std::uint32_t tokens, std::uint32_t sequences) {
  const KvShape shape{.type = type, .num_kv_heads = kHeads, .head_dim = kDim};
  const std::size_t blocks_per_call = (positions + kBlockPositions - 1) / kBlockPositions;
  const std::size_t num_blocks = std::max(blocks_per_call, kCacheBytes / shape.layer_bytes());
  const Bytes memory = allocate(num_blocks * shape.layer_bytes());
  const std::vector<float> x = random_floats(kHeads * kDim + 997);
  std::vector<const std::byte*> blocks;
  for (std::size_t b = 0; b < num_blocks; ++b) {
    std::byte* block = memory.get() + b * shape.layer_bytes();
    blocks.push_back(block);
    for (std::uint32_t slot = 0; slot < kBlockPositions; ++slot)
      table->store_kv(shape, block, slot, x.data() + (b + slot) % 997, x.data() + (b * 7 + slot) % 997);
  }
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(2));

  const std::size_t num_rows = std::size_t{sequences} * tokens * kGroup, floats = partial_floats(kDim);
  const std::vector<float> q = random_floats(num_rows * kDim);
  std::vector<float> out(num_rows * kDim);
  const Bytes scratch = allocate(attention_scratch_bytes(kDim));
  const Bytes sums = allocate(2 * num_rows * floats * sizeof(float));
  auto* totals = reinterpret_cast<float*>(sums.get());
  std::vector<AttentionRow> rows(num_rows);
  std::size_t first_block = 0, head = 0;
  for (auto _ : state) {
    for (std::uint32_t begin = 0; begin < positions; begin += kSplitPositions) {
      const std::size_t block = first_block + begin / kBlockPositions;
      std::size_t count = 0;
      for (std::size_t r = 0; r < num_rows; ++r) {
        const auto end = static_cast<std::uint32_t>(positions - tokens + r / kGroup % tokens + 1);
        if (end <= begin) continue;
        rows[count++] = {.q = q.data() + r * kDim,
                         .partial = totals + ((begin == 0 ? 0 : num_rows) + r) * floats,
                         .num_seen = std::min(end - begin, kSplitPositions)};
      }
      table->attend_split({.shape = shape,
                           .kv_head = static_cast<std::uint32_t>(head),
                           .blocks = blocks.data() + block,
                           .next_block = begin + kSplitPositions < positions ? blocks[block + kSplitBlocks] : nullptr,
                           .rows = {rows.data(), count},
                           .scale = 0.125f,
                           .scratch = scratch.get()});
      for (std::size_t i = 0; begin > 0 && i < count; ++i)
        table->merge_partial(rows[i].partial, kDim, rows[i].partial - num_rows * floats);
    }
    for (std::size_t r = 0; r < num_rows; ++r)
      table->finish_attention(totals + r * floats, kDim, out.data() + r * kDim);
    benchmark::DoNotOptimize(out.data());
    if (tokens == 1) first_block += blocks_per_call;  // prefill finds its blocks in the CPU cache, as in a step
    if (first_block + blocks_per_call > num_blocks) {
      first_block = 0;
      head = (head + 1) % kHeads;
    }
  }
  const double seen = static_cast<double>(positions) - (tokens - 1) / 2.0;
  const double bytes = static_cast<double>(blocks_per_call * 2 * shape.head_bytes());
  const auto set_rate = [&](const char* name, double per_call) {
    state.counters[name] =
        benchmark::Counter(static_cast<double>(state.iterations()) * per_call, benchmark::Counter::kIsRate);
  };
  set_rate("GB/s", 1e-9 * bytes);
  set_rate("GFLOP/s", 4e-9 * static_cast<double>(num_rows) * seen * kDim);
}

void register_all() {
  for (const KernelTable* table : supported_tables()) {
    if (table->name == "reference") continue;
    for (const KvType type : {KvType::f32, KvType::f16, KvType::i8}) {
      const std::string prefix = fmt::format("attention/{}/{}", table->name, name(type));
      const auto add = [&](const std::string& end, std::uint32_t positions, std::uint32_t tokens,
                           std::uint32_t sequences) {
        benchmark::RegisterBenchmark(fmt::format("{}/{}", prefix, end).c_str(), attention, table, type, positions,
                                     tokens, sequences)
            ->Unit(benchmark::kMicrosecond);
      };
      for (const std::uint32_t positions : {256u, 2048u, 8192u})
        add(fmt::format("decode/{}", positions), positions, 1, 1);
      for (const std::uint32_t positions : {64u, 512u, 2048u})
        add(fmt::format("prefill/{}", positions), positions, 16, 1);
      for (const std::uint32_t sequences : {2u, 8u}) add(fmt::format("shared/{}", sequences), 256, 1, sequences);
    }
  }
}

}  // namespace
}  // namespace troupe::kernels

int main(int argc, char** argv) {
  troupe::kernels::set_flush_denormals();
  troupe::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
