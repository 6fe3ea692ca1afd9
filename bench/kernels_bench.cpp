// Micro-benchmarks of the kernels, every variant this CPU has. Memory-bound cases report GB/s of weights
// (the matrix is larger than the second-level cache and, for one row, cycled through), products GOP/s. Where `troupe
// probe` has measured this machine, products also say their share of the limit of one thread: reading the weights or
// multiplying with them, whichever takes longer.
//
//   kernels_bench --benchmark_filter='matmul/avx512vnni/Q4_K/.*'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/limits.h"
#include "engine/probe_file.h"
#include "kernels/half.h"
#include "kernels/kernels.h"

namespace troupe::kernels {
namespace {

struct Free {
  void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
};
using Bytes = std::unique_ptr<std::byte, Free>;
Bytes allocate(std::size_t size) {
  Bytes bytes(static_cast<std::byte*>(::operator new (size, std::align_val_t{64})));
  std::memset(bytes.get(), 0, size);
  return bytes;
}

std::vector<float> random_floats(std::size_t count) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(rng);
  return out;
}

// Random codes; scales of small finite size wherever a float16 could lie (values do not matter here).
std::vector<std::byte> random_file(WeightType type, std::size_t rows, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  std::vector<std::byte> out(rows * k / t.group_size * t.group_bytes);
  std::mt19937 rng(2);
  for (std::byte& b : out) b = static_cast<std::byte>(rng() & 0x2f);
  // Ternary files have one scale for a whole matrix (BitNet): the last two bytes of each group.
  if (type == WeightType::tq1_0 || type == WeightType::tq2_0)
    for (std::size_t end = t.group_bytes; end <= out.size(); end += t.group_bytes)
      out[end - 2] = out[end - 1] = std::byte{0x2c};
  return out;
}

struct Problem {
  Problem(const KernelTable& table, WeightType type, std::size_t rows, std::size_t k, std::size_t m)
      : view{.type = type, .rows = rows, .k = k}, out(m * rows) {
    const std::vector<std::byte> file = random_file(type, rows, k);
    view.layout = layout_for(table, type, file.data(), rows, k);
    body = allocate(packed_bytes(type, view.layout, rows, k));
    view.body = body.get();
    pack_panels(type, view.layout, file.data(), rows, k, 0, view.num_panels(), body.get());
    const Activation activation = table.activation(type, view.layout);
    prepared = allocate(prepared_bytes(activation, k, m));
    const std::vector<float> x = random_floats(m * k);
    for (std::size_t r = 0; r < m; ++r)
      table.prepare[static_cast<std::size_t>(activation)](x.data() + r * k, k, r, prepared.get());
  }
  Bytes body;
  MatrixView view;
  Bytes prepared;
  std::vector<float> out;
};

const std::optional<engine::MachineProbe>& probe() {
  static const std::optional<engine::MachineProbe> kept = engine::kept_probe();
  return kept;
}

void matmul(benchmark::State& state, const KernelTable* table, WeightType type, std::size_t rows, std::size_t k,
            std::size_t m) {
  Problem problem(*table, type, rows, k, m);
  Matmul* const multiply = table->matmul(type, problem.view.layout);
  const std::size_t bytes = packed_bytes(type, problem.view.layout, rows, k);
  for (auto _ : state) {
    multiply(problem.view, problem.prepared.get(), m, problem.out.data(), rows, 0, problem.view.num_panels());
    benchmark::DoNotOptimize(problem.out.data());
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(calls * 1e-9 * static_cast<double>(bytes), benchmark::Counter::kIsRate);
  state.counters["GOP/s"] =
      benchmark::Counter(calls * 2e-9 * static_cast<double>(rows * k * m), benchmark::Counter::kIsRate);
  if (!probe()) return;
  engine::RunLimits limits(&*probe(), 1);
  const engine::MatrixWork matrix{
      .type = type, .layout = problem.view.layout, .multiply_adds = rows * k, .bytes = bytes};
  limits.add(engine::step_work({&matrix, 1}, *table, m, m));
  const double least = std::max(limits.read_seconds().value_or(0), limits.compute_seconds().value_or(0));
  state.counters["share"] = benchmark::Counter(calls * least, benchmark::Counter::kIsRate);
}

void attention(benchmark::State& state, const KernelTable* table, std::uint32_t positions, std::uint32_t tokens) {
  const KvShape shape{.type = KvType::f16, .num_kv_heads = 1, .head_dim = 64};
  const std::uint32_t group = 8;
  const std::size_t num_blocks = (positions + 31) / 32;
  const Bytes memory = allocate(num_blocks * shape.layer_bytes());
  std::vector<const std::byte*> blocks;
  for (std::size_t b = 0; b < num_blocks; ++b) blocks.push_back(memory.get() + b * shape.layer_bytes());
  const std::vector<float> x = random_floats(64);
  for (std::uint32_t p = 0; p < positions; ++p)
    table->store_kv(shape, memory.get() + p / 32 * shape.layer_bytes(), p % 32, x.data(), x.data());
  const std::vector<float> q = random_floats(tokens * group * 64);
  std::vector<float> out(q.size());
  const Bytes scratch = allocate(4 * attention_scratch_floats(tokens * group, 64));
  const AttentionArgs args{.shape = shape,
                           .group = group,
                           .num_tokens = tokens,
                           .first_position = positions - tokens,
                           .q = q.data(),
                           .token_stride = group * 64,
                           .blocks = blocks.data(),
                           .scale = 0.125f,
                           .out = out.data(),
                           .scratch = reinterpret_cast<float*>(scratch.get())};
  for (auto _ : state) {
    table->attention(args);
    benchmark::DoNotOptimize(out.data());
  }
  const double calls = static_cast<double>(state.iterations());
  const double seen = static_cast<double>(positions) - (tokens - 1) / 2.0;
  state.counters["GB/s"] = benchmark::Counter(calls * 1e-9 * positions / 32 * static_cast<double>(shape.layer_bytes()),
                                              benchmark::Counter::kIsRate);
  state.counters["GOP/s"] = benchmark::Counter(calls * 4e-9 * group * tokens * seen * 64, benchmark::Counter::kIsRate);
}

constexpr std::size_t kDim = 2048, kFfn = 5632;  // TinyLlama-1.1B

template <class Fn>
void elementwise(const std::string& name, std::size_t count, Fn fn) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
    const std::vector<float> x = random_floats(count), y = random_floats(count);
    const Bytes out = allocate(8 * count + 4096);
    for (auto _ : state) {
      fn(x.data(), y.data(), out.get(), count);
      benchmark::DoNotOptimize(out.get());
    }
    state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * count));
  });
}

void register_rows(const KernelTable* table, const std::string& end) {
  const auto f = [](std::byte* p) { return reinterpret_cast<float*>(p); };
  elementwise("rms_norm/" + end, kDim, [=](const float* x, const float* y, std::byte* out, std::size_t n) {
    table->rms_norm(x, y, f(out), n, 1e-5f);
  });
  elementwise("silu_mul/" + end, kFfn,
              [=](const float* x, const float* y, std::byte* out, std::size_t n) { table->silu_mul(x, y, f(out), n); });
  elementwise("exp_tile/" + end, kSoftmaxTile, [=](const float* x, const float*, std::byte* out, std::size_t n) {
    table->exp_tile(x, 4.0f, 1.0f, f(out), n);
  });
  elementwise("arg_max/" + end, 32000, [=](const float* x, const float*, std::byte* out, std::size_t n) {
    const MaxAt max = table->arg_max(x, n);
    std::memcpy(out, &max, sizeof max);
  });
  for (const Activation activation : {Activation::i8_group32, Activation::i8_group256})
    if (PrepareRow* const prepare = table->prepare[static_cast<std::size_t>(activation)])
      elementwise((activation == Activation::i8_group32 ? "prepare_group32/" : "prepare_group256/") + end, kDim,
                  [=](const float* x, const float*, std::byte* out, std::size_t n) { prepare(x, n, 0, out); });
}

void register_all() {
  for (const KernelTable* table : supported_tables()) {
    const std::string variant(table->name);
    const bool fast = variant != "reference" && variant != "scalar";
    for (const WeightTypeInfo& type : weight_types()) {
      const std::string prefix = "matmul/" + variant + "/" + std::string(type.name) + "/";
      for (const std::size_t m : {1, 4, 16, 64, 512}) {
        if (!fast && m > 1) continue;
        // One row: 32768 outputs, as a head or several layers in a row, from memory.
        const std::size_t rows = fast && m == 1 ? 32768 : 512;
        benchmark::RegisterBenchmark((prefix + "m" + std::to_string(m)).c_str(), matmul, table, type.type, rows, kDim,
                                     m)
            ->Unit(benchmark::kMicrosecond);
      }
    }
    for (const std::uint32_t positions : {64u, 512u, 2048u})
      for (const std::uint32_t tokens : {1u, 64u})
        benchmark::RegisterBenchmark(
            ("attention/" + variant + "/" + std::to_string(positions) + "/t" + std::to_string(tokens)).c_str(),
            attention, table, positions, tokens)
            ->Unit(benchmark::kMicrosecond);
    register_rows(table, variant);
  }
}

}  // namespace
}  // namespace troupe::kernels

int main(int argc, char** argv) {
  troupe::kernels::set_flush_denormals();
  troupe::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  if (!troupe::kernels::probe()) std::fputs("no limits to compare with: run `troupe probe`\n", stderr);
  benchmark::RunSpecifiedBenchmarks();
}
