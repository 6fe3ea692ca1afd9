// Micro-benchmarks of the kernels, every variant this CPU has. Memory-bound cases report GB/s of weights
// (the matrix is larger than the second-level cache and, for one row, cycled through; m1_cached is one row with a
// matrix that stays in it), products GOP/s. `x_scalar` is the speed relative to the scalar kernel that does the same
// work (its twin), both by the thread's CPU time in this run. If `troupe probe` has measured this machine, `share` is a
// product's speed relative to the limit of one thread: reading the weights or multiplying with them, whichever takes
// longer. gemm_f32/ are Eigen and OpenBLAS on one thread, if they were found, to compare with matmul/VARIANT/F32.
//
//   kernels_bench --benchmark_filter='matmul/avx512vnni/Q4_K/.*'
//   kernels_bench --benchmark_filter='(matmul/.*/F32|gemm_f32/.*)/.*'
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/gemm.h"
#include "bench/plain_table.h"
#include "bench/random_floats.h"
#include "engine/evaluation/limits.h"
#include "engine/machine/probe_file.h"
#include "kernels/formats/half.h"
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

// Random weight codes; every position that may hold a float16 scale gets a small finite value (values do not matter
// here).
std::vector<std::byte> random_file(WeightType type, std::size_t rows, std::size_t k) {
  const WeightTypeInfo& t = info(type);
  std::vector<std::byte> out(rows * k / t.group_size * t.group_bytes + t.tail_bytes);
  std::mt19937 rng(2);
  constexpr std::uint32_t mask = 0x26262626u;  // excludes code 3, which is no ternary weight
  std::size_t at = 0;
  for (; at + 4 <= out.size(); at += 4) {
    const std::uint32_t four = static_cast<std::uint32_t>(rng()) & mask;
    std::memcpy(out.data() + at, &four, 4);
  }
  for (; at < out.size(); ++at) out[at] = static_cast<std::byte>(rng() & mask);
  // Ternary files have the same scale in all groups of a matrix (BitNet), in the last two bytes of each group; some
  // layouts need that (packed_groups.h).
  if (is_ternary(type) && t.tail_bytes == 0)
    for (std::size_t end = t.group_bytes; end <= out.size(); end += t.group_bytes)
      out[end - 2] = out[end - 1] = std::byte{0x2c};
  return out;
}

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

const KernelTable& scalar_table() { return *find_table("scalar"); }

// CPU seconds of one call: the fastest of ten runs of 2 ms or more. The clock is a system call, so it is read only
// around many calls.
double seconds_of(const std::function<void()>& call) {
  const auto seconds = [&](int calls) {
    const double begin = cpu_seconds();
    for (int i = 0; i < calls; ++i) call();
    return cpu_seconds() - begin;
  };
  int calls = 1;
  while (seconds(calls) < 2e-3) calls *= 2;
  double best = 1e9;
  for (int run = 0; run < 10; ++run) best = std::min(best, seconds(calls) / calls);
  return best;
}

// Seconds of a kernel's twins for one unit of work; 0: it has no twin.
struct Twins {
  double scalar = 0, plain = 0;
};

// Returns the twins of `key`, measured at the first call; measure(table) returns seconds.
template <class Measure>
Twins twins_of(const std::string& key, Measure&& measure) {
  static std::map<std::string, Twins> known;
  const auto [found, is_new] = known.try_emplace(key);
  if (is_new) found->second = {.scalar = measure(scalar_table()), .plain = measure(plain_table())};
  return found->second;
}

// Runs the benchmark, and compares each call of `work` units with the twins.
template <class Fn>
void run_beside_twins(benchmark::State& state, double work, const Twins& twins, Fn&& fn) {
  const double begin = cpu_seconds();
  for (auto _ : state) fn();
  const double spent = (cpu_seconds() - begin) / static_cast<double>(state.iterations());
  if (twins.scalar > 0) state.counters["x_scalar"] = work * twins.scalar / spent;
  if (twins.plain > 0) state.counters["x_plain"] = work * twins.plain / spent;
}

// Reports `per_call` a call as a rate.
void set_rate(benchmark::State& state, const char* name, double per_call) {
  state.counters[name] =
      benchmark::Counter(static_cast<double>(state.iterations()) * per_call, benchmark::Counter::kIsRate);
}

struct Product {
  WeightType type;
  std::optional<Layout> layout;  // nullopt: the table's preferred layout
  std::size_t rows, k, m;

  std::size_t multiply_adds() const { return rows * k * m; }
};

struct Problem {
  Problem(const KernelTable& table, const Product& product) : num_rows(product.m), out(product.m * product.rows) {
    const auto [type, asked, rows, k, m] = product;
    const std::vector<std::byte> file = random_file(type, rows, k);
    const Layout layout = asked ? *asked : layout_for(table, type, file.data(), rows, k);
    body = allocate(packed_bytes(type, layout, rows, k));
    view = {.type = type, .layout = layout, .rows = rows, .k = k, .body = body.get()};
    pack_panels(type, layout, file.data(), rows, k, 0, view.num_panels(), body.get());
    activation = table.activation(type, layout);
    kernel = table.matmul(type, layout);
    prepared = allocate(prepared_bytes(activation, k, m));
    const std::vector<float> x = random_floats(m * k);
    table.prepare[static_cast<std::size_t>(activation)](x.data(), k, k, 0, m, prepared.get());
    // As many rows per call as the engine passes: they stay in the second-level cache.
    const std::size_t row_bytes = std::max<std::size_t>(1, prepared_bytes(activation, k, kTileRows) / kTileRows);
    rows_per_call = std::max(kTileRows, std::min(table.max_rows, table.max_prepared_bytes / row_bytes));
    rows_per_call = rows_per_call / kTileRows * kTileRows;
  }

  void multiply() {
    for (std::size_t row = 0; row < num_rows; row += rows_per_call)
      kernel(view, prepared.get() + prepared_bytes(activation, view.k, row), std::min(rows_per_call, num_rows - row),
             out.data() + row * view.rows, view.rows, 0, view.num_panels());
    benchmark::DoNotOptimize(out.data());
  }

  static constexpr std::size_t kTileRows = 16;
  std::size_t num_rows;
  std::size_t rows_per_call = 0;
  Activation activation{};
  Matmul* kernel = nullptr;
  Bytes body;
  MatrixView view{};
  Bytes prepared;
  std::vector<float> out;
};

const std::optional<engine::MachineProbe>& probe() {
  static const std::optional<engine::MachineProbe> kept = engine::kept_probe();
  return kept;
}

// Seconds of one multiply-add, with a matrix that stays in the cache, since a scalar product is never bound by memory.
Twins matmul_twins(WeightType type, std::size_t k, std::size_t m) {
  return twins_of(fmt::format("matmul/{}/{}", info(type).name, m), [=](const KernelTable& table) {
    constexpr std::size_t kRows = 64;
    Problem problem(table, {.type = type, .layout = std::nullopt, .rows = kRows, .k = k, .m = m});
    return seconds_of([&] { problem.multiply(); }) / static_cast<double>(kRows * k * m);
  });
}

void matmul(benchmark::State& state, const KernelTable* table, const Product& product) {
  Problem problem(*table, product);
  const WeightType type = product.type;
  const std::size_t bytes = packed_bytes(type, problem.view.layout, product.rows, product.k);
  run_beside_twins(state, static_cast<double>(product.multiply_adds()), matmul_twins(type, product.k, product.m),
                   [&] { problem.multiply(); });
  set_rate(state, "GB/s", 1e-9 * static_cast<double>(bytes));
  set_rate(state, "GOP/s", 2e-9 * static_cast<double>(product.multiply_adds()));
  if (!probe()) return;
  engine::RunLimits limits(&*probe(), 1);
  const engine::MatrixWork matrix{
      .type = type, .layout = problem.view.layout, .multiply_adds = product.rows * product.k, .bytes = bytes};
  limits.add(engine::step_work({&matrix, 1}, *table, product.m, product.m));
  set_rate(state, "share", std::max(limits.read_seconds().value_or(0), limits.compute_seconds().value_or(0)));
}

struct GemmLibrary {
  const char* name;
  const char* package;       // Debian's
  Gemm* multiply;            // null: not found when this was configured
  const char* (*kernels)();  // name of the kernels that the library uses
};
constexpr GemmLibrary kGemmLibraries[] = {
#if defined(TROUPE_EIGEN)
    {"eigen", "libeigen3-dev", &gemm_eigen, &eigen_kernels},
#else
    {"eigen", "libeigen3-dev", nullptr, nullptr},
#endif
#if defined(TROUPE_OPENBLAS)
    {"openblas", "libopenblas-dev", &gemm_openblas, &openblas_kernels},
#else
    {"openblas", "libopenblas-dev", nullptr, nullptr},
#endif
};

// out[m, rows] = x[m, k] times w[rows, k] transposed, by another library.
void gemm(benchmark::State& state, const GemmLibrary& library, std::size_t rows, std::size_t k, std::size_t m) {
  const std::vector<float> x = random_floats(m * k), w = random_floats(rows * k);
  std::vector<float> out(m * rows);
  run_beside_twins(state, static_cast<double>(rows * k * m), matmul_twins(WeightType::f32, k, m), [&] {
    library.multiply(x.data(), w.data(), out.data(), m, rows, k);
    benchmark::DoNotOptimize(out.data());
  });
  state.SetLabel(library.kernels());
  set_rate(state, "GB/s", 4e-9 * static_cast<double>(rows * k));
  set_rate(state, "GOP/s", 2e-9 * static_cast<double>(rows * k * m));
}

// Attention over one split in the CPU caches; attention_bench reads from memory, in the sizes of a step.
void attention(benchmark::State& state, const KernelTable* table, KvType type, std::uint32_t tokens) {
  constexpr std::uint32_t kHeadDim = 64, kGroup = 8;
  const KvShape shape{.type = type, .num_kv_heads = 1, .head_dim = kHeadDim};
  const Bytes memory = allocate(kSplitBlocks * shape.layer_bytes());
  std::vector<const std::byte*> blocks;
  const std::vector<float> x = random_floats(kSplitPositions + kHeadDim);
  for (std::uint32_t p = 0; p < kSplitPositions; ++p) {
    std::byte* block = memory.get() + p / kBlockPositions * shape.layer_bytes();
    if (p % kBlockPositions == 0) blocks.push_back(block);
    table->store_kv(shape, block, p % kBlockPositions, x.data() + p, x.data() + p);
  }
  const std::size_t num_rows = tokens * kGroup;
  const std::vector<float> q = random_floats(num_rows * kHeadDim);
  const Bytes partials = allocate(num_rows * partial_floats(kHeadDim) * sizeof(float));
  const Bytes scratch = allocate(attention_scratch_bytes(kHeadDim));
  std::vector<AttentionRow> rows;
  for (std::size_t r = 0; r < num_rows; ++r)
    rows.push_back({.q = q.data() + r * kHeadDim,
                    .partial = reinterpret_cast<float*>(partials.get()) + r * partial_floats(kHeadDim),
                    .num_seen = kSplitPositions});
  const AttentionSplit split{
      .shape = shape, .blocks = blocks.data(), .rows = rows, .scale = 0.125f, .scratch = scratch.get()};
  // The layout and the contents of the blocks are the same for all variants.
  const std::string key = fmt::format("attention/{}/{}", name(type), tokens);
  const Twins twins = twins_of(key, [&](const KernelTable& twin) {
    return seconds_of([&] {
      twin.attend_split(split);
      benchmark::DoNotOptimize(partials.get());
    });
  });
  run_beside_twins(state, 1, twins, [&] {
    table->attend_split(split);
    benchmark::DoNotOptimize(partials.get());
  });
  set_rate(state, "GB/s", 1e-9 * kSplitBlocks * static_cast<double>(shape.layer_bytes()));
  set_rate(state, "GOP/s", 4e-9 * static_cast<double>(num_rows * kSplitPositions * kHeadDim));
}

// TinyLlama-1.1B.
constexpr std::size_t kDim = 2048, kFfn = 5632, kVocabulary = 32000, kHeadDim = 64, kHeads = 32, kKvHeads = 4;
// Outputs of a product. kManyRows: for a product with one row, whose weights come from memory; as many outputs as the
// output head or several layers.
constexpr std::size_t kManyRows = 32768, kFewRows = 512, kCachedRows = 128;
constexpr std::size_t kPreparedRows = 16;

// A function over `count` elements of x and y.
struct RowKernel {
  std::string name;
  std::size_t count;
  std::function<void(const float* x, const float* y, std::byte* out)> run;
  std::string twin{};  // the scalar kernel that does the same work, if it has another name
};

float* floats(std::byte* p) { return reinterpret_cast<float*>(p); }

void append_elementwise(const KernelTable* table, std::vector<RowKernel>& all) {
  all.push_back({"rms_norm", kDim, [=](const float* x, const float* y, std::byte* out) {
                   table->rms_norm(x, y, floats(out), kDim, 1e-5f);
                 }});
  // All heads of a token, rotated by real angles, so that repeated rotation in place does not change their length.
  std::vector<float> cos, sin;
  for (std::size_t i = 0; i < kHeadDim / 2; ++i) {
    cos.push_back(std::cos(static_cast<float>(i)));
    sin.push_back(std::sin(static_cast<float>(i)));
  }
  all.push_back({"rope", kHeads * kHeadDim, [=](const float*, const float*, std::byte* out) {
                   for (std::size_t head = 0; head < kHeads; ++head)
                     table->rope(floats(out) + head * kHeadDim, cos.data(), sin.data(), kHeadDim);
                 }});
  all.push_back({"silu_mul", kFfn,
                 [=](const float* x, const float* y, std::byte* out) { table->silu_mul(x, y, floats(out), kFfn); }});
  all.push_back({"gelu_mul", kFfn,
                 [=](const float* x, const float* y, std::byte* out) { table->gelu_mul(x, y, floats(out), kFfn); }});
  all.push_back({"relu2_mul", kFfn,
                 [=](const float* x, const float* y, std::byte* out) { table->relu2_mul(x, y, floats(out), kFfn); }});
  all.push_back({"soft_cap", kVocabulary, [=](const float*, const float*, std::byte* out) {
                   table->soft_cap(floats(out), 30.0f, kVocabulary);
                 }});
  all.push_back({"add", kDim, [=](const float*, const float* y, std::byte* out) { table->add(floats(out), y, kDim); }});
}

void append_attention(const KernelTable* table, std::vector<RowKernel>& all) {
  for (const KvType type : {KvType::f32, KvType::f16, KvType::i8}) {
    const KvShape shape{.type = type, .num_kv_heads = kKvHeads, .head_dim = kHeadDim};
    all.push_back({"store_kv_" + std::string(name(type)), kKvHeads * kHeadDim,
                   [=](const float* x, const float* y, std::byte* out) { table->store_kv(shape, out, 13, x, y); }});
  }
  // All heads of a token. The same partial is merged repeatedly; the sums grow slowly.
  const std::size_t floats_of_head = partial_floats(kHeadDim);
  all.push_back({"merge_partial", kHeads * floats_of_head, [=](const float* x, const float*, std::byte* out) {
                   for (std::size_t head = 0; head < kHeads; ++head)
                     table->merge_partial(x + head * floats_of_head, kHeadDim, floats(out) + head * floats_of_head);
                 }});
  all.push_back({"finish_attention", kHeads * floats_of_head, [=](const float* x, const float*, std::byte* out) {
                   for (std::size_t head = 0; head < kHeads; ++head)
                     table->finish_attention(x + head * floats_of_head, kHeadDim, floats(out) + head * kHeadDim);
                 }});
}

void append_sampling(const KernelTable* table, std::vector<RowKernel>& all) {
  all.push_back({"exp_tile", kSoftmaxTile, [=](const float* x, const float*, std::byte* out) {
                   table->exp_tile(x, 4.0f, 1.0f, floats(out), kSoftmaxTile);
                 }});
  all.push_back({"arg_max", kVocabulary, [=](const float* x, const float*, std::byte* out) {
                   const MaxAt max = table->arg_max(x, kVocabulary);
                   std::memcpy(out, &max, sizeof max);
                 }});
  all.push_back({"clamp", kVocabulary,
                 [=](const float*, const float*, std::byte* out) { table->clamp(floats(out), 100.0f, kVocabulary); }});
  // 700 of 32,000 normal logits are above the bound, or half of them.
  for (const auto& [suffix, least] : {std::pair{"few", 2.0f}, {"half", 0.0f}})
    all.push_back({std::string("collect_") + suffix, kVocabulary,
                   [=, bound = least](const float* x, const float*, std::byte* out) {
                     auto* const ids = reinterpret_cast<std::int32_t*>(out);
                     const std::size_t kept = table->collect(x, kVocabulary, bound, 0, ids, floats(out) + kVocabulary);
                     benchmark::DoNotOptimize(kept);
                   }});
  all.push_back({"sums_above", kSoftmaxTile, [=](const float* x, const float*, std::byte* out) {
                   float sums[kNumBounds];
                   table->sums_above(x, kSoftmaxTile, {-1.0f, 0.0f, 0.5f, 1.0f}, sums);
                   std::memcpy(out, sums, sizeof sums);
                 }});
}

// Kernels that prepare activations from rows. For a layout with its own rounding, the twin is the scalar variant's
// preparation for the same products; no twin if that is a copy.
void append_prepare(const KernelTable* table, std::vector<RowKernel>& all) {
  struct Kind {
    const char* name;
    const char* twin;
  };
  constexpr Kind kKinds[] = {{"prepare_f32", ""},
                             {"prepare_group32", ""},
                             {"prepare_group256", ""},
                             {"prepare_bf16_tiles", "prepare_group32"},
                             {"prepare_bf16_split", "none"},
                             {"prepare_i8_tiles", "prepare_group256"},
                             {"prepare_group256_tiles", "prepare_group256"},
                             {"prepare_group256_tables", "prepare_group256"}};
  static_assert(std::size(kKinds) == kNumActivations);
  for (std::size_t kind = 0; kind < kNumActivations; ++kind)
    if (PrepareRows* const prepare = table->prepare[kind])
      all.push_back(
          {kKinds[kind].name, kPreparedRows * kDim,
           [=](const float* x, const float*, std::byte* out) { prepare(x, kDim, kDim, 0, kPreparedRows, out); },
           kKinds[kind].twin});
}

// The row kernels that `table` has, in the same order for every variant.
std::vector<RowKernel> row_kernels(const KernelTable* table) {
  std::vector<RowKernel> all;
  append_elementwise(table, all);
  append_attention(table, all);
  append_sampling(table, all);
  append_prepare(table, all);
  return all;
}

// Bytes for the output of any row kernel, also lookup tables of rows and a block's layer.
constexpr std::size_t kOutBytes = 4 * 1024 * 1024;

Bytes aligned_floats(std::size_t count) {
  const std::vector<float> values = random_floats(count);
  Bytes out = allocate(count * sizeof(float));
  std::memcpy(out.get(), values.data(), count * sizeof(float));
  return out;
}

void register_rows(const KernelTable* table) {
  for (const RowKernel& kernel : row_kernels(table)) {
    const std::string name = kernel.name + "/" + std::string(table->name);
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const Bytes x = aligned_floats(kernel.count), y = aligned_floats(kernel.count), out = allocate(kOutBytes);
      const std::string twin_name = kernel.twin.empty() ? kernel.name : kernel.twin;
      const Twins twins = twins_of(twin_name, [&](const KernelTable& table_of_twin) {
        double seconds = 0;
        for (const RowKernel& twin : row_kernels(&table_of_twin))
          if (twin.name == twin_name)
            seconds = seconds_of([&] { twin.run(floats(x.get()), floats(y.get()), out.get()); });
        return seconds;
      });
      run_beside_twins(state, 1, twins, [&] {
        kernel.run(floats(x.get()), floats(y.get()), out.get());
        benchmark::DoNotOptimize(out.get());
      });
      state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations() * kernel.count));
    });
  }
}

void register_gemms() {
  for (const GemmLibrary& library : kGemmLibraries) {
    if (!library.multiply) {
      std::fprintf(stderr, "%s is not compared: it was not found when this was configured (Debian: %s)\n", library.name,
                   library.package);
      continue;
    }
    for (const std::size_t m : {1, 2, 4, 6, 8, 12, 16, 64, 512}) {
      const std::string name = fmt::format("gemm_f32/{}/m{}", library.name, m);
      benchmark::RegisterBenchmark(name.c_str(), gemm, library, m == 1 ? kManyRows : kFewRows, kDim, m)
          ->Unit(benchmark::kMicrosecond);
    }
  }
}

void register_matmuls(const KernelTable* table, WeightType type, const std::string& name,
                      std::optional<Layout> layout) {
  const bool fast = table->name != "reference" && table->name != "scalar";
  if (fast)
    benchmark::RegisterBenchmark((name + "/m1_cached").c_str(), matmul, table,
                                 Product{type, layout, kCachedRows, kDim, 1})
        ->Unit(benchmark::kMicrosecond);
  for (const std::size_t m : {1, 2, 4, 6, 8, 12, 16, 64, 512}) {
    if (!fast && m > 1) continue;
    const std::size_t rows = fast && m == 1 ? kManyRows : kFewRows;
    benchmark::RegisterBenchmark(fmt::format("{}/m{}", name, m).c_str(), matmul, table,
                                 Product{type, layout, rows, kDim, m})
        ->Unit(benchmark::kMicrosecond);
  }
}

void register_all() {
  for (const KernelTable* table : supported_tables()) {
    const std::string_view variant = table->name;
    for (const WeightTypeInfo& type : weight_types()) {
      const std::string name = fmt::format("matmul/{}/{}", variant, type.name);
      register_matmuls(table, type.type, name, std::nullopt);
      if (type.type != WeightType::tq2_0) continue;  // the other ternary types become the same bodies
      if (has_ternary_layout(*table, Layout::lookup))
        register_matmuls(table, type.type, name + "-lookup", Layout::lookup);
      if (has_ternary_layout(*table, Layout::trits)) register_matmuls(table, type.type, name + "-trits", Layout::trits);
    }
    for (const KvType type : {KvType::f32, KvType::f16, KvType::i8})
      for (const std::uint32_t tokens : {1u, 16u})
        benchmark::RegisterBenchmark(fmt::format("attention/{}/{}/t{}", variant, name(type), tokens).c_str(), attention,
                                     table, type, tokens)
            ->Unit(benchmark::kMicrosecond);
    register_rows(table);
  }
  register_gemms();
}

}  // namespace
}  // namespace troupe::kernels

int main(int argc, char** argv) {
#if defined(TROUPE_OPENBLAS)
  troupe::kernels::choose_openblas_kernels(argv);
#endif
  troupe::kernels::set_flush_denormals();
  troupe::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  if (!troupe::kernels::probe()) std::fputs("no limits to compare with: run `troupe probe`\n", stderr);
  benchmark::RunSpecifiedBenchmarks();
}
